"""The lossless Thrift tree, against the thrift library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from secure_bloom.errors import FormatError
from secure_bloom.parquet.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    MAX_REMEMBERED,
    STRUCT,
    Recurring,
    Struct,
    decode,
    encode,
    encode_varint,
    protocol,
    tree,
    without_extensions,
)
from secure_bloom.parquet.thrift.protocol import encode_int
from tests.cases import for_each
from tests.support import examples

# --- structures with fields of every type, written by the thrift library -------------------------

SCALARS = {
    TType.BOOL: (st.booleans(), "writeBool"),
    TType.BYTE: (st.integers(-128, 127), "writeByte"),
    TType.I16: (st.integers(-2**15, 2**15 - 1), "writeI16"),
    TType.I32: (st.integers(-2**31, 2**31 - 1), "writeI32"),
    TType.I64: (st.integers(-2**63, 2**63 - 1), "writeI64"),
    TType.DOUBLE: (st.floats(allow_nan=False), "writeDouble"),
    TType.STRING: (st.binary(max_size=140), "writeBinary"),
}
FIELD_IDS = st.integers(1, 6) | st.integers(-2**15, 2**15 - 1).filter(bool)



LEAVES = st.one_of(*(values.map(lambda value, kind=kind: (kind, value))
                     for kind, (values, _) in SCALARS.items()))


def _containers(inner):
    lists = st.one_of(
        *(st.lists(values.map(lambda value, kind=kind: (kind, value)), max_size=17)
          for kind, (values, _) in SCALARS.items()),
        st.lists(inner.filter(lambda value: value[0] == TType.STRUCT), max_size=4))
    return st.one_of(
        st.dictionaries(FIELD_IDS, inner, max_size=5).map(
            lambda fields: (TType.STRUCT, dict(sorted(fields.items())))),
        lists.map(lambda values: (TType.LIST, values)),
        lists.map(lambda values: (TType.SET, values)),
        st.tuples(lists, lists).map(lambda pair: (TType.MAP, list(zip(*pair, strict=False)))))


TREES = st.dictionaries(FIELD_IDS, st.recursive(LEAVES, _containers, max_leaves=8), max_size=5).map(
    lambda fields: dict(sorted(fields.items())))
LAYOUTS = st.recursive(st.just({}), lambda inner: st.dictionaries(
    st.integers(1, 6), inner | inner.map(lambda layout: [layout]), max_size=5), max_leaves=6)


def written(fields: dict) -> bytes:
    transport = TMemoryBuffer()
    _write_struct(TCompactProtocol(transport), fields)
    return transport.getvalue()


def _write_struct(protocol, fields):
    protocol.writeStructBegin("")
    for field_id, value in fields.items():
        protocol.writeFieldBegin("", value[0], field_id)
        _write(protocol, value)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()


def _write(protocol, typed):
    kind, value = typed
    if kind == TType.STRUCT:
        _write_struct(protocol, value)
    elif kind == TType.MAP:
        types = [element[0] for element in value[0]] if value else [TType.BYTE, TType.BYTE]
        protocol.writeMapBegin(*types, len(value))
        for pair in value:
            for element in pair:
                _write(protocol, element)
        protocol.writeMapEnd()
    elif kind in (TType.LIST, TType.SET):
        what = "List" if kind == TType.LIST else "Set"
        getattr(protocol, f"write{what}Begin")(value[0][0] if value else TType.BYTE, len(value))
        for element in value:
            _write(protocol, element)
        getattr(protocol, f"write{what}End")()
    else:
        getattr(protocol, SCALARS[kind][1])(value)


@given(TREES, LAYOUTS, st.binary(max_size=20))
@examples(150)
def test_every_structure_comes_back_byte_for_byte(tree, layout, behind):
    data = written(tree)
    struct, end = decode(data + behind, layout)
    assert end == len(data)
    assert encode(struct) == data
    assert [field[0] for field in struct.fields] == list(tree)


@given(TREES, LAYOUTS)
@examples(60)
def test_a_structure_cut_off_anywhere_is_refused(tree, layout):
    data = written(tree)
    for size in range(len(data)):
        with pytest.raises(FormatError):
            decode(data[:size], layout)


@given(st.binary(max_size=60), LAYOUTS)
@examples(300)
def test_any_bytes_are_decoded_or_refused(data, layout):
    try:
        struct, end = decode(data, layout)
    except FormatError:
        return
    assert end <= len(data)
    assert decode(encode(struct), layout)[1] == len(encode(struct))


@given(TREES)
@examples(60)
def test_values_are_those_that_were_written(tree):
    struct, _ = decode(written(tree), {})
    for field_id, (kind, value) in tree.items():
        if kind in (TType.I16, TType.I32, TType.I64):
            assert struct.get_int(field_id) == value
        elif kind == TType.STRING:
            assert struct.get_binary(field_id) == value
        elif kind == TType.BOOL:
            assert struct.get_bool(field_id) is value


# --- changing a structure ------------------------------------------------------------------------

def test_fields_are_set_in_the_order_of_their_ids():
    struct = Struct()
    for field_id in (40, 3, 20):
        struct.set_int(field_id, I64, -field_id)
    struct.set_binary(3, b"now a binary")
    struct.set_bool(5, True)
    struct.set_bool(4, False)
    assert encode(struct) == written({
        3: (TType.STRING, b"now a binary"), 4: (TType.BOOL, False), 5: (TType.BOOL, True),
        20: (TType.I64, -20), 40: (TType.I64, -40)})
    struct.remove(20)
    struct.remove(99)
    assert [field[0] for field in struct.fields] == [3, 4, 5, 40]


def test_lists_of_structures_of_every_size():
    for size in (0, 1, 14, 15, 16, 200):
        data = written({1: (TType.LIST, [(TType.STRUCT, {1: (TType.I32, i)})
                                         for i in range(size)])})
        struct, _ = decode(data, {1: [{}]})
        if size:
            assert [element.get_int(1) for element in struct.get(1)] == list(range(size))
        assert encode(struct) == data


@for_each("kind", [I16, I32, I64])
@for_each("value", [0, -1, 63, 64, -64, -65, 2**31 - 1, -2**31, 2**63 - 1, -2**63])
def test_integers(kind, value):
    struct = Struct()
    struct.set_int(1, kind, value)
    assert struct.get_int(1) == value
    if kind == I64:
        assert encode(struct) == written({1: (TType.I64, value)})


def test_absent_fields_are_none():
    struct = Struct()
    assert [struct.get(1), struct.get_int(1), struct.get_bool(1), struct.get_binary(1),
            struct.get_string(1)] == [None] * 5


def test_text_that_is_no_utf8_is_shown():
    struct = Struct()
    struct.set_binary(1, b"a\xff")
    assert struct.get_string(1) == "a\\xff"


# --- what is wrong or hostile --------------------------------------------------------------------

def test_a_field_of_another_type_is_refused():
    struct, _ = decode(written({1: (TType.STRING, b"x"), 2: (TType.I32, 5),
                                3: (TType.LIST, [(TType.I32, 1)]), 4: (TType.STRUCT, {})}), {4: {}})
    for read in (lambda: struct.get_int(1), lambda: struct.get_binary(2),
                 lambda: struct.get_binary(3), lambda: struct.get_int(4),
                 lambda: struct.get_binary(4)):
        with pytest.raises(FormatError):
            read()
    assert struct.get_bool(2) is None


HUGE = b"\xff\xff\xff\xff\x07"  # a varint of 2^31 - 1
FIELD = {name: bytes([0x10 | kind]) for name, kind in
         {"binary": BINARY, "list": LIST, "set": 10, "map": 11, "struct": STRUCT}.items()}


@for_each("data", [
    FIELD["binary"] + HUGE + b"x",
    FIELD["list"] + b"\xf8" + HUGE,
    FIELD["list"] + b"\xfc" + HUGE,
    FIELD["set"] + b"\xf3" + HUGE,
    FIELD["map"] + HUGE + b"\x55",
    b"\x16" + b"\xff" * 10_000,
    b"\x05" + b"\xff" * 11,
    FIELD["binary"] + b"\xff" * 11,
    b"\x1e\x00", b"\x1f\x00", b"\x10\x00",
    FIELD["struct"] * 100_000,
    (FIELD["list"] + b"\x19" * 100_000),
])
@for_each("layout", [{}, {1: {}}, {1: [{}]}])
def test_hostile_bytes_are_refused_at_once(data, layout):
    with pytest.raises(FormatError):
        decode(data, layout)


def test_a_map_of_more_entries_than_bytes_is_refused_by_its_size():
    with pytest.raises(FormatError, match="map claims 2147483647 entries"):
        decode(FIELD["map"] + HUGE + b"\x55", {})


def test_an_integer_of_too_many_bytes_is_refused_when_read():
    struct, _ = decode(b"\x16" + b"\x80" * 20 + b"\x00\x00", {})
    with pytest.raises(FormatError, match="varint"):
        struct.get_int(1)


def test_depth_is_limited():
    def nested(depth):
        return FIELD["struct"] * depth + bytes(depth + 1)

    assert encode(decode(nested(60), {})[0]) == nested(60)
    with pytest.raises(FormatError, match="nested"):
        decode(nested(200), {})


def test_a_list_of_more_structures_than_any_file_has_is_refused():
    size = 2_000_000
    data = b"\x29\xfc" + encode_varint(size) + bytes(size + 1)
    with pytest.raises(FormatError, match="at most"):
        decode(data, {2: [{}]})


# --- lists that recur ----------------------------------------------------------------------------

@given(st.lists(TREES, min_size=1, max_size=4), st.data())
@examples(200)
def test_a_recurring_list_is_decoded_as_any_other(trees, data):
    layout = {field_id: Recurring() for field_id in range(1, 7)}
    for _ in range(6):
        raw = written(data.draw(st.sampled_from(trees)))
        struct, end = decode(raw, layout)
        plain, plain_end = decode(raw, {})
        assert struct.fields == plain.fields and end == plain_end


def test_a_recurring_list_is_the_same_object_and_not_skipped_again(monkeypatch):
    lists = [written({1: (TType.LIST, [(TType.I64, number)] * 3)}) for number in (1, 1, 2, 2)]
    layout = {1: Recurring()}
    skipped, skip = [], tree.skip
    monkeypatch.setattr(tree, "skip", lambda *args: skipped.append(args) or skip(*args))
    found = [decode(raw, layout)[0].get(1) for raw in lists]
    assert found[0] is found[1] and found[2] is found[3] and found[1] != found[2]
    assert len(skipped) == 2


def test_a_list_that_only_begins_like_the_last_one():
    layout = {1: Recurring()}
    short, long = (written({1: (TType.LIST, [(TType.I64, 1)] * count)}) for count in (2, 3))
    for raw in (short, long, short):
        assert decode(raw, layout)[0].fields == decode(raw, {})[0].fields
    for size in range(len(short)):
        with pytest.raises(FormatError):
            decode(short[:size], layout)


def test_a_long_list_is_not_remembered():
    layout = {1: Recurring()}
    raw = written({1: (TType.LIST, [(TType.STRING, bytes(MAX_REMEMBERED))])})
    assert decode(raw, layout)[0].get(1) is not decode(raw, layout)[0].get(1)


# --- structures with more fields than any that the format defines ---------------------------------

def explicit(field_id: int, value: int) -> bytes:
    """Return an i32 field whose header has the whole id."""
    return bytes([I32]) + encode_int(field_id) + encode_int(value)


MANY = b"".join(explicit(1000 + number, 1) for number in range(tree._MANY))


def test_of_many_fields_only_known_ids_are_kept_separate():
    data = MANY + b"".join([explicit(1, 10), explicit(2, 20), explicit(-3, 30), explicit(0, 5),
                            explicit(tree._MANY, 40), explicit(tree._MANY - 2, 50),
                            bytes([0x10 | I32]) + encode_int(60), explicit(4, 70)]) + b"\0"
    struct, end = decode(data + b"behind", {})
    assert end == len(data)
    assert (struct.get_int(1), struct.get_int(2), struct.get_int(4)) == (10, 20, 70)
    assert struct.get_int(tree._MANY - 1) == 60
    assert struct.get(-3) is struct.get(3) is struct.get(0) is struct.get(tree._MANY) is None
    again, _ = decode(encode(struct), {})
    assert encode(again) == encode(struct)


def test_structures_are_decoded_also_behind_many_fields():
    inner = explicit(5, 7) + b"\0"
    data = MANY + bytes([STRUCT]) + encode_int(2) + inner \
        + bytes([LIST]) + encode_int(3) + b"\x2c" + inner + inner + b"\0"
    struct, end = decode(data, {2: {}, 3: [{}]})
    assert end == len(data)
    assert struct.get(2).get_int(5) == 7
    assert [one.get_int(5) for one in struct.get(3)] == [7, 7]


# --- two libraries that see different fields in the same bytes ------------------------------------

#: fields of which a library may use the first and another one the last
AMBIGUOUS = {
    "repeated": explicit(4, 1) + explicit(4, 2),
    "repeated later": explicit(4, 1) + explicit(5, 1) + explicit(4, 2),
    "repeated and negative": explicit(-4, 1) + explicit(-4, 2),
    "repeated 0": explicit(0, 1) + explicit(0, 2),
    "17 bits": explicit(4 + (1 << 16), 1),
    "33 bits": explicit(4 + (1 << 32), 1),
    "negative 17 bits": explicit(4 - (1 << 16), 1),
    "17 bits as the last id and more": explicit((1 << 15) - 1, 1) + b"\x15\2",
    "17 bits by many small steps": b"\xf1" * 2185,
}
#: where they may be: layouts, and bytes around them
AROUND = {
    "decoded": ({}, b"", b""),
    "behind many fields": ({}, MANY, b""),
    "a decoded structure": ({1: {}}, b"\x1c", b"\0"),
    "a decoded list": ({1: [{}]}, b"\x19\x1c", b"\0"),
    "a structure": ({}, b"\x1c", b"\0"),
    "a structure in a list": ({}, b"\x19\x1c\x1c", b"\0\0"),
    "structures that are separated": ({1: [None]}, b"\x19\x2c", b"\0\0"),
}


@pytest.mark.parametrize("fields", AMBIGUOUS)
def test_ambiguous_fields_are_refused_at_any_depth(fields):
    for layout, before, behind in AROUND.values():
        with pytest.raises(FormatError, match="field"):
            decode(before + AMBIGUOUS[fields] + behind + b"\0", layout)


@pytest.mark.parametrize(("layout", "before"), [({}, b""), ({1: {}}, b"\x1c"), ({}, b"\x1c")])
def test_all_ids_of_16_bits_are_read(layout, before):
    data = before + b"".join(explicit(number, 1) for number in (-1 << 15, 0, (1 << 15) - 1)) \
        + b"\0" * (1 + len(before))
    assert encode(decode(data, layout)[0]) == data


# --- what is not a list of structures, and what ends too early ------------------------------------

@pytest.mark.parametrize("raw", [b"\x10", b"\x15\2", b"\x25\2\4"])
def test_a_list_of_something_else_is_not_taken_for_structures(raw):
    struct = Struct()
    struct.set(1, LIST, raw)
    with pytest.raises(FormatError, match="not a list of structures"):
        list(tree.each(struct, 1, {}))
    with pytest.raises(FormatError, match="not a list of structures"):
        tree.structs(struct, 1)


@pytest.mark.parametrize("raw", [None, b"", b"\x05", b"\x0c"])
def test_an_absent_and_an_empty_list_have_no_structures(raw):
    struct = Struct()
    if raw is not None:
        struct.set(1, LIST, raw)
    assert list(tree.each(struct, 1, {})) == tree.structs(struct, 1) == []


def test_a_list_that_ends_too_early_is_refused():
    struct = Struct()
    struct.set(1, LIST, b"\x2c" + explicit(1, 2) + b"\0" + explicit(1, 2))
    with pytest.raises(FormatError, match="truncated"):
        list(tree.each(struct, 1, {}))


@pytest.mark.parametrize(("read", "data"), [
    (protocol.decode_int, b""), (protocol.decode_int, b"\x80"), (protocol.decode_binary, b""),
    (protocol.decode_binary, b"\x80"), (protocol.end_of_struct, b""),
    (protocol.end_of_struct, b"\x15"), (protocol.end_of_struct, explicit(1, 2))])
def test_a_value_that_ends_too_early_is_refused(read, data):
    with pytest.raises(FormatError, match="truncated"):
        read(data)


@pytest.mark.parametrize("is_on", [True, False])
def test_garbage_collection_is_left_as_it_was(is_on, monkeypatch):
    calls = []
    monkeypatch.setattr(tree.gc, "isenabled", lambda: is_on)
    monkeypatch.setattr(tree.gc, "disable", lambda: calls.append("disable"))
    monkeypatch.setattr(tree.gc, "enable", lambda: calls.append("enable"))
    with pytest.raises(ValueError), tree.no_garbage_collection():
        raise ValueError
    assert calls == ["disable", *["enable"] * is_on]


_EXTENSION = b"\x08\xfe\xff\x03"  # its header: field 32767, a binary


@pytest.mark.parametrize("data", [
    _EXTENSION, _EXTENSION + b"\x05ab", _EXTENSION + b"\x00\x15\x02\x00",
    b"\x1c" * 100 + _EXTENSION + b"\x00" + b"\x00" * 101,
    b"\x19\xfc" + b"\xff" * 4 + b"\x07" + _EXTENSION + b"\x00\x00"],
    ids=["nothing", "truncated", "another field behind", "nested", "a list without end"])
def test_malformed_structures_with_extensions_are_refused(data):
    with pytest.raises(FormatError):
        without_extensions(data)
