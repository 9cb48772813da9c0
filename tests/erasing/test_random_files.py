"""Random files of every mode, with random options: what remains is what a filter in memory keeps.
"""

import datetime
import decimal
import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arro3.io import read_parquet

from secure_bloom import EncryptionConfiguration, ParquetFile, erase, verify_file, write_table
from secure_bloom.crypto.aad import ModuleType
from secure_bloom.erasing import remaining
from secure_bloom.erasing.encoding import encode_rows
from secure_bloom.parquet import thrift
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.table_names import material_path
from tests.erasing.helpers import KMS, of_chunk, of_file, read_rows, rows_of, sorting_columns
from tests.modes import MODES, PLAINTEXT, Mode
from tests.test_nested_tables import comparable, random_array, random_type
from tests.tiers import sweep_where

UTC = datetime.UTC
#: types of the column with the values to erase: the type, and a value for each number
KEY_TYPES = {
    "int64": (pa.int64(), lambda i: i * 2**40 - 7),
    "int8": (pa.int8(), lambda i: i - 20),
    "uint64": (pa.uint64(), lambda i: 2**64 - 1 - i),
    "float32": (pa.float32(), lambda i: i / 4),
    "double": (pa.float64(), lambda i: i / 3),
    "half": (pa.float16(), lambda i: np.float16(i / 2)),
    "string": (pa.string(), lambda i: f"näme {i}" if i else ""),
    "large string": (pa.large_string(), lambda i: f"n{i}" * 20),
    "string view": (pa.string_view(), lambda i: f"n{i}" * i),
    "binary": (pa.binary(), lambda i: bytes([i, 255])),
    "fixed": (pa.binary(3), lambda i: bytes([i, 0, 255])),
    "uuid": (pa.uuid(), lambda i: bytes([i]) * 16),
    "date": (pa.date32(), lambda i: datetime.date(1969, 12, 20) + datetime.timedelta(i)),
    "date64": (pa.date64(), lambda i: datetime.date(1969, 12, 20) + datetime.timedelta(i)),
    "seconds": (pa.timestamp("s"), lambda i: datetime.datetime(1969, 12, 31, 23, 59, i)),
    "micros": (pa.timestamp("us", "UTC"), lambda i: datetime.datetime(2000, 1, 1, 0, 0, 0, i, UTC)),
    "nanos": (pa.timestamp("ns"), lambda i: datetime.datetime(1960, 1, 1, 0, 0, 0, i)),
    "time": (pa.time64("us"), lambda i: datetime.time(1, 2, 3, i)),
    "millis": (pa.time32("ms"), lambda i: datetime.time(1, 2, i)),
    "duration": (pa.duration("us"), lambda i: datetime.timedelta(0, 0, i - 3)),
    "decimal": (pa.decimal128(9, 2), lambda i: decimal.Decimal(i * 101 - 300) / 100),
    "wide decimal": (pa.decimal128(30, 5), lambda i: decimal.Decimal(10**20 - i) / 10**5),
    "decimal256": (pa.decimal256(60, 3), lambda i: decimal.Decimal(10**40 + i) / 1000),
    "bool": (pa.bool_(), lambda i: i % 2 == 0),
    "dictionary": (pa.dictionary(pa.int16(), pa.string()), lambda i: f"word {i}"),
    "json": (pa.json_(), lambda i: f'{{"a": {i}}}'),
}
SHAPES = ["plain", "plain", "plain", "struct", "list", "map", "list of structs"]
EXTERNAL = "external material"


def shaped(shape: str, numbers: list, t: pa.DataType, value) -> pa.Array:
    """Return a column whose row i has, or has among others, the value of number i."""
    def array(found):
        if isinstance(t, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(t, pa.array(found, t.storage_type))
        return pa.array(found, t)

    def nested(rows, wrap):
        flat = [x for row in rows if row is not None for x in row]
        offsets = np.cumsum([0, *(len(row or ()) for row in rows)])
        mask = pa.array([row is None for row in rows])
        return wrap(pa.array(offsets, pa.int32()), array([None if x is None else value(x)
                                                          for x in flat]), mask)

    def of_map(offsets, values, mask):
        keys = pa.array([f"k{i}" for i in range(len(values))])
        return pa.MapArray.from_arrays(offsets, keys, values, mask=mask)

    def of_structs(offsets, values, mask):
        items = pa.StructArray.from_arrays([values, pa.array(range(len(values)))], ["v", "w"])
        return pa.ListArray.from_arrays(offsets, items, mask=mask)

    if shape == "plain":
        return array([None if n is None else value(n) for n in numbers])
    if shape == "struct":
        inner = array([None if n is None else value(n) for n in numbers])
        return pa.StructArray.from_arrays([inner, pa.array(range(len(numbers)))], ["v", "w"])
    rows = [None if n is None else [] if n % 7 == 6 else [n, None][:1 + n % 2] + [n + 1] * (n % 3)
            for n in numbers]
    if shape == "list":
        return nested(rows, lambda offsets, values, mask:
                      pa.ListArray.from_arrays(offsets, values, mask=mask))
    return nested(rows, of_map if shape == "map" else of_structs)


LEAVES = {"plain": "k", "struct": "k.v", "list": "k.list.element", "map": "k.key_value.value",
          "list of structs": "k.list.element.v"}


def values_of_row(value) -> list:
    """Return the values of the column of a row, as Python has them."""
    if isinstance(value, dict):
        return [value["v"]]
    if isinstance(value, list):
        entries = [entry[1] if isinstance(entry, tuple) else entry for entry in value]
        return [entry["v"] if isinstance(entry, dict) else entry for entry in entries]
    return [value]


def random_table(rng: random.Random, size: int) -> tuple[pa.Table, str, str]:
    """Return a table, and the shape and the kind of its column ``k``."""
    shape, kind = rng.choice(SHAPES), rng.choice(list(KEY_TYPES))
    if shape != "plain" and kind in ("string view", "uuid", "json", "half", "dictionary"):
        kind = "string"
    t, value = KEY_TYPES[kind]
    numbers = [None if rng.random() < 0.15 else rng.randrange(30) for _ in range(size)]
    columns = {"row": pa.array(range(size)), "k": shaped(shape, numbers, t, value)}
    for number in range(rng.randrange(4)):
        columns[f"c{number}"], _ = random_array(rng, random_type(rng, rng.randrange(3)), size)
    return pa.table(columns, metadata={"note": "kept"}), shape, kind


def random_options(rng: random.Random, kind: str) -> dict:
    options = {
        "compression": rng.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "data_page_size": rng.choice([128, 200, 2**20]),
        "write_batch_size": rng.choice([1, 3, 1024]),
        "write_page_index": rng.random() < 0.5,
        "write_statistics": rng.choice([True, False, ["row"]]),
        "use_dictionary": rng.choice([True, False, ["row"]]),
        "write_page_checksum": rng.random() < 0.3,
        "store_decimal_as_integer": rng.random() < 0.3,
        "store_schema": rng.random() < 0.8,
        "dictionary_pagesize_limit": rng.choice([1, 2**20]),
    }
    if rng.random() < 0.2:
        options["sorting_columns"] = [pq.SortingColumn(0)]
    if kind == "nanos" and rng.random() < 0.5:
        options["use_deprecated_int96_timestamps"] = True
    if options["use_dictionary"] is False and rng.random() < 0.5:
        options["column_encoding"] = {"row": rng.choice(["DELTA_BINARY_PACKED",
                                                         "BYTE_STREAM_SPLIT", "PLAIN"])}
    return options


def write(rng: random.Random, table, shape, kind, path, mode) -> None:
    options = random_options(rng, kind)
    probe = io.BytesIO()
    pq.write_table(table, probe)
    leaves = ParquetFile(probe.getvalue()).columns
    paths = [leaf.path for leaf in leaves]
    wanted = [leaf.path for leaf in leaves if leaf.type.can_have_filter and rng.random() < 0.6]
    options |= {"row_group_size": rng.choice([1, 3, 5, 20]), "bloom_filters": wanted}
    if mode == EXTERNAL:
        write_table(table, path, keys=KMS, encryption=EncryptionConfiguration(
            "footer", {"pii": [LEAVES[shape]]}, internal_key_material=False), **options)
    else:
        mode.write(table, path, {"kc1": [LEAVES[shape]], "kc2": paths[2:3] if len(paths) > 2
                                 and paths[2] != LEAVES[shape] else ["row"]}, **options)


def keys_of(mode):
    return KMS if mode == EXTERNAL else mode.keys


def check(rng: random.Random, path, mode, monkeypatch) -> None:
    size = rng.choice([1, 2, 7, 20, 60])
    table, shape, kind = random_table(rng, size)
    try:
        write(rng, table, shape, kind, path, mode)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, OSError, ValueError) as error:
        assert "MapArray" in str(error) or print("not written:", error) is None
        return
    keys = keys_of(mode)
    before = OpenFile(path.read_bytes() if mode != EXTERNAL else path, keys)
    try:
        rows = read_rows(before)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return  # pyarrow does not read what it wrote
    found = read(before, "k")
    present = [v for row in found if row is not None for v in values_of_row(row) if v is not None]
    if not present:
        return
    wanted = rng.sample(present, min(len(present), rng.choice([1, 1, 2, 5, 100])))
    texts = set(map(comparable, wanted))
    goes = [row is not None and any(v is not None and comparable(v) in texts
                                    for v in values_of_row(row))
            for row in found]

    written = []
    with monkeypatch.context() as patch:
        patch.setattr(remaining, "encode_rows", lambda table, group, schema:
                      written.append(group.number) or encode_rows(table, group, schema))
        result = erase(path, LEAVES[shape], wanted, keys, max_share=1)
    assert result.ok and result.rows_removed == sum(goes)
    assert sum(value.found for value in result.values) >= (sum(goes) if shape == "plain" else 1)
    assert all(value.found for value in result.values)

    after = OpenFile(path, keys)
    stays = [not gone for gone in goes]
    assert read_rows(after) == [row for row, stay in zip(rows, stays, strict=True) if stay]
    assert after.schema.equals(before.schema, check_metadata=True)
    compare_files(before, after, goes)
    assert verify_file(path, keys).ok
    check_offset_indexes(after)
    check_rewritten(before, after, goes, written)
    if mode is PLAINTEXT:
        check_peer(before, path, stays)


def read(file: OpenFile, column: str) -> list:
    reader = file.open_in_pyarrow()
    return [value for number in range(file.num_row_groups)
            for value in reader.read_row_group(number, [column])[column].to_pylist()]


def compare_files(before: OpenFile, after: OpenFile, goes: list[bool]) -> None:
    assert of_file(after) == of_file(before)
    kept, lost = groups_kept(before, goes)
    assert after.num_row_groups == len(kept)
    assert [after.footer.row_group_num_rows(n) for n in range(len(kept))] \
        == [before.footer.row_group_num_rows(n) - lost[n] for n in kept]
    assert sorting_columns(after) == [sorting_columns(before)[n] for n in kept]
    for number, old in enumerate(kept):
        for one, other in zip(after.footer.row_groups[number], before.footer.row_groups[old],
                              strict=True):
            assert of_chunk(after, one, number) == of_chunk(before, other, old), one.place


def groups_kept(file: OpenFile, goes: list[bool]) -> tuple[list[int], list[int]]:
    """Return the row groups that keep rows, and how many each row group loses."""
    sizes = [file.footer.row_group_num_rows(n) for n in range(file.num_row_groups)]
    starts = np.cumsum([0, *sizes])
    lost = [sum(goes[start:start + size]) for start, size in zip(starts, sizes, strict=False)]
    return [n for n, size in enumerate(sizes) if size > lost[n]], lost


def check_offset_indexes(file: OpenFile) -> None:
    """Each page begins where the page before ends, and the last one ends with the chunk."""
    for chunk in file.footer.column_chunks():
        if chunk.offset_index is None:
            continue
        start, length = chunk.offset_index
        data = file.read_at(length, start)
        if chunk.modules is not None:
            data = chunk.modules.decrypt(data, ModuleType.OFFSET_INDEX)
        index, _ = thrift.decode(data, {})
        position, rows = chunk.metadata().get_int(9), -1
        for page in thrift.each(index, 1, {}):
            assert page.get_int(1) == position and page.get_int(3) > rows
            position, rows = position + page.get_int(2), page.get_int(3)
        assert position == sum(chunk.pages)
        assert rows < file.footer.row_group_num_rows(chunk.row_group)


def check_rewritten(before, after, goes, written) -> None:
    """Only row groups that lose rows are decoded. Of the others, plaintext pages are the same."""
    kept, lost = groups_kept(before, goes)
    assert sorted(written) == sorted(n for n in kept if lost[n])
    for place, old in enumerate(kept):
        if old in written:
            continue
        for one, other in zip(after.footer.row_groups[place], before.footer.row_groups[old],
                              strict=True):
            assert one.pages[1] == other.pages[1] or before.footer.is_encrypted  # checksums
            if one.encryption is None:
                assert after.read_at(one.pages[1], one.pages[0]) \
                    == before.read_at(other.pages[1], other.pages[0])


def check_peer(before: OpenFile, path, stays: list[bool]) -> None:
    """arrow-rs reads the same rows."""
    try:
        old = rows_of(pa.table(read_parquet(io.BytesIO(before.read_at(2**30, 0))).read_all()))
    except BaseException:  # not a type that it reads; it panics at some
        return
    new = rows_of(pa.table(read_parquet(path).read_all()))
    assert new == [row for row, stay in zip(old, stays, strict=True) if stay]


@sweep_where(lambda mode, seed: "256" in str(mode) or "prefix" in str(mode))
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.sweep)
                                       for seed in range(1, 6))])
@pytest.mark.parametrize("mode", [*MODES, EXTERNAL], ids=str)
def test_what_remains(tmp_path, monkeypatch, mode: Mode | str, seed: int):
    rng = random.Random(f"{mode} {seed}")
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "a.parquet"
        check(rng, path, mode, monkeypatch)
        names = {entry.name for entry in folder.iterdir()}
        assert names <= {"a.parquet", material_path("a.parquet")}

