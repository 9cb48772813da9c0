"""Live files of a table in hidden folders are audited, and those outside are not called checked."""

import os

import pyarrow.fs as pa_fs
import pytest
from click.testing import CliRunner

from secure_bloom import audit
from secure_bloom.auditing.audited_files import AuditedFiles
from secure_bloom.auditing.result import AuditResult
from secure_bloom.cli import main
from secure_bloom.keys import Keyring
from secure_bloom.policy import Policy
from tests.auditing.test_delta_tables import ENCRYPTED, KMS, SAFE, added, commit, people, put


def outside(result) -> list[tuple]:
    return [(file.file, *file.not_checked) for file in result.files if file.outside]


def unencrypted(result) -> dict[str, str]:
    return {finding.file: finding.message.rpartition(", ")[2] for finding in result.findings
            if finding.kind == "unencrypted" and finding.column == "ssn"}


def code(table) -> int:
    """Return the exit code of the command."""
    path = table.parent / "keyring.json"
    if not path.exists():
        keyring = Keyring.create(path)
        keyring.add("footer", b"f" * 16)
        keyring.add("pii", b"p" * 16)
    return CliRunner().invoke(main, ["audit", str(table), "--keyring", str(path)]).exit_code


@pytest.mark.parametrize("place", ["_x/a.parquet", ".x/a.parquet", ".a.parquet",
                                   "p=1/_x/a.parquet"])
def test_live_files_in_hidden_folders_are_audited(tmp_path, place):
    table = tmp_path / "people"
    names = put(table, "a.parquet", **ENCRYPTED), put(table, place)
    commit(table, 0, *(added(name, SAFE) for name in names))
    result = audit(table, KMS)
    assert unencrypted(result) == {str(table / place): "a live file"} and not outside(result)
    assert len(result.files) == 2
    commit(table, 1, {"remove": {"path": place}})
    assert audit(table, KMS).ok  # it is not live, and no reader sees it
    os.remove(table / "_delta_log" / f"{0:020}.json")  # now nothing says what is live
    commit(table, 2, added(place))
    assert list(unencrypted(audit(table, KMS))) == [str(table / place)]


def test_a_hidden_file_says_which_columns_are_sensitive(tmp_path):
    put(tmp_path, "_x/b.parquet", **ENCRYPTED)
    commit(tmp_path, 0, added(put(tmp_path, "a.parquet"), {"minValues": {"ssn": "5"}}),
           {"commitInfo": {"operationParameters": {"predicate": "ssn = '5'"}}})
    assert audit(tmp_path, KMS).ok
    commit(tmp_path, 1, added("_x/b.parquet", SAFE))
    found = audit(tmp_path, KMS).findings
    assert sorted((one.kind, one.column) for one in found) \
        == [("log", "ssn"), ("log", "ssn"), ("unencrypted", "ssn")]


@pytest.mark.parametrize("name", [
    "{other}/b.parquet", "file:{other}/b.parquet", "file://{other}/b.parquet",
    "../other/b.parquet", "p/../../other/b.parquet", "%2E%2E/other/b.parquet",
    "s3://bucket/b.parquet", "s3a://bucket/b.parquet", "https://example.com/b.parquet",
    "file://host{table}/a.parquet", "/dev/zero", "../pipe", "b\0.parquet"])
def test_live_files_outside_the_folder_are_listed_and_end_with_4(tmp_path, name):
    table, other = tmp_path / "people", tmp_path / "other"
    put(other, "b.parquet")
    os.mkfifo(tmp_path / "pipe")
    name = name.format(other=other, table=table)
    commit(table, 0, added(put(table, "a.parquet", **ENCRYPTED), SAFE),
           added(name.replace("\0", "%00"), SAFE))
    result = audit(table, KMS)
    [(_, why)] = outside(result)
    assert "not in the audited folder" in why and result.ok and not result.complete
    assert result.unknown_files == 1 and result.to_dict()["outside_files"] == 1
    assert code(table) == 4
    commit(table, 1, {"remove": {"path": name.replace("\0", "%00")}})
    assert audit(table, KMS).complete and code(table) == 0


def test_a_clone_is_audited_with_the_files_of_its_source_if_both_are_in_the_folder(tmp_path):
    source, clone = tmp_path / "source", tmp_path / "clone"
    commit(source, 0, added(put(source, "a b.parquet")))
    commit(clone, 0, added(put(clone, "c.parquet", **ENCRYPTED), SAFE),
           added(f"file://{source}/a%20b.parquet", SAFE))
    [finding] = audit(tmp_path, KMS).findings
    assert finding.file == str(source / "a b.parquet") and finding.message.endswith("a live file")
    filesystem = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    for place in ("", "/"):
        [finding] = audit(place, KMS, filesystem=filesystem).findings
        assert finding.file.lstrip("/") == "source/a b.parquet"
    assert len(outside(audit("clone", KMS, filesystem=filesystem))) == 1


def test_live_files_that_are_no_regular_files_are_not_opened(tmp_path):
    (tmp_path / "_x").mkdir()
    os.mkfifo(tmp_path / "_x" / "a.parquet")
    (tmp_path / "_x" / "b.parquet").symlink_to("/dev/zero")
    commit(tmp_path, 0, *(added(put(tmp_path, "a.parquet", **ENCRYPTED), SAFE),
                          added("_x/a.parquet"), added("_x/b.parquet"), added("gone.parquet")))
    result = audit(tmp_path, KMS)
    assert result.ok and [os.path.basename(file) for file, why in outside(result)
                          if "not a regular file" in why] == ["a.parquet", "b.parquet",
                                                              "gone.parquet"]


def test_a_file_added_while_the_folder_was_listed_is_audited(tmp_path, monkeypatch):
    from secure_bloom.auditing import audit as module
    commit(tmp_path, 0, added(put(tmp_path, "a.parquet", **ENCRYPTED), SAFE),
           added(put(tmp_path, "b.parquet"), SAFE))
    real = module.parquet_files
    monkeypatch.setattr(module, "parquet_files",
                        lambda *arguments: real(*arguments)[:1])  # before b.parquet was written
    assert unencrypted(audit(tmp_path, KMS)) == {str(tmp_path / "b.parquet"): "a live file"}


@pytest.mark.parametrize(("kind", "root", "folder", "name", "key"), [
    ("s3", "bucket/lake", "bucket/lake/t", "a", "t/a"),
    ("s3", "bucket/lake", "bucket/lake/t", "s3a://bucket/lake/u/a", "u/a"),
    ("s3", "bucket/lake", "bucket/lake/t", "s3://bucket/lakes/u/a", None),
    ("s3", "bucket/lake", "bucket/lake/t", "gs://bucket/lake/t/a", None),
    ("s3", "bucket/lake", "bucket/lake/t", "../../../../a", None),
    ("gcs", "bucket", "bucket/t", "gs://bucket/t/a", "t/a"),
    ("abfs", "box/t", "box/t", "abfss://box@account.dfs.core.windows.net/t/a", "a"),
    ("local", "/", "/t", "/t/../a", "a"), ("local", "/t", "/t", "file:/t/a", "a"),
    ("local", "/t", "/t", "file:///t", None)])
def test_names_of_files_in_logs(kind, root, folder, name, key):
    class Store:
        type_name = kind

    assert AuditedFiles(Store(), AuditResult(root), None, list).key_of(folder, name) == key


def test_a_table_of_delta_rs_is_checked_completely_with_its_constraints(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "t", people(), partition_by=["city"], configuration={
        "delta.dataSkippingStatsColumns": "city"})
    for constraint, kinds in (("ssn <> city", {"unencrypted"}),
                              ("ssn <> '912-44-0001'", {"unencrypted", "log"})):
        deltalake.DeltaTable(tmp_path / "t").alter.add_constraint({f"c{len(kinds)}": constraint})
        result = audit(tmp_path / "t", policy=Policy(["ssn"]))
        assert result.complete and {one.kind for one in result.findings} == kinds
    [finding] = [one for one in result.findings if one.kind == "log"]
    assert finding.column == "ssn" and "in constraints" in finding.message
    assert "912-44" not in repr([*result.findings])
