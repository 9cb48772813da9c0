"""Footers in which one thing comes very often, or is very long; around one or more good columns.

Each kind of :data:`KINDS` makes a file of about so many bytes of that thing. Pages and filters of
the columns are good, so that everything that reads, checks or changes a file can be tried on it.
"""

import math
from functools import partial

import pyarrow as pa

from secure_bloom import write_table
from secure_bloom.crypto.aad import ModuleType, module_aad
from secure_bloom.crypto.modules import ModuleCipher
from secure_bloom.parquet.tail import MAGIC, MAGIC_ENCRYPTED
from secure_bloom.parquet.thrift import (
    BINARY,
    BYTE,
    I32,
    I64,
    LIST,
    STRUCT,
    encode_int,
    encode_varint,
)
from tests.support import FOOTER_KEY, open_footer

VALUES = [7, 8, 9]
_UNIQUE = b"12345678"


def _good_column() -> tuple[bytes, bytes]:
    """The pages of a column chunk, and its filter."""
    sink = pa.BufferOutputStream()
    write_table(pa.table({"a": pa.array(VALUES, pa.int64())}), sink, bloom_filters={"a": True},
                compression="none", use_dictionary=False, write_statistics=False)
    data = sink.getvalue().to_pybytes()
    chunk = open_footer(data).row_groups[0][0]
    (pages, size), (offset, length) = chunk.pages, chunk.bloom_filter
    return data[pages:pages + size], data[offset:offset + length]


PAGES, FILTER = _good_column()
_PART = len(PAGES) + len(FILTER)

# --- the pieces of a footer ----------------------------------------------------------------------


def text(value: bytes) -> bytes:
    return encode_varint(len(value)) + value


def numbered(field_id: int, type_: int, value: bytes) -> bytes:
    """A field whose header does not depend on the one before."""
    return bytes([type_]) + encode_int(field_id) + value


def structure(*fields: tuple[int, int, bytes], junk: bytes = b"", before: int = 0) -> bytes:
    """A structure; the junk comes before the field with that id, or at the start."""
    parts = [(junk if field[0] == before else b"") + numbered(*field) for field in fields]
    return (b"" if before else junk) + b"".join(parts) + b"\0"


def list_of(type_: int, count: int, elements: bytes) -> bytes:
    return bytes([0xF0 | type_]) + encode_varint(count) + elements


MOST_FIELDS = 32_000  # of a structure: each has an id of its own, of 16 bits


def many(type_: int, value: bytes, n: int) -> bytes:
    """As many fields as so many bytes take, with ids that nobody knows, and below all others."""
    count = min(n // (1 + len(value)), MOST_FIELDS)
    return bytes([type_]) + encode_int(-1 << 15) + value + (bytes([0x10 | type_]) + value) * count


#: fields that nobody knows
JUNK = {
    "booleans": lambda n: many(1, b"", n),
    "integers": lambda n: many(I32, b"\2", n),
    "spelled ids": lambda n: b"".join(numbered(i - (1 << 15), BYTE, b"\2")
                                      for i in range(min(n // 5, MOST_FIELDS))),
    "a text": lambda n: many(BINARY, text(bytes(n)), 0),
    "texts": lambda n: many(BINARY, text(b"x"), n),
    "a list": lambda n: many(LIST, list_of(STRUCT, n, bytes(n)), 0),
    "lists of lists": lambda n: many(LIST, list_of(LIST, n // 2, b"\x03" * (n // 2)), 0),
    "nested": lambda n: many(STRUCT, b"\x1c" * 50 + bytes(51), n),
}


def leaf(name: bytes = b"a", *, junk: bytes = b"") -> bytes:
    return structure((1, I32, encode_int(2)), (3, I32, encode_int(1)), (4, BINARY, text(name)),
                     junk=junk)


def group(name: bytes, children: int) -> bytes:
    return structure((3, I32, encode_int(0)), (4, BINARY, text(name)),
                     (5, I32, encode_int(children)))


def metadata(start: int, *, encodings=1, path=1, statistics=b"", stats=0, of_metadata=b"",
             bound=0, pairs=0, size=None, length=None) -> bytes:
    """A ColumnMetaData of pages and filter that begin at ``start``, with junk."""
    num_bytes = encode_int(size or len(PAGES))
    bounds = [(5, BINARY, text((9).to_bytes(8, "little") + bytes(bound))),
              (6, BINARY, text((7).to_bytes(8, "little") + bytes(bound)))]
    fields = [
        (1, I32, encode_int(2)), (2, LIST, list_of(I32, encodings, b"\0" * encodings)),
        (3, LIST, list_of(BINARY, path, text(b"a") * path)), (4, I32, encode_int(0)),
        (5, I64, encode_int(len(VALUES))), (6, I64, num_bytes), (7, I64, num_bytes),
        (8, LIST, list_of(STRUCT, pairs, bytes(pairs))), (9, I64, encode_int(start)),
        (12, STRUCT, structure((3, I64, encode_int(0)), *bounds, junk=statistics)),
        (13, LIST, list_of(STRUCT, stats, (structure(
            (1, I32, encode_int(0)), (2, I32, encode_int(0)), (3, I32, encode_int(1))) * stats))),
        (14, I64, encode_int(start + len(PAGES))), (15, I32, encode_int(length or len(FILTER)))]
    return structure(*(field for field in fields if field[2][:2] != b"\xfc\0"),
                     junk=of_metadata)


def chunk(start: int, *, junk: bytes = b"", crypto: bytes | None = None,
          module: bytes | None = None, index: tuple[int, int] | None = None, **options) -> bytes:
    fields = [(2, I64, encode_int(0)), (3, STRUCT, metadata(start, **options))]
    if index is not None:
        fields += [(6, I64, encode_int(index[0])), (7, I32, encode_int(index[1]))]
    if crypto is not None:
        fields.append((8, STRUCT, crypto))
    if module is not None:
        fields.append((9, BINARY, text(module)))
    return structure(*fields, junk=junk)


def row_group(chunks: list[bytes], *, junk: bytes = b"", before: int = 0,
              sorting: int = 0) -> bytes:
    fields = [(1, LIST, list_of(STRUCT, len(chunks), b"".join(chunks))),
              (2, I64, encode_int(len(PAGES))), (3, I64, encode_int(len(VALUES)))]
    if sorting:
        fields.append((4, LIST, list_of(STRUCT, sorting, structure(
            (1, I32, b"\0"), (2, 2, b""), (3, 2, b"")) * sorting)))
    return structure(*fields, junk=junk, before=before)


def file_metadata(schema: list[bytes], groups: list[bytes], *, root: int | None = None,
                  created_by: bytes = b"t", pairs: bytes = b"", num_pairs: int = 0,
                  orders: int | None = None, junk: bytes = b"", before: int = 0,
                  algorithm: bool = False) -> bytes:
    orders = len(schema) if orders is None else orders
    elements = [group(b"schema", len(schema) if root is None else root), *schema]
    fields = [
        (1, I32, encode_int(2)), (2, LIST, list_of(STRUCT, len(elements), b"".join(elements))),
        (3, I64, encode_int(len(VALUES) * len(groups))),
        (4, LIST, list_of(STRUCT, len(groups), b"".join(groups))),
        (5, LIST, list_of(STRUCT, num_pairs, pairs)), (6, BINARY, text(created_by)),
        (7, LIST, list_of(STRUCT, orders, b"\x1c\0\0" * orders))]
    if not num_pairs:
        del fields[4]
    if algorithm:
        fields.append((8, STRUCT, _algorithm()))
    return structure(*fields, junk=junk, before=before)


def _algorithm() -> bytes:
    return structure((1, STRUCT, structure((2, BINARY, text(_UNIQUE)))))


# --- files ---------------------------------------------------------------------------------------

_PER_CHUNK = 130  # bytes of a column chunk, about


def starts(parts: int) -> list[int]:
    """Where the pages of each column chunk begin."""
    return [len(MAGIC) + i * _PART for i in range(parts)]


def whole(content: bytes, parts: int, *, encrypted: bool = False) -> bytes:
    """A file with so many column chunks, and this FileMetaData."""
    magic = MAGIC
    if encrypted:
        magic = MAGIC_ENCRYPTED
        module = ModuleCipher(FOOTER_KEY).encrypt(content, module_aad(_UNIQUE, ModuleType.FOOTER))
        content = structure((1, STRUCT, _algorithm())) + module
    return magic + (PAGES + FILTER) * parts + content + len(content).to_bytes(4, "little") + magic


def one_chunk(*, of_chunk=None, of_group=None, of_leaf=None, **of_file) -> tuple[bytes, int]:
    """One column in one row group."""
    [start] = starts(1)
    groups = [row_group([chunk(start, **of_chunk or {})], **of_group or {})]
    return file_metadata([leaf(**of_leaf or {})], groups, **of_file), 1


def row_groups(count: int, of_chunk=None, **of_file) -> tuple[bytes, int]:
    """Many row groups of one column."""
    groups = [row_group([chunk(start, **of_chunk or {})]) for start in starts(count)]
    return file_metadata([leaf()], groups, **of_file), count


def columns(leaves: list[bytes], number: int, root: int | None = None,
            **of_group) -> tuple[bytes, int]:
    """A schema, and one row group."""
    return file_metadata(leaves, [row_group([chunk(start) for start in starts(number)],
                                            **of_group)], root=root, orders=number), number


def square(n: int) -> tuple[bytes, int]:
    """As many columns as row groups."""
    side = max(1, math.isqrt(n // _PER_CHUNK))
    places = starts(side * side)
    groups = [row_group([chunk(start) for start in places[i * side:(i + 1) * side]])
              for i in range(side)]
    return file_metadata(_leaves(side), groups), side * side


def _leaves(number: int) -> list[bytes]:
    return [leaf(), *(leaf(b"%d" % i) for i in range(1, number))]


def _long_group(n: int) -> tuple[bytes, int]:
    number = max(2, n // 2 // _PER_CHUNK)
    return columns([leaf(), group(b"g" * (n // 2), number - 1), *_leaves(number)[1:]], number, 2)


def _deep(n: int) -> tuple[bytes, int]:
    number = max(2, n // _PER_CHUNK)
    groups = [group(b"", 1) for _ in range(80)] + [group(b"x", number - 1)]
    return columns([leaf(), *groups, *_leaves(number)[1:]], number, 2)


def _same_place(n: int, **of_chunk) -> tuple[bytes, int]:
    """Half of the file is the pages, the filter or the index of all column chunks."""
    return file_metadata([leaf()], [row_group([chunk(4, **of_chunk)])] * (n // _PER_CHUNK // 2),
                         algorithm="crypto" in of_chunk), n // _PART // 2


_FOOTER_KEY = structure((1, STRUCT, b"\0"))

#: where junk may be: name -> the FileMetaData for about so many bytes of it, and the column chunks
PLACES = {
    "file": lambda n, junk: one_chunk(junk=junk(n), before=4),
    "before the column orders": lambda n, junk: row_groups(
        n // 2 // _PER_CHUNK, junk=junk(n // 2), before=7),
    "row group": lambda n, junk: columns(_leaves(n // 2 // _PER_CHUNK), n // 2 // _PER_CHUNK,
                                         junk=junk(n // 2), before=3),
    "column chunk": lambda n, junk: one_chunk(of_chunk={"junk": junk(n)}),
    "column metadata": lambda n, junk: one_chunk(of_chunk={"of_metadata": junk(n)}),
    "all column metadata": lambda n, junk: row_groups(n // 230, {"of_metadata": junk(100)}),
    "statistics": lambda n, junk: one_chunk(of_chunk={"statistics": junk(n)}),
    "schema element": lambda n, junk: one_chunk(of_leaf={"junk": junk(n)}),
}

#: what may come often, or be long: name -> the same
THINGS = {
    "key-value pairs": lambda n: one_chunk(
        pairs=structure((1, BINARY, text(b""))) * (n // 4), num_pairs=n // 4),
    "a long value": lambda n: one_chunk(
        pairs=structure((1, BINARY, text(b"k")), (2, BINARY, text(b"v" * n))), num_pairs=1),
    "a long writer": lambda n: one_chunk(created_by=b"w" * n),
    "column orders": lambda n: one_chunk(orders=n // 3),
    "row groups": lambda n: row_groups(n // _PER_CHUNK),
    "columns": lambda n: columns(_leaves(n // _PER_CHUNK), n // _PER_CHUNK),
    "columns of one name": lambda n: columns(
        [leaf(), *[leaf(b"b")] * (n // _PER_CHUNK - 1)], n // _PER_CHUNK),
    "columns and row groups": square,
    "leaves without row groups": lambda n: (file_metadata(
        [leaf(), *[leaf(b"")] * (n // 9)], []), 0),
    "a long column name": lambda n: columns([leaf(), leaf(b"n" * n)], 2),
    "a long group name": _long_group,
    "deep columns": _deep,
    "sorting columns": lambda n: one_chunk(of_group={"sorting": n // 6}),
    "encodings": lambda n: one_chunk(of_chunk={"encodings": n}),
    "parts of a path": lambda n: one_chunk(of_chunk={"path": n // 2}),
    "encoding statistics": lambda n: one_chunk(of_chunk={"stats": n // 10}),
    "pairs of a column": lambda n: one_chunk(of_chunk={"pairs": n}),
    "long bounds": lambda n: one_chunk(of_chunk={"bound": n // 2}),
    "encrypted metadata": lambda n: one_chunk(
        of_chunk={"crypto": _FOOTER_KEY, "module": bytes(n)}, algorithm=True),
    "key metadata": lambda n: one_chunk(of_chunk={"crypto": structure(
        (2, STRUCT, structure((2, BINARY, text(bytes(n))))))}, algorithm=True),
    "filters in one place": lambda n: _same_place(n, length=n // 2 - 3 * _PART),
    "pages in one place": lambda n: _same_place(n, size=n // 2 - 3 * _PART),
    "indexes in one place": lambda n: _same_place(
        n, crypto=_FOOTER_KEY, index=(4, n // 2 - 3 * _PART)),
}
KINDS = THINGS | {f"{place}: {name}": partial(make, junk=junk)
                  for place, make in PLACES.items() for name, junk in JUNK.items()}


def hostile_file(kind: str, size: int, *, encrypted: bool = False) -> bytes:
    """A file of this kind of about so many bytes; pages and filters are not counted."""
    content, parts = KINDS[kind](size)
    return whole(content, parts, encrypted=encrypted)
