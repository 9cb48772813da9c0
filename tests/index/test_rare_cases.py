"""Limits, damage and races of an index that tests of its usual work do not meet."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, erase
from secure_bloom.errors import FormatError, KeyNotFoundError, SecureBloomError, UnsupportedError
from secure_bloom.index import Index, build, file_pages, file_table, identity, known_files, segment
from secure_bloom.index.file_change import FileChange
from secure_bloom.index.file_pages import FilePage
from secure_bloom.index.file_table import FileTable
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.geometry import pack, place_of
from secure_bloom.index.manifest import Body, Listed
from secure_bloom.index.patching import patch_index
from secure_bloom.index.replacing import replace_index
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.segment import SBX2
from secure_bloom.index.segment_info import Part
from secure_bloom.index.segment_patch import patch_segment
from secure_bloom.index.segment_writer import new_file
from secure_bloom.index.stamps import Stamp, stamps
from secure_bloom.index.table import Table
from secure_bloom.index.writing import WrittenIndexes
from secure_bloom.keys.cache import cached
from secure_bloom.reading.open_file import OpenFile
from tests.index.helpers import (
    ENCRYPTION,
    KMS,
    LOCAL,
    age,
    build_segment,
    entry,
    folder_of,
    open_segment,
    write,
)
from tests.reading.ways import by_pages, with_ranges


def test_ranges_that_do_not_count_any_more_do_not_count_after_a_merge(tmp_path):
    """An erasure moves the rows of a file. Later its segment is merged with another one."""
    with with_ranges():
        for number in range(2):
            write(tmp_path / f"{number}.parquet", [f"{number}-{row:05}" for row in range(6000)])
            age(tmp_path)
            build(tmp_path, "ssn", KMS)
            if number == 0:
                erase(tmp_path, "ssn", [f"0-{row:05}" for row in range(300)], KMS, max_share=1)
        index = Index.open(tmp_path, KMS)
        assert index.compact() == 2
        [merged] = index.column("ssn").segments
        assert merged.geometry.range_bits and len(merged.files) == 2
        data = secure_bloom.dataset(tmp_path, KMS, index="require")
        with by_pages():
            for row in range(300, 6000, 570):
                assert data.to_table(filter=[("ssn", "=", f"0-{row:05}")]).num_rows == 1
        assert index.verify(sample=None).ok


# --- limits of what is stored --------------------------------------------------------------------

def test_names_and_schemas_that_readers_would_refuse_are_not_written(monkeypatch):
    monkeypatch.setattr(file_pages, "MAX_FILE_PAGE", 1000)
    with pytest.raises(UnsupportedError, match="names of files"):
        FilePage.of([entry(1, 1)._replace(path="a" * 1000)], {b"schema": 0}).to_bytes()
    table = FileTable.of([entry(1, 1)])
    monkeypatch.setattr(file_table, "MAX_BYTES", 10)
    with pytest.raises(UnsupportedError, match="too many for one segment"):
        table.directory.to_bytes()


def test_a_row_group_that_no_file_has_is_an_error():
    table = FileTable.of([entry(0, 2), entry(1, 1)])
    assert table.place_of(2) == (1, 0, entry(1, 1).path)
    with pytest.raises(FormatError, match="row group"):
        table.place_of(3)


def test_a_table_without_pages_that_does_not_end_where_it_should_is_refused():
    page = FilePage.of([entry(0, 1)], {b"schema": 0})
    stored = file_pages.decompressed(page.to_bytes(), 10**6)
    count, rest = stored[:4], stored[4:]
    at = 8 + 8 + 8 + 4 + 4 + 16 + 16  # of the ranges, which this format does not have
    data = count + (1).to_bytes(4, "little") + rest[:at] + rest[at + 1:] \
        + file_pages.packed([b"schema"])
    assert FileTable.from_sbx2(file_pages.compressed(data)).entry(0) == entry(0, 1)
    with pytest.raises(FormatError, match="file table"):
        FileTable.from_sbx2(file_pages.compressed(data + b"\0"))


def test_a_table_without_pages_that_has_a_path_twice_is_refused():
    fields = file_pages.decompressed(FilePage.of([entry(0, 1)] * 2, {b"schema": 0}).to_bytes(),
                                     10**6)
    at = 4 + 2 * (8 + 8 + 8 + 4 + 4 + 16 + 16)
    data = fields[:4] + (1).to_bytes(4, "little") + fields[4:at] + fields[at + 2:] \
        + file_pages.packed([b"schema"])
    with pytest.raises(FormatError, match="file table"):
        FileTable.from_sbx2(file_pages.compressed(data))


def test_sizes_of_pages_of_files_that_cannot_be_are_refused(tmp_path, monkeypatch):
    key = IndexKey.new()
    info = build_segment(tmp_path, key, [[[1]]]).info
    monkeypatch.setattr(segment, "MAX_STORED_FILE_PAGE", 1)
    with pytest.raises(FormatError, match="invalid sizes"):
        open_segment(tmp_path, key, info)


@pytest.mark.parametrize("totals", [(-1, 0, 0, None), (0, 2**63, 0, None), (0, 0, True, None),
                                    (1, 1, 1, (b"folder",))])
def test_totals_that_cannot_be_are_refused(totals):
    with pytest.raises(TypeError):
        Listed(*totals)


def test_a_manifest_with_very_many_segments_is_refused(tmp_path, monkeypatch):
    body = Body("ssn", (build_segment(tmp_path, IndexKey.new(), [[[1]]]).info,))
    assert Body.from_json(body.to_json()) == body
    monkeypatch.setattr("secure_bloom.index.manifest._MAX_SEGMENTS", 0)
    with pytest.raises(FormatError, match="manifest"):
        Body.from_json(body.to_json())


# --- files ---------------------------------------------------------------------------------------

def test_the_stamp_of_a_file_that_is_gone_is_as_it_was_listed(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    info = LOCAL.get_file_info(str(path))  # which has no tag
    assert stamps(LOCAL, [info])[0].tag
    path.unlink()
    assert stamps(LOCAL, [info]) == [Stamp(7, info.mtime_ns)]


def test_what_files_have_lost_is_known_if_they_can_be_compared(tmp_path):
    write(tmp_path / "old.parquet", ["a", "b"], rows=1)
    write(tmp_path / "one group.parquet", ["a", "b"])
    write(tmp_path / "numbers.parquet", [1, 2], rows=1)
    write(tmp_path / "another.parquet", ["a", "b"], rows=1, column="name", encryption=None)
    key = {"ssn": IndexKey.new()}

    def change(old, new):
        files = [OpenFile(tmp_path / f"{name}.parquet", cached(KMS)) for name in (old, new)]
        return FileChange.of(LOCAL, files[0], str(tmp_path / f"{old}.parquet"), files[1], new,
                             [0, 1], key)

    assert change("old", "one group") is None
    assert change("old", "old").lost["ssn"].pairs.size == 0
    assert change("another", "another").lost["ssn"].pairs.size == 0
    assert change("old", "numbers").lost == change("old", "another").lost == {}


def test_schemas_of_many_files_are_found_together(tmp_path, monkeypatch):
    write(tmp_path / "0.parquet", ["a"])
    secure_bloom.write_table(pa.table({"ssn": ["b"], "name": ["x"]}), tmp_path / "1.parquet",
                             encryption=ENCRYPTION, keys=KMS)
    age(tmp_path)
    build(tmp_path, "ssn", KMS)
    monkeypatch.setattr(known_files, "_FEW", 0)
    found = secure_bloom.read_table(tmp_path, KMS, filters=[("ssn", "=", "b")])
    assert found.to_pylist() == [{"ssn": "b", "name": "x"}]


def test_an_exclusive_index_opens_no_more_files_than_it_may(tmp_path, monkeypatch):
    """None has a value of the column, so each of them leaves open whose index it is."""
    for _ in range(3):
        secure_bloom.write_dataset(pa.table({"name": ["x"]}), tmp_path / "t", mode="append")
    secure_bloom.write_dataset(pa.table({"ssn": ["a"]}), tmp_path / "t", mode="append",
                               encryption=ENCRYPTION, keys=KMS)
    build(tmp_path / "t", "ssn", KMS, exclusive=True)
    monkeypatch.setattr(identity, "_TRIES", 1)
    assert len(Index.open(tmp_path / "t", KMS).lookup("ssn", "a").row_groups[0]) == 1


def test_a_file_that_is_replaced_before_its_values_are_published_is_not_covered(
        tmp_path, monkeypatch):
    publish = WrittenIndexes.publish

    def replaced(self, job, *arguments):
        [path] = (tmp_path / "t").glob("*.parquet")
        write(path, ["another value"] * 100)
        return publish(self, job, *arguments)

    monkeypatch.setattr(WrittenIndexes, "publish", replaced)
    secure_bloom.write_dataset(pa.table({"ssn": ["a"]}), tmp_path / "t", encryption=ENCRYPTION,
                               keys=KMS, index_columns=["ssn"])
    found = Index.open(tmp_path / "t", KMS).lookup("ssn", ["a", "another value"])
    assert len(found.uncovered) == 1 and found.row_groups == [{}, {}]


def test_an_index_is_required_although_explicit_keys_have_none(tmp_path):
    write(tmp_path / "0.parquet", ["a"], encryption=None)
    keys = secure_bloom.ExplicitKeys(b"k" * 16, plaintext_files_allowed=True)
    with pytest.raises(TypeError, match="needs a KMS"):
        secure_bloom.read_table(tmp_path, keys, filters=[("ssn", "=", "a")], index="require")


# --- other programs ------------------------------------------------------------------------------

@pytest.mark.parametrize("times", [1, 1000])
def test_an_index_is_replaced_though_others_publish_meanwhile(tmp_path, monkeypatch, times):
    write(tmp_path / "0.parquet", ["a"])
    age(tmp_path)
    build(tmp_path, "ssn", KMS)
    write(tmp_path / "0.parquet", ["a"],
          encryption=EncryptionConfiguration("footer", {"new": ["ssn"]}))
    age(tmp_path)
    publish, left = IndexFolder.publish, [times]

    def published(self, manifest):
        if manifest.body.segments == () and left[0]:
            left[0] -= 1
            raise FileExistsError
        return publish(self, manifest)

    monkeypatch.setattr(IndexFolder, "publish", published)
    if times > 1:
        with pytest.raises(SecureBloomError, match="faster than this one can"):
            replace_index(folder_of(tmp_path), cached(KMS))
    else:
        replace_index(folder_of(tmp_path), cached(KMS))
        assert Index.open(tmp_path, KMS).lookup("ssn", "a").row_groups == [{"0.parquet": [0]}]


def test_neither_master_key_is_used(tmp_path):
    write(tmp_path / "0.parquet", ["a"])
    age(tmp_path)
    build(tmp_path, "ssn", KMS)
    with pytest.raises(KeyNotFoundError, match="the indexes use: pii"):
        Index.open(tmp_path, KMS).rotate(old="footer", new="new")


# --- pages that are written again ----------------------------------------------------------------

def test_a_segment_that_cannot_be_patched_is_left_alone(tmp_path):
    key, folder = IndexKey.new(), folder_of(tmp_path)
    patched = build_segment(tmp_path, key, [[[1, 2], [3]]])
    folder.path = str(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    lost = pack(key.fingerprints(np.array([1, 4], np.uint64)), place_of(0, 0, 0))
    assert patch_segment(folder, key, patched, lost, {}) is None  # it does not have both
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    whole = patched.info
    patched.info = replace(whole, parts=(Part("ab" * 16, 20), Part("cd" * 16, 20)))
    assert patch_segment(folder, key, patched, lost[:1], {}) is None  # the page is in both parts
    patched.info, patched.magic = whole, SBX2  # whose file table is stored as a whole
    assert patch_segment(folder, key, patched, lost[:1], {}) is None


def test_without_an_index_there_is_nothing_to_patch(tmp_path):
    table = Table.at(tmp_path)
    assert not patch_index(table, folder_of(tmp_path), cached(KMS), [], table.state())


def test_a_segment_that_ends_too_early_is_not_copied(tmp_path):
    (tmp_path / "short").write_bytes(b"1234")
    with pytest.raises(FormatError, match="truncated"), new_file(LOCAL, str(tmp_path), "x") as file:
        file.copy(pa.OSFile(str(tmp_path / "short")), 0, 5)
