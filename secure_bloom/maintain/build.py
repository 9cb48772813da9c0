"""The Bloom filter of a column chunk that is in a file already, from the values that it stores."""

from __future__ import annotations

from collections.abc import Callable

from secure_bloom.errors import FormatError, located
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK, MAX_BYTES, num_blocks_for
from secure_bloom.verify.measure import ColumnHashes


def build_filter(hashes: ColumnHashes, chunk: ColumnChunk, num_rows: int,
                 size: BloomFilterOptions | int,
                 advance: Callable[[int], None] = lambda rows: None) -> SplitBlockBloomFilter:
    """Read a column chunk, in bounded memory, and put all of its values into a new filter.

    Parameters
    ----------
    hashes : ColumnHashes
    chunk : ColumnChunk
    num_rows : int
        Rows of the row group.
    size : BloomFilterOptions or int
        How to size the filter, or its number of blocks.
    advance : callable
        Told the number of rows of each portion.

    Raises
    ------
    ColumnError, UnsupportedError
        If the values cannot be hashed or not be read.
    FormatError, AuthenticationError, KeyRetrievalError
        If the pages cannot be read. No filter comes of a chunk of which something was not read.
    """
    with located(**chunk.place):
        num_blocks = size if isinstance(size, int) else _num_blocks(chunk, size)
        filter_ = SplitBlockBloomFilter(num_blocks, column_type=chunk.column.type)
        seen = 0
        for rows, values in hashes.read(chunk.row_group, chunk.column):
            filter_.insert_hashes(values)
            seen += rows
            advance(rows)
        if seen != num_rows:
            raise FormatError(f"the row group has {num_rows} rows, {seen} were read")
        if isinstance(size, int) or size.ndv is not None:
            return filter_
        return filter_.fold(fpp=size.fpp)


def _num_blocks(chunk: ColumnChunk, options: BloomFilterOptions) -> int:
    ndv = options.ndv
    if ndv is None:  # room for every value, to be folded
        found = chunk.statistics
        ndv = max(0, (found.num_values or 0) - (found.null_count or 0))
    max_blocks = (options.max_bytes or MAX_BYTES) // BYTES_PER_BLOCK
    return num_blocks_for(ndv, options.fpp, max_blocks=max_blocks)
