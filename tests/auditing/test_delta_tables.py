"""An audit reads the log of a Delta Lake table, and names plaintext files and values in the log."""

import json
import os
import random
import time

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from secure_bloom import EncryptionConfiguration, audit, write_dataset, write_table
from secure_bloom.auditing.result import FileAudit
from secure_bloom.auditing.sarif import to_sarif
from secure_bloom.auditing.tables import _by_folder
from secure_bloom.keys import InMemoryKms
from secure_bloom.policy import Policy

KMS = InMemoryKms({"footer": b"f" * 16, "pii": b"p" * 16})
ENCRYPTED = {"encryption": EncryptionConfiguration("footer", {"pii": ["ssn"]}), "keys": KMS}
POLICY = Policy(["ssn"])
SECRET = "078-05-1120"


def people(first=SECRET):
    return pa.table({"ssn": [first, "912-44-0000"], "city": ["Rome", "Oslo"]})


def put(table, name, rows=None, **options):
    """Write a file below a table, and return its path relative to it."""
    (table / name).parent.mkdir(parents=True, exist_ok=True)
    write_table(people() if rows is None else rows, table / name, **options)
    return name


def added(name, stats=None, **more):
    return {"add": {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 0,
                    "dataChange": True, **({} if stats is None else {"stats": json.dumps(stats)}),
                    **more}}


def commit(table, version, *actions, name="{:020}.json"):
    (table / "_delta_log").mkdir(exist_ok=True)
    path = table / "_delta_log" / name.format(version)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def checkpoint(table, name, adds):
    """Write a checkpoint as Delta does, with statistics in columns."""
    bounds = pa.struct({"ssn": pa.string(), "city": pa.string(), "when": pa.timestamp("ns")})
    parsed = pa.struct({"minValues": bounds, "maxValues": bounds})
    add = pa.struct({"path": pa.string(), "stats": pa.string(), "stats_parsed": parsed,
                     "partitionValues": pa.map_(pa.string(), pa.string())})
    (table / "_delta_log").mkdir(exist_ok=True)
    pq.write_table(pa.table({"add": pa.array([None, *adds], add),
                             "txn": pa.array([None] * (len(adds) + 1), pa.string())}),
                   table / "_delta_log" / name)


def about(result, kind="log"):
    return [(finding.column, *finding.evidence) for finding in result.findings
            if finding.kind == kind]


def schema_of(name):
    """Return the metadata of a table with one column, as delta-rs repeats it in a commit."""
    return {"id": "5", "name": None, "schemaString": json.dumps({"type": "struct", "fields": [
        {"name": name, "type": "string", "nullable": True, "metadata": {}}]})}


BOUNDS = {"numRecords": 2, "minValues": {"ssn": SECRET, "city": "Oslo"},
          "maxValues": {"ssn": SECRET}, "nullCount": {"ssn": 0}}
SAFE = {"numRecords": 2, "minValues": {"city": "Oslo"}, "nullCount": {"ssn": 0}}


@pytest.mark.parametrize(("keys", "policy"), [(KMS, None), (None, POLICY)], ids=["keys", "policy"])
def test_statistics_of_sensitive_columns_in_commits_checksums_and_checkpoints(tmp_path, keys,
                                                                              policy):
    name = put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, {"protocol": {}}, added(name, BOUNDS))
    commit(tmp_path, 0, {"allFiles": [added(name, BOUNDS)["add"]]}, name="{:020}.crc")
    (tmp_path / "_delta_log" / f".{0:020}.json.crc").write_bytes(b"crc\0\xff")  # Hadoop's
    commit(tmp_path, 1, added(name, SAFE))
    checkpoint(tmp_path, f"{1:020}.checkpoint.parquet", [{"path": name, "stats": json.dumps(SAFE)}])
    checkpoint(tmp_path, f"{2:020}.checkpoint.parquet",
               [{"path": name, "stats_parsed": {"maxValues": {"ssn": SECRET, "when": 1}}}])
    result = audit(tmp_path, keys, policy=policy)
    [finding] = [one for one in result.findings if one.kind == "log"]
    assert finding.column == "ssn" and finding.severity == "error" and not result.ok
    assert finding.file == str(tmp_path / "_delta_log")
    assert finding.evidence == (f"found in 3 files: {0:020}.crc, {0:020}.json, "
                                f"{2:020}.checkpoint.parquet",)
    assert SECRET not in json.dumps([result.to_dict(), to_sarif(result)])


def test_a_log_without_such_values_is_accepted(tmp_path):
    write_dataset(people(), tmp_path / "t", **ENCRYPTED)
    [file] = (tmp_path / "t").glob("*.parquet")
    commit(tmp_path / "t", 0, added(file.name, SAFE))
    checkpoint(tmp_path / "t", f"{0:020}.checkpoint.parquet",
               [{"path": file.name, "stats": json.dumps(SAFE)}])
    result = audit(tmp_path, KMS)
    assert result.ok and result.complete and not result.findings


@pytest.mark.parametrize(("predicate", "leaks"), [
    (f'["(ssn#1271 = {SECRET})"]', True),
    (f"ssn = '{SECRET}'", True),
    ("ssn > 5", True),
    (f'["(city#1 = {SECRET})"]', False),       # another column
    ('["(ssn#3618 = ssn#1)"]', False),         # of a MERGE
    ('["isnotnull(ssn#1)"]', False),
    ("target.ssn = source.ssn", False),
    ("target.\"ssn\" = source.\"ssn\"", False),
    ("length(ssn) = 11 AND ssn IS NOT NULL", False),
    ('["(myssn#3 = 7)"]', False),
    ("[]", False),
    ('[{"predicate":"((ssn#1 = ssn#2) AND (city#3 = city#4))","actionType":"update"}]', False),
    ('[{"actionType":"delete"}]', False),
    (f'[{{"predicate":"(ssn#1 = {SECRET})","actionType":"update"}}]', True),
])
def test_values_in_conditions_of_commands(tmp_path, predicate, leaks):
    name = put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, added(name, SAFE))
    commit(tmp_path, 1, {"commitInfo": {"operation": "DELETE",
                                        "operationParameters": {"predicate": predicate}}})
    assert about(audit(tmp_path, KMS)) == ([("ssn", f"found in 1 file: {1:020}.json")]
                                           if leaks else [])


@pytest.mark.parametrize(("action", "leaks"), [
    ({"metaData": {"configuration": {"delta.constraints.c": f"ssn <> '{SECRET}'"}}}, True),
    ({"metaData": {"configuration": {"delta.constraints.c": "length(ssn) = 11"}}}, False),
    ({"metaData": {"configuration": {"parquet.encryption.column.keys": "key-1:ssn",
                                     "delta.dataSkippingStatsColumns": "city,ssn"}}}, False),
    ({"metaData": {"description": f"The ssn, such as {SECRET}"}}, True),
    ({"metadata": {"configuration": {"ssn": SECRET}}}, True),  # of a version checksum
    ({"metaData": {"schemaString": json.dumps({"type": "struct", "fields": [
        {"name": "ssn", "type": "string", "metadata": {"CURRENT_DEFAULT": f"'{SECRET}'"}}]})}},
     True),
    ({"metaData": {"schemaString": json.dumps({"type": "struct", "fields": [
        {"name": "ssn", "type": "string", "metadata": {"CURRENT_DEFAULT": "NULL"}},
        {"name": "n", "type": "int", "metadata": {"delta.invariants": json.dumps(
            {"expression": {"expression": "n > 5"}})}}]})}}, False),
    ({"metaData": {"schemaString": json.dumps({"type": "struct", "fields": [
        {"name": "ssn", "type": "string", "metadata": {
            "delta.generationExpression": f"concat('{SECRET}', city)"}}]})}}, True),
    ({"metaData": {"schemaString": json.dumps({"type": "struct", "fields": [
        {"name": "city", "type": "string", "metadata": {"CURRENT_DEFAULT": "'Rome'"}},
        {"name": "ssn", "type": "string", "metadata": {
            "delta.generationExpression": "lower(city)"}}]})}}, False),
    ({"metaData": {"format": {"provider": "parquet", "options": {"ssn": SECRET}}}}, True),
    ({"commitInfo": {"operation": "ADD CONSTRAINT", "operationParameters": {
        "name": "c", "expr": f"ssn != '{SECRET}'"}}}, True),
    ({"commitInfo": {"operation": "CREATE TABLE", "operationParameters": {
        "properties": json.dumps({"note": f"ssn={SECRET}"})}}}, True),
    ({"commitInfo": {"operation": "CREATE TABLE", "operationParameters": {
        "partitionBy": '["ssn"]', "clusterBy": '["ssn", "city"]', "location": "file:///7/ssn/5",
        "metadata": json.dumps(schema_of("ssn"))}}}, False),
    ({"commitInfo": {"operation": "DELETE", "operationParameters": {"predicate": "[]"},
                     "userMetadata": json.dumps({"erased": [{"ssn": SECRET}]})}}, True),
    ({"commitInfo": {"operation": "DELETE", "userMetadata": f"request of ssn {SECRET}"}}, True),
    ({"commitInfo": {"operation": "DELETE", "userMetadata": "[[[[ the ssn column"}}, False),
    ({"commitInfo": {"operation": "DELETE", "userMetadata": "[" * 100_000 + "ssn"}}, False),
    ({"add": {"path": "a.parquet", "tags": {"ssn": SECRET}}}, True),
    ({"add": {"path": "a.parquet", "tags": {"INSERTION_TIME": "5"}}}, False),
    ({"remove": {"path": "b.parquet", "tags": {"zone": f"ssn from {SECRET}"}}}, True),
    ({"txn": {"appId": f"ssn-{SECRET}", "version": 1}}, True),
    ({"domainMetadata": {"domain": "d", "configuration": json.dumps({"ssn": {"max": SECRET}})}},
     True),
], ids=lambda it: str(it)[:70])
def test_values_in_any_text_of_the_log(tmp_path, action, leaks):
    name = put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, schema(), added(name, SAFE))
    commit(tmp_path, 1, action)
    for keys, policy in ((KMS, None), (None, POLICY)):
        result = audit(tmp_path, keys, policy=policy)
        assert about(result) == ([("ssn", f"found in 1 file: {1:020}.json")] if leaks else [])
        assert SECRET not in json.dumps([result.to_dict(), to_sarif(result)])


def test_values_in_texts_of_a_checkpoint(tmp_path):
    name = put(tmp_path, "a.parquet", **ENCRYPTED)
    texts = pa.map_(pa.string(), pa.string())
    options = pa.struct({"provider": pa.string(), "options": texts})
    for number, (kind, field, type_, value) in enumerate([
            ("metaData", "format", options, {"provider": "parquet", "options": [("ssn", SECRET)]}),
            ("metaData", "configuration", texts, {"delta.constraints.c": f"ssn <> '{SECRET}'"}),
            ("add", "tags", texts, {"ssn": SECRET}), ("remove", "tags", texts, {"x": "ssn 5"}),
            ("txn", "appId", pa.string(), "ssn 5"),
            ("domainMetadata", "configuration", pa.string(), json.dumps({"ssn": SECRET}))]):
        (tmp_path / "_delta_log").mkdir(exist_ok=True)
        value = list(value.items()) if type_ == texts else value
        pq.write_table(pa.table({
            "add" if kind != "add" else "x": pa.array([{"path": name}]),
            kind: pa.array([{"path": name, field: value}],
                           pa.struct({"path": pa.string(), field: type_}))}),
            tmp_path / "_delta_log" / f"{number:020}.checkpoint.parquet")
    [(column, evidence)] = about(audit(tmp_path, KMS))
    assert column == "ssn" and evidence.startswith("found in 6 files: ")


def test_values_in_the_pointer_to_the_last_checkpoint(tmp_path):
    commit(tmp_path, 0, added(put(tmp_path, "a.parquet", **ENCRYPTED), SAFE))
    last = {"version": 0, "size": 1, "v2Checkpoint": {"path": "0.checkpoint.parquet",
            "nonFileActions": [{"txn": {"appId": f"ssn-{SECRET}", "version": 1}}]}}
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text(json.dumps(last))
    assert about(audit(tmp_path, KMS)) == [("ssn", "found in 1 file: _last_checkpoint")]
    del last["v2Checkpoint"]["nonFileActions"]
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text(json.dumps(last))
    assert audit(tmp_path, KMS).ok


@pytest.mark.slow
def test_a_hostile_text_takes_no_longer_than_its_length(tmp_path):
    name = put(tmp_path, "a.parquet", **ENCRYPTED)
    for number, text in enumerate(("a" * 400_000, "length(" * 50_000, "'\"" * 200_000,
                                   "ssn " * 100_000, "[" + "[1]," * 100_000 + "1]")):
        commit(tmp_path, number, added(name, SAFE), {"commitInfo": {"operationParameters": {
            "predicate": text + "ssn"}, "userMetadata": text}})
    start = time.monotonic()
    audit(tmp_path, KMS)
    assert time.monotonic() - start < 120  # a quadratic search takes hours


def test_a_table_in_another_filesystem(tmp_path):
    name = put(tmp_path / "lake" / "people", "a.parquet", **ENCRYPTED)
    put(tmp_path / "lake" / "people", "plain.parquet")
    commit(tmp_path / "lake" / "people", 0, added(name, BOUNDS), added("plain.parquet"))
    filesystem = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    for place in ("lake", "lake/people/", "/lake/people"):
        found = audit(place, KMS, filesystem=filesystem).findings
        assert {(one.kind, one.column) for one in found} == {("log", "ssn"), ("unencrypted", "ssn")}
        assert [one.message.rpartition(", ")[2] for one in found if one.kind == "unencrypted"] \
            == ["a live file"]


def test_values_of_a_sensitive_partition(tmp_path):
    name = put(tmp_path, "city=Rome/a.parquet", people().drop(["city"]), **ENCRYPTED)
    commit(tmp_path, 0, added(name, SAFE, partitionValues={"city": "Rome"}))
    assert about(audit(tmp_path, KMS)) == []
    assert ("city", f"found in 1 file: {0:020}.json") \
        in about(audit(tmp_path, KMS, policy=Policy(["ssn", "city"])))


def test_plaintext_files_beside_encrypted_ones_live_or_not(tmp_path):
    table = tmp_path / "lake" / "people"
    names = [put(table, "a.parquet", **ENCRYPTED), put(table, "old.parquet"),
             put(table, "x=1%20/live.parquet"), put(table, "_change_data/cdc-0.parquet")]
    (table / "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin").write_bytes(b"\1")
    commit(table, 0, added(names[0], SAFE), added("old.parquet", SAFE),
           added("x=1%2520/live.parquet", SAFE))
    commit(table, 1, {"remove": {"path": "old.parquet"}}, {"cdc": {"path": names[3]}})
    result = audit(tmp_path, KMS)
    found = {os.path.relpath(one.file, table): one.message.split(", but not in this one, ")[1]
             for one in result.findings if one.kind == "unencrypted" and one.column == "ssn"}
    assert found == {"x=1%20/live.parquet": "a live file",
                     "old.parquet": "a file of an older version, or of no version",
                     "_change_data/cdc-0.parquet": "a file of the change data feed"}
    assert len(result.findings) == 3 and len(result.files) == 4
    # Without keys, nobody knows which columns are encrypted, but plaintext files are seen.
    stranger = audit(tmp_path)
    assert {os.path.relpath(one.file, table) for one in stranger.findings
            if one.kind == "unencrypted" and one.column is None} == found.keys()
    # With a policy, each file is reported once.
    assert len(audit(tmp_path, KMS, policy=POLICY).findings) == 3


def test_a_file_without_rows_is_no_leak(tmp_path):
    names = [put(tmp_path, "a.parquet", **ENCRYPTED),
             put(tmp_path, "b.parquet", people()[:0], **ENCRYPTED),
             put(tmp_path, "c.parquet", people()[:0])]
    commit(tmp_path, 0, *(added(name, SAFE) for name in names))
    assert audit(tmp_path, KMS).ok


@pytest.mark.parametrize(("checkpoints", "commits", "live"), [
    ([], [0, 1], "a live file"),
    ([], [1], None),                                                  # the beginning is missing
    ([f"{1:020}.checkpoint.parquet"], [2], "a live file"),
    ([f"{1:020}.checkpoint.parquet"], [3], None),                     # a gap
    ([f"{1:020}.checkpoint.{1:010}.{2:010}.parquet"], [], None),      # half of a checkpoint
    ([f"{1:020}.checkpoint.{n:010}.{2:010}.parquet" for n in (1, 2)], [], "a live file"),
    ([f"{0:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"], [1], None),
])
def test_which_files_are_live_is_said_only_if_the_log_says_it(tmp_path, checkpoints, commits, live):
    name = put(tmp_path, "plain.parquet")
    put(tmp_path, "a.parquet", **ENCRYPTED)
    for one in checkpoints:
        checkpoint(tmp_path, one, [{"path": name}])
    for version in commits:
        commit(tmp_path, version, added(name))
    [finding] = audit(tmp_path, KMS).findings
    assert finding.message.endswith(live or "a file in the folder of the table")


def test_commits_that_a_catalog_manages_are_read_but_do_not_say_what_is_live(tmp_path):
    put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, added(put(tmp_path, "plain.parquet"), SAFE))
    (tmp_path / "_delta_log" / "_staged_commits").mkdir()
    commit(tmp_path, 1, added("a.parquet", BOUNDS), name="_staged_commits/{:020}.3a0d65cd.json")
    result = audit(tmp_path, KMS)
    assert about(result) == [("ssn", f"found in 1 file: {1:020}.3a0d65cd.json")]
    [plain] = [one for one in result.findings if one.kind == "unencrypted"]
    assert plain.message.endswith("a file in the folder of the table")


@pytest.mark.parametrize("content", [
    b"{", b"[1]\n", b'{"add": 1}\n', b'{"add": {"stats": "{"}}\n', b'{"add": {"path": 5}}\n',
    b'{"add": {"stats": "[1]"}}\n', b'{"commitInfo": {"operationParameters": [1]}}\n',
    b"[" * 100_000 + b"\n", b'{"allFiles": [1]}\n', b"\xff\xfe\n",
    b'{"add": {"partitionValues": "x"}}\n', b'{"add": {"partitionValues": [[5, "x"]]}}\n',
    b'{"metaData": {"schemaString": "{}"}}\n', b'{"metaData": {"schemaString": 5}}\n',
    b'{"metaData": {"schemaString": "{\\"fields\\": [5]}"}}\n', b'"' + b"x" * (33 << 20) + b'"'],
    ids=lambda content: content[:24].decode("latin-1"))
def test_a_log_that_is_none_is_a_finding(tmp_path, content):
    put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0).write_bytes(content)
    [finding] = audit(tmp_path, KMS).findings
    assert finding.kind == "damaged" and finding.file.endswith(f"{0:020}.json")
    assert "x" * 99 not in finding.message


@pytest.mark.parametrize("content", [
    b'{"commitInfo": {"x": [' + b"[]," * 500_000 + b"[]]}}",
    b'{"add": {"path": "a.parquet", "stats": "{\\"minValues\\": {\\"a\\": ['
    + b"\\u005b]," * 200_000 + b'[]]}}"}}'], ids=["a line", "a text in a line"])
def test_a_log_with_more_values_than_any_table_has_is_not_parsed(tmp_path, content):
    """Each takes far more memory than bytes. A text may spell brackets in another way."""
    put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0).write_bytes(content)
    [finding] = audit(tmp_path, KMS).findings
    assert finding.kind == "damaged" and finding.file.endswith(f"{0:020}.json")
    assert "too many values" in finding.message


def test_a_checkpoint_that_is_none_is_a_finding(tmp_path):
    put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, added("a.parquet"))
    (tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet").write_bytes(b"PAR1" * 9)
    pq.write_table(pa.table({"add": ["x"]}), tmp_path / "_delta_log" / "1.checkpoint.parquet")
    [finding] = audit(tmp_path, KMS).findings
    assert finding.kind == "damaged" and finding.file.endswith(f"{0:020}.checkpoint.parquet")


@pytest.mark.parametrize("add", [
    {"stats_parsed": {"minValues": {"tags": ["x"]}}}, {"path": ["x"]}, {"stats": {"x": 1}},
    {"stats": "[1]"}, {"partitionValues": {"city": ["x"]}}, {"partitionValues": ["city"]},
    {"stats": b"\xff"}], ids=str)
def test_a_checkpoint_with_other_types_is_a_finding_or_nothing(tmp_path, add):
    put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, added("a.parquet"))
    pq.write_table(pa.table({"add": [add]}),
                   tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet")
    assert {one.kind for one in audit(tmp_path, KMS, policy=POLICY).findings} <= {"damaged"}


def test_a_file_that_was_not_finished_is_not_checked(tmp_path):
    put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, added("a.parquet"))
    commit(tmp_path, 1, name="_commit_80a083e8.json.tmp").write_text('{"add": {"pa')
    result = audit(tmp_path, KMS)
    assert result.ok and not result.complete


# --- what only the log knows ---------------------------------------------------------------------

def schema(**mapped):
    """Return the schema of a table, as the log has it; ``mapped`` are names in files by name."""
    person = {"type": "struct", "fields": [
        {"name": "ssn", "type": "string",
         "metadata": {"delta.columnMapping.physicalName": mapped.get("person.ssn", "ssn")}}]}
    fields = [{"name": name, "type": "string", "metadata": (
        {"delta.columnMapping.physicalName": mapped[name]} if name in mapped else {})}
        for name in ("ssn", "city")]
    return {"metaData": {"schemaString": json.dumps({"type": "struct", "fields": [
        *fields, {"name": "person", "type": person, "metadata": {}}]})}}


def where(condition):
    return {"commitInfo": {"operationParameters": {"predicate": condition}}}


def test_conditions_are_searched_for_columns_of_the_policy_that_no_file_shows(tmp_path):
    name = put(tmp_path, "a.parquet", **ENCRYPTED)  # its footer is encrypted
    commit(tmp_path, 0, schema(), added(name, SAFE))
    commit(tmp_path, 1, where(f"(city#1 = {SECRET})"))
    assert about(audit(tmp_path, policy=POLICY)) == []
    commit(tmp_path, 2, where(f"(ssn#1 = {SECRET})"))
    assert about(audit(tmp_path, policy=POLICY)) == [("ssn", f"found in 1 file: {2:020}.json")]


def test_with_column_mapping_the_names_of_the_table_count(tmp_path):
    mapped = people().rename_columns(["col-1", "col-2"])
    name = put(tmp_path, "a.parquet", mapped, keys=KMS,
               encryption=EncryptionConfiguration("footer", {"pii": ["col-1"]}))
    bounds = {"minValues": {"col-1": SECRET, "col-2": "Oslo", "person": {"col-3": "x"}}}
    names = {"ssn": "col-1", "city": "col-2", "person.ssn": "col-3"}
    commit(tmp_path, 0, schema(**names), added(name, bounds))
    commit(tmp_path, 1, where(f"(ssn#1 = {SECRET})"))
    evidence = [("ssn", f"found in 1 file: {number:020}.json") for number in (1, 0)]
    assert about(audit(tmp_path, KMS)) == evidence
    assert about(audit(tmp_path, policy=POLICY)) == evidence
    assert about(audit(tmp_path, policy=Policy(["person.ssn"]))) \
        == [("person.ssn", evidence[1][1])]


def test_a_table_in_a_table_is_another_one(tmp_path):
    commit(tmp_path, 0, added(put(tmp_path, "a.parquet", **ENCRYPTED), SAFE))
    commit(tmp_path / "inner", 0, added(put(tmp_path / "inner", "b.parquet"), SAFE))
    assert audit(tmp_path, KMS).findings == []


@pytest.mark.parametrize("place", ["t", "/t", "", "/"])
def test_the_root_of_a_file_system_may_be_a_table(tmp_path, place):
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
    table = tmp_path / "t"
    commit(table, 0, added(put(table, "a.parquet", **ENCRYPTED), SAFE),
           added(put(table, "plain.parquet"), BOUNDS))
    system = SubTreeFileSystem(str(tmp_path if "t" in place else table), LocalFileSystem())
    result = audit(place, KMS, filesystem=system)
    assert sorted(one.kind for one in result.findings) == ["log", "unencrypted"]
    assert [one.message.endswith("a live file") for one in result.findings].count(True) == 1


def test_many_tables_take_no_longer_than_their_files():
    files = [FileAudit(f"/w/t{table}/p=1/{number}") for table in range(3000)
             for number in range(10)]
    found, others = _by_folder(files, [f"/w/t{table}" for table in range(3000)])
    assert {len(own) for own in found.values()} == {10} and not others


@pytest.mark.slow
def test_an_audit_survives_changed_bytes_of_a_log(tmp_path):
    name = put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, added(name, BOUNDS), {"commitInfo": {"operationParameters": {
        "predicate": '["(ssn#1 = 5)"]'}}})
    checkpoint(tmp_path, f"{0:020}.checkpoint.parquet", [
        {"path": name, "stats": json.dumps(BOUNDS), "stats_parsed": {"maxValues": {"ssn": "x"}}}])
    changes = random.Random(7)
    for path in sorted((tmp_path / "_delta_log").iterdir()):
        content = path.read_bytes()
        for _ in range(60):
            changed = bytearray(content)
            for _ in range(changes.randint(1, 4)):
                changed[changes.randrange(len(changed))] = changes.choice([0, 34, 91, 125, 255])
            path.write_bytes(changed[:changes.randint(len(changed) // 2, len(changed))]
                             if changes.random() < 0.2 else changed)
            assert {one.kind for one in audit(tmp_path, KMS).findings} <= {"log", "damaged"}
        path.write_bytes(content)


def test_an_encrypted_checkpoint_needs_its_keys_and_leaks_nothing(tmp_path):
    name = put(tmp_path, "a.parquet", **ENCRYPTED)
    commit(tmp_path, 0, added(name, SAFE))
    add = pa.array([{"path": name, "stats": json.dumps(BOUNDS)}])
    write_table(pa.table({"add": add}), tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet",
                encryption=EncryptionConfiguration("footer", uniform_encryption=True), keys=KMS)
    assert audit(tmp_path, KMS).ok
    stranger = audit(tmp_path, policy=POLICY)
    assert stranger.missing_keys and not about(stranger)


def test_delta_rs_appends_plaintext_and_its_statistics_tell_values(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    from deltalake.transaction import AddAction, create_table_with_add_actions
    write_dataset(people(), tmp_path / "people", bloom_filters=["ssn"], **ENCRYPTED)
    [file] = (tmp_path / "people").glob("*.parquet")
    create_table_with_add_actions(
        str(tmp_path / "people"), deltalake.Schema.from_arrow(people().schema),
        [AddAction(file.name, file.stat().st_size, {}, int(time.time() * 1000), True,
                   json.dumps(SAFE))])
    assert audit(tmp_path / "people", KMS).ok
    deltalake.write_deltalake(tmp_path / "people", people(), mode="append")
    deltalake.DeltaTable(tmp_path / "people").create_checkpoint()
    result = audit(tmp_path / "people", KMS)
    [plain] = [one for one in result.findings if one.kind == "unencrypted"]
    assert plain.column == "ssn" and plain.message.endswith("a live file")
    assert about(result) == [("ssn", f"found in 2 files: {1:020}.checkpoint.parquet, "
                                     f"{1:020}.json")]
