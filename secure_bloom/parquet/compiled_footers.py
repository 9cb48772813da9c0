"""Compiled functions for large footers, with checks of what they are given.

They are equivalent to :mod:`secure_bloom.parquet.thrift`, and return -1 for input that is invalid,
or too rare to justify the code; the Python implementation then does the work or reports the error.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from secure_bloom.kernels.checks import readable, writable
from secure_bloom.sbbf.kernel_choice import chosen

ROOM = 32  #: bytes that :meth:`CompiledFooters.with_bloom_filters` may add to each column chunk


class CompiledFooters:
    """The functions of :mod:`secure_bloom.parquet.footer_kernels`.

    Parameters
    ----------
    raw : object
        That module, or :class:`~secure_bloom.kernels.native.Native`.
    """

    def __init__(self, raw: Any):
        self.raw = raw

    def struct_ends(self, data: bytes, position: int, ends: np.ndarray) -> None:
        """Find the end of each of ``ends.size`` consecutive structures that begin at a position.

        ``ends`` (int64) receives the positions; the last one is -1 if anything is invalid.
        """
        writable(ends, np.int64)
        if not 0 <= position <= len(data):
            raise ValueError(f"position {position} of {len(data)} bytes")
        self.raw.struct_ends(bytes(data), position, ends)

    def fields(self, data: bytes, table: np.ndarray) -> tuple[int, int]:
        """Find the fields of the structure with which ``data`` begins.

        Parameters
        ----------
        data : bytes
        table : int64 array, shape (n, 4)
            Receives id, type, start and end of each field.

        Returns
        -------
        int, int
            The number of fields, and where the structure ends; -1, -1 if anything is invalid,
            there are more than n fields, or they are not ordered by id.
        """
        writable(table, np.int64, columns=4)
        count = self.raw.fields(bytes(data), table)
        if count < 0:
            return -1, -1
        return count, (int(table[count - 1, 3]) if count else 0) + 1

    def with_bloom_filters(self, data: bytes, bounds: np.ndarray, places: np.ndarray,
                           out: np.ndarray, ends: np.ndarray) -> None:
        """Write column chunks with the positions of their Bloom filters.

        Parameters
        ----------
        data : bytes
            ColumnChunks of plaintext columns, without crypto metadata, stored consecutively.
        bounds : int64 array, shape (n + 1,)
            Where each begins, and where the last one ends.
        places : int64 array, shape (n, 2)
            Offset and length of each filter; a chunk with a negative offset is only copied.
        out : uint8 array
            Receives the new bytes, at most :data:`ROOM` more per chunk than the old ones.
        ends : int64 array, shape (n,)
            Receives the end of each chunk; -1 for anything that is not such a column chunk, for
            which no bytes are written.
        """
        writable(ends, np.int64)
        writable(out, np.uint8)
        bounds = readable(bounds, np.int64, rows=ends.size + 1)
        places = readable(places, np.int64, rows=ends.size, columns=2)
        if not 0 <= bounds[0] <= bounds[-1] <= len(data) or np.any(bounds[1:] < bounds[:-1]):
            raise ValueError("the bounds of column chunks are invalid")
        if out.size < bounds[-1] - bounds[0] + ROOM * ends.size:
            raise ValueError(f"{out.size} bytes are not enough for {ends.size} column chunks")
        self.raw.with_bloom_filters(bytes(data), bounds, places, out, ends)


@functools.cache
def compiled_footers() -> CompiledFooters | None:
    """Return the compiled functions of this process; None if it has none."""
    choice = chosen()
    if choice.name == "numba":
        from secure_bloom.parquet import footer_kernels
        return CompiledFooters(footer_kernels)
    return None if choice.raw is None else CompiledFooters(choice.raw)
