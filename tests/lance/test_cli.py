"""``secure-bloom lance``: what it prints, and its exit codes."""

import json
import shutil

import pyarrow as pa
import pytest
from click.testing import CliRunner

from secure_bloom.cli import main
from tests.lance.helpers import content, index_by_pylance, write_dataset


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, ["lance", *map(str, arguments)], input=stdin)


@pytest.fixture
def dataset(tmp_path):
    return write_dataset(tmp_path / "people.lance", {
        "ssn": ["012", "034", None, "056", "078"],
        "seen": pa.array([1, 2, 3, None, 5], pa.timestamp("us", "UTC"))}, rows_per_fragment=3)


@pytest.fixture
def index(dataset):
    return index_by_pylance(dataset, "ssn")


def test_build_inspect_probe(dataset, tmp_path):
    file = tmp_path / "bloomfilter.lance"
    result = run("build", dataset.uri, file, "--column", "ssn", "--items", 2)
    assert (result.exit_code, result.stdout) == (0, f"{file}: 3 zones of ssn\n")
    result = run("inspect", file)
    assert result.exit_code == 0
    assert "column unknown, type unknown" in result.stdout
    assert "3 zones, 1 of them with nulls; filters of 32 bytes" in result.stdout
    assert "fragment 0: rows 0 to 2\n  fragment 1: rows 0 to 1" in result.stdout
    result = run("probe", file, "--type", "string", "--value", "056")
    assert (result.exit_code, result.stdout) == (
        0, "may be in 1 of 3 zones\n  fragment 1: rows 0 to 1\n")


def test_an_index_without_zones(tmp_path):
    write_dataset(tmp_path / "empty", {"v": pa.array([], pa.int64())})
    run("build", tmp_path / "empty", tmp_path / "x.lance", "--column", "v")
    assert run("inspect", tmp_path / "x.lance").stdout.endswith("expected: 0\n")
    result = run("probe", tmp_path / "x.lance", "--type", "int64", "--value", 5)
    assert (result.exit_code, result.stdout) == (1, "certainly in none of 0 zones\n")


def test_build_says_as_json_what_it_did(dataset, tmp_path):
    result = run("build", dataset.uri, tmp_path / "x.lance", "--column", "ssn", "--json")
    assert json.loads(result.stdout) == {"file": str(tmp_path / "x.lance"), "column": "ssn",
                                         "zones": 2}


def test_inspect_as_json(index):
    found = json.loads(run("inspect", index, "--json").stdout)
    assert found.pop("expected_fpp") < 0.01
    assert found.pop("null_bitmap") == (b"null_bitmap" in content(index)[1])
    assert found == {
        "file": str(index), "column": "ssn", "type": "string", "items": 8192,
        "probability": 0.00057, "filter_bytes": 32768,
        "zones": [
            {"fragment_id": 0, "zone_start": 0, "zone_length": 3, "has_null": True},
            {"fragment_id": 1, "zone_start": 0, "zone_length": 2, "has_null": False}]}


@pytest.mark.parametrize(("options", "stdin", "code", "fragments"), [
    (["--value", "012"], None, 0, [0]), (["--value", "078"], None, 0, [1]),
    (["--value", "012", "--value", "078"], None, 0, [0, 1]), (["--value", "999"], None, 1, []),
    ([], "056\n", 0, [1]), ([], "057\n", 1, []), (["--null"], None, 0, [0]),
    (["--null", "--value", "999"], None, 0, [0]), (["--null", "--value", "078"], None, 0, [0, 1])])
def test_probe_tells_by_its_exit_code(index, options, stdin, code, fragments):
    result = run("probe", index, *options, "--json", stdin=stdin)
    assert result.exit_code == code, result.stderr
    answer = json.loads(result.stdout)
    assert [zone["fragment_id"] for zone in answer.pop("zones")] == fragments
    assert answer == {"file": str(index), "column": "ssn", "may_contain": code == 0, "of": 2,
                      "fragments": [0, 1]}


def test_an_absent_value(index):
    result = run("probe", index, "--value", "999")
    assert (result.exit_code, result.stdout) == (1, "certainly in none of 2 zones\n")


def test_types_on_the_command_line(dataset, tmp_path):
    file = tmp_path / "x.lance"
    run("build", dataset.uri, file, "--column", "seen")
    options = ["--type", "timestamp[us, tz=UTC]", "--value"]
    assert run("probe", file, *options, "1970-01-01T00:00:00.000005Z").exit_code == 0
    assert run("probe", file, *options, "1970-01-01T00:00:00.000006Z").exit_code == 1
    result = run("probe", file, "--type", "nonsense", "--value", 1)
    assert result.exit_code == 2 and "not a valid Arrow type name" in result.stderr


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["inspect", "{tmp}/none"], 3, "No such file"),
    (["inspect", "{tmp}/text"], 3, "not a Lance file"),
    (["probe", "{tmp}/copy.lance", "--value", "012"], 2, "specify --type"),
    (["probe", "{index}", "--type", "int64", "--value", "5"], 2, "the data set has type"),
    (["probe", "{index}"], 2, "no value"),
    (["build", "{tmp}", "{tmp}/x", "--column", "ssn"], 3, "pylance cannot read"),
    (["build", "{tmp}/none", "{tmp}/x", "--column", "ssn"], 3, "no data set"),
    (["build", "{dataset}", "{tmp}/x", "--column", "no"], 2, "no such column"),
    (["build", "{dataset}", "{tmp}/x", "--column", "ssn", "--probability", "2"], 2, "between 0"),
    (["build", "{dataset}", "{tmp}/none/x", "--column", "ssn"], 3, "no folder"),
])
def test_errors(dataset, index, tmp_path, arguments, code, message):
    (tmp_path / "text").write_text("hello")
    shutil.copy(index, tmp_path / "copy.lance")
    result = run(*(argument.format(tmp=tmp_path, index=index, dataset=dataset.uri)
                   for argument in arguments))
    assert result.exit_code == code, result.stderr
    assert message in result.stderr and result.stdout == ""
    assert "012" not in result.stderr


def test_a_value_that_is_none_of_the_type_is_not_repeated(dataset):
    file = index_by_pylance(dataset, "seen")
    result = run("probe", file, "--value", "078-05-1120")
    assert result.exit_code == 2
    assert "the value is not a valid timestamp" in result.stderr and "078" not in result.stderr
