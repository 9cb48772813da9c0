"""Small indexes, good and bad: ``python -m vectors.builder.indexes``. Keys and nonces are fixed.

Those of the format SBX2 stay as an earlier version has made them.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
from xxhash import xxh64_intdigest

from secure_bloom.index import file_table, geometry
from secure_bloom.index.building import SegmentBuilder
from secure_bloom.index.file_entry import FileEntry
from secure_bloom.index.manifest import Body, Manifest, Restamp, wrap_index_key
from secure_bloom.index.sealing import MAGIC, IndexKey, ModuleType
from secure_bloom.index.segment_info import Part, SegmentInfo
from secure_bloom.index.stamps import Stamp
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.row_ranges import ALL_PARTS, ALL_ROWS, parts_of
from secure_bloom.sbbf.column_type import ColumnType

FOLDER = Path(__file__).parents[1] / "index"
SBX2 = "sbx2-"  #: how the names of vectors of that format begin
MASTER_KEY = bytes(range(16))
COLUMN = "person.number"
_TYPE = ColumnType("INT64", 0, pa.int64())
_FILES = [[range(3), range(2, 5)], [range(4, 7)], [[]], [range(100, 120)]]
_VALUES = [0, 2, 4, 6, 7, 100, 119, 120]
_MANY_ROWS = 100_000  # of a row group


class _Index:
    """A good index: two segments, and a file that was restamped."""

    def __init__(self, folder: Path, is_encrypted: bool, has_ranges: bool = False,
                 moved: Container[int] = ()):
        self.folder, self.has_ranges, self.moved = folder, has_ranges, moved
        key = IndexKey(bytes(range(100, 132)), bytes(range(50, 66)))
        self.manifest = Manifest.new(COLUMN, "pii" if is_encrypted else None, None)
        if is_encrypted:
            material = wrap_index_key(key, "pii", CachedKms(InMemoryKms({"pii": MASTER_KEY})))
            self.manifest = replace(self.manifest, material=material)
        self.manifest = replace(self.manifest, key=key)
        self.listing = {}
        infos = [self._segment(0, _FILES[:3]), self._segment(3, _FILES[3:])]
        restamped = {"1.parquet": Restamp(5000, 5 * 10**9, "1-a1", _entry(1, 1).content, bytes(16))}
        self.listing |= {"1.parquet": Stamp(5000, 5 * 10**9, "1-a1"),
                         "new.parquet": Stamp(1, 1)}
        self.publish(1, Body(COLUMN))
        self.publish(2, Body(COLUMN, tuple(infos), restamped))

    def _segment(self, first: int, files: list) -> SegmentInfo:
        builder = SegmentBuilder(self.manifest.key, _TYPE)
        for number, groups in enumerate(files, first):
            entry = _entry(number, len(groups), _MANY_ROWS if self.has_ranges else 100)
            entry = entry._replace(has_ranges=number not in self.moved)
            self.listing[entry.path] = entry.stamp
            added = builder.add_file(entry)
            for group, values in enumerate(groups):
                hashes = [xxh64_intdigest(struct.pack("<q", value)) for value in values]
                for position, one in enumerate(hashes):
                    added.add(group, np.array([one], np.uint64),
                              _range(group, position) if self.has_ranges else ALL_ROWS)
        return builder.write(pa_fs.LocalFileSystem(), str(self.folder))

    def publish(self, version: int, body: Body) -> None:
        self.manifest = self.manifest.next(body, version)
        self.path(version).write_bytes(self.manifest.to_bytes())

    def path(self, version: int) -> Path:
        return self.folder / f"{version:012}.manifest"

    def segment(self, number: int) -> Path:
        return self.folder / self.manifest.body.segments[number].name

    def change_body(self, **fields) -> None:
        """Seal the body of the newest manifest again, with other fields."""
        body = json.loads(self.manifest.body.to_json()) | fields
        with mock.patch.object(Body, "to_json", lambda _: json.dumps(body).encode()):
            self.path(2).write_bytes(self.manifest.to_bytes())


def _range(group: int, position: int) -> int:
    """Return where a value is that comes at a position among those of its row group."""
    return 1 + (7 * group + 13 * position) % 63


def _entry(number: int, row_groups: int, rows: int = 100) -> FileEntry:
    return FileEntry(f"{number}.parquet", 1000 + number, 10**9 * (number + 1), f"{number:x}-9f",
                     row_groups, rows * row_groups, bytes([number]) * 16,
                     bytes([255 - number]) * 16, b"schema")


# --- faults --------------------------------------------------------------------------------------

def _flip(index: _Index) -> None:
    data = bytearray(index.segment(0).read_bytes())
    data[30] ^= 1
    index.segment(0).write_bytes(data)


def _swap_pages(index: _Index) -> None:
    data = index.segment(1).read_bytes()
    sizes = [4 + int.from_bytes(data[4:8], "little")]
    second = 4 + sizes[0]
    sizes.append(4 + int.from_bytes(data[second:second + 4], "little"))
    index.segment(1).write_bytes(data[:4] + data[second:second + sizes[1]] + data[4:second]
                                 + data[second + sizes[1]:])


def _swap_segments(index: _Index) -> None:
    first, second = (index.segment(number).read_bytes() for number in (0, 1))
    index.segment(0).write_bytes(second)
    index.segment(1).write_bytes(first)


def _truncate(index: _Index) -> None:
    index.segment(0).write_bytes(index.segment(0).read_bytes()[:-1])


def _longer_fingerprints(index: _Index) -> None:
    _change_geometry(index, fingerprint_bits=40)


def _long_ranges(index: _Index) -> None:
    _change_geometry(index, range_bits=7)


def _change_geometry(index: _Index, **bits: int) -> None:
    info = index.manifest.body.segments[0]
    sealer = index.manifest.key.segment(bytes.fromhex(info.id))
    data = index.segment(0).read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    fields = json.loads(sealer.open(data[start:-8], ModuleType.FOOTER).to_pybytes())
    fields["geometry"] |= bits
    footer = sealer.seal(json.dumps(fields).encode(), ModuleType.FOOTER)
    data = data[:start] + footer + len(footer).to_bytes(4, "little") + MAGIC
    index.segment(0).write_bytes(data)
    infos = [info.to_json() | {"size": len(data)}, index.manifest.body.segments[1].to_json()]
    index.change_body(segments=infos)


def _split(index: _Index) -> list[Path]:
    """Store the first bytes of a segment in three parts, and return their paths."""
    info = index.manifest.body.segments[0]
    data = index.segment(0).read_bytes()
    bounds = [0, info.tail // 3, info.tail // 2, info.tail - 7]
    parts = []
    for number, (start, end) in enumerate(pairwise(bounds), 1):
        parts.append(Part(f"{number:032x}", end - start))
        (index.folder / parts[-1].name).write_bytes(data[start:end])
    index.segment(0).write_bytes(data[bounds[-1]:])
    infos = [replace(info, parts=tuple(parts)), index.manifest.body.segments[1]]
    index.change_body(segments=[one.to_json() for one in infos])
    return [index.folder / part.name for part in parts]


def _rename(index: _Index) -> None:
    """Give the file of a segment another name than the segment's."""
    info, name = index.manifest.body.segments[0], f"{7:032x}"
    index.segment(0).rename(index.folder / f"{name}.seg")
    infos = [replace(info, file=name), index.manifest.body.segments[1]]
    index.change_body(segments=[one.to_json() for one in infos])


def _swap_file_pages(index: _Index) -> None:
    info = index.manifest.body.segments[0]
    data = index.segment(0).read_bytes()
    bounds = [info.tail]  # where the pages of files begin
    for _ in range(2):
        bounds.append(bounds[-1] + 4 + int.from_bytes(data[bounds[-1]:bounds[-1] + 4], "little"))
    first, second, third = bounds
    index.segment(0).write_bytes(data[:first] + data[second:third] + data[first:second]
                                 + data[third:])


def _exchange_parts(index: _Index) -> None:
    first, second, _ = _split(index)
    size = max(first.stat().st_size, second.stat().st_size)  # so that both are long enough
    one, other = (path.read_bytes().ljust(size, b"\0") for path in (first, second))
    first.write_bytes(other)
    second.write_bytes(one)


def _truncate_part(index: _Index) -> None:
    last = _split(index)[-1]
    last.write_bytes(last.read_bytes()[:-1])


def _unknown_field_of_segment(index: _Index) -> None:
    first, second = (info.to_json() for info in index.manifest.body.segments)
    index.change_body(segments=[first | {"slices": 2}, second])


def _earlier_magic(index: _Index) -> None:
    data = index.segment(0).read_bytes()
    index.segment(0).write_bytes(b"SBX2" + data[4:-4] + b"SBX2")


def _same_file(index: _Index) -> None:
    first, second = (info.to_json() for info in index.manifest.body.segments)
    index.change_body(segments=[first, second | {"file": first["id"]}])


def _older_as_newer(index: _Index) -> None:
    fields = json.loads(index.path(1).read_bytes()) | {"version": 2}
    index.path(2).write_text(json.dumps(fields))


def _change_format(index: _Index) -> None:
    fields = json.loads(index.path(2).read_bytes()) | {"format": "SBX1"}
    index.path(2).write_text(json.dumps(fields))


#: with the ranges of rows that have values
HAVE_RANGES = ("ranges", "long-ranges", "moved-rows")
#: name -> numbers of files whose rows have moved since the ranges were noted
MOVED = {"moved-rows": (0, 3)}
#: name -> files of a page of the file table
FILES_OF_A_PAGE = {"small-pages": 2, "swapped-file-pages": 1}

#: name -> the one thing that is wrong
BAD: dict[str, tuple[str, Callable[[_Index], None]]] = {
    "changed-page": ("a byte of a page was changed", _flip),
    "swapped-pages": ("two pages of a segment were exchanged", _swap_pages),
    "swapped-file-pages": ("two pages of the file table were exchanged", _swap_file_pages),
    "swapped-segments": ("two segments were exchanged", _swap_segments),
    "truncated-segment": ("the last byte of a segment is missing", _truncate),
    "missing-segment": ("a segment is missing", lambda index: index.segment(0).unlink()),
    "missing-part": ("a part of a segment is missing", lambda index: _split(index)[1].unlink()),
    "exchanged-parts": ("two parts of a segment were exchanged", _exchange_parts),
    "truncated-part": ("the last byte of a part of a segment is missing", _truncate_part),
    "unknown-field-of-segment": ("the manifest has an unknown field of a segment",
                                 _unknown_field_of_segment),
    "earlier-magic": ("a segment has the magic of an earlier format", _earlier_magic),
    "same-file": ("two segments are in one file", _same_file),
    "listed-without-generation": ("totals of files are listed without a generation",
                                  lambda index: index.change_body(listed={
                                      "files": 4, "row_groups": 5, "bytes": 1, "folders": [""]})),
    "other-fingerprints": ("fingerprints of a segment have 40 bits", _longer_fingerprints),
    "long-ranges": ("ranges of a segment have 7 bits", _long_ranges),
    "older-as-newer": ("an older manifest has the name of a newer one", _older_as_newer),
    "other-format": ("the manifest has an unknown format", _change_format),
    "other-column": ("the manifest belongs to another column",
                     lambda index: index.change_body(column="other")),
    "unknown-field": ("the body has an unknown field", lambda index: index.change_body(new=1)),
}


def _tear(index: _Index) -> None:
    index.path(3).write_bytes(index.path(2).read_bytes()[:100])


#: name -> whether it is encrypted, and a change that good readers tolerate
GOOD: dict[str, tuple[bool, Callable[[_Index], object]]] = {
    "encrypted": (True, lambda index: None), "open": (False, lambda index: None),
    "small-pages": (True, lambda index: None), "torn-manifest": (True, _tear),
    "parts": (True, _split), "ranges": (True, lambda index: None), "moved-rows": (True, _rename)}


# --- building ------------------------------------------------------------------------------------

@contextmanager
def _fixed_random(seed: str) -> Iterator[None]:
    with mock.patch("os.urandom", random.Random(seed).randbytes):
        yield


def build(folder: Path) -> None:
    """Write all indexes, each with a ``case.json`` that says what a reader answers."""
    changes = {name: (is_encrypted, None, change) for name, (is_encrypted, change) in GOOD.items()}
    changes |= {name: (True, fault, change) for name, (fault, change) in BAD.items()}
    for name, (is_encrypted, fault, change) in changes.items():
        target = folder / name
        target.mkdir(parents=True)
        page_bits = 3 if name in ("small-pages", "swapped-pages") else 13
        with _fixed_random(name), mock.patch.object(geometry, "_PAGE_BITS", page_bits), \
                mock.patch.object(file_table, "PAGE_FILES", FILES_OF_A_PAGE.get(name, 128)):
            index = _Index(target, is_encrypted, name in HAVE_RANGES, MOVED.get(name, ()))
            change(index)
        asked = {"column": COLUMN, "files": [":".join(map(str, (path, *stamp))) for path, stamp
                                             in sorted(index.listing.items())],
                 "values": [struct.pack("<q", value).hex() for value in _VALUES]}
        if is_encrypted:
            asked["master_keys"] = {"pii": MASTER_KEY.hex()}
        case = {"name": f"index-{name}", "operation": "lookup", "origin": "secure_bloom",
                "checked_by": ["tests/index/format_reader.py"], "input": asked}
        case |= {"outcome": "refused", "fault": fault} if fault is not None \
            else {"outcome": "answered", "output": {"found": list(_found(name)),
                                                    "uncovered": ["new.parquet"]}}
        (target / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def _found(name: str) -> Iterator[str]:
    for position, value in enumerate(_VALUES):
        for number, groups in enumerate(_FILES):
            for group, values in enumerate(groups):
                if value in values:
                    is_known = name in HAVE_RANGES and number not in MOVED.get(name, ())
                    range_ = _range(group, list(values).index(value)) if is_known else ALL_ROWS
                    [parts] = parts_of(np.array([range_], np.uint64)).tolist()
                    where = "" if parts == ALL_PARTS else f":{parts:08x}"
                    yield f"{position}:{number}.parquet:{group}{where}"


if __name__ == "__main__":
    for path in FOLDER.iterdir():
        if not path.name.startswith(SBX2):
            shutil.rmtree(path)
    build(FOLDER)
