"""The commands attach, strip, seal and audit: output and exit codes."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from secure_bloom import ParquetFile, write_table
from secure_bloom.auditing.result import KINDS
from secure_bloom.cli import main
from secure_bloom.keys import Keyring
from tests.maintain.helpers import KEYS, KMS, SIGNED, TABLE, leaking


@pytest.fixture
def keyring(tmp_path):
    ring = Keyring.create(tmp_path / "keys.json")
    for name, key in KEYS.items():
        ring.add(name, key)
    return str(tmp_path / "keys.json")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def run(*arguments, code=0):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done


def test_from_a_leak_to_a_good_file(folder, keyring, tmp_path):
    path = leaking(folder / "a.parquet")
    guesses = tmp_path / "guesses.txt"
    guesses.write_text("".join(f"{i:09d}\n" for i in range(50)), "utf-8-sig")
    policy = tmp_path / "policy.toml"
    policy.write_text('sensitive = ["ssn", "name"]')
    out = run("audit", folder, "--policy", policy, "--guesses", guesses, code=1).output
    assert "error (leak)" in out and "of 50 guessed values, 50 are" in out and "seal" in out
    assert "000000001" not in out
    guesses.write_bytes(b"1\xff")
    assert "convert the file" in run("audit", folder, "--guesses", guesses, code=2).output

    would = run("seal", folder, "--keyring", keyring, "--dry-run").output
    assert "1 file would be changed" in would and path.stat().st_size
    assert "1 file changed" in run("seal", folder, "--keyring", keyring, "--jobs", 2).output
    done = run("audit", folder, "--policy", policy, "--keyring", keyring, "--scan", "--json")
    result = json.loads(done.output)
    assert result["ok"] and not result["findings"] and not result["missing_keys"]
    assert {c["column"]: c["state"] for c in result["files"][0]["columns"]} \
        == {"ssn": "protected", "name": "protected", "city": "open", "number": "none"}
    run("audit", folder, code=4)  # without keys not everything can be checked


def test_attach_and_strip(folder, keyring):
    write_table(TABLE, folder / "a.parquet", bloom_filters={}, encryption=SIGNED, keys=KMS)
    (folder / "b.parquet").write_bytes(b"none")
    done = run("attach", folder, "--bloom", "ssn, city", "--fpp", "0.001", "--keyring", keyring,
               "--json", code=3)
    result = json.loads(done.output)
    assert not result["ok"] and result["changed"][0]["columns"] == ["ssn", "city"]
    assert list(result["failed"]) == [str(folder / "b.parquet")]
    assert len(ParquetFile(folder / "a.parquet", KMS).bloom_filters) == 2
    (folder / "b.parquet").unlink()
    assert "1 need no change" in run("attach", folder, "--bloom", "ssn", "--keyring",
                                     keyring).output
    run("attach", folder, "--bloom", "ssn", "--keyring", keyring, "--replace")
    run("strip", folder, "--column", "ssn", "--keyring", keyring)
    assert [i.column for i in ParquetFile(folder / "a.parquet", KMS).bloom_filters] == ["city"]
    run("attach", folder, code=2)
    run("attach", folder, "--bloom", ",", code=2)
    run("strip", folder / "nothing", code=3)


def test_sarif(folder, tmp_path):
    leaking(folder / "a b.parquet")
    run("audit", folder, "--sarif", tmp_path / "out.sarif", code=1)
    log = json.loads((tmp_path / "out.sarif").read_text())
    [one] = log["runs"]
    assert log["version"] == "2.1.0"
    rules = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    assert rules == list(KINDS)
    assert [(r["ruleId"], r["level"], r["locations"][0]["logicalLocations"][0]
             ["fullyQualifiedName"]) for r in one["results"]] \
        == [("leak", "error", "ssn"), ("leak", "error", "name")]
    for result in one["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.startswith("file:///") and uri.endswith("a%20b.parquet")
    notes = one["invocations"][0]["toolExecutionNotifications"]
    assert any("signature" in note["message"]["text"] for note in notes)


def test_reports_appear_whole_and_keep_no_other_file(folder, tmp_path):
    leaking(folder / "a.parquet")
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "out.sarif").write_text("the last one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("no space")))
        run("audit", folder, "--sarif", reports / "out.sarif", code=3)
    assert (reports / "out.sarif").read_text() == "the last one"
    run("audit", folder, "--sarif", reports / "out.sarif", "--html", reports / "page.html", code=1)
    assert sorted(os.listdir(reports)) == ["out.sarif", "page.html"]
    pipe = reports / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(pipe.read_text)
        run("audit", folder, "--sarif", pipe, code=1)
        assert json.loads(received.result())["version"] == "2.1.0"
    assert pipe.is_fifo()


def test_a_folder_without_files_is_no_good_news(folder, tmp_path):
    page = tmp_path / "page.html"
    run("audit", folder, "--html", page, code=3)
    assert "everything was checked" not in page.read_text()


def test_what_cannot_be_audited(folder, tmp_path):
    (folder / "a.parquet").write_bytes(b"none")
    run("audit", folder, code=3)
    policy = tmp_path / "policy.toml"
    policy.write_text("sensitiv = []")
    assert "sensitiv" in run("audit", folder, "--policy", policy, code=2).output
    run("audit", tmp_path / "nothing", code=3)
