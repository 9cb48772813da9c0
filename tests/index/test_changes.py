"""After any change of the table, lookups never miss a value; an update covers what has changed."""

import itertools
import os
from functools import partial

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.index import Index, build, update
from secure_bloom.index import table as index_table
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.identity import _is_replaced
from secure_bloom.index.opened_indexes import open_column
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.operations.rotation import rotate_master_keys
from secure_bloom.storage.files import make_folder, write_file
from tests.index.helpers import ENCRYPTION, KMS, LOCAL, age, write
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET

OPTIONS = {"compression": "none", "use_dictionary": False, "write_statistics": False}


class Files:
    """A table of encrypted files, each with two row groups, that are known by their values."""

    encryption = ENCRYPTION

    def __init__(self, filesystem, folder):
        self.filesystem, self.folder = filesystem, folder

    def path(self, name):
        return f"{self.folder}/{name}"

    def write(self, name, first, **options):
        make_folder(self.filesystem, os.path.dirname(self.path(name)))
        values = [f"{number:06}" for number in range(first, first + 20)]
        secure_bloom.write_table(
            pa.table({"ssn": values}), self.path(name), filesystem=self.filesystem,
            row_group_size=10, encryption=self.encryption,
            keys=KMS if self.encryption else None, **OPTIONS | options)

    def build(self):
        return build(self.folder, "ssn", KMS, filesystem=self.filesystem,
                     encryption=self.encryption and "column")

    def open(self):
        return Index.open(self.folder, KMS, filesystem=self.filesystem)

    def check(self, stored, uncovered=()):
        """Check that lookups find all values, and that exactly these files are not covered."""
        probes = sorted({first + place for first in [*stored.values(), 0, 500, 900]
                         for place in (0, 9, 10, 19)})
        found = self.open().lookup("ssn", [f"{probe:06}" for probe in probes])
        assert sorted(found.uncovered) == sorted(uncovered)
        for probe, one in zip(probes, found.row_groups, strict=True):
            assert one == {name: [(probe - first) // 10] for name, first in stored.items()
                           if first <= probe < first + 20 and name not in uncovered}


class PlainFiles(Files):
    """The same without encryption: the footers of all files of one size are equal."""

    encryption = None


@pytest.fixture(params=["local", "objects"])
def where(request, tmp_path):
    if request.param == "local":
        return LOCAL, str(tmp_path)
    objects = new_objects()
    objects.seconds_behind = 1000
    return Objects(objects), f"{BUCKET}/t"


@pytest.fixture(params=[Files, PlainFiles])
def files(request, where):
    """Three files that are covered."""
    files = request.param(*where)
    for number in range(3):
        files.write(f"{number}.parquet", 100 * number)
    assert files.build().indexed == 3
    return files


STORED = {f"{number}.parquet": 100 * number for number in range(3)}


AGES = itertools.count(10)


def later(files, name):
    """Give a file, or what is written next, a time of its own."""
    if files.filesystem.type_name == "local":
        mtime = os.stat(files.path(name)).st_mtime_ns - next(AGES) * 10**9
        os.utime(files.path(name), ns=(mtime, mtime))
    else:
        files.filesystem.handler.objects.seconds_behind -= 2


def test_an_added_file(files):
    files.write("day=1/3.parquet", 300)
    stored = STORED | {"day=1/3.parquet": 300}
    files.check(stored, ["day=1/3.parquet"])
    assert files.open().update().indexed == 1
    files.check(stored)


def test_a_deleted_file(files):
    files.filesystem.delete_file(files.path("1.parquet"))
    stored = {name: first for name, first in STORED.items() if first != 100}
    files.check(stored)
    assert files.open().update().unchanged == 2
    files.open().compact()
    files.check(stored)
    [segment] = files.open().column("ssn").segments
    assert segment.pairs == 40 and sorted(segment.files.rows.paths) == ["0.parquet", "2.parquet"]


def test_an_overwritten_file_of_the_same_size(files):
    before = files.filesystem.get_file_info(files.path("1.parquet")).size
    later(files, "1.parquet")
    files.write("1.parquet", 500)
    later(files, "1.parquet")
    assert files.filesystem.get_file_info(files.path("1.parquet")).size == before
    stored = STORED | {"1.parquet": 500}
    files.check(stored, ["1.parquet"])
    assert (result := files.open().update()).indexed == 1 and not result.restamped
    files.check(stored)
    files.open().compact()
    files.check(stored)


def test_a_renamed_file_and_one_that_takes_its_name(files):
    files.filesystem.move(files.path("1.parquet"), files.path("x.parquet"))
    stored = {"0.parquet": 0, "2.parquet": 200, "x.parquet": 100}
    files.check(stored, ["x.parquet"])
    assert files.open().update().indexed == 1
    files.check(stored)
    later(files, "2.parquet")
    files.filesystem.copy_file(files.path("0.parquet"), files.path("2.parquet"))
    stored = stored | {"2.parquet": 0}
    files.check(stored, ["2.parquet"])
    files.open().update()
    files.check(stored)


def test_attach_and_strip_keep_an_encrypted_file_covered(files):
    later(files, "0.parquet")  # else it could have its first size and time again, when stripped
    for change in (partial(secure_bloom.attach, bloom_filters=["ssn"]), secure_bloom.strip):
        change(files.path("0.parquet"), keys=KMS, filesystem=files.filesystem)
        files.check(STORED, ["0.parquet"])
        result = files.open().update()
        if files.encryption:
            assert (result.restamped, result.indexed) == (1, 0)
        else:
            assert (result.restamped, result.indexed) == (0, 1)
        files.check(STORED)
    files.open().compact()
    assert not files.open().column("ssn").manifest.body.restamped
    files.check(STORED)


def test_nothing_is_left_of_a_file_that_was_rewritten_and_then_deleted(encrypted):
    secure_bloom.attach(encrypted.path("0.parquet"), keys=KMS, bloom_filters=["ssn"],
                        filesystem=encrypted.filesystem)
    assert encrypted.open().update().restamped == 1
    encrypted.filesystem.delete_file(encrypted.path("0.parquet"))
    assert encrypted.open().compact() == 1
    assert not encrypted.open().column("ssn").manifest.body.restamped
    assert encrypted.open().compact() == 0


def test_a_second_update_changes_nothing(files):
    version = files.open().column("ssn").manifest.version
    assert files.build().unchanged == files.open().update().unchanged == 3
    assert files.open().column("ssn").manifest.version == version


@pytest.fixture
def encrypted(where):
    files = Files(*where)
    for number in range(3):
        files.write(f"{number}.parquet", 100 * number)
    files.build()
    return files


def test_files_under_another_master_key_are_searched_themselves(encrypted):
    later(encrypted, "2.parquet")
    encrypted.open().update()
    rotate_master_keys(encrypted.folder, KMS, old="pii", new="new",
                       filesystem=encrypted.filesystem)
    encrypted.check(STORED, list(STORED))
    result = encrypted.open().update()
    assert result.uncovered.keys() == STORED.keys() and "'new'" in str(result.uncovered)
    encrypted.check(STORED, list(STORED))


def test_rotated_footers_keep_files_covered(encrypted):
    later(encrypted, "2.parquet")
    encrypted.open().update()
    rotate_master_keys(encrypted.folder, KMS, old="footer", new="new",
                       filesystem=encrypted.filesystem)
    encrypted.check(STORED, list(STORED))
    assert encrypted.open().update().restamped == 3
    encrypted.check(STORED)


def test_a_sealed_file_keeps_its_coverage(where):
    files = Files(*where)
    table = pa.table({"ssn": [f"{number:06}" for number in range(20)]})
    write_file(files.filesystem, files.path("0.parquet"), leaking_file(
        table, ["ssn"], KMS, encryption=ENCRYPTION, row_group_size=10))
    files.build()
    later(files, "0.parquet")
    assert secure_bloom.seal(files.path("0.parquet"), KMS, filesystem=files.filesystem).failed == {}
    files.check({"0.parquet": 0}, ["0.parquet"])
    assert files.open().update().restamped == 1
    files.check({"0.parquet": 0})


def test_files_that_may_still_change_within_the_tick_of_their_time_wait(where, monkeypatch):
    files = Files(*where)
    files.write("0.parquet", 0)
    files.build()
    monkeypatch.setattr(update, "_SETTLED_NS", 3600 * 10**9)
    files.write("1.parquet", 100)
    assert files.open().update().uncovered == {"1.parquet": update.TOO_YOUNG}
    files.check({"0.parquet": 0, "1.parquet": 100}, ["1.parquet"])


def test_a_file_that_changes_between_listing_and_reading_is_not_covered(where, monkeypatch):
    files = Files(*where)
    for number in range(2):
        files.write(f"{number}.parquet", 100 * number)
    original = index_table.OpenFile
    written = []

    def opened(source, kms, **options):
        if source.name.endswith("1.parquet") and len(written) == 1:  # the second time: to index it
            later(files, "1.parquet")
            files.write("1.parquet", 500)
        written.extend([1] if source.name.endswith("1.parquet") else [])
        return original(source, kms, **options)

    monkeypatch.setattr(index_table, "OpenFile", opened)
    written.append(1)
    result = files.build()
    assert set(result.uncovered) | set(result.failed) == {"1.parquet"}
    monkeypatch.undo()
    monkeypatch.setattr(update, "_SETTLED_NS", 0)
    files.check({"0.parquet": 0, "1.parquet": 500}, ["1.parquet"])
    files.open().update()
    files.check({"0.parquet": 0, "1.parquet": 500})


def test_a_file_that_is_overwritten_in_place_while_it_is_read_is_not_covered(tmp_path, monkeypatch):
    from secure_bloom.index import column_segments
    files = Files(LOCAL, str(tmp_path))
    files.write("0.parquet", 0)
    files.write("1.parquet", 100)
    files.write("other/x.parquet", 500)
    other = (tmp_path / "other" / "x.parquet").read_bytes()
    original = column_segments.column_hashes

    def hashes(file, column):
        for number, portion in enumerate(original(file, column)):
            yield portion
            if number == 0 and file.name.endswith("/1.parquet"):
                (tmp_path / "1.parquet").write_bytes(other)

    monkeypatch.setattr(column_segments, "column_hashes", hashes)
    result = files.build()
    assert set(result.failed) == {"1.parquet"}
    monkeypatch.undo()
    stored = {"0.parquet": 0, "1.parquet": 500, "other/x.parquet": 500}
    files.check(stored, ["1.parquet"])


def test_eight_small_segments_are_merged(encrypted):
    for number in range(3, 12):
        encrypted.write(f"{number}.parquet", 100 * number)
        encrypted.open().update()
        index = encrypted.open().column("ssn")
        assert len(index.segments) <= 8
    encrypted.check({f"{number}.parquet": 100 * number for number in range(12)})
    assert encrypted.open().vacuum(0)
    encrypted.check({f"{number}.parquet": 100 * number for number in range(12)})
    index = encrypted.open().column("ssn")
    left = encrypted.filesystem.get_file_info(pa_fs.FileSelector(index.folder.path))
    assert {info.base_name for info in left} == {
        f"{index.manifest.version:012}.manifest", *(one.info.name for one in index.segments)}


def test_segments_that_do_not_fit_into_one_are_not_merged(encrypted, monkeypatch):
    from secure_bloom.index import compaction
    monkeypatch.setattr(compaction, "MAX_ROW_GROUPS", 7)
    for number in (3, 4):
        encrypted.write(f"{number}.parquet", 100 * number)
        encrypted.open().update()
    assert encrypted.open().compact() == 2  # of 6, 2 and 2 row groups
    assert sorted(one.files.num_row_groups for one in encrypted.open().column("ssn").segments) \
        == [4, 6]
    encrypted.check({f"{number}.parquet": 100 * number for number in range(5)})


@pytest.mark.parametrize("where", ["local", "subtree"])
def test_a_file_that_is_replaced_after_a_listing_is_not_the_one_of_the_index(tmp_path, where):
    write(tmp_path / "t" / "0.parquet", ["v0"])
    age(tmp_path)
    build(tmp_path / "t", "ssn", KMS)
    filesystem, path = (LOCAL, str(tmp_path / "t")) if where == "local" \
        else (pa_fs.SubTreeFileSystem(str(tmp_path), LOCAL), "t")
    index = open_column(IndexFolder(filesystem, path, "ssn"), CachedKms(KMS))
    table = Table(filesystem, path)
    assert not _is_replaced(index, table, "0.parquet")
    write(tmp_path / "t" / "0.parquet", ["v1"])
    assert _is_replaced(index, table, "0.parquet")
