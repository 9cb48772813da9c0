"""What an erasure costs in the index: one page of a large segment that loses a value.

The segments have random values. The page that has a value is written again, with the part of the
segment that it is in and the tail. Copying all files of the segment, and merging the segment, are
measured on the same disk. All of them sync what they write. A segment of 10^9 pairs has 64 parts.
"""

from __future__ import annotations

import os
import statistics
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs

from benchmarks.compare import Comparison, compare, table
from benchmarks.section import Plan, Section
from secure_bloom.index.building import SegmentBuilder
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.geometry import MAX_GROUP_BITS, pack
from secure_bloom.index.manifest import Body, Manifest
from secure_bloom.index.merging import merge
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.segment_patch import patch_segment
from secure_bloom.sbbf.column_type import ColumnType

ROWS = 20_000  # of each file, with as many values
PAIRS = 20_000_000, 100_000_000
COPY, PATCH, MERGE = "copy the segment", "write one page again", "merge the segment"
_TYPE = ColumnType("INT64", 0, pa.int64())
_SCHEMA = pa.schema([("x", pa.int64())]).serialize().to_pybytes()


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    comparisons = [_compare(plan, plan.folder / f"{full}", plan.size(full, 40_000))
                   for full in PAIRS]
    lines = [f"- removing one value from {one.work}: {_middle(one, PATCH)}, {_times(one):.2f} "
             f"times the time to copy the segment (target 3); a merge takes {_middle(one, MERGE)}."
             for one in comparisons]
    return Section("\n".join([table(comparisons), "", *lines]),
                   {"times": [one.to_json() for one in comparisons]})


def _compare(plan: Plan, place: Path, pairs: int) -> Comparison:
    folder = IndexFolder(pa_fs.LocalFileSystem(), str(place), "x")
    os.makedirs(folder.path)
    manifest = Manifest.new("x", None, None)
    info = _build(folder, manifest, pairs)
    [segment] = ColumnIndex(folder, manifest.next(Body("x", (info,)), 1)).segments
    top, groups, _ = next(segment.decode(0, 1))
    lost = pack(top[:1] << np.uint64(MAX_GROUP_BITS), groups[:1])
    file = int(segment.files.locate(groups[:1]).files[0])
    entry = segment.files.entry(file)._replace(path="new.parquet", has_ranges=False)

    def patch() -> None:
        new = patch_segment(folder, manifest.key, segment, lost, {file: entry})
        assert new is not None
        _delete(folder, {*new.file_names} - {*info.file_names})

    def merged() -> None:
        new = merge(folder.filesystem, folder.path, manifest.key, [segment],
                    lambda segment, number: segment.files.entry(number))
        _delete(folder, new.file_names)

    def copy() -> None:
        for name in info.file_names:
            _copy(Path(folder.segment_path(name)), place / "copy")

    return compare(f"{pairs / 1e6:.3g} million pairs, {len(segment.files):,} files",
                   {COPY: copy, PATCH: patch, MERGE: merged}, plan.rounds)


def _build(folder: IndexFolder, manifest: Manifest, pairs: int) -> SegmentInfo:
    random_values, builder = np.random.default_rng(1), SegmentBuilder(manifest.key, _TYPE)
    for number in range(pairs // ROWS):
        added = builder.add_file(FileEntry(f"{number:05}.parquet", 10**6, 10**18 + number,
                                           f"{number:x}-{number:x}", 1, ROWS, os.urandom(16),
                                           os.urandom(16), _SCHEMA))
        added.add(0, random_values.integers(0, 2**64, ROWS, np.uint64, endpoint=False))
    info = builder.write(folder.filesystem, folder.path)
    builder.close()
    return info


def _copy(source: Path, target: Path) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        size, at = os.fstat(old.fileno()).st_size, 0
        while at < size:
            at += os.copy_file_range(old.fileno(), new.fileno(), size - at)
        os.fsync(new.fileno())
    target.unlink()


def _delete(folder: IndexFolder, names: set[str] | list[str]) -> None:
    for path in map(partial(os.path.join, folder.path), names):
        os.unlink(path)


def _middle(comparison: Comparison, name: str) -> str:
    return f"{statistics.median(comparison.seconds[name]):.2g} s"


def _times(comparison: Comparison) -> float:
    return 1 / statistics.median(comparison.ratios(PATCH))
