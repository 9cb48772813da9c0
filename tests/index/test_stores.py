"""Indexes in an object store: how many requests, missing objects, and tables that need no listing.
"""

import uuid

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom.errors import ChangedMeanwhileError, IndexWarning
from secure_bloom.index import Index, build, column_index, column_update, opened_indexes
from secure_bloom.index.finding import indexed_columns
from secure_bloom.index.table import Table
from tests.index.helpers import ENCRYPTION, KMS, LOCAL, write
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET
from tests.storage.stores import Faults


@pytest.fixture(params=["objects", pytest.param("s3", marks=[pytest.mark.slow, pytest.mark.sweep])])
def on_s3(request):
    """A table of three files with an index of two segments."""
    filesystem, where = Objects(new_objects()), f"{BUCKET}/{uuid.uuid4().hex}"
    if request.param == "s3":
        filesystem = request.getfixturevalue("s3").filesystem_of()
    for number in range(3):
        write(f"{where}/{number}.parquet", [f"v{number}"], filesystem=filesystem)
        if number:
            build(where, "ssn", KMS, filesystem=filesystem)
    return filesystem, where


def test_segments_deleted_under_an_open_reader(on_s3):
    filesystem, where = on_s3
    reader = Index.open(where, KMS, filesystem=filesystem)
    index = reader.column("ssn")
    assert len(index.segments) == 2
    other = Index.open(where, KMS, filesystem=filesystem)
    assert other.compact() == 2
    other.vacuum(0)
    with pytest.raises(ChangedMeanwhileError, match="missing") as raised:
        index.find(["v0"])
    assert raised.value.file.endswith(".seg") and raised.value.column == "ssn"
    found = reader.lookup("ssn", ["v0", "v2"])
    assert found.row_groups == [{"0.parquet": [0]}, {"2.parquet": [0]}]


def test_a_lookup_tries_once_again_if_segments_are_deleted_during_it(on_s3, monkeypatch):
    filesystem, where = on_s3
    original = column_index.ColumnIndex.find
    calls = []

    def find(self, values):
        calls.append(len(self.segments))
        if len(calls) == 1:
            other = Index.open(where, KMS, filesystem=filesystem)
            other.compact()
            other.vacuum(0)
        return original(self, values)

    monkeypatch.setattr(column_index.ColumnIndex, "find", find)
    found = Index.open(where, KMS, filesystem=filesystem).lookup("ssn", "v1")
    assert (found.row_groups, calls) == ([{"1.parquet": [0]}], [2, 1])


def test_verify_on_a_store(on_s3):
    filesystem, where = on_s3
    result = Index.open(where, KMS, filesystem=filesystem).verify(integrity=True)
    assert result.ok and (result.segments, result.compared, result.identified) == (2, 3, 3)


class Flat(Objects):
    """Lists no folders, as pyarrow's filesystem of Google Cloud Storage."""

    type_name = "gcs"

    def get_file_info(self, what):
        found = super().get_file_info(what)
        is_listing = isinstance(what, pa_fs.FileSelector)
        return [info for info in found if info.is_file] if is_listing else found


def test_an_index_is_found_where_folders_are_not_listed():
    filesystem, where = Flat(new_objects()), f"{BUCKET}/t"
    write(f"{where}/0.parquet", ["v0"], filesystem=filesystem)
    build(where, "ssn", KMS, filesystem=filesystem)
    index = Index.open(where, KMS, filesystem=filesystem)
    assert index.lookup("ssn", "v0").row_groups == [{"0.parquet": [0]}]


def test_what_is_not_an_index_is_left_alone(on_s3):
    filesystem, where = on_s3
    for name in ("foreign/people.csv", "nested/00/000000000001.manifest", "000000000001.manifest"):
        with filesystem.open_output_stream(f"{where}/_index/{name}") as stream:
            stream.write(b"{}")
    filesystem.create_dir(f"{where}/_index/zz")
    index = Index.open(where, KMS, filesystem=filesystem)
    assert (index.columns, index.update().columns) == (["ssn"], ["ssn"])


def test_reads_of_one_lookup(tmp_path, monkeypatch):
    """One read opens a segment, and one more reads a page of it, however many files there are."""
    for number in range(20):
        write(tmp_path / f"{number}.parquet", [f"v{number}-{place}" for place in range(500)])
    build(tmp_path, "ssn", KMS)
    opened_indexes._opened.clear()
    sizes = []
    original = column_index.IndexFolder.open_segment

    def open_segment(self, name):
        read_at = original(self, name)

        def counted(offset, size):
            sizes.append(size)
            return read_at(offset, size)
        return counted

    monkeypatch.setattr(column_index.IndexFolder, "open_segment", open_segment)
    index = Index.open(tmp_path, KMS)
    assert index.lookup("ssn", "v7-3").row_groups == [{"7.parquet": [0]}]
    assert len(sizes) == 2 and sizes[1] <= 40_000
    index.lookup("ssn", "v7-3")
    assert len(sizes) == 2  # the page is kept
    index.lookup("ssn", [f"v{number}-0" for number in range(20)])
    assert len(sizes) <= 4  # of two pages, each once



def write_job(folder, *values, mode="append"):
    secure_bloom.write_dataset(pa.table({"ssn": list(values)}), folder, encryption=ENCRYPTION,
                               keys=KMS, mode=mode)


@pytest.fixture
def exclusive(tmp_path, monkeypatch):
    """A table that only our jobs write; and its listings, which are counted."""
    folder = tmp_path / "t"
    write_job(folder, "v0")
    write_job(folder, "v1")
    build(folder, "ssn", KMS, exclusive=True)
    listings = []
    original = Table.listing

    def listing(self, *arguments):
        listings.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(Table, "listing", listing)
    return folder, listings


def found_in(folder, value):
    found = Index.open(folder, KMS).lookup("ssn", [value])
    paths = {*found.row_groups[0], *found.uncovered}
    return sorted(secure_bloom.read_table(folder / path, KMS)["ssn"][0].as_py() for path in paths)


def test_a_table_of_our_jobs_is_not_listed(exclusive):
    folder, listings = exclusive
    assert found_in(folder, "v0") == ["v0"] and found_in(folder, "x") == [] and not listings
    write_job(folder, "v2")
    assert found_in(folder, "v2") == ["v2"] and listings
    Index.open(folder, KMS).update()
    listings.clear()
    assert found_in(folder, "v2") == ["v2"] and not listings
    write_job(folder, "v3", mode="overwrite")
    assert found_in(folder, "v2") == found_in(folder, "v3") == ["v3"]  # it is not covered yet
    Index.open(folder, KMS).update()
    listings.clear()
    for value in ("v0", "v1", "v2"):
        assert found_in(folder, value) == []
    assert found_in(folder, "v3") == ["v3"] and not listings
    Index.open(folder, KMS).compact()
    listings.clear()
    assert found_in(folder, "v0") == [] and found_in(folder, "v3") == ["v3"] and not listings


def test_a_table_where_a_job_has_not_ended_is_listed(exclusive):
    folder, listings = exclusive
    (folder / "_staging" / "0123456789abcdef0123456789abcdef").mkdir()
    (folder / "_staging" / "0123456789abcdef0123456789abcdef" / "started").touch()
    assert found_in(folder, "v0") == ["v0"] and listings


def test_a_file_that_two_updates_have_covered_is_found_once(exclusive, monkeypatch):
    folder, listings = exclusive
    original = column_update.ColumnUpdate.finish
    turns = []

    def finish(self, *arguments):
        if not turns:
            turns.append(1)
            Index.open(folder, KMS).update()
        original(self, *arguments)

    write_job(folder, "v2")
    monkeypatch.setattr(column_update.ColumnUpdate, "finish", finish)
    Index.open(folder, KMS).update()
    assert len(Index.open(folder, KMS).column("ssn").segments) == 3
    listings.clear()
    assert found_in(folder, "v2") == ["v2"] and not listings
    Index.open(folder, KMS).compact()
    assert found_in(folder, "v2") == ["v2"]


def test_a_path_with_two_versions_makes_the_table_listed(exclusive):
    """Which version exists now, only a listing tells."""
    folder, listings = exclusive
    for value in ("first", "second"):
        write(folder / "x.parquet", [value])
        assert Index.open(folder, KMS).update().indexed == 1
    listings.clear()
    assert found_in(folder, "second") == ["second"] and listings
    assert found_in(folder, "first") == []
    Index.open(folder, KMS).compact()
    listings.clear()
    assert found_in(folder, "second") == ["second"] and not listings


def test_a_table_that_is_not_exclusive_is_always_listed(tmp_path):
    write_job(tmp_path / "t", "v0")
    build(tmp_path / "t", "ssn", KMS)
    write(tmp_path / "t" / "0.parquet", ["v1"])
    assert found_in(tmp_path / "t", "v1") == ["v1"]
    assert Table(LOCAL, str(tmp_path / "t")).generation() is not None


def test_a_covered_file_under_another_master_key_is_looked_up_without_the_index():
    """An attacker may have exchanged it; stores have no times by which that could be ruled out."""
    filesystem, path = Objects(objects := new_objects()), f"{BUCKET}/t/0.parquet"
    write(path, ["v0"], filesystem=filesystem)
    build(f"{BUCKET}/t", "ssn", KMS, filesystem=filesystem)
    before = objects[path]
    write(path, ["v1"], filesystem=filesystem,
          encryption=secure_bloom.EncryptionConfiguration("footer", {"new": ["ssn"]}))
    objects[path] = before._replace(data=objects[path].data)
    with pytest.warns(IndexWarning, match="another master key"):
        found = Index.open(f"{BUCKET}/t", KMS, filesystem=filesystem).lookup("ssn", "v1")
    assert found.uncovered == ["0.parquet"]


def test_a_disk_that_fails_is_not_a_table_without_indexes(tmp_path):
    """Else an erasure would leave the values in them."""
    (tmp_path / "_index" / "ssn").mkdir(parents=True)
    (tmp_path / "_index" / "ssn" / "000000000001.manifest").touch()
    with pytest.raises(OSError, match="the disk is gone"):
        indexed_columns(Faults(1).filesystem(pa_fs.LocalFileSystem)(), str(tmp_path))
    for filesystem in (LOCAL, Faults(2).filesystem(pa_fs.LocalFileSystem)()):
        assert indexed_columns(filesystem, str(tmp_path)) == ["ssn"]
