"""Keys, files and tables of these tests; segments that are built without files."""

import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

import secure_bloom
from secure_bloom.index import Index
from secure_bloom.index.building import SegmentBuilder
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.merging import MergePlan
from secure_bloom.index.segment import Segment
from secure_bloom.index.segment_writer import write_after_parts, write_part
from secure_bloom.keys import InMemoryKms
from secure_bloom.sbbf.column_type import ColumnType

KEYS = {"footer": b"f" * 16, "pii": b"p" * 16, "new": b"n" * 16}
KMS = InMemoryKms(KEYS)
ENCRYPTION = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]})
LOCAL = pa_fs.LocalFileSystem()
INT64 = ColumnType("INT64", 0, pa.int64())


def write(path, values, *, encryption=ENCRYPTION, column="ssn", rows=None, filesystem=None,
          **options):
    """Write a file with one column, in row groups of so many rows (default: all in one)."""
    values = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if filesystem is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    secure_bloom.write_table(pa.table({column: values}), path, filesystem=filesystem,
                             row_group_size=rows or max(len(values), 1), encryption=encryption,
                             keys=KMS if encryption else None, **options)


def age(folder, seconds=10):
    """Make all files of a table older, so that they are settled."""
    for path in folder.rglob("*.parquet"):
        found = path.stat()
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - seconds * 10**9))


def folder_of(table, column="ssn") -> IndexFolder:
    return IndexFolder(LOCAL, str(table), column)


def segments_of(table, column="ssn"):
    """Return the files of the segments, in order of their names."""
    return sorted((table / "_index" / column).glob("*.seg"))


def files_with(folder, keys, value="absent", column="ssn") -> tuple[list[str], list[str]]:
    """Return the files that may have a value, and those that the index does not cover."""
    found = Index.open(folder, keys).lookup(column, value)
    return list(found.row_groups[0]), found.uncovered


def manifests_of(table, column="ssn"):
    return sorted((table / "_index" / column).glob("*.manifest"))


def entry(number: int, row_groups: int) -> FileEntry:
    """Return the entry of a file that does not exist."""
    return FileEntry(f"{number:06}.parquet", 1000 + number, 10**9 * (number + 1), f"{number:x}-1",
                     row_groups, row_groups * 10, number.to_bytes(16, "big"), bytes(16), b"schema")


def build_segment(folder, key, groups, *, budget=2**20, first_file=0, column_type=INT64) -> Segment:
    """Build a segment whose files have the given row groups, each an array of hashes."""
    builder = SegmentBuilder(key, column_type, budget)
    for number, of_file in enumerate(groups, first_file):
        added = builder.add_file(entry(number, len(of_file)))
        for group, hashes in enumerate(of_file):
            added.add(group, np.asarray(hashes, np.uint64))
    info = builder.write(LOCAL, str(folder))
    builder.close()
    return open_segment(folder, key, info)


def open_segment(folder, key, info) -> Segment:
    """Open a segment that is stored directly in a folder."""
    stored = IndexFolder(LOCAL, "", "x")
    stored.path = str(folder)
    return Segment(info, key.segment(bytes.fromhex(info.id)), stored.open_segment(info))


def in_parts(number: int):
    """Return what merges segments of an index into one of so many parts, as processes do."""
    bits = number.bit_length() - 1

    def merge(index, segments, keep, budget):
        plan, files = MergePlan.of(segments, keep, budget)
        plan = plan._replace(slice_bits=max(plan.slice_bits, bits))
        key, place, segment_id = index.manifest.key, index.folder.path, os.urandom(16)
        filesystem = index.folder.filesystem
        count = 1 << plan.slice_bits - bits
        parts = [write_part(filesystem, place, key, segment_id, plan.geometry, plan.slices(
            place, segments, range(first, first + count)), plan.slice_bits, first)
            for first in range(0, number * count, count)]
        return write_after_parts(filesystem, place, key, segment_id, segments[0].column_type,
                                 plan.geometry, parts, files)

    return merge


def find(segment, key, hashes) -> set[tuple[int, str, int]]:
    """Return number of the hash, path and row group of all matches."""
    fingerprints = key.fingerprints(np.asarray(hashes, np.uint64))
    found = set()
    for read in segment.reads(fingerprints):
        match = segment.find(fingerprints, [read], [segment.read_pages(read)])
        located = segment.files.locate(match.groups)
        found |= {(int(probe), segment.files.entry(file).path, int(group)) for probe, file, group
                  in zip(match.probes, located.files, located.row_groups, strict=True)}
    return found


def random_groups(seed: int, files: int, values: int, distinct: int) -> list[list[np.ndarray]]:
    """Return hashes for files with 0 to 3 row groups, some without values."""
    rng, source = random.Random(seed), np.random.default_rng(seed)
    universe = source.integers(0, 2**64, distinct, np.uint64, endpoint=False)
    return [[source.choice(universe, rng.choice([0, 1, values])) for _ in range(rng.randint(0, 3))]
            for _ in range(files)]


def expected(groups, hashes, first_file=0) -> set[tuple[int, str, int]]:
    """Return what :func:`find` must at least return."""
    return {(number, entry(file, 0).path, group) for number, one in enumerate(hashes)
            for file, of_file in enumerate(groups, first_file)
            for group, stored in enumerate(of_file) if one in stored}
