"""``secure-bloom find``: what it prints and writes, and with which exit code."""

import base64
import csv
import datetime as dt
import gc
import io
import json
import os
import sys
import threading
import uuid
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.cli import found_rows, main, row_formats
from secure_bloom.keys import Keyring
from secure_bloom.storage.files import write_file
from tests.storage.s3 import BUCKET

CONFIG = EncryptionConfiguration("footer", {"pii": ["ssn"]})


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, ["find", *map(str, arguments)], input=stdin)


def write(folder, day: int, name: str = "a", **options):
    table = pa.table({"ssn": [f"{day}-{i:02}" for i in range(40)],
                      "name": ["=1+1", "a,\"b\"\nc", None, ""] * 10})
    path = folder / "people" / f"day={day}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"encryption": CONFIG, "keys": Keyring(folder / "keys.json"), **options}
    secure_bloom.write_table(table, path, bloom_filters={"ssn": True}, row_group_size=10, **options)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    keyring = Keyring.create(tmp_path / "keys.json")
    keyring.add("footer")
    keyring.add("pii")
    for day in (1, 2):
        write(tmp_path, day)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(tmp_path / "keys.json"))
    return tmp_path


def ssn(folder, *arguments, **options):
    return run(folder / "people", "--column", "ssn", *arguments, **options)


# --- exit codes ----------------------------------------------------------------------------------

def test_found_and_not_found(folder):
    found = ssn(folder, "--value", "1-00", "--value", "2-31")
    assert found.exit_code == 0 and found.stderr == ""
    lines = found.stdout.splitlines()
    assert lines[0].split() == ["file", "row_group", "ssn", "name", "day"]
    assert [line.split()[1:3] for line in lines[2:]] == [["0", "1-00"], ["3", "2-31"]]
    absent = ssn(folder, "--value", "9-99")
    assert (absent.exit_code, absent.stdout, absent.stderr) == (1, "no rows found\n", "")


@pytest.mark.parametrize("arguments", [
    ["--column", "nope", "--value", "a"], ["--value", "a"],
    ["--column", "ssn", "--value", "a", "--columns", "nope"],
    ["--column", "day", "--value", "one"], ["--column", "ssn", "--values", os.devnull],
    ["--column", "ssn", "--value", "a", "--count", "--files"],
    ["--column", "ssn", "--value", "1-00", "--count", "--columns", "ssn"],
    ["--column", "ssn", "--value", "1-00", "--files", "--columns", "ssn"],
    ["--column", "ssn", "--value", "1-00", "--overwrite"],
    ["--column", "ssn", "--value", "a", "--json", "--format", "csv"],
    ["--column", "ssn", "--value", "a", "--format", "parquet"],
    ["--column", "ssn", "--value", "a", "--output", "rows.unknown"]])
def test_mistakes_have_code_2(folder, arguments):
    result = run(folder / "people", *arguments)
    assert result.exit_code == 2 and result.stdout == ""


def test_a_path_that_does_not_exist_has_code_3(folder):
    result = run(folder / "none", "--column", "ssn", "--value", "a")
    assert result.exit_code == 3 and "there is no file" in result.stderr


def test_a_bad_value_is_not_repeated(folder):
    result = run(folder / "people", "--column", "day", "--values", "-", stdin="1\n2\nsecret\n")
    assert result.exit_code == 2 and "number 3 is not a valid int32" in result.stderr
    assert "secret" not in result.output


def test_the_search_goes_on_past_damaged_files_and_says_so(folder):
    (folder / "people" / "day=1" / "cut.parquet").write_bytes(b"PAR1")
    result = ssn(folder, "--value", "1-00", "--value", "2-00", "--columns", "ssn")
    assert result.exit_code == 3
    assert [line.split()[-1] for line in result.stdout.splitlines()[2:]] == ["1-00", "2-00"]
    assert "cut.parquet: this is not a Parquet file" in result.stderr
    assert "1 of 3 files could not be searched completely" in result.stderr
    result = ssn(folder, "--value", "9")
    assert (result.exit_code, result.stdout) == (3, "")  # not "not found"


def test_missing_keys_and_changed_bytes_have_their_codes(folder):
    path = write(folder, 1, "uniform", encryption=secure_bloom.UniformKey(b"0" * 16), keys=None)
    assert ssn(folder, "--value", "1-00").exit_code == 4
    path.unlink()
    path = write(folder, 1, "changed")
    data = bytearray(path.read_bytes())
    data[60] ^= 1  # in the first page of ssn
    path.write_bytes(data)
    result = ssn(folder, "--value", "1-00", "--count")
    assert (result.exit_code, result.stdout) == (5, "1\n")
    (folder / "people" / "day=1" / "cut.parquet").write_bytes(b"PAR1")
    assert ssn(folder, "--value", "1-00").exit_code == 5  # the worst of all


# --- values --------------------------------------------------------------------------------------

def test_one_value_comes_from_standard_input(folder):
    assert ssn(folder, "--count", stdin="1-00\n").stdout == "1\n"
    assert ssn(folder, "--count", stdin="").exit_code == 2


def test_a_byte_order_mark_is_not_part_of_the_value(folder):
    assert ssn(folder, "--count", stdin=b"\xef\xbb\xbf1-00\r\n").stdout == "1\n"


def test_values_that_are_not_utf_8_are_a_mistake_that_is_not_repeated(folder):
    result = ssn(folder, "--count", "--values", "-", stdin="1-00\n".encode("utf-16"))
    assert result.exit_code == 2 and "not UTF-8" in result.stderr
    assert "0xff" not in result.stderr


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_many_values_come_from_a_file_or_from_standard_input(folder, newline):
    text = newline.join(["1-00", "", "2-05", "9-99", ""])
    (folder / "values.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert ssn(folder, "--count", "--values", folder / "values.txt").stdout == "2\n"
    result = ssn(folder, "--count", "--values", "-", "--value", "1-01", stdin=text)
    assert result.stdout == "3\n"


TYPED = pa.table({
    "i": pa.array([7, 8], pa.int64()), "f": [1.5, float("nan")],
    "dec": [Decimal("1.50"), Decimal("-2.25")], "flag": [True, False],
    "day": [dt.date(2020, 1, 2), None],
    "at": pa.array([dt.datetime(2020, 1, 2, 3, 4, 5), None], pa.timestamp("us")),
    "zoned": pa.array([dt.datetime(2020, 1, 2, 3, 4, 5), None], pa.timestamp("us", "Asia/Tokyo")),
    "time": pa.array([dt.time(1, 2, 3), None]), "raw": [b"a\xff", b"b"],
    "uuid": pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()),
    "who": [{"ssn": "x", "on": dt.date(2020, 1, 2)}, None], "tags": [["a"], []],
    "long": pa.array([pa.scalar(5, pa.duration("us")), None]),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "kind": pa.array(["k", None]).dictionary_encode(), "nothing": pa.nulls(2),
})


@pytest.fixture
def typed(tmp_path):
    secure_bloom.write_table(TYPED, tmp_path / "typed.parquet", bloom_filters=True)
    return tmp_path / "typed.parquet"


@pytest.mark.parametrize(("column", "text"), [
    ("i", "7"), ("f", "1.5"), ("dec", "1.50"), ("flag", "true"), ("day", "2020-01-02"),
    ("at", "2020-01-02 03:04:05"), ("zoned", "2020-01-02T03:04:05Z"), ("time", "01:02:03"),
    ("uuid", str(uuid.UUID(int=5))), ("who.ssn", "x"), ("kind", "k")])
def test_values_of_every_type(typed, column, text):
    result = run(typed, "--column", column, "--value", text, "--columns", "i", "--format", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["i"] == 7


# --- formats -------------------------------------------------------------------------------------

def written(folder, name: str, *arguments) -> str:
    path = folder / name
    result = ssn(folder, "--value", "1-00", "--value", "1-01", "--value", "1-02", "--value",
                 "2-03", "--output", path, *arguments)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert path.stat().st_mode & 0o777 == 0o600
    return str(path)


ROWS = [("1-00", "=1+1", 1), ("1-01", "a,\"b\"\nc", 1), ("1-02", None, 1), ("2-03", "", 2)]


def triples(rows) -> list[tuple]:
    return [(row["ssn"], row["name"], int(row["day"])) for row in rows]


def test_csv_is_read_back_by_other_programs(folder):
    path = written(folder, "rows.csv")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(a, b or "", c) for a, b, c in triples(rows)] == [(a, b or "", c) for a, b, c in ROWS]
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parsed = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(path, convert_options=options, parse_options=parsed)
    assert triples(table.to_pylist()) == ROWS
    assert table.schema.names == ["file", "row_group", "ssn", "name", "day"]
    found = duckdb.sql(f"select ssn, name, day from read_csv('{path}', header=true)").fetchall()
    assert [(a, b or "", int(c)) for a, b, c in found] == [(a, b or "", c) for a, b, c in ROWS]


def test_json_is_read_back_by_other_programs(folder):
    path = written(folder, "rows.json")
    with open(path) as file:
        assert triples(map(json.loads, file)) == ROWS
    assert triples(pyarrow.json.read_json(path).to_pylist()) == ROWS
    assert duckdb.sql(f"select ssn, name, day from '{path}'").fetchall() == ROWS


def test_parquet_is_read_back_by_other_programs(folder):
    path = written(folder, "rows.parquet")
    assert triples(pq.read_table(path).to_pylist()) == ROWS
    assert duckdb.sql(f"select ssn, name, day from '{path}'").fetchall() == ROWS


def test_the_format_can_differ_from_the_suffix(folder):
    assert triples(pq.read_table(written(folder, "rows", "--format", "parquet")).to_pylist()) \
        == ROWS


def test_every_type_in_json_and_csv(typed):
    result = run(typed, "--column", "i", "--value", "7", "--value", "8", "--format", "json")
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == {
        "file": str(typed), "row_group": 0, "i": 7, "f": 1.5, "dec": "1.50", "flag": True,
        "day": "2020-01-02", "at": "2020-01-02 03:04:05.000000",
        "zoned": "2020-01-02 03:04:05.000000Z", "time": "01:02:03.000000",
        "raw": base64.b64encode(b"a\xff").decode(), "uuid": str(uuid.UUID(int=5)),
        "who": {"ssn": "x", "on": "2020-01-02"}, "tags": ["a"], "long": 5, "map": [["k", 1]],
        "kind": "k", "nothing": None}
    assert second["f"] == "NaN" and second["who"] is None and second["tags"] == []
    result = run(typed, "--column", "i", "--value", "7", "--format", "csv")
    [row] = csv.DictReader(io.StringIO(result.stdout))
    assert json.loads(row["who"]) == first["who"] and json.loads(row["map"]) == first["map"]
    assert (row["raw"], row["uuid"], row["dec"], row["nothing"]) == (
        first["raw"], first["uuid"], "1.50", "")
    assert row["zoned"] == "2020-01-02 03:04:05.000000Z"
    assert run(typed, "--column", "i", "--value", "7").exit_code == 0  # as a table


def test_what_is_not_encrypted_is_said_once(folder):
    result = ssn(folder, "--value", "1-00", "--value", "2-00", "--output", folder / "a.json")
    assert result.stderr.count("is not encrypted") == 1
    result = ssn(folder, "--value", "1-00", "--output", folder / "b.csv", "--files")
    assert result.stderr == ""  # only places


def test_text_that_begins_like_a_formula_is_kept_and_mentioned(folder):
    result = ssn(folder, "--value", "1-00", "--format", "csv")
    assert "text in name begins like a formula" in result.stderr
    assert '"=1+1"' in result.stdout
    result = ssn(folder, "--value", "1-01", "--format", "csv")
    assert result.stderr == ""


def test_an_existing_output_file_is_kept(folder):
    (folder / "rows.csv").write_text("mine")
    arguments = "--value", "1-00", "--output", folder / "rows.csv"
    result = ssn(folder, *arguments)
    assert result.exit_code == 2 and "--overwrite" in result.stderr
    assert (folder / "rows.csv").read_text() == "mine"
    assert ssn(folder, *arguments, "--overwrite").exit_code == 0
    assert "1-00" in (folder / "rows.csv").read_text()


def test_an_output_file_that_appears_meanwhile_is_kept(folder, monkeypatch):
    real, path = found_rows.FoundRows._write, folder / "rows.csv"

    def meanwhile(self, *arguments):
        real(self, *arguments)
        path.write_text("mine")

    monkeypatch.setattr(found_rows.FoundRows, "_write", meanwhile)
    result = ssn(folder, "--value", "1-00", "--output", path)
    assert result.exit_code == 2 and "--overwrite" in result.stderr
    assert path.read_text() == "mine"


@pytest.mark.parametrize("by_link", [False, True])
def test_a_searched_file_is_never_replaced(folder, by_link):
    path = write(folder, 1)
    before = path.read_bytes()
    if by_link:
        (folder / "link").symlink_to(path.parent)
        path = folder / "link" / path.name
    result = ssn(folder, "--value", "1-00", "--output", path, "--overwrite")
    assert result.exit_code == 2 and "one of the searched files" in result.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("form", ["csv", "json", "object"])
def test_no_thread_goes_on_when_the_output_breaks(folder, monkeypatch, form):
    """Otherwise the garbage collector ends the search, perhaps in one of its own threads."""
    before = set(threading.enumerate())
    real = found_rows.click.echo

    def full(text="", **options):
        if "1-00" in str(text):
            raise OSError("no space left")
        return real(text, **options)

    monkeypatch.setattr(found_rows.click, "echo", full)
    gc.disable()
    try:
        options = ["--json"] if form == "object" else ["--format", form]
        result = ssn(folder, "--value", "1-00", "--value", "2-00", *options)
        assert set(threading.enumerate()) <= before
    finally:
        gc.enable()
    assert result.exit_code == 3


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "txt"])
def test_no_part_of_an_output_file_is_left_when_writing_fails(folder, monkeypatch, suffix):
    before = sorted(os.listdir(folder))
    calls = []

    def failing(batches):
        for batch in batches:
            calls.append(batch)
            yield batch
            raise OSError("no space left")

    monkeypatch.setattr(found_rows.FoundRows, "_counted", lambda self, batches: failing(batches))
    result = ssn(folder, "--value", "1-00", "--value", "2-00", "--output",
                 folder / f"rows.{suffix}")
    assert result.exit_code == 3 and calls
    assert sorted(os.listdir(folder)) == before


def test_if_nothing_could_be_searched_no_file_is_written(folder, monkeypatch):
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    result = ssn(folder, "--value", "1-00", "--output", folder / "rows.csv")
    assert result.exit_code == 4 and not (folder / "rows.csv").exists()


# --- files, count, JSON --------------------------------------------------------------------------

def test_files_and_count(folder):
    values = "--value", "1-00", "--value", "1-01", "--value", "2-39"
    result = ssn(folder, *values, "--files", "--format", "json")
    assert [tuple(json.loads(line).values()) for line in result.stdout.splitlines()] == [
        (f"{folder}/people/day=1/a.parquet", 0, 2), (f"{folder}/people/day=2/a.parquet", 3, 1)]
    assert ssn(folder, *values, "--count").stdout == "3\n"
    result = ssn(folder, "--value", "9", "--count")
    assert (result.stdout, result.exit_code) == ("0\n", 1)


def test_json_is_one_object_with_rows_and_what_was_searched(folder):
    (folder / "people" / "day=2" / "cut.parquet").write_bytes(b"PAR1")
    result = ssn(folder, "--value", "1-00", "--value", "2-39", "--json", "--columns", "name")
    assert result.exit_code == 3
    report = json.loads(result.stdout)
    assert [row["name"] for row in report["found"]] == ["=1+1", ""]
    assert report["rows"] == 2 and report["values"] == 2 and report["complete"] is False
    assert report["files"] == {"total": 3, "failed": 1, "read": 2, "partitions": 0,
                               "statistics": 0, "bloom_filters": 0, "index": 0}
    assert report["row_groups"]["read"] == 2 and sum(report["row_groups"].values()) == 8
    assert [place["row_group"] for place in report["places"]] == [0, 3]
    [failed] = report["failed"]
    assert failed["file"].endswith("cut.parquet") and "not a Parquet file" in failed["error"]
    for option in ("--files", "--count"):
        report = json.loads(ssn(folder, "--value", "1-00", "--json", option).stdout)
        assert "found" not in report and report["rows"] == 1
    report = json.loads(ssn(folder, "--value", "9", "--json").stdout)
    assert report["found"] == [] and report["rows"] == 0


def test_json_with_an_output_file_has_no_rows(folder):
    result = ssn(folder, "--value", "1-00", "--json", "--output", folder / "rows.csv")
    report = json.loads(result.stdout)
    assert report["rows"] == 1 and report["complete"] is True and "found" not in report
    assert "1-00" not in result.output and "1-00" in (folder / "rows.csv").read_text()


def test_several_paths_and_patterns(folder):
    people = folder / "people"
    arguments = "--column", "ssn", "--value", "1-00", "--value", "2-00", "--count"
    assert run(people / "day=1", people / "day=2", *arguments).stdout == "2\n"
    assert run(people / "day=*" / "*.parquet", *arguments).stdout == "2\n"
    assert run(people / "day=1" / "a.parquet", *arguments).stdout == "1\n"


def test_the_folder_of_a_table_is_searched_only_on_request(folder):
    (folder / "people" / "_delta_log").mkdir()
    (folder / "people" / "_delta_log" / "00000000000000000000.json").touch()
    result = ssn(folder, "--value", "1-00")
    assert result.exit_code == 3 and "--all-files" in result.stderr
    assert ssn(folder, "--value", "1-00", "--all-files", "--count").stdout == "1\n"


def test_object_stores_are_read_and_written(folder, s3):
    name = uuid.uuid4().hex
    store = s3.filesystem_of()
    for day in (1, 2):
        content = (folder / "people" / f"day={day}" / "a.parquet").read_bytes()
        write_file(store, f"{BUCKET}/{name}/day={day}/a.parquet", content)
    arguments = "--column", "ssn", "--value", "2-05"
    result = run(s3.uri(name), *arguments, "--output", s3.uri(f"{name}-rows.json"))
    assert result.exit_code == 0, result.output
    with store.open_input_file(f"{BUCKET}/{name}-rows.json") as file:
        [row] = map(json.loads, file.read().splitlines())
    assert (row["file"], row["ssn"], row["day"]) == (
        f"{BUCKET}/{name}/day=2/a.parquet", "2-05", 2)
    result = run(s3.uri(name), *arguments, "--output", s3.uri(f"{name}-rows.json"))
    assert result.exit_code == 2 and "--overwrite" in result.stderr
    for command in (["inspect"], ["verify"], ["probe", *arguments]):
        result = CliRunner().invoke(main, [*command, s3.uri(name)])
        assert result.exit_code == 0 and "2 files" in result.stdout.splitlines()[-1], result.output


def test_control_characters_do_not_reach_a_terminal(tmp_path, monkeypatch):
    secure_bloom.write_table(pa.table({"a": ["x\x1b[2J"], "n": [1]}), tmp_path / "a.parquet")
    arguments = tmp_path / "a.parquet", "--column", "n", "--value", "1"
    assert "\x1b" not in run(*arguments).stdout
    assert "\x1b" in run(*arguments, "--format", "csv").stdout  # a file keeps what is stored
    printed = []
    monkeypatch.setattr(found_rows, "echo", lambda text, **_: printed.append(text))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    found_rows._StandardOutput().write(b"x\x1b")
    assert printed == ["x\x1b"]  # echo escapes it


def test_a_large_result_is_written_batch_by_batch(tmp_path):
    batches = (pa.record_batch({"file": ["a"] * 600, "row_group": [0] * 600,
                                "n": range(start, start + 600)}) for start in (0, 600, 1200))
    parts = []

    class Sink:
        def write(self, data):
            parts.append(bytes(data).decode())

    schema = pa.schema([("file", pa.string()), ("row_group", pa.int64()), ("n", pa.int64())])
    row_formats.write_rows("table", batches, schema, Sink())
    assert len(parts) == 3  # at most 1,000 rows in each
    shown = [line.split()[-1] for part in parts for line in part.splitlines()[2:]]
    assert shown == list(map(str, range(1800)))
