"""The audit of Iceberg tables: values of sensitive columns in their metadata."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from secure_bloom import Policy, UniformKey, audit, write_table
from secure_bloom.auditing.compliance import check_files
from secure_bloom.auditing.iceberg_metadata import newest, read_definition, read_metadata_file
from secure_bloom.auditing.iceberg_tables import iceberg_tables
from tests.storage.avro_files import avro_file, binary, field, long

pytestmark = pytest.mark.slow  # to import pyiceberg takes a second

catalogs = pytest.importorskip("pyiceberg.catalog.sql")

POLICY = Policy(footer_key="footer", columns={"ssn": "pii"})
SECRET = b"078-05-1120"
PEOPLE = pa.table({"ssn": [SECRET.decode()], "amount": [1]})


def bounds(key: str, **more: str) -> dict:
    """Return the schema of a manifest's entry that has only lower bounds."""
    return {"type": "record", "name": "entry", "fields": [field("lower_bounds", 125, {
        "type": "array", "items": {"type": "record", "name": "bound", "fields": [
            field("key", 126, key), field("value", 127, "bytes")]}, **more})]}


ENTRY = bounds("int", logicalType="map")


@pytest.fixture
def table(tmp_path):
    """A table without encryption, which pyiceberg has written."""
    catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db",
                                  warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", PEOPLE.schema)
    table.append(PEOPLE)
    return table


def folder(table) -> Path:
    return Path(table.location().removeprefix("file://"))


def data_file(table) -> str:
    [task] = table.scan().plan_files()
    return task.file.file_path.removeprefix("file://")


def in_log(result) -> dict:
    """Return the findings about the metadata: their evidence, by column."""
    return {finding.column: finding.evidence for finding in result.findings
            if finding.kind == "log"}


def add_statistics(table, *fields: int, flags: int = 0) -> Path:
    """Write a Puffin file with a sketch of some columns."""
    blobs = [{"type": "apache-datasketches-theta-v1", "fields": [id_], "offset": 4, "length": 0}
             for id_ in fields]
    footer = json.dumps({"blobs": [*blobs, {"type": "deletion-vector-v1", "fields": [2]}]}).encode()
    path = folder(table) / "metadata" / "1.stats"
    path.write_bytes(b"PFA1PFA1" + footer + len(footer).to_bytes(4, "little")
                     + flags.to_bytes(4, "little") + b"PFA1")
    return path


def add_manifest(table, path: str, **more) -> Path:
    """Write a manifest with one data file, and a manifest list with it in place of the first."""
    from pyiceberg import manifest
    from pyiceberg.typedef import Record
    file = manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA, file_path=path, partition=Record(), record_count=1,
        file_format=manifest.FileFormat.PARQUET, file_size_in_bytes=1, **more)
    own = folder(table) / "metadata" / "9-m0.avro"
    with manifest.write_manifest(2, table.spec(), table.schema(), table.io.new_output(str(own)), 1,
                                 "null") as writer:
        writer.add_entry(manifest.ManifestEntry.from_args(
            status=manifest.ManifestEntryStatus.ADDED, snapshot_id=1, data_file=file))
        gone = manifest.DataFile.from_args(
            content=manifest.DataFileContent.DATA, file_path="/gone", partition=Record(),
            record_count=1, file_format=manifest.FileFormat.PARQUET, file_size_in_bytes=1)
        writer.delete(manifest.ManifestEntry.from_args(snapshot_id=1, sequence_number=1,
                                                       file_sequence_number=1, data_file=gone))
    added = writer.to_manifest_file()
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io)
    with manifest.write_manifest_list(2, table.io.new_output(snapshot.manifest_list), 1, None, 1,
                                      "null") as writer:
        writer.add_manifests([*manifests, added])
    return own


def test_bounds_of_sensitive_columns_are_found_in_manifests(table):
    result = audit(folder(table), policy=POLICY)
    [manifest] = (folder(table) / "metadata").glob("*-m0.avro")
    assert in_log(result) == {"ssn": (f"found in 1 file: {manifest.name}",)}
    assert {finding.kind for finding in result.findings} == {"log", "unencrypted"}
    assert "078-05-1120" not in repr(result.findings) + str([*result.findings])


def test_metadata_files_are_not_taken_for_damaged_parquet(table):
    for place in (folder(table), folder(table).parent):
        result = audit(place)
        assert result.findings == []
        assert [Path(file.file).suffix for file in result.files] == [".parquet"]


@pytest.mark.parametrize("place", ["file:///other/b.parquet", "/other/b.parquet",
                                   "s3://bucket/t/b.parquet", "{t}/../b.parquet"])
def test_data_files_outside_the_folder_are_not_called_checked(table, place):
    """Whether any column is sensitive or not: nobody has looked at them."""
    assert audit(folder(table)).complete
    name = place.format(t=table.location())
    path = add_manifest(table, name)
    result = audit(folder(table))
    [(file, why)] = [(file.file, *file.not_checked) for file in result.files if file.outside]
    assert file == name.removeprefix(f"{table.location()}/") and "not in the audited folder" in why
    assert result.findings == [] and not result.complete
    path.unlink()
    [unread] = [file for file in audit(folder(table)).files if file.not_checked]
    assert unread.not_checked == ["1 manifest of the table: not in this folder"]


def test_hidden_data_files_of_a_table_are_audited(table):
    """pyiceberg's add_files lists them; a reader of folders skips them."""
    with table.transaction() as change:
        change.set_properties({"encryption.key-id": "pii"})
    visible, hidden = data_file(table), folder(table) / "data" / "_x" / "b.parquet"
    hidden.parent.mkdir()
    write_table(PEOPLE, hidden)
    assert {one.file for one in audit(folder(table)).findings if one.kind == "unencrypted"} \
        == {visible}
    add_manifest(table, f"file://{hidden}")
    assert {one.file for one in audit(folder(table)).findings if one.kind == "unencrypted"} \
        == {visible, str(hidden)}


def test_a_copy_of_a_table_has_its_own_files(table, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder(table), copy)
    result = audit(copy)
    assert result.complete and not any(file.outside for file in result.files)
    os.remove(copy / Path(data_file(table)).relative_to(folder(table)))
    [(file, why)] = [(file.file, *file.not_checked) for file in audit(copy).files]
    assert file.startswith(str(copy)) and "does not exist" in why


def test_encrypted_manifests_reveal_nothing_and_their_files_are_unknown(table):
    for path in (folder(table) / "metadata").glob("*.avro"):
        path.write_bytes(b"AGS1" + path.read_bytes())
    result = audit(folder(table))
    [unread] = [file for file in result.files if file.not_checked]
    assert "1 manifest or manifest list cannot be read" in unread.not_checked[0]
    assert not result.complete and result.findings == []
    assert in_log(audit(folder(table), policy=POLICY)) == {}


@pytest.mark.parametrize(("where", "value"), [
    ("properties", {"owner": "ssn 078-05-1120"}), ("properties", {"ssn": "078-05-1120"}),
    ("properties", {"rules": '{"check": "ssn <> \'078-05-1120\'"}'}),
    ("snapshots", [{"summary": {"operation": "delete", "filter": "ssn == '078-05-1120'"}}]),
    ("schemas", [{"fields": [{"id": 1, "name": "ssn", "type": "string",
                              "doc": "such as ssn '078-05-1120'"}]}]),
    ("schemas", [{"fields": [{"id": 1, "name": "ssn", "type": "string",
                              "initial-default": "078-05-1120"}]}]),
    ("schemas", [{"fields": [{"id": 1, "name": "ssn", "type": {"type": "struct", "fields": [
        {"id": 2, "name": "number", "type": "string", "write-default": "078-05-1120"}]}}]}])])
def test_values_in_the_texts_of_metadata_files_are_found(table, where, value):
    """Also in older metadata files, which keep what was removed since."""
    assert "ssn" in in_log(audit(folder(table), policy=POLICY))  # the bounds
    path = folder(table) / "metadata" / "00000-old.gz.metadata.json"
    path.write_bytes(gzip.compress(json.dumps({where: value}).encode()))
    [finding] = [one for one in audit(folder(table), policy=POLICY).findings
                 if "metadata files have values" in one.message]
    assert finding.column == "ssn" and finding.evidence == (f"found in 1 file: {path.name}",)
    assert "078-05-1120" not in repr(finding)
    harmless = {"properties": {"write.metadata.metrics.column.ssn": "counts", "schema.name-mapping."
                               "default": '[{"field-id": 1, "names": ["ssn"]}]',
                               "encryption.key-id": "ssn1"}, "location": "/ssn/1",
                "snapshots": [{"manifest-list": "/ssn/1", "summary": {"total-records": "1"}}]}
    path.write_bytes(gzip.compress(json.dumps(harmless).encode()))
    assert not [one for one in audit(folder(table), policy=POLICY).findings
                if "metadata files have values" in one.message]


def test_plaintext_files_of_a_table_with_a_master_key_are_found(table):
    with table.transaction() as change:
        change.set_properties({"encryption.key-id": "pii"})
    result = audit(folder(table))
    [finding] = [one for one in result.findings if one.kind == "unencrypted"]
    assert finding.file == data_file(table) and "encryption.key-id" in finding.message
    assert set(in_log(result)) == {"ssn", "amount"}


def test_plaintext_files_beside_encrypted_ones_are_found(table):
    write_table(PEOPLE, folder(table) / "data" / "b.parquet", encryption=UniformKey(bytes(16)))
    write_table(PEOPLE[:0], folder(table) / "data" / "without_rows.parquet")
    [finding] = [one for one in audit(folder(table)).findings if one.kind == "unencrypted"]
    assert finding.file == data_file(table) and "other files of the table" in finding.message


@pytest.mark.parametrize("place", ["/t", "t", "/"])
def test_a_table_in_a_filesystem_that_omits_the_first_slash(table, place):
    filesystem = SubTreeFileSystem(str(folder(table).parent), LocalFileSystem())
    write_table(PEOPLE, folder(table) / "data" / "b.parquet", encryption=UniformKey(bytes(16)))
    kinds = {finding.kind for finding in audit(place, filesystem=filesystem).findings}
    assert kinds == {"unencrypted", "log"}


def test_policy_check_leaves_metadata_files_out(table):
    assert {violation.file for violation in check_files(folder(table), POLICY)} \
        == {data_file(table)}


def test_sketches_of_sensitive_columns_are_found(table):
    add_statistics(table, 1, 2)
    result = audit(folder(table), policy=POLICY)
    [finding] = [one for one in result.findings if "hashes of the column's values" in one.message]
    assert finding.column == "ssn" and "compute_table_stats" in finding.remedy


def test_columns_of_files_with_encrypted_footers_are_all_sensitive(table):
    write_table(PEOPLE, data_file(table), encryption=UniformKey(bytes(16)))
    assert set(in_log(audit(folder(table)))) == {"ssn", "amount"}


def test_a_sensitive_partition_is_found(table):
    from pyiceberg.transforms import BucketTransform, IdentityTransform
    with table.update_spec() as update:
        update.add_field("ssn", BucketTransform(4))
        update.add_field("amount", IdentityTransform())
    result = audit(folder(table), policy=POLICY)
    [finding] = [one for one in result.findings if "partitions the table" in one.message]
    assert finding.column == "ssn"


def test_keys_in_a_plaintext_manifest_are_found(table):
    add_manifest(table, f"{table.location()}/data/a", key_metadata=b"key")
    findings = audit(folder(table), policy=POLICY).findings
    [finding] = [one for one in findings if one.kind == "log" and one.column is None]
    assert "keys of encrypted data files" in finding.message
    assert finding.evidence == ("found in 1 file: 9-m0.avro",)


@pytest.mark.parametrize(("name", "content"), [
    ("9.stats", b"PFA1 cut"), ("9-m0.avro", b"Obj\x01 cut"), ("99999-x.metadata.json", b"[1]"),
    ("99999-x.metadata.json", b"{")])
def test_damaged_metadata_is_an_error(table, name, content):
    path = folder(table) / "metadata" / name
    path.write_bytes(content)
    findings = audit(folder(table), policy=POLICY).findings
    assert [one.file for one in findings if one.kind == "damaged"] == [str(path)]


def test_what_was_not_searched_is_listed(table):
    statistics = add_statistics(table, 1, flags=1)
    manifest = folder(table) / "metadata" / "m.avro"
    manifest.write_bytes(avro_file(ENTRY, (1, b""), codec=b"snappy"))
    not_checked = {Path(file.file).name: file.not_checked
                   for file in audit(folder(table), policy=POLICY).files if file.not_checked}
    assert "compressed" in not_checked.pop(statistics.name)[0]
    assert "neither deflate nor zstandard" in not_checked.pop(manifest.name)[0]
    assert not not_checked


def test_the_newest_metadata_file_has_the_columns():
    assert newest(["m/00009-a.metadata.json", "m/00010-b.gz.metadata.json", "m/11.avro"]) \
        == "m/00010-b.gz.metadata.json"
    assert newest(["m/v2.metadata.json", "m/v10.metadata.json"]) == "m/v10.metadata.json"
    assert newest(["m/version-hint.text"]) is None


def test_columns_are_named_as_in_parquet(tmp_path):
    map_ = {"type": "map", "key-id": 4, "key": "string", "value-id": 5, "value": {
        "type": "list", "element-id": 6, "element": "long"}}
    schema = {"type": "struct", "fields": [
        {"id": 1, "name": "a", "type": "string"},
        {"id": 2, "name": "b", "type": {"type": "struct", "fields": [
            {"id": 3, "name": "c", "type": map_}]}}]}
    path = tmp_path / "v1.gz.metadata.json"
    path.write_bytes(gzip.compress(json.dumps({"schema": schema}).encode()))
    names = read_definition(LocalFileSystem(), str(path)).names
    assert names == {1: {"a"}, 2: {"b"}, 3: {"b.c"}, 4: {"b.c.key_value.key"},
                     5: {"b.c.key_value.value"}, 6: {"b.c.key_value.value.list.element"}}


def test_manifest_lists_have_no_bounds(table):
    [path] = (folder(table) / "metadata").glob("snap-*.avro")
    assert read_metadata_file(LocalFileSystem(), str(path)).values == set()


@pytest.mark.parametrize("content", [
    avro_file(bounds("string"), (1, long(1) + binary(SECRET) + binary(SECRET) + long(0))),
    gzip.compress(b"Obj", mtime=0), b"PFA1" + b'{"blobs":[{"type":"apache-datasketches-theta-v1",'
    b'"fields":["078-05-1120"]}]}' + (80).to_bytes(4, "little") + bytes(4) + b"PFA1"])
def test_what_is_in_the_place_of_a_columns_id_is_not_shown(table, content):
    write_table(PEOPLE, data_file(table),
                encryption=UniformKey(bytes(16)))  # so all columns are sensitive
    (folder(table) / "metadata" / "m.avro").write_bytes(content)
    result = audit(folder(table))
    assert [one.kind for one in result.findings].count("damaged") == (content[:2] != b"\x1f\x8b")
    assert SECRET.decode() not in json.dumps(result.to_dict())


def test_a_manifest_that_was_cut_is_damaged(table):
    [path] = (folder(table) / "metadata").glob("*-m0.avro")
    path.write_bytes(path.read_bytes()[:-60])
    assert [one.file for one in audit(folder(table), policy=POLICY).findings
            if one.kind == "damaged"] == [str(path)]


def test_a_column_that_was_renamed_is_known_by_its_older_names(table):
    with table.update_schema() as update:
        update.rename_column("ssn", "social")
    assert set(in_log(audit(folder(table), policy=POLICY))) == {"ssn"}


@pytest.mark.parametrize("metadata", [
    {"partition-spec": [{"source-id": 1, "transform": "identity"}]},
    {"partition-specs": [{"fields": [{"source-ids": [1, 2], "transform": "x"}]}]}])
def test_partitions_of_older_and_newer_versions_are_found(tmp_path, metadata):
    path = tmp_path / "v1.metadata.json"
    path.write_text(json.dumps({"schema": {"type": "struct", "fields": []}, **metadata}))
    assert 1 in read_definition(LocalFileSystem(), str(path)).partitions


@pytest.mark.parametrize("content", [
    b'{"schema": {"type": "struct", "fields": [{"id": "x", "name": "a", "type": "int"}]}}',
    b'{"schema": {"type": "struct", "fields": [{"id": 1, "name": 5, "type": "int"}]}}',
    b"[" * 100_000, "too large", b"\x1f\x8bcut"], ids=lambda it: str(it[:70]))
def test_a_hostile_metadata_file_is_damaged(table, content):
    path = folder(table) / "metadata" / "99999-x.metadata.json"
    path.write_bytes(gzip.compress(bytes(257 << 20)) if content == "too large" else content)
    [finding] = [one for one in audit(folder(table), policy=POLICY).findings
                 if one.kind == "damaged"]
    assert finding.file == str(path)


def test_a_file_with_more_values_than_any_table_has_is_not_parsed(table):
    """Each value takes far more memory than bytes, and the more so in compressed files."""
    many = b"[" + b"[]," * 500_000 + b"[]]"
    footer = b'{"blobs":' + many + b"}"
    record = {"type": "record", "name": "r", "fields": [field("x", 7, {
        "type": "array", "items": "boolean"})]}
    values = long(500_001) + bytes(500_001) + long(0)
    contents = {
        "99998-x.metadata.json": b'{"a":' + many + b"}",
        "99999-x.gz.metadata.json": gzip.compress(b'{"a":' + many + b"}"),
        "9.stats": b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1",
        "9-m0.avro": avro_file(record, (1, values))}
    for name, content in contents.items():
        path = folder(table) / "metadata" / name
        path.write_bytes(content)
        [finding] = [one for one in audit(folder(table), policy=POLICY).findings
                     if one.kind == "damaged"]
        assert finding.file == str(path)
        assert ("not a manifest" if name.endswith("avro") else "too many values") \
            in finding.message
        path.unlink()


def test_each_of_many_tables_has_its_own_metadata():
    found = [path for number in range(2000) for path in (
        f"t{number}/metadata/v1.metadata.json", f"t{number}/metadata/m.avro",
        f"t{number}/data/a.parquet", f"t{number}/metadata/s.parquet")]
    tables = iceberg_tables("/w", found)
    assert len(tables) == 2000
    assert all(table.metadata == [f"{table.folder}/metadata/v1.metadata.json",
                                  f"{table.folder}/metadata/m.avro"] for table in tables)


def test_manifests_in_another_folder_are_not_checked(table, tmp_path):
    [path] = (folder(table) / "metadata").glob("snap-*.avro")
    path.rename(tmp_path / path.name)
    result = audit(folder(table), policy=POLICY)
    [unread] = [file for file in result.files if file.not_checked]
    assert unread.not_checked == ["1 manifest list of the table: not in this folder"]
