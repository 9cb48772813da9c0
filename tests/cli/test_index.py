"""``secure-bloom index``: what its commands print, and with which exit code."""

import json
import os
import time
import uuid

import pyarrow as pa
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.cli import main, rotation
from secure_bloom.errors import KmsUnavailableError
from secure_bloom.index.compaction import GRACE
from secure_bloom.index.integrity import SAMPLE
from secure_bloom.index.rotation import IndexRotation
from secure_bloom.keys import Keyring
from secure_bloom.storage.many_files import result_on_error
from tests.storage.s3 import BUCKET

CONFIG = EncryptionConfiguration("footer", {"pii": ["ssn"]})


def run(command, *arguments, stdin=None):
    return CliRunner().invoke(main, ["index", command, *map(str, arguments)], input=stdin)


def write(path, start=0, *, age=60.0, type_=None, names=("ssn", "city"), **options):
    """A file of 40 rows in 4 row groups; ``age`` is in seconds."""
    options = {"encryption": CONFIG, "keys": os.environ.get("SECURE_BLOOM_KEYRING"), **options}
    path.parent.mkdir(parents=True, exist_ok=True)
    ssn = pa.array(range(start, start + 40)).cast(type_ or pa.int64())
    if "ssn" not in names:
        options |= {"encryption": None, "keys": None}
    secure_bloom.write_table(pa.table([ssn, ["Rome"] * 40], names=list(names)), path,
                             row_group_size=10, **options)
    made = time.time_ns() - int(age * 1e9)
    os.utime(path, ns=(made, made))
    return path


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of two files with an index of ssn: 0 to 39 in a, 40 to 79 in b."""
    keyring = Keyring.create(tmp_path / "keys.json")
    for name in ("footer", "pii", "new"):
        keyring.add(name)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(tmp_path / "keys.json"))
    folder = tmp_path / "lake" / "people"
    write(folder / "a.parquet")
    write(folder / "b.parquet", 40)
    assert run("build", folder, "--column", "ssn").exit_code == 0
    return folder


# --- build and update ----------------------------------------------------------------------------

def test_build_and_update_say_what_is_covered(table):
    result = run("update", table)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "0 files indexed, 0 restamped, 2 unchanged, 0 not covered, 0 failed\n"
    write(table / "c.parquet", 80)
    write(table / "d.parquet", 120, age=0)
    result = run("build", table, "--column", "ssn", "--json")
    shown = json.loads(result.stdout)
    assert result.exit_code == 0 and shown["path"] == str(table) and shown["columns"] == ["ssn"]
    assert (shown["indexed"], shown["unchanged"]) == (1, 2)
    assert shown["uncovered"] == {"d.parquet": "changed less than two seconds ago"}


def test_files_that_are_not_covered_are_named_with_the_reason(table):
    write(table / "c.parquet", 80, age=0)
    write(table / "d.parquet", 120, encryption=EncryptionConfiguration("footer", {"new": ["ssn"]}))
    (table / "cut.parquet").write_bytes(b"PAR1")
    os.utime(table / "cut.parquet", (0, 0))
    result = run("update", table)
    assert result.exit_code == 3
    headline, *lines = result.stdout.splitlines()
    assert headline == "0 files indexed, 0 restamped, 2 unchanged, 2 not covered, 1 failed"
    assert sorted(lines[:2]) == [
        "not covered: c.parquet: changed less than two seconds ago",
        "not covered: d.parquet: the column is under another master key, 'new'"]
    assert lines[2].startswith("failed: cut.parquet: this is not a Parquet file")


def test_columns_without_encryption_need_the_option(tmp_path):
    write(tmp_path / "plain" / "a.parquet", encryption=None, keys=None)
    result = run("build", tmp_path / "plain", "--column", "ssn")
    assert result.exit_code == 2 and "--no-encryption" in result.stderr
    assert not (tmp_path / "plain" / "_index").exists()
    assert run("build", tmp_path / "plain", "--column", "ssn", "--no-encryption").exit_code == 0
    assert run("find", tmp_path / "plain", "--column", "ssn", "--value", "7").exit_code == 0


def test_an_encrypted_column_gets_no_index_without_encryption(table):
    result = run("build", table, "--column", "ssn", "--no-encryption")
    assert result.exit_code == 2 and "this index has encryption" in result.stderr
    assert run("build", table, "--column", "city").exit_code == 2


def test_an_exclusive_table_is_marked(table):
    assert run("build", table, "--column", "city", "--no-encryption", "--exclusive").exit_code == 0
    shown = json.loads(run("inspect", table, "--json").stdout)["indexes"]
    assert {one["column"]: one["is_exclusive"] for one in shown} == {"city": True, "ssn": False}


@pytest.mark.parametrize("command", ["update", "inspect", "verify", "compact", "vacuum"])
def test_a_table_without_index_has_code_3(table, command):
    result = run(command, table.parent)
    assert result.exit_code == 3 and "has no index" in result.stderr


def test_unknown_columns_have_code_2(table):
    result = run("build", table, "--column", "nope")
    assert result.exit_code == 2 and "nope" in result.stderr


# --- find ----------------------------------------------------------------------------------------

def test_find_shows_files_and_row_groups(table):
    result = run("find", table, "--column", "ssn", "--value", "7", "--value", "25",
                 "--value", "1000")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert lines[2] == ["a.parquet", "0, 2"]
    assert result.stdout.endswith("1 of 2 files may have one of 3 values; 0 not covered\n")
    absent = run("find", table, "--column", "ssn", "--value", "1000")
    assert (absent.exit_code, absent.stdout) == (1, "certainly absent: 2 files ruled out\n")


def test_find_takes_many_values_and_prints_json(table):
    result = run("find", table, "--column", "ssn", "--values", "-", "--json", stdin="7\n\n45\n")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "column": "ssn", "values": 2, "may_contain": True,
        "files": {"total": 2, "may_contain": 2, "uncovered": 0},
        "places": [{"file": "a.parquet", "row_groups": [0]},
                   {"file": "b.parquet", "row_groups": [0]}], "uncovered": []}
    assert run("find", table, "--column", "ssn", stdin="1000\n").exit_code == 1


def test_files_that_are_not_covered_may_have_any_value(table):
    write(table / "c.parquet", 80)
    result = run("find", table, "--column", "ssn", "--value", "1000")
    assert result.exit_code == 0
    assert result.stdout == \
        "0 of 3 files may have the value; 1 not covered\nnot covered: c.parquet\n"


def test_values_are_never_shown(table):
    result = run("find", table, "--column", "ssn", "--values", "-", stdin="1\nsecret\n")
    assert result.exit_code == 2 and "number 2 is not a valid int64" in result.stderr
    assert "secret" not in result.output
    shown = run("find", table, "--column", "ssn", "--value", "33", "--json")
    assert "33" not in shown.stdout


def test_values_are_parsed_as_the_widest_type_of_the_files(table):
    write(table / "c.parquet", 80, type_=pa.int32())
    assert run("update", table).exit_code == 0
    for value, code in ("5000000000", 0), ("85", 0), ("1000", 1):
        # A value that the type of a file cannot hold may be anywhere in that file.
        result = run("find", table, "--column", "ssn", "--value", value)
        assert result.exit_code == code, result.output


def test_files_without_the_column_do_not_matter_for_the_type(table):
    write(table / "c.parquet", names=["other", "city"])
    assert run("update", table).exit_code == 0
    assert run("find", table, "--column", "ssn", "--value", "7").exit_code == 0
    result = run("find", table, "--column", "ssn", "--value", "seven")
    assert result.exit_code == 2 and "not a valid int64" in result.stderr


def test_types_that_cannot_be_combined_are_a_mistake(table):
    write(table / "c.parquet", 80, type_=pa.string())
    assert run("update", table).exit_code == 0
    result = run("find", table, "--column", "ssn", "--value", "7")
    assert result.exit_code == 2 and "int64, string, which cannot be combined" in result.stderr


def test_a_column_without_index_has_code_2(table):
    result = run("find", table, "--column", "city", "--value", "Rome")
    assert result.exit_code == 2 and "indexed columns: ssn" in result.stderr


def test_missing_keys_and_changed_bytes_have_their_codes(table, monkeypatch):
    [manifest] = (table / "_index" / "ssn").glob("*2.manifest")
    fields = json.loads(manifest.read_bytes())
    fields["body"] = fields["body"][:20] + ("A" if fields["body"][20] != "A" else "B") \
        + fields["body"][21:]
    good = manifest.read_bytes()
    manifest.write_text(json.dumps(fields))
    assert run("find", table, "--column", "ssn", "--value", "7").exit_code == 5
    result = run("inspect", table)
    assert result.exit_code == 5 and "?" in result.stdout and manifest.name in result.stderr
    manifest.write_bytes(good)
    other = table.parent.parent / "other.json"
    Keyring.create(other).add("footer")
    result = run("find", table, "--column", "ssn", "--value", "7", "--keyring", other)
    assert result.exit_code == 4 and "pii" in result.stderr
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    assert run("find", table, "--column", "ssn", "--value", "7").exit_code == 4


# --- inspect, compact, vacuum --------------------------------------------------------------------

def test_inspect_shows_size_keys_and_coverage(table):
    write(table / "c.parquet", 80)
    result = run("inspect", table)
    assert result.exit_code == 0
    size = sum(path.stat().st_size for path in (table / "_index" / "ssn").glob("*.seg"))
    assert result.stdout.splitlines()[2].split() == \
        ["ssn", "2", "pii", "1", "2", "8", "80", f"{size:,}", "2", "1"]


def test_inspect_without_keys_shows_what_anyone_can_see(table, monkeypatch):
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    result = run("inspect", table)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2].split()[:4] == ["ssn", "2", "pii", "?"]
    assert "the rest is encrypted: no key" in result.stdout
    [shown] = json.loads(run("inspect", table, "--json").stdout)["indexes"]
    size = sum(path.stat().st_size for path in (table / "_index" / "ssn").iterdir())
    assert (shown["master_key"], shown["is_encrypted"], shown["stored_bytes"]) \
        == ("pii", True, size)
    assert shown["segments"] is shown["covered"] is None


def test_a_damaged_index_does_not_hide_the_others(table):
    assert run("build", table, "--column", "city", "--no-encryption").exit_code == 0
    for manifest in (table / "_index" / "city").glob("*.manifest"):
        manifest.write_bytes(b"{")
    result = run("inspect", table)
    assert result.exit_code == 3
    assert "ssn     2        pii" in result.stdout
    assert "city: the index has no complete manifest; build it again" in result.stderr


def test_compact_and_vacuum(table):
    write(table / "c.parquet", 80)
    assert run("update", table).exit_code == 0
    assert run("compact", table).stdout.startswith("2 segments merged; secure-bloom index vacuum")
    assert run("vacuum", table).stdout == "0 files deleted\n"
    assert run("vacuum", table, "--grace", "nan").exit_code == 2
    shown = json.loads(run("vacuum", table, "--grace", "0", "--json").stdout)
    assert len(shown["deleted"]) == 5  # three manifests, two segments
    assert len(list((table / "_index" / "ssn").iterdir())) == 2
    assert run("find", table, "--column", "ssn", "--value", "85").exit_code == 0
    assert json.loads(run("compact", table, "--json").stdout)["merged"] == 0


def test_the_defaults_are_those_of_the_library():
    for command, name, default in ("vacuum", "grace", GRACE), ("verify", "sample", SAMPLE):
        params = main.commands["index"].commands[command].params
        assert next(one for one in params if one.name == name).default == default
    assert run("vacuum", ".", "--grace", "-1").exit_code == 2


# --- verify --------------------------------------------------------------------------------------

def test_verify_says_what_was_checked(table):
    result = run("verify", table)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == ("1 segment with 80 pairs read, 80 values of 2 files looked up, "
                             "0 files identified: 0 findings\n")
    shown = json.loads(run("verify", table, "--sample", "1", "--json").stdout)
    assert shown["path"] == str(table) and shown["ok"] and shown["compared"] == 1
    assert json.loads(run("verify", table, "--sample", "0", "--all", "--json").stdout)[
        "compared"] == 2
    assert run("verify", table, "--sample", "-1").exit_code == 2


def test_verify_names_damage_and_files_that_changed(table):
    write(table / "c.parquet", 80)
    (table / "b.parquet").unlink()
    assert run("verify", table).exit_code == 0
    result = run("verify", table, "--integrity")
    assert result.exit_code == 1
    assert [line.split(":")[0] + line.split(")")[0].split("(")[-1]
            for line in result.stdout.splitlines()[1:]] == ["b.parquetremoved", "c.parquetadded"]
    [segment] = (table / "_index" / "ssn").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[20] ^= 1  # in a page
    segment.write_bytes(data)
    result = run("verify", table)
    assert result.exit_code == 1 and f"{segment.name}: error (segment)" in result.stdout


def test_verify_needs_the_key(table, monkeypatch):
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    assert run("verify", table).exit_code == 4


# --- keys ----------------------------------------------------------------------------------------

def keys(*arguments):
    return CliRunner().invoke(main, ["keys", *map(str, arguments)])


def test_keys_list_names_the_master_keys_of_indexes(table, monkeypatch):
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    run("build", table, "--column", "city", "--no-encryption")
    result = keys("list", table.parent, "--json")
    assert result.exit_code == 0
    assert [(one["path"], one["column"], one["master_key"])
            for one in json.loads(result.stdout)["indexes"]] == [
        (str(table / "_index" / "ssn"), "ssn", "pii")]
    lines = keys("list", table.parent).stdout.splitlines()
    assert lines[-1].split() == [str(table / "_index" / "ssn"), "ssn", "pii"]
    assert json.loads(keys("list", table / "a.parquet", "--json").stdout)["indexes"] == []


def test_keys_rotate_rotates_indexes_and_covers_the_rotated_files(table, settled):
    result = keys("rotate", table.parent, "--from", "pii", "--to", "new")
    assert result.exit_code == 0, result.output
    assert result.stdout == ("2 files rotated, 0 without the old master key, 0 failed\n"
                             "1 index rotated, 0 without the old master key\n")
    [shown] = json.loads(run("inspect", table, "--json").stdout)["indexes"]
    assert (shown["master_key"], shown["covered"], shown["uncovered"]) == ("new", 2, 0)
    found = run("find", table, "--column", "ssn", "--value", "7")
    assert found.exit_code == 0 and "b.parquet" not in found.stdout
    again = keys("rotate", table, "--from", "pii", "--to", "new", "--json")
    shown = json.loads(again.stdout)
    assert again.exit_code == 0 and shown["rotated"] == shown["indexes"]["rotated"] == []
    assert shown["indexes"]["unchanged"] == 1 and shown["not_updated"] == {}


def test_a_dry_run_changes_no_index(table):
    before = {path: path.read_bytes() for path in (table / "_index" / "ssn").iterdir()}
    result = keys("rotate", table, "--from", "pii", "--to", "new", "--dry-run")
    assert result.exit_code == 0
    assert "1 index would be rotated, 0 without the old master key" in result.stdout
    assert before == {path: path.read_bytes() for path in (table / "_index" / "ssn").iterdir()}


def test_an_index_that_cannot_be_rotated_is_reported(table):
    [manifest] = (table / "_index" / "ssn").glob("*2.manifest")
    fields = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps({**fields, "body": "AAAA"}))
    result = keys("rotate", table, "--from", "pii", "--to", "new")
    assert result.exit_code == 3
    assert "2 files rotated" in result.stdout and "1 failed" in result.stdout
    assert f"{table / '_index' / 'ssn'}: " in result.stdout
    assert json.loads(manifest.read_bytes())["body"] == "AAAA"


def test_an_index_whose_key_is_missing_is_named_if_its_files_change(table):
    some = table.parent.parent / "some.json"
    Keyring(table.parent.parent / "keys.json").subset(some, ["footer", "new"], passphrase=None)
    result = keys("rotate", table, "--from", "footer", "--to", "new", "--keyring", some)
    assert result.exit_code == 0 and "0 indexes rotated, 1 without the old" in result.stdout
    assert f"not up to date: {table / '_index' / 'ssn'}: " in result.stdout
    assert "there is no master key named 'pii'" in result.stdout


@pytest.mark.parametrize("error", [KmsUnavailableError("it does not respond"),
                                   KeyboardInterrupt()], ids=["error", "interruption"])
@pytest.mark.parametrize("step", ["rotate_indexes", "update_rotated"])
def test_what_was_done_before_an_error_is_shown(table, monkeypatch, step, error):
    def fail(*arguments, **options):
        with result_on_error(IndexRotation):
            raise error

    monkeypatch.setattr(rotation, step, fail)
    result = keys("rotate", table, "--from", "pii", "--to", "new")
    is_rotated = step == "update_rotated"
    assert "2 files rotated" in result.stdout
    assert f"{int(is_rotated)} index" in result.stdout
    if isinstance(error, KeyboardInterrupt):
        assert result.exit_code == 130
    else:
        assert result.exit_code == (0 if is_rotated else 4)
        assert "it does not respond" in (result.stdout if is_rotated else result.stderr)


# --- object stores -------------------------------------------------------------------------------

def test_all_commands_take_uris(tmp_path, monkeypatch, s3):
    keyring = Keyring.create(tmp_path / "keys.json")
    for name in ("footer", "pii", "new"):
        keyring.add(name)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(tmp_path / "keys.json"))
    name = f"lake{uuid.uuid4().hex}"
    table = pa.table({"ssn": range(40), "day": [1] * 20 + [2] * 20})
    secure_bloom.write_dataset(table, s3.uri(f"{name}/t"), partition_by=["day"], keys=keyring,
                               encryption=CONFIG)
    uri = s3.uri(f"{name}/t")
    assert run("build", uri, "--column", "ssn").stdout.startswith("2 files indexed")
    assert json.loads(run("find", uri, "--column", "ssn", "--value", "7", "--json").stdout)[
        "files"] == {"total": 2, "may_contain": 1, "uncovered": 0}
    result = keys("rotate", s3.uri(name), "--from", "pii", "--to", "new", "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert len(shown["rotated"]) == 2 and len(shown["indexes"]["rotated"]) == 1
    assert shown["not_updated"] == {}
    left = f"{uuid.uuid4().hex}.seg"  # as a killed update leaves one
    with s3.filesystem_of().open_output_stream(f"{BUCKET}/{name}/t/_index/ssn/{left}") as stream:
        stream.write(b"x")
    assert left in json.loads(run("vacuum", uri, "--grace", "0", "--json").stdout)["deleted"]
    [info] = json.loads(run("inspect", uri, "--json").stdout)["indexes"]
    assert (info["master_key"], info["covered"], info["uncovered"]) == ("new", 2, 0)
    [listed] = json.loads(keys("list", s3.uri(name), "--json").stdout)["indexes"]
    assert listed["master_key"] == "new" and listed["path"].endswith(f"{name}/t/_index/ssn")
    audited = CliRunner().invoke(main, ["audit", s3.uri(name)])
    assert audited.exit_code == 0 and "0 errors, 0 warnings" in audited.stdout
