"""``inspect``, ``probe`` and ``verify`` on folders, patterns and several paths."""

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.cli import main, many_files
from secure_bloom.keys import Keyring

CONFIG = EncryptionConfiguration("footer", {"pii": ["ssn"]})


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, list(map(str, arguments)), input=stdin)


@pytest.fixture
def people(tmp_path, monkeypatch):
    """Two encrypted files of 2 row groups in Hive folders."""
    keyring = Keyring.create(tmp_path / "keys.json")
    keyring.add("footer")
    keyring.add("pii")
    for day in (1, 2):
        path = tmp_path / "people" / f"day={day}" / "a.parquet"
        path.parent.mkdir(parents=True)
        table = pa.table({"ssn": [f"{day}-{i:02}" for i in range(20)], "n": range(20)})
        secure_bloom.write_table(table, path, row_group_size=10, bloom_filters={"ssn": True},
                                 encryption=CONFIG, keys=keyring)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(tmp_path / "keys.json"))
    return tmp_path / "people"


def paths_of(people) -> list[list]:
    """The same two files, named in several ways."""
    return [[people], [people / "*" / "*.parquet"], [people / "day=1", people / "day=2"],
            [people / "day=1" / "a.parquet", people / "day=2" / "a.parquet"]]


@pytest.mark.parametrize("way", range(4))
def test_inspect(people, way):
    paths = paths_of(people)[way]
    result = run("inspect", *paths)
    assert result.exit_code == 0 and result.stderr == ""
    for day in (1, 2):
        [line] = [line for line in result.stdout.splitlines() if f"{people}/day={day}" in line]
        assert line.startswith(f"{people}/day={day}/a.parquet: 20 rows in 2 row groups; encr")
        assert line.endswith("; 2 Bloom filters")
    assert result.stdout.splitlines()[-1].startswith(
        "2 files, 2 encrypted, 0 failed: 40 rows in 4 row groups, 4 Bloom filters of ")
    details = run("inspect", *paths, "--details").stdout
    assert f"{people}/day=1/a.parquet\n  20 rows in 2 row groups" in details
    assert details.splitlines()[-1] == result.stdout.splitlines()[-1]
    result = json.loads(run("inspect", *paths, "--json").stdout)
    single = run("inspect", people / "day=2" / "a.parquet", "--json").stdout
    assert result["files"][1] == json.loads(single)
    assert result["totals"]["rows"] == 40 and result["totals"]["failed"] == 0


@pytest.mark.parametrize("way", range(4))
def test_probe(people, way):
    arguments = [*paths_of(people)[way], "--column", "ssn", "--value"]
    result = run("probe", *arguments, "1-15")
    assert result.exit_code == 0 and result.stderr == ""
    assert "day=1/a.parquet, column ssn: may be in 1 of 2 row groups: 1" in result.stdout
    assert "day=2/a.parquet, column ssn: certainly absent" in result.stdout
    assert result.stdout.splitlines()[-1] == (
        "may be in 1 of 4 row groups, in 1 of 2 files (0 without the column, 0 failed)")
    report = json.loads(run("probe", *arguments, "1-15", "--json").stdout)
    assert report["may_contain"] is True and report["column"] == "ssn"
    assert [file["may_contain"] for file in report["files"]] == [True, False]
    assert report["totals"]["row_groups_may_contain"] == 1
    assert run("probe", *arguments, "nobody").exit_code == 1


@pytest.mark.parametrize("way", range(4))
def test_verify(people, way):
    result = run("verify", *paths_of(people)[way])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == (
        "2 files, 2 without errors, 0 not checked: 4 Bloom filters, 0 errors, 0 warnings")
    report = json.loads(run("verify", *paths_of(people)[way], "--json").stdout)
    assert report["ok"] is True and report["totals"]["files"] == len(report["files"]) == 2


@pytest.mark.parametrize("command", [["inspect"], ["probe", "--column", "ssn", "--value", "1-05"]])
def test_a_damaged_file_is_reported_among_the_others(people, command):
    (people / "day=1" / "cut.parquet").write_bytes(b"PAR1")
    result = run(*command, people)
    assert result.exit_code == 3
    assert "day=1/cut.parquet: this is not a Parquet file" in result.stderr
    assert "day=1/a.parquet" in result.stdout and "day=2/a.parquet" in result.stdout
    report = json.loads(run(*command, people, "--json").stdout)
    assert [file.get("error", "")[:3] for file in report["files"]].count("") == 2
    assert report["totals"]["failed"] == 1


@pytest.mark.parametrize("command", [["inspect"], ["probe", "--column", "ssn", "--value", "1-05"]])
def test_the_worst_exit_code_counts(people, command, monkeypatch):
    (people / "day=1" / "cut.parquet").write_bytes(b"PAR1")
    (people / "day=1" / "b.parquet").write_bytes(b"PARE" + bytes(8) + b"PARE")
    plain = people / "day=2" / "plain.parquet"
    secure_bloom.write_table(pa.table({"ssn": ["a"]}), plain)
    assert run(*command, people, "--require-encryption", "ssn").exit_code == 5
    assert run(*command, plain, people / "day=1" / "cut.parquet", "--require-encryption",
               "ssn").exit_code == 5
    plain.unlink()
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    assert run(*command, people).exit_code == 4
    assert run(*command, people / "day=1" / "cut.parquet", people / "day=1" / "b.parquet") \
        .exit_code == 3


def test_files_without_the_column_are_certain_and_a_wrong_name_is_a_mistake(people):
    secure_bloom.write_table(pa.table({"other": [1]}), people / "day=2" / "other.parquet")
    arguments = "probe", people, "--value", "1-05", "--column"
    result = run(*arguments, "ssn")
    assert result.exit_code == 0 and "1 without the column" in result.stdout
    report = json.loads(run(*arguments, "ssn", "--json").stdout)
    assert [file["has_column"] for file in report["files"]] == [True, True, False]
    for options in ([], ["--json"]):
        result = run(*arguments, "snn", *options)
        assert result.exit_code == 2 and result.stdout == ""
        assert "none of the 3 files has such a column; did you mean 'ssn'?" in result.stderr


def test_a_missing_path_does_not_hide_the_others(people):
    result = run("inspect", people / "none.parquet", people / "day=1" / "a.parquet")
    assert result.exit_code == 3 and "none.parquet" in result.stderr
    assert "day=1/a.parquet" in result.stdout
    assert run("inspect", people / "none*").exit_code == 3


def test_json_of_many_files_is_printed_one_by_one(capsys):
    record = {"file": "x" * 1000}
    printer = many_files.JsonFiles()
    for _ in range(3):
        printer.add(record, hold=True)
    assert capsys.readouterr().out == ""
    printer.add(record)
    assert capsys.readouterr().out.count("xxx\"}") == 4
    printer.add(record, hold=True)  # no longer held
    assert capsys.readouterr().out.count("xxx\"}") == 1
    printer.finish({"totals": 5})
    assert printer._held == []
