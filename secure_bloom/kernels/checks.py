"""What is checked before compiled code gets the address of an array.

Raises ValueError: it would be a fault of secure_bloom, or arrays of Arrow that are invalid.
"""

from __future__ import annotations

import numpy as np

MAX_BLOCKS = 2**32 - 1  #: the block of a hash is computed from 32 bits


def readable(array: np.ndarray, *kinds: type, rows: int | None = None, columns: int = 0) \
        -> np.ndarray:
    """Return an input array, contiguous and aligned; it is copied only if it is not.

    Parameters
    ----------
    kinds : type
        The dtypes that are allowed.
    rows : int, optional
        The length of the first dimension.
    columns : int
        The length of the second dimension; 0 if there is only one.
    """
    _check(array, kinds, rows, columns)
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def writable(array: np.ndarray, kind: type, rows: int | None = None, columns: int = 0) -> None:
    """Check an output array."""
    _check(array, (kind,), rows, columns)
    if not array.flags.carray:  # contiguous, aligned and writable
        raise ValueError("an output array is read-only, or not contiguous and aligned")


def filter_words(words: np.ndarray) -> None:
    """Check the shape of a filter: without blocks, every hash would lie outside."""
    if not 1 <= words.shape[0] <= MAX_BLOCKS:
        raise ValueError(f"a filter of {words.shape[0]} blocks")


def _check(array: np.ndarray, kinds: tuple[type, ...], rows: int | None, columns: int) -> None:
    if array.dtype not in kinds:
        raise ValueError(f"an array of {array.dtype}, not {kinds[0].__name__}")
    shape = array.shape
    if len(shape) != (2 if columns else 1) or (columns and shape[1] != columns) \
            or (rows is not None and shape[0] != rows):
        raise ValueError(f"an array of shape {shape}, not ({'n' if rows is None else rows}"
                         f"{f', {columns}' if columns else ''})")
