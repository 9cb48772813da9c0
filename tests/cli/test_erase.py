"""``secure-bloom erase``: what it prints, what it refuses, and with which exit code."""

import hashlib
import hmac
import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.cli import main
from secure_bloom.keys import Keyring

CONFIG = EncryptionConfiguration("footer", {"pii": ["ssn"]})


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, ["erase", *map(str, arguments)], input=stdin)


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """Two files of 500 rows: ssn p0 to p999, and number."""
    keyring = Keyring.create(tmp_path / "keys.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(tmp_path / "keys.json"))
    folder = tmp_path / "lake"
    folder.mkdir()
    for part in range(2):
        numbers = range(500 * part, 500 * part + 500)
        rows = pa.table({"ssn": [f"p{number}" for number in numbers], "number": numbers})
        secure_bloom.write_table(rows, folder / f"{part}.parquet", bloom_filters=["ssn"],
                                 encryption=CONFIG, keys=keyring)
    return folder


def ssns(folder):
    return set(secure_bloom.read_table(folder)["ssn"].to_pylist())


def test_values_from_standard_input_are_erased(lake):
    done = run(lake, "--column", "ssn", "--values", "-", stdin="p7\n\np8\nnobody\n")
    assert done.exit_code == 0, done.output
    assert "2 rows of 1,000 erased, in 1 file of 2" in done.output
    assert "not found: 1 of 3 values" in done.output
    assert "out of reach: copies, backups" in done.output
    assert len(ssns(lake)) == 998 and not {"p7", "p8"} & ssns(lake)
    assert (lake / "1.parquet").exists() and not (lake / "0.parquet").exists()


def test_numbers_are_parsed_as_values_of_their_column(lake):
    assert run(lake, "--column", "number", "--value", "0012").exit_code == 0
    assert "p12" not in ssns(lake)
    refused = run(lake, "--column", "number", "--value", "twelve")
    assert refused.exit_code == 2 and "not a valid int64" in refused.output
    assert "twelve" not in refused.output


def test_a_dry_run_changes_nothing(lake):
    before = {path: path.read_bytes() for path in lake.iterdir()}
    done = run(lake, "--column", "ssn", "--value", "p7", "--dry-run")
    assert done.exit_code == 0 and "1 row of 1,000 would be erased, in 1 file of 2" in done.output
    assert {path: path.read_bytes() for path in lake.iterdir()} == before


def test_many_rows_need_yes(lake):
    values = "".join(f"p{number}\n" for number in range(11))
    refused = run(lake, "--column", "ssn", "--values", "-", stdin=values)
    assert refused.exit_code == 2
    assert "11 rows of 1,000 would be erased" in refused.output and "--yes" in refused.output
    assert len(ssns(lake)) == 1000
    assert run(lake, "--column", "ssn", "--values", "-", "--yes", stdin=values).exit_code == 0
    assert len(ssns(lake)) == 989


def test_reports_have_hashes_in_place_of_values(lake, tmp_path):
    key = tmp_path / "hash.key"
    key.write_bytes(b"secret" * 3)
    with_key = ["--column", "ssn", "--value", "p7", "--hash-key", key]
    key.chmod(0o640)
    refused = run(lake, *with_key)
    assert refused.exit_code == 2 and "chmod 600" in refused.output and len(ssns(lake)) == 1000
    key.chmod(0o600)
    done = run(lake, "--column", "ssn", "--value", "p7", "--json", "--hash-key", key,
               "--report", tmp_path / "report.json", "--html", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert json.loads(done.stdout) == report
    assert report["ok"] and report["rows_removed"] == 1
    # printf p7 | openssl dgst -sha256 -hmac secretsecretsecret
    assert report["values"] == [{"hash": hmac.digest(b"secret" * 3, b"p7", hashlib.sha256).hex(),
                                 "found": 1}]
    page = (tmp_path / "report.html").read_text()
    assert "No row and no dictionary has one of the values any more" in page
    assert report["values"][0]["hash"] in page
    assert '"p7"' not in page + done.stdout


@pytest.mark.parametrize("arguments, code, message", [
    (["--column", "nope", "--value", "x"], 2, "column nope"),
    (["--column", "ssn", "--values", "-"], 2, "no values"),
    (["--column", "ssn", "--value", "p7", "--report", "none/r.json"], 2, "create the folder"),
])
def test_mistakes_are_named(lake, arguments, code, message):
    done = run(lake, *arguments, stdin="")
    assert done.exit_code == code and message in done.output
    assert len(ssns(lake)) == 1000


def test_a_missing_folder_and_missing_keys_have_their_codes(lake, monkeypatch):
    assert run(lake / "none", "--column", "ssn", "--value", "x").exit_code == 3
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    assert run(lake, "--column", "ssn", "--value", "p7").exit_code == 4
