"""Leaf columns: paths, ordinals and types."""

import pyarrow as pa
import pytest

from secure_bloom.errors import ColumnError, FormatError
from secure_bloom.parquet import schema
from secure_bloom.parquet.schema import (
    SCHEMA_ELEMENT_LAYOUT,
    filter_columns,
    find_column,
    leaf_columns,
)
from secure_bloom.parquet.thrift import BYTE, I32, STRUCT, Struct, decode, encode
from secure_bloom.sbbf.column_type import PHYSICAL_TYPES
from tests.cases import for_each
from tests.support import arrow_file, open_footer


def element(name=None, physical=None, children=None, length=None, converted=None, scale=None,
            precision=None, logical=None) -> Struct:
    """A SchemaElement; logical is (union member, structure)."""
    struct = Struct()
    if physical is not None:
        struct.set_int(1, I32, physical if isinstance(physical, int)
                       else PHYSICAL_TYPES.index(physical))
    for field_id, value in ((2, length), (5, children), (6, converted), (7, scale), (8, precision)):
        if value is not None:
            struct.set_int(field_id, I32, value)
    if name is not None:
        struct.set_binary(4, name.encode())
    if logical is not None:
        struct.set(10, STRUCT, Struct([[logical[0], STRUCT, logical[1]]]))
    return decode(encode(struct), SCHEMA_ELEMENT_LAYOUT)[0]


def root(children) -> Struct:
    return element("schema", children=children)


def type_of(**kind):
    [leaf] = leaf_columns([root(1), element("x", **kind)])
    return leaf.type


def schema_of(*fields) -> list:
    schema = pa.schema(fields)
    return open_footer(arrow_file(schema.empty_table())).columns


# --- paths ---------------------------------------------------------------------------------------

def test_paths_and_ordinals_as_parquet_java_writes_them():
    leaves = schema_of(
        ("a", pa.int64()), ("s", pa.struct([("x", pa.int8()),
                                            ("y", pa.struct([("z", pa.string())]))])),
        ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.list_(pa.float64()))),
        ("dotted.name", pa.int64()))
    assert [leaf.path for leaf in leaves] == [
        "a", "s.x", "s.y.z", "l.list.element", "m.key_value.key",
        "m.key_value.value.list.element", "dotted.name"]
    assert [leaf.ordinal for leaf in leaves] == list(range(7))
    assert [leaf.path for leaf in leaves if leaf.is_repeated] == [
        "l.list.element", "m.key_value.key", "m.key_value.value.list.element"]
    assert leaves[2].parts == ("s", "y", "z")
    assert leaves[6].parts == ("dotted.name",)


def test_groups_end_where_their_children_do():
    leaves = leaf_columns([root(2), element("g", children=2), element("h", children=1),
                           element("a", "INT32"), element("b", "INT32"), element("c", "INT32")])
    assert [leaf.path for leaf in leaves] == ["g.h.a", "g.b", "c"]
    assert leaf_columns([root(0)]) == leaf_columns([element("schema")]) == []


@pytest.mark.parametrize("odd", [
    element("a", 8), element("a", -1), element("a", "FIXED_LEN_BYTE_ARRAY"),
    element("a", "FIXED_LEN_BYTE_ARRAY", length=-4)], ids=range(4))
def test_a_column_that_cannot_be_read_is_one_nevertheless(odd):
    leaves = leaf_columns([root(3), odd, element("g"), element("b", "INT32")])
    assert [leaf.path for leaf in leaves] == ["a", "b"]
    assert not leaves[0].type.can_have_filter and leaves[1].type.can_have_filter


@pytest.mark.parametrize("elements", [
    [], [root(1)], [root(0), element("a", "INT32")], [root(1), element("g", children=1)],
    [root(2), element("a", "INT32")], [root(1), element("a", "INT32"), element("b", "INT32")],
    [root(1), element("a", children=-1)],
    [root(-1), element("a", "INT32")], [root(2**31 - 1), element("a", "INT32")],
    [root(1), *[element("g", children=1)] * 1000, element("a", "INT32")],
], ids=range(10))
def test_what_is_no_tree_is_refused(elements):
    with pytest.raises(FormatError):
        leaf_columns(elements)


@pytest.mark.slow
def test_deep_and_wide_schemas_are_read():
    """20,000 columns ten levels deep, whose names have 100 characters or bytes."""
    for name in ("n" * 100, "\u00fc" * 100, "\U0001f600" * 25):
        groups, size = [element(name, children=1)] * 8, 20_000
        leaves = leaf_columns([root(1), *groups, element(name, children=size),
                               *[element(name, "INT32")] * size])
        assert len(leaves) == size and leaves[-1].parts == (name,) * 10
        assert leaves[-1].path == ".".join(leaves[-1].parts)


def test_an_element_without_name_has_an_empty_one():
    [leaf] = leaf_columns([root(1), element(None, "INT32")])
    assert leaf.path == ""


# --- looking columns up --------------------------------------------------------------------------

LEAVES = leaf_columns([
    root(5), element("a", "INT64"), element("g", children=2), element("x", "BOOLEAN"),
    element("y", "INT32"), element("twice", "INT32"), element("twice", "INT32"),
    element("g.y", "INT32")])


def test_columns_are_found_by_their_path():
    assert find_column(LEAVES, "a") is LEAVES[0]
    assert find_column(LEAVES, "g.x") is LEAVES[1]
    assert filter_columns(LEAVES, ["a"]) == [LEAVES[0]]


@pytest.mark.parametrize(("path", "message"), [
    ("A", "existing columns: a, g.x, g.y, twice"), ("g", "its leaf columns: g.x, g.y"),
    ("", "no such column"), ("g.", "no such column"), ("twice", "2 columns"), ("g.y", "2 columns"),
    ("a.b", "no such")])
def test_columns_that_are_not_there(path, message):
    with pytest.raises(ColumnError, match=message) as caught:
        find_column(LEAVES, path)
    assert caught.value.column == path


def test_a_boolean_cannot_have_a_filter():
    with pytest.raises(ColumnError, match="BOOLEAN cannot have a Bloom filter"):
        filter_columns(LEAVES, ["g.x"])


# --- types ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("arrow_type", "text"), [
    (pa.int8(), "INT32 int8"), (pa.uint16(), "INT32 uint16"), (pa.uint64(), "INT64 uint64"),
    (pa.float16(), "FIXED_LEN_BYTE_ARRAY(2) halffloat"), (pa.float32(), "FLOAT float"),
    (pa.string(), "BYTE_ARRAY string"), (pa.binary(), "BYTE_ARRAY binary"),
    (pa.binary(5), "FIXED_LEN_BYTE_ARRAY(5) fixed_size_binary[5]"),
    (pa.uuid(), "FIXED_LEN_BYTE_ARRAY(16) fixed_size_binary[16]"),
    (pa.decimal128(5, 2), "FIXED_LEN_BYTE_ARRAY(3) decimal128(5, 2)"),
    (pa.decimal256(50, 2), "FIXED_LEN_BYTE_ARRAY(21) decimal256(50, 2)"),
    (pa.date64(), "INT32 date32[day]"), (pa.time32("s"), "INT32 time32[ms]"),
    (pa.time64("ns"), "INT64 time64[ns]"), (pa.timestamp("s"), "INT64 timestamp[ms]"),
    (pa.timestamp("ns", "Europe/Rome"), "INT64 timestamp[ns, tz=UTC]"),
    (pa.duration("s"), "INT64 int64"), (pa.bool_(), "BOOLEAN"), (pa.null(), "INT32"),
])
def test_types_of_pyarrow_files(arrow_type, text):
    [leaf] = schema_of(("x", arrow_type))
    assert str(leaf.type) == text
    assert leaf.type.can_have_filter == (" " in text)


@for_each(("physical", "converted", "arrow_type"), [
    ("INT32", None, pa.int32()), ("INT64", None, pa.int64()), ("INT96", None, pa.timestamp("ns")),
    ("FLOAT", None, pa.float32()), ("DOUBLE", None, pa.float64()),
    ("BYTE_ARRAY", None, pa.binary()), ("BOOLEAN", None, None),
    ("BYTE_ARRAY", 0, pa.string()), ("BYTE_ARRAY", 4, pa.string()), ("BYTE_ARRAY", 19, pa.string()),
    ("BYTE_ARRAY", 20, pa.binary()), ("INT32", 6, pa.date32()), ("INT32", 7, pa.time32("ms")),
    ("INT64", 8, pa.time64("us")), ("INT64", 9, pa.timestamp("ms", "UTC")),
    ("INT64", 10, pa.timestamp("us", "UTC")),
    ("INT32", 11, pa.uint8()), ("INT32", 12, pa.uint16()), ("INT32", 13, pa.uint32()),
    ("INT64", 14, pa.uint64()), ("INT32", 15, pa.int8()), ("INT32", 16, pa.int16()),
    ("INT32", 17, pa.int32()), ("INT64", 18, pa.int64()),
    # what does not belong together, and kinds that say nothing here
    ("INT64", 6, None), ("INT32", 9, None), ("INT64", 11, None), ("BYTE_ARRAY", 5, None),
    ("INT32", 99, None), ("BYTE_ARRAY", 1, None), ("BOOLEAN", 0, None),
])
def test_converted_types(physical, converted, arrow_type):
    assert type_of(physical=physical, converted=converted).arrow_type == arrow_type


def time_type(unit, utc=True) -> Struct:
    struct = Struct()
    struct.set_bool(1, utc)
    struct.set(2, STRUCT, Struct([[unit, STRUCT, Struct()]]))
    return struct


def int_type(width, signed) -> Struct:
    struct = Struct([[1, BYTE, bytes([width])]])
    struct.set_bool(2, signed)
    return struct


def decimal_type(scale, precision) -> Struct:
    struct = Struct()
    if scale is not None:
        struct.set_int(1, I32, scale)
    struct.set_int(2, I32, precision)
    return struct


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("signed", [True, False])
def test_integers_of_all_widths(width, signed):
    arrow_type = pa.type_for_alias(f"{'' if signed else 'u'}int{width}")
    physical = "INT64" if width == 64 else "INT32"
    assert type_of(physical=physical, logical=(10, int_type(width, signed))).arrow_type \
        == arrow_type
    [stored] = schema_of(("x", arrow_type))
    assert stored.type.arrow_type == arrow_type


@pytest.mark.parametrize(("number", "unit"), [(1, "ms"), (2, "us"), (3, "ns")])
@pytest.mark.parametrize("utc", [True, False])
def test_times_of_all_units(number, unit, utc):
    time = ("INT32", pa.time32("ms")) if unit == "ms" else ("INT64", pa.time64(unit))
    for field, (physical, arrow_type) in (
            (7, time), (8, ("INT64", pa.timestamp(unit, "UTC" if utc else None)))):
        logical = field, time_type(number, utc)
        assert type_of(physical=physical, logical=logical).arrow_type == arrow_type


@pytest.mark.parametrize(("physical", "logical", "arrow_type"), [
    ("BYTE_ARRAY", (1, Struct()), pa.string()), ("BYTE_ARRAY", (4, Struct()), pa.string()),
    ("BYTE_ARRAY", (12, Struct()), pa.string()), ("BYTE_ARRAY", (13, Struct()), pa.binary()),
    ("INT32", (6, Struct()), pa.date32()),
    ("INT32", (7, time_type(1)), pa.time32("ms")), ("INT64", (7, time_type(3)), pa.time64("ns")),
    ("INT64", (8, time_type(2, utc=False)), pa.timestamp("us")),
    ("INT64", (8, time_type(2)), pa.timestamp("us", "UTC")), ("INT64", (8, time_type(4)), None),
    ("INT64", (7, time_type(1)), None), ("INT64", (8, Struct()), None),
    ("INT32", (10, int_type(8, True)), pa.int8()), ("INT64", (10, int_type(64, False)),
                                                    pa.uint64()),
    ("INT32", (10, int_type(24, True)), None), ("INT32", (10, Struct()), None),
    ("INT32", (5, decimal_type(2, 9)), pa.decimal128(9, 2)),
    ("INT32", (5, decimal_type(None, 9)), pa.decimal128(9, 0)),
    ("INT64", (5, decimal_type(0, 18)), pa.decimal128(18, 0)),
    ("BYTE_ARRAY", (5, decimal_type(2, 9)), None), ("INT32", (5, decimal_type(3, 2)), None),
    ("INT32", (5, decimal_type(0, 0)), None), ("INT32", (5, decimal_type(0, 77)), None),
    ("INT32", (11, Struct()), None), ("BYTE_ARRAY", (16, Struct()), None),
])
def test_logical_types(physical, logical, arrow_type):
    # The converted type is one that would say something else.
    assert type_of(physical=physical, logical=logical, converted=99).arrow_type == arrow_type


@pytest.mark.parametrize(("length", "kind", "arrow_type"), [
    (2, {"logical": (15, Struct())}, pa.float16()), (4, {"logical": (15, Struct())}, None),
    (16, {"logical": (14, Struct())}, pa.binary(16)), (7, {}, pa.binary(7)),
    (12, {"converted": 21}, pa.binary(12)), (4, {"converted": 0}, None),
    (5, {"converted": 5, "scale": 2, "precision": 11}, pa.decimal128(11, 2)),
    (20, {"converted": 5, "precision": 38}, pa.decimal256(38, 0)),
    (32, {"logical": (5, decimal_type(0, 76))}, pa.decimal256(76, 0)),
    (33, {"logical": (5, decimal_type(0, 76))}, None),
])
def test_fixed_length_types(length, kind, arrow_type):
    column_type = type_of(physical="FIXED_LEN_BYTE_ARRAY", length=length, **kind)
    assert column_type.arrow_type == arrow_type
    assert column_type.length == length


def test_a_larger_schema_may_have_more_columns(monkeypatch):
    monkeypatch.setattr(schema, "_ROOM", 1000)
    elements = [root(8), *(element("name", "INT32") for _ in range(8))]
    with pytest.raises(FormatError, match="the paths of the columns are too long: 4 of them"):
        leaf_columns(elements)
    assert len(leaf_columns(elements, 300)) == 8
