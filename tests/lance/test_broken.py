"""Index files that are broken, and builds that fail: typed errors, nothing half-written."""

import builtins
import decimal
import io
import os
import re
import struct
import subprocess
import sys
import tracemalloc
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest

from secure_bloom.errors import ColumnError, FormatError, MissingExtraError
from secure_bloom.lance import BloomFilterIndex, build, build_index, index, pages, pylance
from secure_bloom.lance.layout import SCHEMA, Parameters
from secure_bloom.lance.null_rows import NullRowsBuilder
from secure_bloom.lance.pages import check_pages
from tests.lance.helpers import content, write_dataset, write_lance_file

METADATA = {"bloomfilter_item": "3", "bloomfilter_probability": "0.01"}
NO_NULLS = bytes(4)


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.lance"
    build_index(pa.table({"v": [1, 2, None, 4, 5, 6, 7]}), "v", path, items=3)
    return path


def zones(*rows, bitset=bytes(32)):
    """Rows of an index: (fragment_id, zone_start, zone_length, has_null)."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, (*row, bitset), strict=True))
                                 for row in rows], SCHEMA)


def opened(tmp_path, rows, metadata=METADATA, buffers=()):
    path = write_lance_file(tmp_path / "x.lance", rows, metadata, buffers)
    return BloomFilterIndex(path, pa.int64())


def test_what_is_made_here_is_an_index(tmp_path):
    asked = opened(tmp_path, zones((1, 0, 3, False), (0, 3, 2, True), (0, 0, 3, False)))
    assert asked.equals(5) == []
    assert not asked.has_null_bitmap


# --- the file ------------------------------------------------------------------------------------

@pytest.mark.parametrize("data", [b"", b"LANC", b"x" * 100, b"PAR1" * 20, b"x" * 100 + b"LANC"])
def test_other_files(data, tmp_path):
    path = tmp_path / "x.lance"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=f"file {re.escape(str(path))}: "):
        BloomFilterIndex(path)


def test_truncated_files(good, tmp_path):
    data = good.read_bytes()
    for size in [*range(0, len(data), 101), len(data) - 1]:
        path = tmp_path / f"{size}.lance"
        path.write_bytes(data[:size])
        with pytest.raises(FormatError):
            BloomFilterIndex(path)


@pytest.mark.slow
def test_the_number_of_buffers_in_the_footer_is_not_believed(good):
    """In a process of its own, which pylance would end, as it asks for 64 GiB."""
    data = bytearray(good.read_bytes())
    data[-16:-12] = b"\xff" * 4
    good.write_bytes(data)
    code = ("import resource, sys; from secure_bloom.lance import BloomFilterIndex\n"
            "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))\n"
            "BloomFilterIndex(sys.argv[1])")
    done = subprocess.run([sys.executable, "-c", code, good], capture_output=True, text=True,
                          timeout=120)
    assert f"FormatError: file {good}: the file is too small" in done.stderr


@pytest.mark.slow
def test_pages_whose_numbers_differ(good):
    """In a process of their own, which pylance would abort."""
    data = good.read_bytes()
    table = struct.unpack("<QQQ", data[-40:-16])[1]
    offset, size = struct.unpack_from("<QQ", data, table + 16)  # column zone_start
    page, paths = data[offset:offset + size], []
    for old, new in [
            (b"H\x03", b"H\x02"),  # num_items = 3 of a mini-block layout
            (b"H\x03", b"X\x03"),  # is absent
            (b"\x18\x03", b"\x18\x04"),  # length of the page
            (b"\x12\x02\x04", b"\x12\x02\x00"),  # bytes of its chunks' words
            (b"\x12\x02\x04", b"\x12\x02\x03")]:
        paths.append(good.with_name(f"{len(paths)}.lance"))
        changed = page.replace(old, new, 1)
        assert changed != page
        paths[-1].write_bytes(data[:offset] + changed + data[offset + size:])
    code = ("import sys; from secure_bloom.errors import FormatError\n"
            "from secure_bloom.lance import BloomFilterIndex\n"
            "for path in sys.argv[1:]:\n"
            "    try: BloomFilterIndex(path)\n"
            "    except FormatError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"file {path}: a page of column 1 has another number of values than of rows; rebuild the "
        "index" for path in paths]


@pytest.mark.parametrize(("logarithms", "count", "is_good"), [
    ([10, 10, 0], 2500, True), ([10, 0], 2048, True), ([10, 10], 2048, True), ([0], 7, True),
    ([10, 10, 0], 2048, False), ([10, 11], 2048, False), ([15, 0], 2500, False), ([], 1, False),
    ([], 0, True)])
def test_chunks_have_all_values_of_a_page(logarithms, count, is_good):
    for dtype in ("<u2", "<u4"):
        words = (np.array(logarithms, dtype=dtype) | 0x40).tobytes()
        assert pages._have_values(words, dtype, count) == is_good


@pytest.mark.parametrize(("at", "value", "message"), [
    (-32, 2**63, "too small for 5 columns"), (-12, 2**32 - 1, "too small for 4294967295 columns")])
def test_the_table_of_columns_in_the_footer_is_not_believed(good, at, value, message):
    data = bytearray(good.read_bytes())
    struct.pack_into("<Q" if value > 2**32 else "<I", data, len(data) + at, value)
    good.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        BloomFilterIndex(good)


def test_column_metadata_is_not_believed():
    for metadata, message in [
            (b"\x80" * 11, "truncated or malformed"), (b"\x12\x7f\0", "truncated or malformed"),
            (b"\x0b", "truncated or malformed"), (b"\x10\x01", "has a wrong type"),
            (b"\x12\x04\x22\0\x22\0", "occurs twice")]:
        entry = struct.pack("<QQ", 0, len(metadata))
        data = metadata + entry
        with pytest.raises(FormatError, match=message):
            check_pages(io.BytesIO(data), len(data), len(metadata), 1)
    for entry in ((0, 17), (1, 16), (2**63, 1)):
        data = struct.pack("<QQ", *entry)
        with pytest.raises(FormatError, match=r"outside the file|larger than the file"):
            check_pages(io.BytesIO(data), len(data), 0, 1)


def test_pages_that_share_their_chunks(monkeypatch):
    """Reading them for each page could take time that grows with the square of the file's size."""
    read = []
    monkeypatch.setattr(pages, "_check_page", lambda *page: read.append(page) or 30)
    metadata = b"\x12\0" * 40
    data = metadata + struct.pack("<QQ", 0, len(metadata))
    with pytest.raises(FormatError, match="overlap"):
        check_pages(io.BytesIO(data), len(data), len(metadata), 1)
    assert len(read) == len(data) // 30 + 1


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        BloomFilterIndex(tmp_path / "none.lance")
    with pytest.raises(IsADirectoryError):
        BloomFilterIndex(tmp_path)


# --- columns -------------------------------------------------------------------------------------

@pytest.mark.parametrize("change", [
    lambda t: t.drop_columns(["has_null"]),
    lambda t: t.rename_columns(["fragment", *SCHEMA.names[1:]]),
    lambda t: t.select([1, 0, 2, 3, 4]),
    lambda t: t.append_column("more", pa.array([1])),
    lambda t: t.set_column(1, pa.field("zone_start", pa.int64(), nullable=False), [[0]]),
    lambda t: t.set_column(4, pa.field("bloom_filter_data", pa.string(), nullable=False), [["x"]]),
])
def test_wrong_columns(change, tmp_path):
    with pytest.raises(FormatError, match="not a BLOOMFILTER index; its columns are: "):
        opened(tmp_path, change(zones((0, 0, 3, False))))


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64, 96, 1024])
def test_bitsets_of_another_length(size, tmp_path):
    rows = pa.concat_tables([zones((0, 0, 3, False)),
                             zones((0, 3, 3, False), bitset=bytes(size))])
    with pytest.raises(FormatError, match="zone 1 has a bitset of another size than the 32 bytes"):
        opened(tmp_path, rows)


def test_half_a_bitset_does_not_say_absent(tmp_path):
    """Half a filter looks like a filter, but its blocks are not those of the values."""
    build_index(pa.table({"v": np.arange(100)}), "v", tmp_path / "good.lance")
    rows, metadata, buffers = content(tmp_path / "good.lance")
    bitset = rows["bloom_filter_data"][0].as_py()
    rows = rows.set_column(4, SCHEMA.field(4), [[bitset[:len(bitset) // 2]]])
    with pytest.raises(FormatError, match="zone 0 has a bitset of another size than the 32768"):
        opened(tmp_path, rows, {key.decode(): value.decode() for key, value in metadata.items()},
               buffers)


@pytest.mark.parametrize(("rows", "message"), [
    ([(0, 0, 3, False), (0, 2, 3, False)], "zones 0 and 1, of fragment 0, overlap"),
    ([(7, 5, 3, False), (0, 0, 3, False), (7, 0, 6, False)],
     "zones 2 and 0, of fragment 7, overlap"),
    ([(0, 0, 3, False), (0, 0, 3, False)], "overlap"),
    ([(1, 0, 3, False), (0, 0, 0, False)], "zone 1 has no rows"),
    ([(2**32, 0, 3, False)], "zone 0 reaches beyond the end of its fragment"),
    ([(0, 0, 3, False), (0, 2**32 - 2, 3, False)], "zone 1 reaches beyond the end"),
    ([(0, 2**64 - 2, 3, False)], "zone 0 has a zone_start that is too large"),
    ([(0, 0, 2**63, False)], "zone 0 has a zone_length that is too large"),
    ([(0, 0, 3, False)] * 9 + [(2**64 - 1, 0, 3, False)], "zone 9 has a fragment_id that is too"),
])
def test_zones_that_cannot_be(rows, message, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_BATCH_BYTES", 32 * 2)  # so that zones come in several batches
    with pytest.raises(FormatError, match=message):
        opened(tmp_path, zones(*rows))


@pytest.mark.parametrize("column", range(5))
def test_nulls_where_none_can_be(column):
    [batch] = zones((0, 0, 3, False)).to_batches()
    columns = batch.columns
    columns[column] = pa.nulls(1, SCHEMA.field(column).type)
    with pytest.raises(FormatError, match="zone 70 has a null in a column that cannot have nulls"):
        index._zone_columns(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), 70)


# --- metadata ------------------------------------------------------------------------------------

@pytest.mark.parametrize("key", METADATA)
@pytest.mark.parametrize("value", ["", "x", "0", "-1", "nan", "inf", "1e999", " 3", "3_0",
                                   "0x3", "9" * 30, "٣", "1.0.0"])
def test_parameters_that_are_no_numbers(key, value, tmp_path):
    with pytest.raises(FormatError, match=key):
        opened(tmp_path, zones((0, 0, 3, False)), {**METADATA, key: value})


@pytest.mark.parametrize("items", [1, 8192, 2**64 - 1])
@pytest.mark.parametrize("probability", [0.00057, 1e-7, 0.5, 1e-300, 0.1 + 0.2])
def test_parameters_survive_the_metadata(items, probability):
    parameters = Parameters(items, probability)
    text = parameters.to_metadata()
    assert "e" not in text["bloomfilter_probability"]
    assert Parameters.from_metadata({key.encode(): value.encode()
                                     for key, value in text.items()}) == parameters


@pytest.mark.parametrize("number", ["", "x", "-1", "7", "99999999999999999999"])
def test_null_bitmaps_that_are_not_there(number, tmp_path):
    with pytest.raises(FormatError):
        opened(tmp_path, zones((0, 0, 3, False)), {**METADATA, "null_bitmap": number}, [NO_NULLS])


def test_null_rows_outside_the_zones_with_nulls(tmp_path):
    build_index(pa.table({"v": [1, None, 3, None, 5, 6, 7, None, None]}), "v",
                tmp_path / "nulls.lance", items=3)
    _, _, [buffer] = content(tmp_path / "nulls.lance")
    metadata = {**METADATA, "null_bitmap": "1"}
    good = [(0, 0, 3, True), (0, 3, 3, True), (0, 6, 3, True)]
    assert opened(tmp_path, zones(*good), metadata, [buffer]).has_null_bitmap
    for bad in ([(0, 0, 3, False), *good[1:]], [*good[:2], (0, 6, 3, False)], good[:2], good[1:],
                [*good[:2], (0, 6, 2, True), (0, 8, 1, False)], [(1, *zone[1:]) for zone in good],
                []):
        with pytest.raises(FormatError, match="null_bitmap lists rows of fragment 0"):
            opened(tmp_path, zones(*bad), metadata, [buffer])
    with pytest.raises(FormatError, match="truncated"):
        opened(tmp_path, zones(*good), metadata, [buffer[:-1]])


def test_runs_of_null_rows_may_go_through_several_zones(tmp_path):
    def runs(first, more):
        """A null_bitmap with one run in fragment 0."""
        bitmap = struct.pack("<IBHHHHH", 12347, 1, 0, more, 1, first, more)
        return struct.pack("<III", 1, 0, len(bitmap)) + bitmap

    metadata = {**METADATA, "null_bitmap": "1"}
    rows = zones((0, 6, 3, True), (0, 0, 3, False), (0, 3, 3, True), (0, 65_530, 9, True))
    assert opened(tmp_path, rows, metadata, [runs(3, 5)]).has_null_bitmap
    for first, more in ((2, 6), (3, 6)):
        with pytest.raises(FormatError, match="null_bitmap lists rows of fragment 0"):
            opened(tmp_path, rows, metadata, [runs(first, more)])
    with pytest.raises(FormatError, match="rows are not in order"):
        opened(tmp_path, rows, metadata, [runs(65_535, 1)])


def test_many_zones_with_nulls_take_little_memory_to_check(tmp_path):
    count = 100_000
    columns = [np.zeros(count), np.arange(count) * 2, np.ones(count), np.ones(count),
               pa.array([bytes(32)] * count)]
    rows = pa.table([pa.array(column).cast(field.type) for column, field
                     in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    nulls = NullRowsBuilder()
    nulls.add(0, np.arange(count, dtype=np.uint64) * np.uint64(2))
    path = write_lance_file(tmp_path / "x.lance", rows, {**METADATA, "null_bitmap": "1"},
                            [nulls.to_bytes()])
    tracemalloc.start()
    asked = BloomFilterIndex(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert asked.has_null_bitmap
    assert most < 120 * count


def test_a_file_that_changes_while_it_is_used(good, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_KEPT_BYTES", 0)
    other = tmp_path / "other.lance"
    for rows in (6, 30, 7):  # fewer zones, more zones, as many without null
        asked = BloomFilterIndex(good, pa.int64())
        build_index(pa.table({"v": np.arange(rows)}), "v", other, items=3)
        asked._file = BloomFilterIndex(other)._file
        with pytest.raises(FormatError, match="has changed"):
            asked.equals(5)


# --- building ------------------------------------------------------------------------------------

@pytest.mark.slow
def test_a_build_that_fails_leaves_what_was_there(good, tmp_path):
    before, names = good.read_bytes(), set(os.listdir(tmp_path))

    def batches():
        yield pa.record_batch({"v": pa.array(range(50_000))})
        raise OSError("the disk is gone")

    stream = pa.RecordBatchReader.from_batches(pa.schema([("v", pa.int64())]), batches())
    with pytest.raises(OSError, match="the disk is gone"):
        build_index(stream, "v", good, items=3)
    assert good.read_bytes() == before
    assert set(os.listdir(tmp_path)) == names


def test_a_file_that_cannot_get_its_name_is_removed(good, monkeypatch):
    def fail(source, target):
        folder = os.path.dirname(target)  # on the same file system
        assert os.path.getsize(source) and os.path.commonpath([source, target]) == folder
        raise OSError("no renaming today")

    before = good.read_bytes()
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no renaming today"):
        build_index(pa.table({"v": ["a"]}), "v", good)
    assert os.listdir(good.parent) == [good.name] and good.read_bytes() == before


def test_a_build_replaces_what_was_there(good):
    build_index(pa.table({"v": ["a"]}), "v", good)
    assert len(BloomFilterIndex(good, pa.string()).equals("a")) == 1
    assert os.listdir(good.parent) == [good.name]


def test_a_build_keeps_mode_and_link_and_takes_long_names(tmp_path):
    path, link = tmp_path / ("é" * 120 + ".lance"), tmp_path / "link.lance"
    link.symlink_to(path)
    for mode in (0o600, 0o640):
        path.touch()
        path.chmod(mode)
        build_index(pa.table({"v": ["a"]}), "v", link)
        assert path.stat().st_mode & 0o777 == mode and link.is_symlink()
        assert len(BloomFilterIndex(path, pa.string()).equals("a")) == 1
    assert set(os.listdir(tmp_path)) == {path.name, link.name}


def test_others_cannot_read_an_index_that_is_being_built(tmp_path, monkeypatch):
    path = tmp_path / "x.lance"
    path.touch(0o600)
    modes, replace = [], os.replace

    def look(source, target):
        [folder] = tmp_path.glob(".*")
        modes.extend([folder.stat().st_mode & 0o777, os.stat(source).st_mode & 0o777])
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    build_index(pa.table({"v": ["a"]}), "v", path)
    assert modes == [0o700, 0o600]


def test_places_that_cannot_be_written(tmp_path):
    table = pa.table({"v": [1]})
    with pytest.raises(FileNotFoundError, match="no folder"):
        build_index(table, "v", tmp_path / "none" / "x.lance")
    with pytest.raises(IsADirectoryError):
        build_index(table, "v", tmp_path)
    with pytest.raises(ValueError, match="local"):
        build_index(table, "v", "s3://bucket/x.lance")


@pytest.mark.parametrize(("parameters", "message"), [
    ({"items": 0}, "items"), ({"items": 2**64}, "items"), ({"items": -1}, "items"),
    ({"probability": 0}, "probability must be"), ({"probability": 1.0}, "probability must be"),
    ({"probability": float("nan")}, "probability must be")])
def test_parameters_that_cannot_be(parameters, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        build_index(pa.table({"v": [1]}), "v", tmp_path / "x.lance", **parameters)
    assert os.listdir(tmp_path) == []


def test_parameters_of_other_types(tmp_path):
    """Nothing is written that cannot be read again, such as 8192.0 or True for items."""
    table, path = pa.table({"v": [1, 2, 3]}), tmp_path / "x.lance"
    for items in (8192.0, 2.5, "4"):
        with pytest.raises(TypeError, match="integer"):
            build_index(table, "v", path, items=items)
    assert os.listdir(tmp_path) == []
    for items, probability in ((np.int8(2), np.float32(0.25)), (True, decimal.Decimal("0.25"))):
        build_index(table, "v", path, items=items, probability=probability)
        asked = BloomFilterIndex(path)
        assert (asked.items, asked.probability) == (items, 0.25)


@pytest.mark.parametrize("addresses", [
    [5, 4], [5, 5], [0, 1 << 32, 1], [1 << 32, 7, 1 << 32 | 9], [3 << 32, 2 << 32, 3 << 32]])
@pytest.mark.parametrize("portion", [1, 10])
def test_row_addresses_out_of_order(addresses, portion, tmp_path):
    table = pa.table({"v": np.arange(len(addresses)),
                      "_rowaddr": pa.array(addresses, pa.uint64())})
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(portion))
    with pytest.raises(ColumnError, match=r"ascend|not contiguous"):
        build_index(stream, "v", tmp_path / "x.lance")


def test_more_rows_than_a_fragment_has(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "MAX_ROWS", 4)
    for rows, batches in ((4, 1), (4, 2), (5, 1), (5, 3)):
        table = pa.concat_tables(pa.table({"v": part}) for part
                                 in np.array_split(np.arange(rows), batches))
        with pytest.raises(ColumnError, match="at most 4 rows") if rows > 4 else nullcontext():
            build_index(table, "v", tmp_path / "x.lance")


def test_row_addresses_at_the_limits(tmp_path):
    addresses = [2**32 - 1, (2**32 - 1) << 32, 2**64 - 1]
    table = pa.table({"v": [1, 2, None], "_rowaddr": pa.array(addresses, pa.uint64())})
    build_index(table, "v", tmp_path / "x.lance")
    asked = BloomFilterIndex(tmp_path / "x.lance", pa.int64())
    assert [tuple(zone) for zone in asked.zones] == [
        (0, 2**32 - 1, 1, False), (2**32 - 1, 0, 2**32, True)]


@pytest.mark.parametrize("addresses", [pa.array([0, 1]), pa.array([0, None], pa.uint64()),
                                       pa.array(["0", "1"])])
def test_row_addresses_of_another_type(addresses, tmp_path):
    table = pa.table({"v": [1, 2], "_rowaddr": addresses})
    with pytest.raises(ColumnError, match="_rowaddr must be uint64 without nulls"):
        build_index(table, "v", tmp_path / "x.lance")


@pytest.mark.parametrize("name", ["v", "_rowaddr"])
def test_columns_that_are_there_twice(name, tmp_path):
    """Without its two columns _rowaddr, the rows of fragment 5 would count as those of 0."""
    columns = {"v": pa.array([1, 2]), "_rowaddr": pa.array([5 << 32, (5 << 32) + 1], pa.uint64())}
    table = pa.table(columns).append_column(name, columns[name])
    with pytest.raises(ColumnError, match=f"column v: the stream has several columns {name}"):
        build_index(table, "v", tmp_path / "x.lance")


def test_columns_that_are_not_there(tmp_path):
    table = pa.table({"v": [1], "s": pa.array([{"x": 1}])})
    dataset = write_dataset(tmp_path / "d", table)
    for source in (table, dataset):
        with pytest.raises(ColumnError, match="column w: there is no such column"):
            build_index(source, "w", tmp_path / "x.lance")
        with pytest.raises(ColumnError, match="no such column"):
            build_index(source, "s.y", tmp_path / "x.lance")
        with pytest.raises(ColumnError, match=r"no such column \(did you mean 'v'\?\); existing"):
            build_index(source, "V", tmp_path / "x.lance")
    with pytest.raises(ColumnError, match="must not be inside a struct"):
        build_index(table, "s.x", tmp_path / "x.lance")


@pytest.mark.parametrize(("message", "shown"), [
    ("no fragments, /home/me/d is empty, /home/runner/a/b.rs:359:28\nmore",
     "no fragments, /home/me/d is empty"),
    ("cut off, /Users/runner/a/b.rs:1:2, /Users/c.rs:3:4", "cut off"), ("cut off", "cut off")])
def test_errors_of_pylance_lose_the_place_in_its_source(message, shown):
    with pytest.raises(FormatError) as error, pylance._panics_are_errors():
        raise OSError(message)
    assert str(error.value) == f"pylance cannot read the file: {shown}"


def test_errors_name_the_data_set(tmp_path):
    dataset = write_dataset(tmp_path / "d", {"v": [1, 2]})
    with pytest.raises(ColumnError, match=re.escape(f"file {dataset.uri}, column w: there is no")):
        build_index(dataset.uri, "w", tmp_path / "x.lance")
    for data in (tmp_path / "d" / "data").iterdir():
        data.unlink()
    with pytest.raises(FormatError, match=re.escape(f"file {dataset.uri}, column v: pylance")):
        build_index(dataset, "v", tmp_path / "x.lance")
    assert not (tmp_path / "x.lance").exists()


def test_no_data_set(tmp_path):
    with pytest.raises(FormatError, match=f"file {re.escape(str(tmp_path))}"):
        build_index(tmp_path, "v", tmp_path / "x.lance")


def test_without_pylance(tmp_path, monkeypatch, good):
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.partition(".")[0] == "lance":
            raise ImportError("No module named 'lance'")
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'pylance>="):
        build_index("d", "v", tmp_path / "x.lance")
    with pytest.raises(MissingExtraError, match=r"pylance>="):
        BloomFilterIndex(good)
