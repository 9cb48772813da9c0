"""From the bytes of a good file to its vector: the filters, and probes with their answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from xxhash import xxh64_intdigest

from secure_bloom import ExplicitKeys, ParquetFile, SplitBlockBloomFilter
from secure_bloom.arrow.decryption import decryption_properties
from secure_bloom.errors import AuthenticationError
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.sbbf.conversion import convert_exactly
from secure_bloom.sbbf.hashing import hash_values
from secure_bloom.sbbf.parsing import parse_value
from vectors.builder import reference
from vectors.builder.columns import LIMIT, Column
from vectors.builder.vector import FileKeys, FileVector, Filter

_FAR = range(LIMIT - 1, LIMIT // 2, -1)  # numbers of values that no file has


def good(name: str, data: bytes, origin: str, keys: FileKeys, rows: pa.Table,
         columns: Iterable[Column], comment: str | None = None) -> FileVector:
    """The vector of a file that has these rows.

    Raises
    ------
    AssertionError
        If the file reads otherwise, or a filter misses a value.
    """
    by_path = {column.path: column for column in columns}
    for own in (explicit(keys), *([InMemoryKms(keys.master_keys)] if keys.master_keys else ())):
        with ParquetFile(pa.BufferReader(data), own) as file:
            assert same_rows(file.read(), rows), name
            filters = _filters(file, rows, by_path)
    return FileVector(name, data, origin, keys, filters, comment=comment)


def leaking(name: str, data: bytes, origin: str, keys: FileKeys, rows: pa.Table,
            columns: Iterable[Column], fault: str) -> FileVector:
    """The vector of a file whose encrypted columns have plaintext filters.

    Raises
    ------
    AssertionError
        If the file reads otherwise, or other filters are refused than those of encrypted columns.
    """
    with ParquetFile(pa.BufferReader(data), explicit(keys)) as file:
        assert same_rows(file.read(), rows), name
        chunks = list(file.footer.column_chunks())
        refused = [_place(chunk) for chunk in chunks if _is_refused(file, chunk)]
        assert refused == [_place(chunk) for chunk in chunks if chunk.encryption is not None], name
        filters = _filters(file, rows, {column.path: column for column in columns}, refused)
    at = "{}:{}".format(*refused[0])
    return FileVector(name, data, origin, keys, filters, "authentication_failed", at, fault)


def _place(chunk: ColumnChunk) -> tuple[int, str]:
    return chunk.row_group, chunk.column.path


def _is_refused(file: ParquetFile, chunk: ColumnChunk) -> bool:
    try:
        file.read_bloom_filter(*_place(chunk))
    except AuthenticationError:
        return True
    return False


def explicit(keys: FileKeys) -> ExplicitKeys | None:
    """The data keys for our reader."""
    if keys.footer_key is None and not keys.column_keys:
        return None
    return ExplicitKeys(keys.footer_key, keys.column_keys, aad_prefix=keys.aad_prefix)


def read_plainly(data: bytes, keys: FileKeys) -> pa.Table:
    """The rows as pyarrow alone reads them; column keys only by way of key material."""
    properties = None
    if keys.master_keys:
        properties = decryption_properties(InMemoryKms(keys.master_keys))
    elif keys.footer_key is not None:
        properties = pe.create_decryption_properties(keys.footer_key, aad_prefix=keys.aad_prefix)
    return pq.read_table(pa.BufferReader(data), decryption_properties=properties)


def same_rows(read: pa.Table, rows: pa.Table) -> bool:
    """Whether what was read are these rows, maybe in other types."""
    if read.column_names != rows.column_names:
        return False
    return all(own.to_pylist() == _as(other, own.type).to_pylist()
               for own, other in zip(rows.columns, read.columns, strict=True))


def _as(array: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return array if pa.types.is_nested(type_) or array.type == type_ else array.cast(type_)


def _filters(file: ParquetFile, rows: pa.Table, by_path: dict[str, Column],
             refused: Collection[tuple[int, str]] = ()) -> list[Filter]:
    filters, start = [], 0
    for number in range(file.num_row_groups):
        size = file.footer.row_group_num_rows(number)
        group, start = rows.slice(start, size), start + size
        for chunk in file.footer.row_groups[number]:
            if _place(chunk) in refused:
                continue
            bits = file.read_bloom_filter(number, chunk.column.path)
            if bits is not None:
                column = by_path[chunk.column.path]
                probes = _probes(bits, chunk.column, column, group[column.name],
                                 rows[column.name])
                filters.append(Filter(number, column.path, chunk.encryption is not None,
                                      bytes(bits.bitset), probes))
    assert start == rows.num_rows
    return filters


def _probes(bits: SplitBlockBloomFilter, leaf: LeafColumn, column: Column,
            group: pa.ChunkedArray, everything: pa.ChunkedArray) -> list[tuple[bytes, str, bool]]:
    """Two values of the row group, two that it has not.

    Of these the first is in another row group, where there is one, and the second is one that the
    filter is wrong about, where there is any.
    """
    assert (leaf.type.physical_type, leaf.type.length) == (column.physical, column.length)
    present = column.leaves(group)
    elsewhere = [value for value in column.leaves(everything) if value not in present][-1:]
    absent = elsewhere + [column.value(i) for i in _FAR if column.value(i) not in present]
    probes = [_probe(bits, leaf, column, value) for value in present]
    assert all(answer for _, _, answer in probes), leaf
    first, *others = [_probe(bits, leaf, column, value) for value in absent]
    others.sort(key=lambda probe: not probe[2])
    return probes[:1] + probes[1:][-1:] + [first, others[0]]


def _probe(bits: SplitBlockBloomFilter, leaf: LeafColumn, column: Column, value) \
        -> tuple[bytes, str, bool]:
    plain, words = column.plain(value), column.words(value)
    hash = xxh64_intdigest(plain)
    answer = reference.check(bytes(bits.bitset), hash)
    parsed = pa.array([parse_value(words, leaf.type)], leaf.type.arrow_type)
    hashes = hash_values(convert_exactly(parsed, leaf.type), leaf.type)
    assert hashes.tolist() == [hash], (leaf, words)
    assert bits.check(parsed).tolist() == [answer], (leaf, words)
    return plain, words, answer
