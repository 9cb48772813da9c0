"""The audit of Iceberg tables: values of sensitive columns in their metadata."""

import gzip
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from secure_bloom import Policy, UniformKey, audit, write_table
from secure_bloom.auditing.iceberg_metadata import KEYS, newest, read_columns, read_values

catalogs = pytest.importorskip("pyiceberg.catalog.sql")

POLICY = Policy(footer_key="footer", columns={"ssn": "pii"})
PEOPLE = pa.table({"ssn": ["078-05-1120"], "amount": [1]})


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


def test_without_sensitive_columns_no_manifest_is_read(table, monkeypatch):
    monkeypatch.setattr("secure_bloom.auditing.iceberg_tables.read_values", None)
    assert audit(folder(table)).findings == []
    with pytest.raises(TypeError):
        audit(folder(table), policy=POLICY)


def test_sketches_of_sensitive_columns_are_found(table):
    add_statistics(table, 1, 2)
    result = audit(folder(table), policy=POLICY)
    [finding] = [one for one in result.findings if "hashes of the column's values" in one.message]
    assert finding.column == "ssn" and "compute_table_stats" in finding.remedy


def test_columns_of_files_with_encrypted_footers_are_all_sensitive(table):
    [task] = table.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    write_table(PEOPLE, path, encryption=UniformKey(bytes(16)))
    assert set(in_log(audit(folder(table)))) == {"ssn", "amount"}


def test_a_sensitive_partition_is_found(table):
    from pyiceberg.transforms import BucketTransform, IdentityTransform
    with table.update_spec() as update:
        update.add_field("ssn", BucketTransform(4))
        update.add_field("amount", IdentityTransform())
    result = audit(folder(table), policy=POLICY)
    [finding] = [one for one in result.findings if "partitions the table" in one.message]
    assert finding.column == "ssn"


def test_keys_in_a_plaintext_manifest_are_found(table, monkeypatch):
    monkeypatch.setattr("secure_bloom.auditing.iceberg_tables.read_values",
                        lambda *_: {(KEYS, 0)})
    [finding] = [one for one in audit(folder(table), policy=POLICY).findings if one.kind == "log"]
    assert finding.column is None and "keys of encrypted data files" in finding.message


def test_encrypted_manifests_reveal_nothing(table):
    for path in (folder(table) / "metadata").glob("*.avro"):
        path.write_bytes(b"AGS1" + path.read_bytes())
    assert in_log(audit(folder(table), policy=POLICY)) == {}


@pytest.mark.parametrize(("name", "content"), [
    ("9.stats", b"PFA1 cut"), ("9-m0.avro", b"Obj\x01 cut"), ("99999-x.metadata.json", b"[1]"),
    ("99999-x.metadata.json", b"{")])
def test_damaged_metadata_is_an_error(table, name, content):
    path = folder(table) / "metadata" / name
    path.write_bytes(content)
    findings = audit(folder(table), policy=POLICY).findings
    assert [one.file for one in findings if one.kind == "damaged"] == [str(path)]


def test_what_was_not_searched_is_listed(table, monkeypatch):
    statistics = add_statistics(table, 1, flags=1)
    monkeypatch.setitem(sys.modules, "pyiceberg.avro.file", None)
    not_checked = {Path(file.file).name: file.not_checked
                   for file in audit(folder(table), policy=POLICY).files if file.not_checked}
    assert "compressed" in not_checked.pop(statistics.name)[0]
    assert len(not_checked) == 2  # the manifest and its list
    assert all("needs pyiceberg" in reason for [reason] in not_checked.values())


def test_the_newest_metadata_file_has_the_columns(tmp_path):
    assert newest(["m/00009-a.metadata.json", "m/00010-b.gz.metadata.json", "m/11.avro"]) \
        == "m/00010-b.gz.metadata.json"
    assert newest(["m/v2.metadata.json", "m/v10.metadata.json"]) == "m/v10.metadata.json"
    assert newest(["m/version-hint.text"]) is None


def test_columns_are_named_as_in_parquet(tmp_path):
    from pyarrow.fs import LocalFileSystem
    map_ = {"type": "map", "key-id": 4, "key": "string", "value-id": 5, "value": {
        "type": "list", "element-id": 6, "element": "long"}}
    schema = {"type": "struct", "fields": [
        {"id": 1, "name": "a", "type": "string"},
        {"id": 2, "name": "b", "type": {"type": "struct", "fields": [
            {"id": 3, "name": "c", "type": map_}]}}]}
    path = tmp_path / "v1.gz.metadata.json"
    path.write_bytes(gzip.compress(json.dumps({"schema": schema}).encode()))
    names = read_columns(LocalFileSystem(), str(path)).names
    assert names == {1: "a", 2: "b", 3: "b.c", 4: "b.c.key_value.key", 5: "b.c.key_value.value",
                     6: "b.c.key_value.value.list.element"}


def test_manifest_lists_have_no_bounds(table):
    [path] = (folder(table) / "metadata").glob("snap-*.avro")
    from pyarrow.fs import LocalFileSystem
    assert read_values(LocalFileSystem(), str(path)) == set()
