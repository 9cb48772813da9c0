"""``secure-bloom verify``: exit codes, text, JSON and progress."""

import json
import os
import pty
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import BloomFilterOptions, UniformKey
from secure_bloom.cli import main, shared
from secure_bloom.keys import Keyring

TABLE = pa.table({"ssn": [f"078-05-{i:04}" for i in range(300)], "city": ["Rome", "Oslo"] * 150})
CONFIG = pe.EncryptionConfiguration("footer", column_keys={"pii": ["ssn"]}, plaintext_footer=True)


def run(*arguments):
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    """A keyring, an encrypted file, and a plaintext file with an over-full filter."""
    keyring = Keyring.create(tmp_path / "keys.json")
    keyring.add("footer")
    keyring.add("pii")
    secure_bloom.write_table(TABLE, tmp_path / "good.parquet", row_group_size=150, keys=keyring,
                             bloom_filters={"ssn": True, "city": True}, encryption=CONFIG)
    secure_bloom.write_table(TABLE, tmp_path / "full.parquet",
                             bloom_filters={"ssn": BloomFilterOptions(max_bytes=32)})
    return tmp_path


@pytest.fixture
def changed(folder):
    """The encrypted file with a flipped bit in a filter."""
    path = folder / "changed.parquet"
    data = bytearray((folder / "good.parquet").read_bytes())
    info = secure_bloom.ParquetFile(bytes(data), Keyring(folder / "keys.json")).bloom_filters[2]
    data[info.offset + info.length - 1] ^= 1
    path.write_bytes(data)
    return path


def test_a_good_file(folder):
    result = run(folder / "good.parquet", "--keyring", folder / "keys.json")
    assert result.exit_code == 0 and result.stderr == ""
    assert "2 encrypted" in result.stdout and "2 plaintext" in result.stdout
    assert "0 errors, 0 warnings" in result.stdout


def test_a_warning_is_no_failure(folder):
    result = run(folder / "full.parquet")
    assert result.exit_code == 0
    assert "0 errors, 1 warning\n" in result.stdout
    assert "warning (over-full): row group 0, column ssn: " in result.stdout


def test_missing_keys_have_a_code_of_their_own(folder):
    result = run(folder / "good.parquet")
    assert result.exit_code == 4
    assert "2: the column is encrypted; pass keys" in result.stdout
    assert run(folder / "good.parquet", "--column", "city").exit_code == 0
    result = run(folder / "good.parquet", "--require-encryption", "ssn", "--json")
    assert result.exit_code == 4 and not json.loads(result.stdout)["ok"]


def test_an_error_counts_more_than_a_missing_key(folder, changed):
    result = run(changed, folder / "good.parquet", "--keyring", folder / "keys.json")
    assert result.exit_code == 1
    assert "error (authentication): row group 1, column ssn: " in result.stdout
    (folder / "broken.parquet").write_bytes(b"PAR1 this is none")
    result = run(folder / "good.parquet", folder / "broken.parquet")
    assert result.exit_code == 1
    assert "error (footer): " in result.stdout and "not checked" in result.stdout


def test_other_errors(folder):
    assert run().exit_code == 2
    assert run(folder / "good.parquet", "--column", "nope").exit_code == 2
    assert run(folder / "none.parquet").exit_code == 3
    assert run(folder / "good.parquet", "--keyring", folder / "none.json").exit_code == 4


def test_a_file_that_only_explicit_keys_open(folder):
    path = folder / "uniform.parquet"
    secure_bloom.write_table(TABLE, path, bloom_filters={"ssn": True},
                             encryption=UniformKey(bytes(16)))
    result = run(path, "--keyring", folder / "keys.json")
    assert result.exit_code == 4 and "not checked: " in result.stdout


def test_json(folder, changed):
    result = json.loads(run(changed, folder / "full.parquet", "--json", "--keyring",
                            folder / "keys.json").stdout)
    assert result.keys() == {"ok", "files", "totals"} and result["ok"] is False
    assert result["totals"] == {"files": 2, "ok": 1, "not_checked": 0, "filters": 5, "errors": 1,
                                "warnings": 1}
    first, second = result["files"]
    assert first.keys() == {"file", "ok", "not_checked", "missing_keys", "findings", "filters"}
    assert (first["file"], first["ok"], second["ok"]) == (str(changed), False, True)
    [finding] = first["findings"]
    assert (finding["severity"], finding["kind"], finding["row_groups"], finding["column"]) \
        == ("error", "authentication", [1], "ssn")
    assert [(check["row_group"], check["column"], check["values"]) for check in first["filters"]] \
        == [(0, "ssn", 150), (0, "city", 150), (1, "ssn", None), (1, "city", 150)]


def test_many_findings_are_cut_off_in_text_only(folder):
    path = folder / "many.parquet"
    secure_bloom.write_table(TABLE, path, row_group_size=10,
                             bloom_filters={"ssn": BloomFilterOptions(max_bytes=32)})
    data = path.read_bytes().replace(b"\x15\x40\x1c", b"\x15\x40\x1b")  # in every header
    path.write_bytes(data)
    assert "  ... and 10 more findings: see --json" in run(path).stdout
    assert len(json.loads(run(path, "--json").stdout)["files"][0]["findings"]) == 30


def test_a_file_without_filters(folder):
    path = folder / "none.parquet"
    secure_bloom.write_table(TABLE, path, bloom_filters={})
    result = run(path)
    assert result.exit_code == 0 and "no Bloom filters" in result.stdout


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal(folder):
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-m", "secure_bloom", "verify",
                           folder / "full.parquet"], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "verifying full.parquet" in shown and "100%" in shown
    assert b"verifying" not in done.stdout


@pytest.mark.parametrize(("path", "name"), [
    (".", "table"), ("../table/", "table"), ("s3://lake/people", "people"),
    ("a\x1b[2J", r"a\x1b[2J")])
def test_progress_names_what_is_worked_on(tmp_path, monkeypatch, capsys, path, name):
    (tmp_path / "table").mkdir()
    monkeypatch.chdir(tmp_path / "table")
    monkeypatch.setattr(shared, "is_terminal", lambda stream: True)
    with shared.progress("auditing", path):
        pass
    assert capsys.readouterr().err == f"auditing {name}\n"


def test_a_missing_file_does_not_hide_the_others(folder):
    result = run(folder / "none.parquet", folder / "good.parquet", "--column", "city", "--json")
    missing, good = json.loads(result.stdout)["files"]
    assert result.exit_code == 3
    assert "none.parquet" in missing["not_checked"]
    assert good["ok"] and good["filters"]
