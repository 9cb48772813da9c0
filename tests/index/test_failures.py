"""What fails in the middle of an operation on an index: nothing half-written, no wrong answer."""

import errno
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from secure_bloom.errors import (
    ChangedMeanwhileError,
    FormatError,
    KeyNotFoundError,
    UnsupportedError,
)
from secure_bloom.index import (
    build,
    building,
    column_segments,
    exclusive_files,
    segment_writer,
    update,
    writing,
)
from secure_bloom.index.column_segments import INDEXED, SegmentMaker, Segments, SentKey
from secure_bloom.index.file_table import FileTable
from secure_bloom.index.geometry import Geometry
from secure_bloom.index.manifest import Manifest, StoredManifest, unwrap_index_key
from secure_bloom.index.pair_store import PairStore
from secure_bloom.index.sealing import MAGIC, IndexKey
from secure_bloom.index.segment import Segment
from secure_bloom.index.segment_writer import write_segment
from secure_bloom.index.table import Table
from secure_bloom.index.written_hashes import WrittenHashes
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.small_files import read_small
from secure_bloom.storage.table_names import GENERATION, STAGING
from tests.index.helpers import INT64, KMS, LOCAL, build_segment, entry, folder_of, write

KEY = IndexKey(b"k" * 32, b"i" * 16)


# --- segments ------------------------------------------------------------------------------------

@pytest.mark.parametrize("part", [segment_writer.PART, 1])
def test_a_segment_that_cannot_be_finished_leaves_no_file(tmp_path, monkeypatch, part):
    """Nor a part of it."""
    monkeypatch.setattr(segment_writer, "PART", part)

    def slices():
        yield np.arange(10, dtype=np.uint64)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        write_segment(LOCAL, str(tmp_path), KEY, INT64, Geometry.of(20_000, 1), slices(), 1,
                      FileTable.of([entry(0, 1)]))
    assert list(tmp_path.iterdir()) == []


def test_a_footer_longer_than_its_segment_is_refused(tmp_path):
    info = build_segment(tmp_path, KEY, [[[1, 2]]]).info
    data = (tmp_path / info.name).read_bytes()
    tail = len(data) - info.tail - 8
    for length in (tail + 1, 2**32 - 1):
        changed = data[:-8] + length.to_bytes(4, "little") + MAGIC
        with pytest.raises(FormatError, match="longer than the segment"):
            Segment(info, KEY.segment(bytes.fromhex(info.id)),
                    lambda at, size, changed=changed: changed[at:at + size])


def test_pages_outside_of_a_segment_are_refused(tmp_path, monkeypatch):
    segment = build_segment(tmp_path, KEY, [[[1, 2]]])
    for first, size in [(0, 0), (len(MAGIC) - 1, 0), (segment.directory + 1, 0),
                        (len(MAGIC), segment.directory), (2**63, 0)]:
        forged = first.to_bytes(8, "little") + size.to_bytes(4, "little")
        monkeypatch.setattr(segment, "_open", lambda *_, forged=forged: forged)
        with pytest.raises(FormatError, match="invalid offsets"):
            segment._add_part(0, b"")


def test_a_disk_that_fails_is_not_a_missing_segment(tmp_path, monkeypatch):
    """Else a lookup would read the index again and again."""
    stored, info = folder_of(tmp_path), build_segment(tmp_path, KEY, [[[1, 2]]]).info
    path = tmp_path / "_index" / "ssn" / info.name
    path.mkdir(parents=True)
    with pytest.raises(FormatError, match="not a regular file"):
        stored.open_segment(info)
    path.rmdir()
    path.touch()

    def failing(path):
        raise OSError(errno.EIO, "the disk fails")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk fails"):
        patch.setattr(pa, "OSFile", failing)
        stored.open_segment(info)
    path.unlink()
    with pytest.raises(ChangedMeanwhileError, match="missing"):
        stored.open_segment(info)


# --- manifests -----------------------------------------------------------------------------------

def test_a_manifest_nested_too_deeply_is_refused():
    with pytest.raises(FormatError, match="malformed"):
        StoredManifest.parse(b"[" * 200_000, 1)


def test_an_encrypted_index_needs_keys(tmp_path):
    write(tmp_path / "a.parquet", ["v1"])
    build(tmp_path, "ssn", KMS)
    with pytest.raises(KeyNotFoundError, match="pass keys"):
        folder_of(tmp_path).newest().open("ssn", None)


def test_a_file_that_disappears_while_it_is_created_was_not_created(monkeypatch):
    """What was written to a store is read again, as another writer may have replaced it."""
    memory = MemoryFileSystem()
    filesystem = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(memory))

    def removing(filesystem, path, limit):
        memory.rm(path)
        return read_small(filesystem, path, limit)

    monkeypatch.setattr(exclusive_files, "read_small", removing)
    with pytest.raises(FileExistsError, match="another writer"):
        exclusive_files.create_exclusively(filesystem, "/created/m", b"data")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_store_that_calls_a_condition_an_invalid_argument(monkeypatch, is_there):
    """As s3fs, if an object exists that was to be created."""
    memory = MemoryFileSystem()

    def pipe_file(path, value, mode="overwrite"):
        raise OSError(errno.EINVAL, "At least one of the pre-conditions did not hold")

    if is_there:
        memory.pipe_file("/created/n", b"theirs")
    monkeypatch.setattr(memory, "pipe_file", pipe_file)
    filesystem = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(memory))
    with pytest.raises(FileExistsError if is_there else OSError) as raised:
        exclusive_files.create_exclusively(filesystem, "/created/n", b"data")
    assert is_there or raised.value.errno == errno.EINVAL
    memory.rm("/created", recursive=True)


# --- collecting ----------------------------------------------------------------------------------

def test_fewer_spilled_bytes_than_were_written_are_an_error():
    store = PairStore(1)
    for _ in range(3):
        store.add(np.arange(1000, dtype=np.uint64))
        store.spill()
    store.finish()
    os.ftruncate(store._spill.fileno(), 100)
    with pytest.raises(OSError, match="shorter than what was written"):
        list(store.slices(0))
    store.close()


def test_a_column_that_cannot_be_spilled_is_forgotten(monkeypatch):
    written = WrittenHashes({"a": KEY, "b": KEY}, 2**20)
    monkeypatch.setattr(written._stores["a"], "spill", lambda: 1 / 0)
    written.spill()
    assert set(written._stores) == {"b"}
    written.close()


def test_an_update_that_has_no_room_for_a_file_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "MAX_NEW_ROW_GROUPS", 3)
    write(tmp_path / "a.parquet", [1, 2], encryption=None, rows=1)
    key = SentKey(Manifest.new("ssn", None, None))
    maker = SegmentMaker(LOCAL, str(tmp_path), "ssn", key, {})
    table = Table(LOCAL, str(tmp_path))
    [(path, stamp)] = table.listing().items()
    with OpenFile(tmp_path / path) as file:
        assert maker.add(file, "first", stamp) == INDEXED
        with pytest.raises(UnsupportedError, match="update the index again"):
            maker.add(file, "second", stamp)
        monkeypatch.setattr(building, "MAX_NEW_ROW_GROUPS", 1)
        other = SegmentMaker(LOCAL, str(tmp_path), "ssn", key, {})
        # Their numbers would need bits of the fingerprints.
        assert other.add(file, path, stamp) == "2 row groups are too many for an index"
    (tmp_path / "_index" / "ssn").mkdir(parents=True)
    assert len(maker.write().segments) == 1
    assert not other.write().segments


def test_a_generation_that_disappears_while_it_is_read_is_unknown(tmp_path, monkeypatch):
    (tmp_path / STAGING).mkdir()
    (tmp_path / STAGING / GENERATION).write_bytes(b"1")
    table = Table(LOCAL, str(tmp_path))
    assert table.generation() is not None

    def gone(filesystem, path, limit):
        raise FileNotFoundError(path)

    monkeypatch.setattr("secure_bloom.index.table.read_cached", gone)
    assert table.generation() is None


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir])
def test_a_generation_that_is_something_else_is_unknown(tmp_path, plant):
    (tmp_path / STAGING).mkdir()
    plant(tmp_path / STAGING / GENERATION)
    assert Table(LOCAL, str(tmp_path)).generation() is None


def test_a_file_that_changes_after_it_was_listed_is_not_covered(tmp_path):
    write(tmp_path / "a.parquet", ["v1"])
    table = Table(LOCAL, str(tmp_path))
    [(path, stamp)] = table.listing().items()
    write(tmp_path / "a.parquet", ["v1", "v2"])
    assert update.add_file(table, KMS, path, stamp, stamp.mtime_ns + 10**12, []) \
        == "changed after it was listed"


# --- parts, and what is shown --------------------------------------------------------------------

def test_a_row_group_is_indexed_in_several_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(column_segments, "_PART", 100)
    write(tmp_path / "a.parquet", range(450), encryption=None, rows=250)
    with OpenFile(tmp_path / "a.parquet") as file:
        [column] = file.columns
        parts = list(column_segments.column_hashes(file, column))
    for row_group, size in [(0, 250), (1, 200)]:
        hashes = np.concatenate([part.hashes for part in parts if part.row_group == row_group])
        assert np.unique(hashes).size == size


def test_keys_of_another_size_are_refused():
    for key, index_id in [(b"k" * 31, b"i" * 16), (b"k" * 32, b"i" * 15)]:
        with pytest.raises(ValueError, match="32 bytes and an id of 16 bytes"):
            IndexKey(key, index_id)


def test_keys_are_equal_by_their_bytes_and_never_shown():
    same, other = IndexKey(b"k" * 32, b"i" * 16), IndexKey(b"x" * 32, b"i" * 16)
    assert same == KEY and hash(same) == hash(KEY) and other != KEY
    sent = SentKey(Manifest.new("ssn", None, None))
    for shown in (repr(KEY), repr(sent)):
        assert "kkkk" not in shown and sent.key.secret.hex() not in shown


def test_a_master_key_may_wrap_the_key_of_an_index_itself():
    wrapped = KMS.wrap_key(b"k" * 32, "pii")
    assert unwrap_index_key(KeyMaterial("pii", wrapped, None, None), CachedKms(KMS)) == b"k" * 32


def test_segments_that_cannot_be_published_are_not_merged(tmp_path, monkeypatch, caplog):
    """The other columns of the job are still published."""
    manifest = Manifest.new("ssn", None, None)
    made = {(column, manifest.key.index_id): Segments([object()], {}) for column in ("a", "b")}
    published, merged = [], []

    def publish(folder, *_):
        published.append(folder.column)
        if folder.column == "a":
            raise OSError("the disk is full")
        return manifest.next(replace(manifest.body, segments=(object(),) * writing.FAN_OUT), 1)

    monkeypatch.setattr(writing, "_existing", lambda folder, segments: segments)
    monkeypatch.setattr(writing, "publish_segments", publish)
    monkeypatch.setattr(writing, "merge_tiers",
                        lambda table, folder, *_: merged.append(folder.column))
    job = SimpleNamespace(filesystem=LOCAL, table=str(tmp_path), folder="t", in_place=False)
    written = writing.WrittenIndexes({column: SentKey(manifest) for column in ("a", "b")})
    written.publish(job, [writing.TaskSegments(made, {})], None)
    assert published == ["a", "b"] and merged == ["b"]
    assert "the disk is full" in caplog.text
