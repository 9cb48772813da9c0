"""The test vectors and their runner: every answer right, every edited expectation noticed."""

import json
import os
import re
import shlex
import shutil
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from secure_bloom.cli import main
from secure_bloom.errors import FormatError
from secure_bloom.validator import LAYERS, ExternalProgram, SecureBloom, load_cases, run_cases
from secure_bloom.validator.external import BadReply, Skipped
from tests.peers import adapter
from tests.peers.fixtures import adapter_command
from tests.peers.parquet_java import ParquetJava
from tests.support import IMPLEMENTATIONS, use_implementation
from tests.tiers import sweep_where
from vectors.builder import checks
from vectors.builder.__main__ import SMALL, render
from vectors.builder.differences import reason
from vectors.builder.faulty_files import bad_files
from vectors.builder.writers_java import by_java
from vectors.builder.writers_ours import ours
from vectors.builder.writers_plain import plain
from vectors.builder.writers_rust import rust, written

VECTORS = Path(__file__).parents[2] / "vectors"
CASES = load_cases(VECTORS)
ONE_OF_EACH = {(case.layer, case.operation, case.outcome): case for case in reversed(CASES)}

every_layer = pytest.mark.parametrize("layer", LAYERS)
one_of_each = pytest.mark.parametrize("case", ONE_OF_EACH.values(), ids=lambda case: case.name)


def failures(cases) -> list[str]:
    with SecureBloom() as ours:
        return [f"{result.case.name}: {result.message}" for result in run_cases(cases, ours)
                if result.result != "passed"]


# --- the set -------------------------------------------------------------------------------------

@sweep_where(lambda implementation, layer: implementation.endswith(("-v2", "-v3")))
@sweep_where(lambda implementation, layer: layer == "files", "slow")
@every_layer
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_all_answers_are_right(monkeypatch, implementation, layer):
    use_implementation(monkeypatch, implementation)
    assert failures(load_cases(VECTORS, [layer])) == []


def test_there_are_enough_vectors_and_most_are_bad():
    assert len(CASES) >= 300
    assert sum(case.fault is not None for case in CASES) * 3 >= len(CASES) * 2


def test_every_operation_and_outcome_occurs():
    known = {(layer, name, outcome) for layer, operations in LAYERS.items()
             for name, operation in operations.items() for outcome in operation.outcomes}
    assert ONE_OF_EACH.keys() == known


def test_the_set_is_small():
    sizes = {path: path.stat().st_size for path in VECTORS.rglob("*") if path.is_file()
             and "__pycache__" not in path.parts}
    assert sum(sizes.values()) < 4_500_000
    assert all(size < 20_000 for path, size in sizes.items() if path.suffix == ".parquet")


def test_every_file_is_checked_by_another_implementation():
    for case in CASES:
        if case.layer == "files":
            assert case.checked_by, case.name
            assert case.origin.split(",")[0] not in case.checked_by, case.name


@pytest.mark.parametrize("build", SMALL, ids=lambda build: build.__name__)
def test_the_builder_gives_the_same_again(build):
    layer = build()
    committed = json.loads((VECTORS / f"{layer.name}.json").read_text(encoding="utf-8"))
    again = json.loads(render(layer.name, layer.cases))
    for case in [*committed["cases"], *again["cases"]]:
        del case["checked_by"]
        case["origin"] = re.sub(r" \d[\d.]*", "", case["origin"])
    assert again == committed


@pytest.mark.parametrize("build", [ours, plain, rust, bad_files], ids=lambda build: build.__name__)
@pytest.mark.sweep
def test_the_builder_gives_the_same_files_again(build):
    compare_with_committed(build())


@pytest.mark.sweep
def test_parquet_java_gives_the_same_files_again(parquet_java):  # asked for, to skip without Java
    with ParquetJava(seeded=True) as java:
        compare_with_committed(by_java(java))


def test_arrow_rs_gives_files_with_the_same_fault(arrow_rs):  # asked for, to skip without Cargo
    """The bytes are others: arrow-rs draws nonces at random."""
    for vector in written():
        sidecar = json.loads((VECTORS / "files" / f"{vector.name}.json").read_text())
        assert vector.to_json() == sidecar | {"checked_by": []}


def compare_with_committed(vectors):
    """Bytes and sidecars are equal where the same versions have made them."""
    others = []
    for vector in vectors:
        again = vector.to_json()
        path = VECTORS / "files" / f"{vector.name}.json"
        committed = json.loads(path.read_text(encoding="utf-8"))
        if committed["origin"] != again["origin"]:
            others.append(vector.name)
            continue
        assert again == committed | {"checked_by": []}, vector.name
        assert vector.data == path.with_suffix(".parquet").read_bytes(), vector.name
    if others:
        pytest.skip(f"other versions are here than have made {len(others)} files: make vectors")


def test_the_readme_lists_the_operations():
    text = (VECTORS / "README.md").read_text(encoding="utf-8")
    for layer, operations in LAYERS.items():
        section = text.split(f"### `{layer}`")[1].split("\n#")[0]
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", section, re.MULTILINE)
        assert [name for name, _, _ in rows] == list(operations)
        for name, inputs, outcomes in rows:
            operation = operations[name]
            assert dict(re.findall(r"`(\w+)`(\??)", inputs)) \
                == {field: "?" * (field in operation.optional) for field in operation.inputs}
            assert set(re.findall(r"\*`(\w+)`\*", outcomes)) == operation.refusals
            assert set(re.findall(r"`(\w+)`", outcomes)) == set(operation.outcomes) \
                | {output for outputs in operation.outcomes.values() for output in outputs}


def test_the_readme_tells_the_origin_of_every_file():
    section = (VECTORS / "README.md").read_text(encoding="utf-8") \
        .split("## Origin")[1].split("\n## ")[0]
    makers = dict(re.findall(r"^\| `([\w-]+)` \| ([\w-]+)", section, re.MULTILINE))
    makers = {prefix: makers["plain-"] if maker == "likewise" else maker
              for prefix, maker in makers.items()}
    unused = set(makers)
    for case in CASES:
        if case.layer == "files":
            prefix = max(filter(case.name.startswith, makers), key=len)
            assert case.origin.startswith(makers[prefix]), case.name
            unused.discard(prefix)
    assert not unused


@pytest.mark.sweep
@pytest.mark.peer
@pytest.mark.parametrize("peer", [
    pytest.param(name, marks=pytest.mark.fetched if name in adapter.FETCHED else ())
    for name in adapter.NAMES])
def test_peers_differ_just_where_it_is_written(peer):
    implementation = ExternalProgram(shlex.join(adapter_command(peer)))
    [name] = [name for name, own in checks.peers().items() if own == peer]
    committed = json.loads((VECTORS / "differences.json").read_text(encoding="utf-8"))
    if name not in {group["implementation"] for group in committed}:
        pytest.skip(f"here is {name}, which differences.json does not know yet: make vectors")
    with implementation as asked:
        results = {name: run_cases(CASES, asked)}
    differing = {result.case.name: checks.answer_of(result) for result in results[name]
                 if result.result == "failed"}
    assert differing == {case: answer for group in committed if group["implementation"] == name
                         for case, answer in group["cases"].items()}
    assert checks.checked_by(results).keys() \
        == {case.name for case in CASES if name in case.checked_by}


def test_every_difference_has_a_reason_in_the_readme():
    committed = json.loads((VECTORS / "differences.json").read_text(encoding="utf-8"))
    assert checks.table(committed) in (VECTORS / "README.md").read_text(encoding="utf-8")
    assert all(reason(group["implementation"].rpartition(" ")[0], case) == group["why"]
               for group in committed for case in group["cases"])


# --- edited vectors ------------------------------------------------------------------------------

def as_json(case) -> dict:
    """The case as it stands in its file."""
    content = {field.name: getattr(case, field.name) for field in fields(case)
               if field.name not in ("layer", "folder") and getattr(case, field.name) is not None}
    return json.loads(json.dumps(content))


def folder_with(folder: Path, layer: str, *contents: dict) -> Path:
    """A folder with just these cases."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    for content in contents if layer == "index" else ():
        own = str(content["name"]).removeprefix("index-").removesuffix("-edited")
        target = folder / "index" / str(content["name"])
        if (VECTORS / "index" / own).is_dir():
            shutil.copytree(VECTORS / "index" / own, target)
        target.mkdir(parents=True, exist_ok=True)
        (target / "case.json").write_text(json.dumps(content))
    if layer == "index":
        return folder
    if layer != "files":
        text = json.dumps({"layer": layer, "cases": contents})
        (folder / f"{layer}.json").write_text(text)
        return folder
    for content in contents:
        (folder / "files" / f"{content['name']}.json").write_text(json.dumps(content))
        if isinstance(file := content["input"].get("file"), str):
            shutil.copy(VECTORS / "files" / file, folder / "files")
    return folder


def edits(value, path=()):
    """Every leaf of a JSON value with another value of its kind in its place."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from edits(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from edits(item, (*path, index))
        if value and path[-1] != "probes":  # a probe less is asked less
            yield path, value[:-1]
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int | float):
        yield path, value * 2 + 1
    elif re.fullmatch("[0-9a-f]+", value):
        yield path, value[:-1] + ("0" if value[-1] != "0" else "1")
    else:
        yield path, value + "x" if value else "00"


def replaced(content: dict, path: tuple, value) -> dict:
    content = json.loads(json.dumps(content))
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return content


def expectations(case) -> list[dict]:
    """The case with another expectation: each value of its output, and each other outcome."""
    content = as_json(case)
    edited = [replaced(content, path, value) for path, value in
              edits({"output": content.get("output", {})})
              if path != ("output",)]
    for outcome, outputs in case.description.outcomes.items():
        if outcome != case.outcome:
            other = {**content, "outcome": outcome,
                     "output": {name: _ANYTHING[kind] for name, kind in outputs.items()}}
            other.pop("fault", None)
            if outcome in case.description.refusals:
                other["fault"] = "none"
            edited.append(other)
    return edited


_ANYTHING = {"bytes": "00", "int": 1, "number": 0.5, "text": "a", "list-of-bool": [], "filters": [],
             "list-of-text": []}


@sweep_where(lambda case, every: case.layer == "files", "slow")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.sweep)])
@one_of_each
def test_an_edited_expectation_fails(tmp_path, case, every):
    edited = expectations(case)[::every]
    if len(LAYERS[case.layer][case.operation].outcomes) > 1 or case.output:
        assert edited
    for number, content in enumerate(edited):
        cases = load_cases(folder_with(tmp_path / str(number), case.layer, content))
        assert len(failures(cases)) == 1, content


@pytest.mark.slow
@every_layer
def test_an_edited_expectation_makes_the_command_fail(tmp_path, layer):
    case = next(case for case in CASES if case.layer == layer and expectations(case))
    good, bad = as_json(case), {**expectations(case)[0], "name": f"{case.name}-edited"}
    folder = folder_with(tmp_path, layer, good, bad)
    done = CliRunner().invoke(main, ["validate", str(folder), "--json"])
    result = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (result["total"], result["passed"], result["failed"]) == (2, 1, 1)
    assert {item["name"]: item["result"] for item in result["cases"]} \
        == {case.name: "passed", f"{case.name}-edited": "failed"}


@one_of_each
def test_what_is_unknown_or_missing_is_refused(tmp_path, case):
    content = as_json(case)
    broken = [
        {**content, "inputs": {}},
        {**content, "input": {**content["input"], "typo": 1}},
        {**content, "output": {**content.get("output", {}), "typo": 1}},
        {**content, "operation": "typo"},
        {**content, "outcome": "typo"},
        {**content, "name": 5},
        {name: value for name, value in content.items() if name != "origin"},
        {name: value for name, value in content.items() if name != "fault"}
        if case.fault else {**content, "fault": "none"},
    ]
    required = case.description.inputs.keys() - case.description.optional
    broken += [{**content, "input": {name: value for name, value in content["input"].items()
                                     if name != missing}} for missing in required]
    broken += [{**content, "output": {name: value for name, value in content["output"].items()
                                      if name != missing}} for missing in case.output]
    broken += [{**content, "input": {**content["input"], name: {"an": ["object"]}}}
               for name in content["input"]]
    for number, content in enumerate(broken):
        with pytest.raises(FormatError):
            load_cases(folder_with(tmp_path / str(number), case.layer, content))


def test_fields_of_filters_and_probes_are_checked(tmp_path):
    content = as_json(ONE_OF_EACH["files", "read", "read"])
    for path in (("output", "filters", 0), ("output", "filters", 0, "probes", 0)):
        broken = replaced(content, (*path, "typo"), 1)
        with pytest.raises(FormatError, match="typo"):
            load_cases(folder_with(tmp_path, "files", broken))


def test_a_name_must_be_unique(tmp_path):
    content = as_json(ONE_OF_EACH["aad", "build", "built"])
    with pytest.raises(FormatError, match="twice"):
        load_cases(folder_with(tmp_path, "aad", content, content))
    (tmp_path / "aad.json").write_text('{"layer": "aad", "layer": "aad", "cases": []}')
    with pytest.raises(FormatError, match="twice"):
        load_cases(tmp_path)


@pytest.mark.parametrize("text", [
    "", "[]", "{}", '{"layer": "aad"}', '{"layer": "x", "cases": []}',
    '{"layer": "aad", "cases": [1]}', '{"layer": "aad", "cases": []}'])
def test_files_that_are_no_vectors(tmp_path, text):
    (tmp_path / "aad.json").write_text(text)
    with pytest.raises(FormatError):
        load_cases(tmp_path)


def test_a_folder_of_an_index_without_a_case_is_refused(tmp_path):
    content = as_json(ONE_OF_EACH["index", "lookup", "answered"])
    folder = folder_with(tmp_path, "index", content)
    assert failures(load_cases(folder)) == []
    (folder / "index" / "other").mkdir()
    with pytest.raises(FormatError, match="no test vector refers"):
        load_cases(folder)


def test_links_and_pipes_beside_a_case_are_refused(tmp_path):
    content = as_json(ONE_OF_EACH["index", "lookup", "refused"])
    folder = folder_with(tmp_path, "index", content)
    [own] = (folder / "index").iterdir()
    os.mkfifo(own / "000000000009.manifest")
    with pytest.raises(FormatError, match="named pipe"):
        load_cases(folder)


def test_a_file_elsewhere_is_refused(tmp_path):
    content = as_json(ONE_OF_EACH["files", "read", "read"])
    folder = folder_with(tmp_path / "a", "files", content)
    shutil.copy(VECTORS / "files" / content["input"]["file"], tmp_path / "x.parquet")
    for name in ("../../x.parquet", str(tmp_path / "x.parquet"), "none.parquet", ""):
        edited = replaced(content, ("input", "file"), name)
        (folder / "files" / f"{content['name']}.json").write_text(json.dumps(edited))
        with pytest.raises(FormatError, match="no file"):
            load_cases(folder)


@pytest.mark.parametrize("field, other", [("plain", "01000080"), ("value", "-5")])
def test_plain_and_value_of_a_hash_must_agree(tmp_path, field, other):
    content = next(as_json(case) for case in CASES if case.layer == "xxh64" and case.outcome
                   == "hashed" and case.input["physical_type"] == "INT32" and "value" in case.input
                   and case.input.get("logical_type") is None)
    edited = replaced(content, ("input", field), other)
    assert len(failures(load_cases(folder_with(tmp_path, "xxh64", edited)))) == 1


def test_nothing_lies_unread_beside_the_vectors(tmp_path):
    folder = folder_with(tmp_path, "aad", as_json(ONE_OF_EACH["aad", "build", "built"]))
    (folder / "haeders.json").write_text("{}")
    with pytest.raises(FormatError, match=r"haeders\.json"):
        load_cases(folder)
    (folder / "haeders.json").unlink()
    (folder / "files" / "lonely.parquet").write_bytes(b"")
    with pytest.raises(FormatError, match=r"lonely\.parquet"):
        load_cases(folder)


# --- the command ---------------------------------------------------------------------------------

def test_the_command_shows_a_table(tmp_path):
    junit = tmp_path / "results.xml"
    done = CliRunner().invoke(main, ["validate", str(VECTORS), "--layer", "headers",
                                     "--layer", "aad", "--junit", str(junit)])
    assert done.exit_code == 0, done.output
    counts = Counter(case.layer for case in CASES)
    assert re.search(rf"headers +{counts['headers']} +{counts['headers']} +0 +0", done.output)
    assert "blocks" not in done.output
    suites = {suite.get("name"): suite for suite in ElementTree.parse(junit).getroot()}
    assert {name: int(suite.get("tests")) for name, suite in suites.items()} \
        == {"headers": counts["headers"], "aad": counts["aad"]}
    assert all(suite.get("failures") == "0" for suite in suites.values())
    assert len(suites["aad"]) == counts["aad"] and not len(suites["aad"][0])


def test_failures_are_named(tmp_path):
    edited = expectations(ONE_OF_EACH["headers", "decode", "malformed"])[0]
    folder = folder_with(tmp_path, "headers", edited)
    junit = tmp_path / "results.xml"
    done = CliRunner().invoke(main, ["validate", str(folder), "--junit", str(junit)])
    assert done.exit_code == 1
    assert f"{edited['name']}: expected decoded, got malformed" in done.output
    [[case]] = ElementTree.parse(junit).getroot()
    assert case.find("failure").get("message") == "expected decoded, got malformed"


def test_wrong_usage_of_the_command(tmp_path):
    run = CliRunner().invoke
    assert run(main, ["validate", str(VECTORS), "--layer", "typo"]).exit_code == 2
    assert run(main, ["validate", str(VECTORS), "--against", " "]).exit_code == 2
    assert run(main, ["validate", str(tmp_path / "none")]).exit_code == 2
    assert run(main, ["validate", str(tmp_path)]).exit_code == 3
    (tmp_path / "aad.json").write_text('{"layer": "aad", "cases": [{"typo": 1}]}')
    broken = run(main, ["validate", str(tmp_path)])
    assert broken.exit_code == 3 and "typo" in broken.output
    assert run(main, ["validate", str(VECTORS), "--layer", "aad", "--against",
                      "/no/such/program"]).exit_code == 3


# --- other implementations -----------------------------------------------------------------------

def program(code: str, **options) -> ExternalProgram:
    """A program that answers each line with what ``answer`` makes of it."""
    source = f"import os, sys, time\n{code}\nfor line in sys.stdin:\n" \
             "    print(answer(line.rstrip('\\n').split('\\t')), flush=True)\n"
    return ExternalProgram(shlex.join([sys.executable, "-c", source]), **options)


def test_a_program_is_asked_as_the_readme_says():
    case = next(case for case in CASES if case.name == "header_32_bytes")
    echo = "def answer(fields): return 'skip\\treason=' + '|'.join(fields)"
    with program(echo) as other:
        with pytest.raises(Skipped) as asked:
            other.answer(case)
        assert str(asked.value) == "headers|decode|data=15401c1c00001c1c00001c1c000000"
        with pytest.raises(Skipped) as asked:
            other.answer(ONE_OF_EACH["fold-merge", "merge", "merged"])
        assert re.fullmatch(r"fold-merge\|merge\|bitsets=([0-9a-f]+,)+", str(asked.value))
        with pytest.raises(Skipped) as asked:
            other.answer(ONE_OF_EACH["key-material", "unwrap", "unwrapped"])
        assert "master_keys=kf:30313233343536373839303132333435," in str(asked.value)


@pytest.mark.parametrize(("reply", "message"), [
    ("built", "the fields are none, not aad"),
    ("built\taad=00\tmore=1", "the fields are aad, more, not aad"),
    ("decoded\taad=00", "unknown outcome 'decoded'"),
    ("", "unknown outcome ''"),
    ("built\taad=00", "aad: expected"),
    ("invalid_ordinal", "expected built, got invalid_ordinal"),
])
def test_a_wrong_reply_fails(reply, message):
    with program(f"def answer(fields): return {reply!r}") as other:
        [result] = run_cases([ONE_OF_EACH["aad", "build", "built"]], other)
    assert result.result == "failed" and message in result.message


def test_a_program_that_dies_is_started_again():
    code = """
def answer(fields):
    if fields[0] == 'headers':
        print('out of luck', file=sys.stderr, flush=True)
        os._exit(7)
    return 'invalid_ordinal'
"""
    bad, good = ONE_OF_EACH["headers", "decode", "malformed"], \
        ONE_OF_EACH["aad", "build", "invalid_ordinal"]
    with program(code) as other:
        results = run_cases([good, bad, good], other)
    assert [result.result for result in results] == ["passed", "failed", "passed"]
    assert "exit code 7" in results[1].message and "out of luck" in results[1].message


def test_a_program_that_dies_before_it_reads():
    with ExternalProgram("sh -c 'echo missing library >&2; exit 3'") as other:
        results = run_cases([ONE_OF_EACH["aad", "build", "built"]] * 3, other)
    for result in results:
        assert result.result == "failed"
        assert "exit code 3" in result.message and "missing library" in result.message


@pytest.mark.slow
def test_a_line_too_many_does_not_answer_the_next_case():
    case = ONE_OF_EACH["aad", "build", "invalid_ordinal"]
    with program("def answer(fields): return 'debug\\ninvalid_ordinal'") as other:
        first, = run_cases([case], other)
        second, = run_cases([case], other)
    assert first.message == "unknown outcome 'debug'"
    assert "more than one line" in second.message


def test_a_field_that_occurs_twice_fails():
    case = next(case for case in CASES if case.name == "header_32_bytes")
    code = "def answer(fields): return 'decoded\\tnum_bytes=1\\tnum_bytes=32\\theader_size=15'"
    with program(code) as other, pytest.raises(BadReply, match="duplicate"):
        other.answer(case)


@pytest.mark.parametrize("outcome", LAYERS["files"]["read"].outcomes)
def test_files_in_the_protocol(outcome):
    """What is expected, said line by line, comes back as it stands in the sidecar."""
    case = ONE_OF_EACH["files", "read", outcome]
    filters = case.output["filters"]
    listed = "".join(f"{f['row_group']}:{f['column']}:{'encrypted' if f['encrypted'] else 'plain'}:"
                     f"{f['num_bytes']}:{f['sha256']}," for f in filters)
    answers = "".join(f"{str(probe['answer']).lower()},"
                      for f in filters for probe in f["probes"])
    at = f"\\tat={case.output['at']}" if "at" in case.output else ""
    code = f"def answer(fields): return '{outcome}\\tfilters={listed}\\tanswers={answers}{at}'"
    with program(code) as other:
        assert other.answer(case) == (outcome, case.output)


@pytest.mark.slow
def test_a_silent_program_fails():
    with program("def answer(fields): time.sleep(60)", timeout=0.5) as other, \
            pytest.raises(BadReply, match=r"0\.5 seconds"):
        other.answer(ONE_OF_EACH["aad", "build", "built"])


def test_skipped_cases_are_counted():
    code = "def answer(fields): return 'skip\\treason=no AAD here'"
    with program(code) as other:
        [result] = run_cases([ONE_OF_EACH["aad", "build", "built"]], other)
    assert (result.result, result.message) == ("skipped", "no AAD here")
