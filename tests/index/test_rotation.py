"""Rotation of the master keys of indexes: one new manifest, and no earlier one stays."""

import json
import os
import shutil

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, index
from secure_bloom.errors import (
    KeyNotFoundError,
    KeyRetrievalError,
    KmsUnavailableError,
    SecureBloomError,
)
from secure_bloom.index import Index, update
from secure_bloom.index.finding import find_indexes
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.inspection import inspect_index
from secure_bloom.index.lookup import look_up
from secure_bloom.index.rotation import rotate_indexes, update_rotated
from secure_bloom.index.table import Table
from secure_bloom.keys import InMemoryKms, rotate_master_keys
from secure_bloom.keys.cache import cached
from secure_bloom.keys.environment import NO_KEYS

KEYS = {"footer": b"f" * 16, "old": b"o" * 16, "new": b"n" * 32, "other": b"x" * 16}


def without(*names) -> InMemoryKms:
    return InMemoryKms({name: key for name, key in KEYS.items() if name not in names})


def write(path, start=0, keys=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"ssn": range(start, start + 40), "name": [f"n{i}" for i in range(40)],
                      "city": ["Rome"] * 40})
    options = {"keys": keys or InMemoryKms(KEYS),
               "encryption": EncryptionConfiguration("footer", {"old": ["ssn"],
                                                                "other": ["name"]}), **options}
    secure_bloom.write_table(table, path, **options)
    age(path)


def age(*paths):
    """Make files old enough for an update."""
    for path in paths:
        os.utime(path, (1_700_000_000 + os.stat(path).st_mtime % 1000,) * 2)


@pytest.fixture
def table(tmp_path):
    """Two files, and indexes of a column under the old master key and one under another."""
    write(tmp_path / "people" / "a.parquet")
    write(tmp_path / "people" / "b.parquet", 40)
    index.build(tmp_path / "people", ["ssn", "name"], InMemoryKms(KEYS))
    return tmp_path / "people"


def manifests(table, column="ssn") -> dict[int, dict]:
    return {int(path.stem): json.loads(path.read_bytes())
            for path in sorted((table / "_index" / column).glob("*.manifest"))}


def master_key(manifest) -> str:
    return json.loads(manifest["key_material"])["masterKeyID"]


def segments(table) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (table / "_index" / "ssn").glob("*.seg")}


def found(table, kms, value) -> list[str]:
    found = look_up_unchecked(table, kms, value)
    return sorted({*found.row_groups[0], *found.uncovered})


def look_up_unchecked(table, kms, value):
    """Look a value up, also if files still have the column under another master key."""
    opened = Index.open(table, kms).column("ssn")
    return look_up(opened, opened.coverage(Table.at(table).listing()), value)


def test_only_the_manifest_of_an_index_under_the_old_master_key_changes(table):
    before, names = segments(table), manifests(table, "name")
    result = Index.open(table, InMemoryKms(KEYS)).rotate(old="old", new="new")
    assert result.rotated == [str(table / "_index" / "ssn")] and result.unchanged == 1
    assert result.master_keys == ["old", "other"] and not result.failed
    assert [(version, master_key(one)) for version, one in manifests(table).items()] == [(3, "new")]
    assert segments(table) == before and manifests(table, "name") == names
    assert found(table, without("old"), 45) == ["b.parquet"]


def test_after_rotation_and_vacuum_the_old_master_key_opens_nothing(table):
    kms = InMemoryKms(KEYS)
    folder = table / "_index" / "ssn"
    (folder / f"{9:012}.manifest").write_bytes(b'{"format"')  # torn
    rotate_master_keys(table, kms, old="old", new="new")
    age(*table.glob("*.parquet"))
    opened = Index.open(table, kms)
    opened.rotate(old="old", new="new")
    opened.update()
    opened.vacuum(grace=0)
    assert opened.lookup("ssn", 45).uncovered == []
    assert all(master_key(one) == "new" for one in manifests(table).values())
    assert {path.suffix for path in folder.iterdir()} == {".manifest", ".seg"}
    with pytest.raises(KeyNotFoundError):
        Index.open(table, without("new")).lookup("ssn", 45)


def test_rotated_files_are_restamped_without_reading_their_values(table):
    kms = InMemoryKms(KEYS)
    rotate_master_keys(table, kms, old="old", new="new")
    age(*table.glob("*.parquet"))
    opened = Index.open(table, kms)
    assert opened.lookup("ssn", 45).uncovered == ["a.parquet", "b.parquet"]  # slow, not wrong
    opened.rotate(old="old", new="new")
    before, result = segments(table), opened.update()
    assert (result.indexed, result.restamped, result.uncovered) == (0, 2, {})
    assert segments(table) == before and found(table, kms, 45) == ["b.parquet"]


def test_an_interrupted_rotation_is_completed_by_the_next_one(table, monkeypatch):
    def killed(self, version):
        raise OSError("killed")

    opened = Index.open(table, InMemoryKms(KEYS))
    with monkeypatch.context() as context:
        context.setattr(IndexFolder, "delete_before", killed)
        assert list(opened.rotate(old="old", new="new").failed.values()) == ["killed"]
    assert {master_key(one) for one in manifests(table).values()} == {"old", "new"}
    result = opened.rotate(old="old", new="new")
    assert (result.rotated, result.unchanged) == ([], 2)
    assert {master_key(one) for one in manifests(table).values()} == {"new"}


def test_an_update_at_the_same_time_is_kept_and_rotated_too(table):
    write(table / "c.parquet", 80)

    class Updating(InMemoryKms):
        is_updated = False

        def unwrap_key(self, wrapped_key, master_key_identifier):
            if master_key_identifier == "old" and not self.is_updated:
                self.is_updated = True
                index.build(table, "ssn", InMemoryKms(KEYS))
            return super().unwrap_key(wrapped_key, master_key_identifier)

    kms = Updating(KEYS)
    Index.open(table, kms).rotate(old="old", new="new")
    assert kms.is_updated
    assert {master_key(one) for one in manifests(table).values()} == {"new"}
    assert look_up_unchecked(table, without("old"), 85).uncovered == []


def test_a_manifest_that_another_writer_replaced_keeps_the_earlier_ones(table, monkeypatch):
    """As on a store without conditional puts, where the later of two writers wins."""
    old = InMemoryKms(KEYS)

    def publish(self, manifest):
        stored = self.open_newest(cached(old))
        path = table / "_index" / "ssn" / f"{manifest.version:012}.manifest"
        path.write_bytes(stored.next(stored.body, manifest.version).to_bytes())

    monkeypatch.setattr(IndexFolder, "publish", publish)
    result = Index.open(table, old).rotate(old="old", new="new")
    assert result.rotated == [] and "rotate again" in next(iter(result.failed.values()))
    assert len(manifests(table)) == 3


def test_a_dry_run_tests_both_master_keys_and_changes_nothing(table):
    before = manifests(table)
    result = Index.open(table, InMemoryKms(KEYS)).rotate(old="old", new="new", dry_run=True)
    assert result.dry_run and len(result.rotated) == 1 and result.unchanged == 1
    for missing in "old", "new":
        with pytest.raises(KeyNotFoundError, match=missing):
            Index.open(table, without(missing)).rotate(old="old", new="new", dry_run=True)
    assert manifests(table) == before


def test_equal_names_wrap_again(table):
    before = manifests(table)[2]
    result = Index.open(table, InMemoryKms(KEYS)).rotate(old="old", new="old")
    assert len(result.rotated) == 1
    assert manifests(table).keys() == {3}
    assert manifests(table)[3]["key_material"] != before["key_material"]
    assert found(table, InMemoryKms(KEYS), 45) == ["b.parquet"]


def test_a_name_that_no_index_uses_is_an_error_that_lists_the_others(table):
    with pytest.raises(KeyNotFoundError, match="'footer'; the indexes use: old, other"):
        Index.open(table, InMemoryKms(KEYS)).rotate(old="footer", new="new")


def test_a_client_that_cannot_wrap_is_refused(table):
    class Unwrapper:
        def unwrap_key(self, wrapped_key, master_key_identifier):
            raise AssertionError("not to be called")

    for keys in Unwrapper(), NO_KEYS:
        with pytest.raises(TypeError, match="KmsClient"):
            Index.open(table, keys).rotate(old="old", new="new")


def test_an_index_without_encryption_has_nothing_to_rotate(table):
    index.build(table, "city", InMemoryKms(KEYS), encryption=None)
    before = manifests(table, "city")
    assert Index.open(table, InMemoryKms(KEYS)).rotate(old="old", new="new").unchanged == 2
    assert manifests(table, "city") == before


def test_errors_of_the_kms_report_what_was_done_before(tmp_path):
    for name in "t1", "t2":
        write(tmp_path / name / "a.parquet")
        index.build(tmp_path / name, "ssn", InMemoryKms(KEYS))  # each table has its own KEK

    class Failing(InMemoryKms):
        calls = 0

        def unwrap_key(self, wrapped_key, master_key_identifier):
            self.calls += master_key_identifier == "old"
            if self.calls > 1:
                raise KmsUnavailableError("it does not respond")
            return super().unwrap_key(wrapped_key, master_key_identifier)

    with pytest.raises(KmsUnavailableError) as caught:
        rotate_indexes(find_indexes(tmp_path), cached(Failing(KEYS)), old="old", new="new")
    assert len(caught.value.result.rotated) <= 1
    assert isinstance(caught.value, KeyRetrievalError | SecureBloomError)
    result = rotate_indexes(find_indexes(tmp_path), cached(InMemoryKms(KEYS)), old="old",
                            new="new")
    assert len(result.rotated) + result.unchanged == 2 and not result.failed


def test_an_index_that_is_deleted_during_its_rotation_is_not_rotated(table):
    class Deleting(InMemoryKms):
        calls = 0

        def wrap_key(self, key_bytes, master_key_identifier):
            self.calls += 1
            if self.calls == 2:  # the first one tries the new key
                shutil.rmtree(table / "_index" / "ssn")
            return super().wrap_key(key_bytes, master_key_identifier)

    kms = Deleting(KEYS)
    result = rotate_indexes(find_indexes(table), cached(kms), old="old", new="new")
    assert kms.calls >= 2 and (result.rotated, result.failed) == ([], {})


def test_a_result_shows_what_was_rotated_and_what_failed(table, monkeypatch):
    opened = Index.open(table, InMemoryKms(KEYS))
    planned = opened.rotate(old="old", new="new", dry_run=True)
    assert "1 index to rotate, 1 unchanged, 0 failed" in repr(planned)

    def publish(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(IndexFolder, "publish", publish)
    failed = opened.rotate(old="old", new="new")
    assert "0 indexes rotated, 1 unchanged, 1 failed" in repr(failed)
    assert "the disk is full" in failed._repr_html_()
    assert failed.to_dict()["failed"] == {str(table / "_index" / "ssn"): "the disk is full"}


def test_an_update_waits_for_files_that_have_just_been_rotated(table, monkeypatch):
    kms = cached(InMemoryKms(KEYS))
    rotate_master_keys(table, kms, old="old", new="new")
    monkeypatch.setattr(update, "_SETTLED_NS", 100_000_000)
    [folder] = [one for one in find_indexes(table) if one.column == "ssn"]
    rotate_indexes([folder], kms, old="old", new="new")
    for path in table.glob("*.parquet"):
        os.utime(path)
    result = update_rotated(folder, kms)
    assert (result.restamped, result.uncovered) == (2, {})


# --- which indexes there are ---------------------------------------------------------------------

def test_the_indexes_of_all_tables_below_a_folder_are_found(table):
    write(table.parent / "more" / "x" / "a.parquet")
    index.build(table.parent / "more" / "x", "city", InMemoryKms(KEYS), encryption=None)
    write(table.parent / "_hidden" / "a.parquet")
    index.build(table.parent / "_hidden", "ssn", InMemoryKms(KEYS))
    (table / "_index" / "a b").mkdir()  # not as we encode names
    (table / "_index" / "a b" / f"{1:012}.manifest").write_bytes(b"{}")
    found = [(folder.table, folder.column) for folder in find_indexes(table.parent)]
    assert found == [(str(table.parent / "more" / "x"), "city"), (str(table), "name"),
                     (str(table), "ssn")]
    assert [folder.column for folder in find_indexes(table)] == ["name", "ssn"]
    assert find_indexes(table / "a.parquet") == []


def test_names_of_columns_are_decoded(tmp_path):
    column = "a/b é.c"
    group = pa.struct([("c", pa.int64())])
    folder = tmp_path / "t"
    folder.mkdir()
    secure_bloom.write_table(pa.table({"a/b é": pa.array([{"c": 1}], group)}),
                             folder / "a.parquet")
    age(folder / "a.parquet")
    index.build(folder, column, encryption=None)
    assert [one.column for one in find_indexes(tmp_path)] == [column]


def test_what_is_known_without_the_key_and_with_it(table):
    folder = IndexFolder(pa_fs.LocalFileSystem(), str(table), "ssn")
    closed = inspect_index(folder, None, {})
    assert (closed.version, closed.is_encrypted, closed.master_key, closed.hidden) \
        == (2, True, "old", "no key")
    assert closed.pairs is closed.covered is None
    [_, info] = Index.open(table, without("other")).inspect()
    assert (info.segments, info.files, info.pairs, info.covered, info.uncovered) == (1, 2, 80, 2, 0)
    assert "2 files covered, 0 not covered" in repr(info)
    [name, _] = Index.open(table, without("other")).inspect()
    assert name.hidden is not None and "other" in name.hidden and name.error is None


def test_an_index_that_cannot_be_read_does_not_hide_the_others(table, monkeypatch):
    def infos(self):
        if self.column == "name":
            raise PermissionError("not allowed")
        return list_files(self)

    list_files = IndexFolder.infos
    opened = Index.open(table, InMemoryKms(KEYS))
    monkeypatch.setattr(IndexFolder, "infos", infos)
    name, ssn = opened.inspect()
    assert "not allowed" in str(name.error) and str(name.path) in str(name.error)
    assert ssn.error is None and ssn.covered == 2
    assert [(finding.kind, finding.column) for finding in secure_bloom.audit(
        table, InMemoryKms(KEYS)).findings] == [("stale-index", "name")]
