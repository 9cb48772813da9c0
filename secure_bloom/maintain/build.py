"""Build the Bloom filter of an existing column chunk from the values that it stores."""

from __future__ import annotations

from collections.abc import Callable

from secure_bloom.errors import FormatError, error_location
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.verify.measure import ColumnHashes


def build_filter(hashes: ColumnHashes, chunk: ColumnChunk, num_rows: int,
                 size: BloomFilterOptions | int,
                 advance: Callable[[int], None] = lambda rows: None) -> SplitBlockBloomFilter:
    """Read a column chunk in bounded memory and insert all of its values into a new filter.

    Parameters
    ----------
    hashes : ColumnHashes
    chunk : ColumnChunk
    num_rows : int
        Number of rows in the row group.
    size : BloomFilterOptions or int
        How to size the filter, or its number of blocks.
    advance : callable
        Called with the number of rows of each portion.

    Raises
    ------
    ColumnError, UnsupportedError
        If the values cannot be hashed or read.
    FormatError, AuthenticationError, KeyRetrievalError
        If the pages cannot be read. No filter is built from a chunk that was only partly read.
    """
    with error_location(**chunk.place):
        num_blocks = size if isinstance(size, int) else _num_blocks(chunk, size)
        filter_ = SplitBlockBloomFilter(num_blocks, column_type=chunk.column.type)
        seen = 0
        for rows, values in hashes.read(chunk.row_group, chunk.column):
            filter_.insert_hashes(values)
            seen += rows
            advance(rows)
        if seen != num_rows:
            raise FormatError(f"the row group has {num_rows} rows, but {seen} were read")
        return filter_ if isinstance(size, int) else size.fitted(filter_)


def _num_blocks(chunk: ColumnChunk, options: BloomFilterOptions) -> int:
    if options.ndv is not None:
        return options.num_blocks(0)
    found = chunk.statistics
    return options.num_blocks(max(0, (found.num_values or 0) - (found.null_count or 0)))
