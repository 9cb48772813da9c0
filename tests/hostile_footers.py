"""Footers in which one thing comes very often, or is very long; around one or more good columns.

Each kind of :data:`KINDS` makes a file of about so many bytes of that thing. Pages and filters of
the columns are good, so that everything that reads, checks or changes a file can be tried on it.
"""

import math

import pyarrow as pa

from secure_bloom import write_table
from secure_bloom.parquet.footer import MAGIC, MAGIC_ENCRYPTED
from secure_bloom.parquet.modules import ModuleCipher, ModuleType, module_aad
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


#: fields that nobody knows, of two bytes and more
JUNK = {
    "booleans": lambda n: numbered(60, 1, b"") * (n // 2),
    "integers": lambda n: numbered(61, I32, b"\2") * (n // 3),
    "ids of 16 bits": lambda n: numbered(30_000, BYTE, b"\2") * (n // 5),
    "ids of their own": lambda n: b"".join(numbered(100 + i, I32, b"\2") for i in range(n // 5)),
    "known ids": lambda n: numbered(7, I32, b"\2") * (n // 3),
    "a text": lambda n: numbered(60, BINARY, text(bytes(n))),
    "texts": lambda n: numbered(60, BINARY, text(b"x")) * (n // 4),
    "a list": lambda n: numbered(60, LIST, list_of(STRUCT, n, bytes(n))),
    "lists of lists": lambda n: numbered(60, LIST, list_of(LIST, n // 2, b"\x03" * (n // 2))),
    "nested": lambda n: (numbered(60, STRUCT, b"\x1c" * 50 + bytes(51))) * (n // 103),
}


def leaf(name: bytes = b"a", *, junk: bytes = b"") -> bytes:
    return structure((1, I32, encode_int(2)), (3, I32, encode_int(0)), (4, BINARY, text(name)),
                     junk=junk)


def group(name: bytes, children: int) -> bytes:
    return structure((3, I32, encode_int(0)), (4, BINARY, text(name)),
                     (5, I32, encode_int(children)))


def metadata(start: int, *, encodings=1, path=1, statistics=b"", stats=0, junk=b"",
             before=0, pairs=0) -> bytes:
    """A ColumnMetaData of pages and filter that begin at ``start``."""
    size = encode_int(len(PAGES))
    bounds = [(5, BINARY, text((9).to_bytes(8, "little"))),
              (6, BINARY, text((7).to_bytes(8, "little")))]
    fields = [
        (1, I32, encode_int(2)), (2, LIST, list_of(I32, encodings, b"\0" * encodings)),
        (3, LIST, list_of(BINARY, path, text(b"a") * path)), (4, I32, encode_int(0)),
        (5, I64, encode_int(len(VALUES))), (6, I64, size), (7, I64, size),
        (8, LIST, list_of(STRUCT, pairs, bytes(pairs))), (9, I64, encode_int(start)),
        (12, STRUCT, structure((3, I64, encode_int(0)), *bounds, junk=statistics)),
        (13, LIST, list_of(STRUCT, stats, (structure(
            (1, I32, encode_int(0)), (2, I32, encode_int(0)), (3, I32, encode_int(1))) * stats))),
        (14, I64, encode_int(start + len(PAGES))), (15, I32, encode_int(len(FILTER)))]
    return structure(*(field for field in fields if field[2][:2] != b"\xfc\0"),
                     junk=junk, before=before)


def chunk(start: int, *, junk: bytes = b"", before: int = 0, crypto: bytes | None = None,
          module: bytes | None = None, index: tuple[int, int] | None = None, **options) -> bytes:
    fields = [(2, I64, encode_int(0)), (3, STRUCT, metadata(start, **options))]
    if index is not None:
        fields += [(6, I64, encode_int(index[0])), (7, I32, encode_int(index[1]))]
    if crypto is not None:
        fields.append((8, STRUCT, crypto))
    if module is not None:
        fields.append((9, BINARY, text(module)))
    return structure(*fields, junk=junk, before=before)


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


def _one(n, **options) -> tuple[bytes, int]:
    return file_metadata([leaf()], [row_group([chunk(4)])], **options), 1


def _groups(count: int, junk: bytes = b"", **options) -> tuple[bytes, int]:
    """Many row groups of one column."""
    return file_metadata([leaf()], [row_group([chunk(start, **options)], junk=junk)
                                    for start in starts(count)]), count


def _columns(count: int, junk: bytes = b"", name=b"%d", before=0) -> tuple[bytes, int]:
    """Many columns in one row group."""
    names = [name % i if b"%" in name else name for i in range(1, count)]
    chunks = [chunk(start) for start in starts(count)]
    return file_metadata([leaf(), *map(leaf, names)],
                         [row_group(chunks, junk=junk, before=before)]), count


def _square(n: int, junk: bytes = b"", before: int = 0) -> tuple[bytes, int]:
    side = max(1, math.isqrt(n // 130))
    places = starts(side * side)
    groups = [row_group([chunk(start) for start in places[i * side:(i + 1) * side]])
              for i in range(side)]
    schema = [leaf(), *(leaf(b"%d" % i) for i in range(1, side))]
    return file_metadata(schema, groups, junk=junk, before=before), side * side


def _tree(elements: list[bytes], leaves: int, root: int) -> tuple[bytes, int]:
    chunks = [chunk(start) for start in starts(leaves)]
    return file_metadata(elements, [row_group(chunks)], root=root, orders=leaves), leaves


def _named_group(n: int) -> tuple[bytes, int]:
    leaves = max(2, n // 260)
    elements = [leaf(), group(b"g" * (n // 2), leaves - 1),
                *(leaf(b"%d" % i) for i in range(leaves - 1))]
    return _tree(elements, leaves, 2)


def _deep(n: int) -> tuple[bytes, int]:
    leaves = max(2, n // 140)
    elements = [leaf(), *(group(b"", 1) for _ in range(150)), group(b"x", leaves - 1),
                *(leaf(b"%d" % i) for i in range(leaves - 1))]
    return _tree(elements, leaves, 2)


_PER_CHUNK = 130  # bytes of a column chunk, about

KINDS = {
    **{f"file: {name}": lambda n, make=make: _one(n, junk=make(n), before=4)
       for name, make in JUNK.items()},
    **{f"before column orders: {name}": lambda n, make=make: _square(n // 2, make(n // 2), 7)
       for name, make in JUNK.items()},
    **{f"row group: {name}": lambda n, make=make: _columns(n // 2 // _PER_CHUNK, make(n // 2),
                                                           before=3)
       for name, make in JUNK.items()},
    **{f"column chunk: {name}": lambda n, make=make: (file_metadata(
        [leaf()], [row_group([chunk(4, junk=make(n), before=3)])]), 1)
       for name, make in JUNK.items()},
    **{f"column chunks: {name}": lambda n, make=make: _groups(
        n // 230, metadata_junk=make(100)) if False else (file_metadata(
            [leaf()], [row_group([_chunk_with(start, make(100))])
                       for start in starts(n // 230)]), n // 230)
       for name, make in JUNK.items()},
    **{f"column metadata: {name}": lambda n, make=make: (file_metadata(
        [leaf()], [row_group([_chunk_with(4, make(n))])]), 1) for name, make in JUNK.items()},
    **{f"statistics: {name}": lambda n, make=make: (file_metadata(
        [leaf()], [row_group([chunk(4, statistics=make(n))])]), 1)
       for name, make in JUNK.items()},
    **{f"schema element: {name}": lambda n, make=make: (file_metadata(
        [leaf(junk=make(n))], [row_group([chunk(4)])]), 1) for name, make in JUNK.items()},
    "key-value pairs": lambda n: _one(n, pairs=structure((1, BINARY, text(b""))) * (n // 4),
                                      num_pairs=n // 4),
    "a long value": lambda n: _one(n, pairs=structure((1, BINARY, text(b"k")),
                                                      (2, BINARY, text(b"v" * n))), num_pairs=1),
    "a long writer": lambda n: _one(n, created_by=b"w" * n),
    "column orders": lambda n: _one(n, orders=n // 3),
    "row groups": lambda n: _groups(n // _PER_CHUNK),
    "columns": lambda n: _columns(n // _PER_CHUNK),
    "columns of one name": lambda n: _columns(n // _PER_CHUNK, name=b"b"),
    "columns and row groups": _square,
    "leaves without row groups": lambda n: (file_metadata(
        [leaf(), *(leaf(b"")  for _ in range(n // 9))], []), 0),
    "a long column name": lambda n: (file_metadata(
        [leaf(), leaf(b"n" * n)], [row_group([chunk(start) for start in starts(2)])]), 2),
    "a long group name": _named_group,
    "deep columns": _deep,
    "sorting columns": lambda n: (file_metadata(
        [leaf()], [row_group([chunk(4)], sorting=n // 6)]), 1),
    "encodings": lambda n: (file_metadata([leaf()], [row_group([chunk(4, encodings=n)])]), 1),
    "parts of a path": lambda n: (file_metadata([leaf()], [row_group([chunk(4, path=n // 2)])]),
                                  1),
    "encoding statistics": lambda n: (file_metadata(
        [leaf()], [row_group([chunk(4, stats=n // 10)])]), 1),
    "pairs of a column": lambda n: (file_metadata([leaf()], [row_group([chunk(4, pairs=n)])]), 1),
    "long bounds": lambda n: (file_metadata([leaf()], [row_group([chunk(4, statistics=numbered(
        5, BINARY, text(bytes(n // 2))) + numbered(6, BINARY, text(bytes(n // 2))))])]), 1),
    "encrypted metadata": lambda n: (file_metadata([leaf()], [row_group([chunk(
        4, crypto=structure((1, STRUCT, b"\0")), module=bytes(n))])], algorithm=True), 1),
    "key metadata": lambda n: (file_metadata([leaf()], [row_group([chunk(
        4, crypto=structure((2, STRUCT, structure((2, BINARY, text(bytes(n)))))))])],
        algorithm=True), 1),
    "filters in one place": lambda n: (file_metadata([leaf()], [
        row_group([chunk(4)]) for _ in range(n // _PER_CHUNK)]), 1),
    "indexes in one place": lambda n: (file_metadata([leaf()], [
        row_group([chunk(4, crypto=structure((1, STRUCT, b"\0")), index=(4, _PART))])
        for _ in range(n // _PER_CHUNK)], algorithm=True), 1),
}


def _chunk_with(start: int, junk: bytes) -> bytes:
    """A column chunk with junk in its ColumnMetaData."""
    return structure((2, I64, encode_int(0)), (3, STRUCT, metadata(start, junk=junk, before=9)))


def hostile_file(kind: str, size: int, *, encrypted: bool = False) -> bytes:
    """A file of this kind whose footer has about so many bytes."""
    content, parts = KINDS[kind](size)
    return whole(content, parts, encrypted=encrypted)
