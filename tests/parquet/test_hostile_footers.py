"""Work and memory grow with the size of a file, whatever its footer holds or claims."""

import gc
import os
import sys
import threading
import tracemalloc
from collections import Counter

import pyarrow.fs as pa_fs
import pytest
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from secure_bloom import ExplicitKeys, ParquetFile, attach, audit, strip, verify_file
from secure_bloom.cli.report import inspect_file, render_inspection
from secure_bloom.errors import FormatError, SecureBloomError
from secure_bloom.parquet.chunk_states import _defined_orders
from secure_bloom.parquet.footer import _RECURRING, Footer
from secure_bloom.parquet.known_schema import _schema_columns
from secure_bloom.reading.open_file import OpenFile
from tests.counting import CountingHandler
from tests.parquet.hostile_footers import (
    JUNK,
    PLACES,
    THINGS,
    VALUES,
    file_metadata,
    hostile_file,
    leaf,
    row_group,
    whole,
)
from tests.support import FOOTER_KEY, footer_parts, open_footer
from tests.tiers import sweep_where

pytestmark = pytest.mark.slow

KEYS = ExplicitKeys(FOOTER_KEY)
MEBIBYTE = 1 << 20


# --- what is done with a file --------------------------------------------------------------------

def read(path, keys):
    with ParquetFile(path, keys) as file, OpenFile(path, keys) as inner:
        for look in (lambda: file.columns[-1].path, lambda: file.schema,
                     lambda: file.prune([("a", "==", 7)]), lambda: file.might_contain("a", [7, 9]),
                     lambda: file.bloom_filters, lambda: render_inspection(inspect_file(inner)),
                     lambda: repr(file) + file._repr_html_()):
            try:
                look()
            except SecureBloomError:
                continue


OPERATIONS = {
    "read": read,
    "verify": lambda path, keys: verify_file(path, keys),
    "audit": lambda path, keys: audit(path, keys, scan=True, files_at_once=1),
    "attach": lambda path, keys: attach(path, {"a": True}, keys, replace=True, files_at_once=1),
    "strip": lambda path, keys: strip(path, keys, files_at_once=1),
}


def lines_run(work, *arguments) -> int:
    """How many lines of Python are executed, loops within a line included."""
    count = 0

    def local(frame, event, _):
        nonlocal count
        count += event == "line"
        return local

    def called(frame, *_):
        return local if f"secure_bloom{os.sep}" in frame.f_code.co_filename else None

    before = sys.gettrace()
    threading.settrace(called)
    sys.settrace(called)
    try:
        work(*arguments)
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return count


# One kind of junk everywhere, and every kind where it is read: all of them would take hours.
MOST = [(kind, operation) for kind in (*THINGS, *(f"{place}: booleans" for place in PLACES))
        for operation in OPERATIONS]
MORE = [(f"before the column orders: {name}", "read") for name in JUNK if name != "booleans"]


def decides(kind: str, operation: str) -> bool:
    """For a merge it is enough to read each kind, and to do one more thing, in turn, with it."""
    kinds, more = list(dict.fromkeys(kind for kind, _ in MOST)), list(OPERATIONS)[1:]
    return operation in ("read", more[kinds.index(kind) % len(more)])


@sweep_where(lambda kind, operation: (kind, operation) in MOST and not decides(kind, operation))
@pytest.mark.parametrize(("kind", "operation"), [*MOST, *MORE])
def test_work_grows_no_faster_than_the_file(tmp_path, kind, operation):
    small = 1000 if operation == "verify" else 3000
    assert_linear(OPERATIONS[operation], files_of(kind, small), tmp_path)


def test_that_of_verify_does_not_multiply_columns_by_what_else_is_in_a_row_group(tmp_path):
    assert_linear(OPERATIONS["verify"], files_of("row group: booleans", 8000), tmp_path)


def files_of(kind: str, small: int, **options) -> list[bytes]:
    return [hostile_file(kind, size, **options) for size in (small, small, 4 * small)]


def forget_files() -> None:
    """Forget what footers had in common with earlier ones, which is not decoded again."""
    _schema_columns.cache_clear()
    _defined_orders.cache_clear()
    for recurring in _RECURRING.values():
        recurring.take(b"\x0c", 0)  # an empty list


def assert_linear(work, files: list[bytes], folder, keys=None) -> None:
    """The lines that are run grow no faster than the files; the first is for warming up."""
    path, lines = folder / "a.parquet", []
    for data in files:
        path.write_bytes(data)
        forget_files()
        lines.append(lines_run(work, path, keys))
    footers = [open_footer(data, keys) for data in files]
    parts = [max(1, len(footer.row_groups) * len(footer.columns)) for footer in footers]
    growth = max(len(files[2]) / len(files[1]), parts[2] / parts[1], 4.0)
    assert lines[2] / lines[1] <= 1.1 * growth


@pytest.mark.parametrize("kind", ["file: texts", "columns", "row groups", "column orders",
                                  "columns and row groups", "deep columns"])
def test_so_does_that_of_an_encrypted_footer(tmp_path, kind):
    assert_linear(read, files_of(kind, 4000, encrypted=True), tmp_path, KEYS)


# --- memory --------------------------------------------------------------------------------------

def peak(work, *arguments) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work(*arguments)
    except SecureBloomError:
        pass
    finally:
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return size


@sweep_where(lambda kind: kind == "columns" or kind.endswith("booleans"))
@pytest.mark.parametrize("kind", [
    "file: booleans", "column chunk: texts", "column metadata: booleans", "statistics: booleans",
    "schema element: booleans", "column orders", "columns", "row groups",
    "leaves without row groups", "encoding statistics"])
def test_memory_grows_no_faster_than_the_file(kind):
    """Far below what it takes to hold every field of a footer by itself: 40 to 80 times as much.

    pyarrow's schema alone takes ten times the footer where that is all leaves.
    """
    data = hostile_file(kind, 150_000)
    peak(lambda: ParquetFile(hostile_file(kind, 4000)).prune([("a", "==", 7)]))  # loads modules
    assert peak(lambda: ParquetFile(data).prune([("a", "==", 7)])) < 3_700_000 + 12 * len(data)


def test_a_column_chunk_stays_decoded_only_while_it_is_asked_for_or_changed():
    footer = open_footer(hostile_file("row groups", 170_000))
    assert len(footer.row_groups) > 1200
    for chunks in footer.row_groups:
        assert chunks[0].bloom_filter
    assert len(footer.row_groups[0].shared.recent._found) <= 1024
    footer.row_groups[0][0].set_bloom_filter(77, 88)
    for chunks in footer.row_groups:
        assert chunks[0].bloom_filter
    assert footer.row_groups[0][0].bloom_filter == (77, 88)
    content, magic = footer_parts(b"PAR1" + footer.to_bytes())
    assert [chunks[0].bloom_filter for chunks in Footer(content, magic).row_groups] \
        == [chunks[0].bloom_filter for chunks in footer.row_groups]


def test_column_chunks_without_metadata_are_refused_at_once():
    """Each would become an error of some hundred bytes."""
    groups = [row_group([b"\0"]) for _ in range(100)]
    with pytest.raises(FormatError, match="row group 0"):
        ParquetFile(whole(file_metadata([leaf()], groups), 0))


def fields(data: bytes) -> Counter:
    """Every field of a FileMetaData, by what it is in, as the thrift library reads them."""
    found = Counter()
    protocol = TCompactProtocol(TMemoryBuffer(data))

    def value(kind, place):
        if kind == TType.STRUCT:
            protocol.readStructBegin()
            while (header := protocol.readFieldBegin())[1] != TType.STOP:
                found[*place, header[2], header[1]] += 1
                value(header[1], (*place, header[2]))
                protocol.readFieldEnd()
            protocol.readStructEnd()
        elif kind == TType.LIST:
            element, size = protocol.readListBegin()
            for _ in range(size):
                value(element, place)
            protocol.readListEnd()
        else:
            protocol.skip(kind)

    value(TType.STRUCT, ())
    return found


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("place", PLACES)
def test_junk_changes_no_answer_and_is_kept(place, junk):
    data = hostile_file(f"{place}: {junk}", 4000)
    file = ParquetFile(data)
    assert file.might_contain("a", [*VALUES, 1000])[0].tolist() == [True] * 3 + [False]
    assert file.prune([("a", "==", 1000)]) == []
    assert len(file.prune([("a", "==", 7)])) == file.num_row_groups
    footer = file.footer
    for chunks in footer.row_groups:
        chunks[0].set_bloom_filter(*chunks[0].bloom_filter)
    again = OpenFile(data[:footer.start] + footer.to_bytes())
    assert [info.offset for info in again.bloom_filters] \
        == [info.offset for info in file.bloom_filters]
    assert fields(again.stored_footer) == fields(OpenFile(data).stored_footer)


# --- paths ---------------------------------------------------------------------------------------

def test_a_long_group_name_above_many_leaves_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(hostile_file("a long group name", 2 * MEBIBYTE))  # 8 GB of paths
    assert peak(ParquetFile, path) < 64 * MEBIBYTE + 8 * path.stat().st_size
    with pytest.raises(FormatError, match=r"a\.parquet: the paths of the columns are too long"):
        ParquetFile(path)
    assert "too long" in verify_file(path).findings[0].message
    [finding] = audit(path).findings
    assert finding.kind == "damaged" and "too long" in finding.message
    assert "too long" in attach(path, {"a": True}).failed[str(path)]


# --- parts that overlap --------------------------------------------------------------------------

def bytes_read(path, work) -> int:
    handler = CountingHandler()
    try:
        work(str(path), pa_fs.PyFileSystem(handler))
    except FormatError as error:
        assert "overlap" in str(error)
    return handler.bytes_read[str(path)]


@pytest.mark.parametrize(("kind", "work"), [
    ("filters in one place", lambda path, filesystem: ParquetFile(
        path, filesystem=filesystem).might_contain("a", [7])),
    ("filters in one place", lambda path, filesystem: ParquetFile(
        path, filesystem=filesystem).prune([("a", "==", 7)])),
    ("filters in one place", lambda path, filesystem: inspect_file(OpenFile(
        path, filesystem=filesystem))),
    ("filters in one place", lambda path, filesystem: verify_file(path, filesystem=filesystem)),
    ("filters in one place", lambda path, filesystem: audit(path, filesystem=filesystem)),
    ("indexes in one place", lambda path, filesystem: audit(path, filesystem=filesystem)),
    ("pages in one place", lambda path, filesystem: verify_file(path, filesystem=filesystem)),
])
def test_what_many_column_chunks_share_is_not_read_for_each(tmp_path, kind, work):
    path = tmp_path / "a.parquet"
    path.write_bytes(hostile_file(kind, 60_000))
    chunks = ParquetFile(path).num_row_groups
    assert chunks > 200  # each of which has 27 kB or more
    # Twice the file; and for each column chunk some headers of filters, of a kilobyte.
    assert bytes_read(path, work) < 2 * path.stat().st_size + chunks * 10_000


def test_pages_that_overlap_get_no_filter(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(hostile_file("pages in one place", 30_000))
    for dry_run in (True, False):
        [message] = attach(path, {"a": True}, replace=True, dry_run=dry_run).failed.values()
        assert "the pages of this file overlap" in message and "column a" in message


def test_an_audit_says_that_parts_overlap(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(hostile_file("indexes in one place", 30_000))
    assert any("column indexes of this file overlap" in finding.message
               for finding in audit(path).findings)


def test_parts_that_only_touch_do_not_overlap(tmp_path):
    """All of a file may be pages and filters."""
    path = tmp_path / "a.parquet"
    path.write_bytes(hostile_file("columns and row groups", 4000))
    assert verify_file(path).ok and audit(path).ok
    assert not attach(path, {"a": True}, replace=True).failed
    assert verify_file(path).ok


# --- removing many filters -----------------------------------------------------------------------

def test_filters_between_pages_are_removed_in_time_that_grows_with_their_number(tmp_path):
    """Each stands alone, so that there are as many ranges to compare as there are filters."""
    assert_linear(OPERATIONS["strip"], files_of("row groups", 8000), tmp_path)
    assert not ParquetFile(tmp_path / "a.parquet").bloom_filters
