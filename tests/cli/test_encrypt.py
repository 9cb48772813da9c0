"""``secure-bloom encrypt``, ``reencrypt`` and ``decrypt``: what they print, and exit codes."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom.cli import encrypt_report, main
from secure_bloom.keys import Keyring
from secure_bloom.reencryption.estimate import estimate

POLICY = """
footer_key = "footer"
encrypted_footer = true

[columns]
ssn = { key = "pii", bloom_filter = true }
"""
KEYS = ("footer", "pii", "pii-2")


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """Two plaintext files, a policy, and a keyring in the environment."""
    monkeypatch.chdir(tmp_path)
    Keyring.create("keys.json", keys=KEYS)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", "keys.json")
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "lake").mkdir()
    for part in range(2):
        rows = pa.table({"ssn": [f"p{part}-{number}" for number in range(100)],
                         "visit": ["A"] * 100})
        secure_bloom.write_table(rows, f"lake/{part}.parquet", plaintext=True)
    return tmp_path / "lake"


def run(*arguments, code=0):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_from_a_plan_to_plaintext_again(lake):
    before, rows = contents(lake), secure_bloom.read_table("lake")
    size = sum(map(len, before.values()))
    plan = run("encrypt", "lake", "--policy", "policy.toml", "--dry-run")
    assert f"2 files of {size:,} bytes would be changed, 0 need no change, 0 failed" in plan
    assert "column key pii, new filter  2" in plan and "visit   open" in plan
    assert "it will take less than two seconds" in plan
    assert "call the KMS about 2 times to wrap keys, and up to 0 times" in plan
    assert "out of reach: copies of the old files" in plan and "audit" not in plan
    assert contents(lake) == before

    done = run("encrypt", "lake", "--policy", "policy.toml", "--jobs", 2)
    assert f"2 files of {size:,} bytes changed" in done
    assert "lake: 2 files, 0 errors, 0 warnings" in done
    assert "0 files of 0 bytes changed, 2 need no change" \
        in run("encrypt", "lake", "--policy", "policy.toml")

    done = run("reencrypt", "lake", "--master-key", "pii=pii-2")
    assert "column key pii-2" in done and "do not need any more: pii;" in done
    with secure_bloom.ParquetFile("lake/0.parquet", "keys.json") as file:
        assert [info.column for info in file.bloom_filters if info.encrypted] == ["ssn"]

    opened = json.loads(run("decrypt", "lake", "--plaintext", "--json"))
    assert opened["ok"] and opened["unused_master_keys"] == ["footer", "pii-2"]
    assert secure_bloom.read_table("lake").equals(rows)


def test_files_that_cannot_be_changed_are_listed_and_the_audit_names_leaks(lake):
    """First a file is damaged, then the options do not meet the policy."""
    (lake / "2.parquet").write_bytes(b"PAR1 no Parquet file PAR1")
    done = run("encrypt", "lake", "--policy", "policy.toml", code=3)
    assert "2 files" in done and "1 failed" in done and "failed: " in done
    assert "2.parquet: the footer claims" in done and "audit: " in done
    (lake / "2.parquet").unlink()

    (lake.parent / "policy.toml").write_text(POLICY + 'visit = { key = "pii" }\n')
    only = ["--footer-key", "footer", "--column-key", "pii:ssn"]
    done = json.loads(run("encrypt", "lake", *only, "--json", "--policy", "policy.toml", code=3))
    assert not done["ok"] and len(done["failed"]) == 2 and not done["audit"]["ok"]
    assert {one["column"] for one in done["audit"]["findings"]} == {"visit"}


def test_the_options_of_write_say_which_columns_are_encrypted(lake):
    run("encrypt", "lake", "--footer-key", "footer", "--column-key", "pii:ssn",
        "--other-columns", "footer-key", "--bloom", "visit", "--output", "new", "--keep-times")
    assert int((lake / "0.parquet").stat().st_mtime * 1000) \
        == int(Path("new/0.parquet").stat().st_mtime * 1000)
    with secure_bloom.ParquetFile("new/0.parquet", "keys.json") as file:
        assert {chunk.encryption for chunk in file.footer.column_chunks()} == {"column key"}
        assert [info.column for info in file.bloom_filters] == ["visit"]
    assert secure_bloom.read_table("lake").num_rows == 200  # not encrypted


@pytest.mark.parametrize("arguments, message", [
    (["encrypt", "lake"], "--policy FILE"),
    (["encrypt", "lake", "--column-key", "pii:ssn"], "--footer-key NAME"),
    (["encrypt", "lake", "--footer-key", "footer", "--column-key", "pii:nope"], "nope"),
    (["decrypt", "lake"], "--plaintext"),
    (["reencrypt", "lake", "--master-key", "pii"], "OLD=NEW"),
    (["reencrypt", "lake", "--master-key", "pii=x", "--policy", "policy.toml"], "--master-key"),
    (["reencrypt", "lake", "--journal", "done", "--output", "new"], "a journal cannot"),
    (["reencrypt", "lake", "--journal", "policy.toml"], "not a journal"),
])
def test_mistakes_are_refused(lake, arguments, message):
    before = contents(lake)
    code = 3 if message == "nope" else 2
    assert message in run(*arguments, code=code)
    assert contents(lake) == before


def test_keys_are_needed_and_a_missing_folder_is_named(lake, monkeypatch):
    run("encrypt", "none", "--policy", "policy.toml", code=3)
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    assert "--keys FILE" in run("encrypt", "lake", "--policy", "policy.toml", code=2)
    assert "master key 'pix'" in run("reencrypt", "lake", "--master-key", "pix=pii-2", "--keys",
                                     "keys.json", code=4)


def test_a_plan_says_how_often_the_kms_is_called(tmp_path):
    """The numbers are those of a KMS that counts its calls."""
    calls = []

    class Counting:
        kms_instance_id = kms_instance_url = ""

        def wrap_key(self, key, name):
            calls.append("wrap")
            return keyring.wrap_key(key, name)

        def unwrap_key(self, wrapped, name):
            calls.append("unwrap")
            return keyring.unwrap_key(wrapped, name)

    keyring = Keyring.create(tmp_path / "keys.json", keys=KEYS)
    config = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]})
    (tmp_path / "lake").mkdir()
    for part in range(3):  # each of them written with key-encryption keys of its own
        secure_bloom.write_table(pa.table({"ssn": ["a"]}), tmp_path / "lake" / f"{part}.parquet",
                                 encryption=config,
                                 keys=Keyring(tmp_path / "keys.json"))
    plan = secure_bloom.reencrypt(tmp_path / "lake", keyring, dry_run=True)
    cost = estimate(plan, pa_fs.LocalFileSystem(), 0.0, 1)
    assert secure_bloom.reencrypt(tmp_path / "lake", Counting(), files_at_once=1).ok
    assert cost.kms_wraps == calls.count("wrap") == 2
    assert cost.kms_unwraps == calls.count("unwrap") == 6
    assert 0 < cost.seconds < float("inf")


def test_durations_are_rounded():
    shown = [encrypt_report._duration(seconds) for seconds in (0.1, 30.4, 119, 150, 7100, 86_400)]
    assert shown == ["less than two seconds", "about 30 seconds", "about 119 seconds",
                     "about 2 minutes", "about 118 minutes", "about 24 hours"]


def test_what_was_done_is_shown_if_the_audit_is_interrupted(lake, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("secure_bloom.auditing.audit.audit", interrupted)
    assert "2 files" in run("encrypt", "lake", "--policy", "policy.toml", code=130)
    assert secure_bloom.ParquetFile("lake/0.parquet", "keys.json").footer.is_encrypted


def test_an_output_folder_that_is_not_possible_is_a_wrong_usage(lake):
    assert "another folder" in run("encrypt", "lake", "--policy", "policy.toml", "--output",
                                   "lake/new", code=2)
