"""Kernels that numba compiles at their first use. Importing this module imports numba."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from secure_bloom.kernels import blocks, hashing, pairs, sorting


def hash_words(values: np.ndarray, out: np.ndarray) -> None:
    """See :func:`secure_bloom.kernels.hashing.hash_words`."""
    hashing.hash_words(_readonly(values), out)


def hash_fixed(data: np.ndarray, width: int, out: np.ndarray) -> None:
    """See :func:`secure_bloom.kernels.hashing.hash_fixed`."""
    hashing.hash_fixed(_readonly(data), width, out)


def hash_binary(offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> int:
    """See :func:`secure_bloom.kernels.hashing.hash_binary`."""
    return int(hashing.hash_binary(_readonly(offsets), _readonly(data), out))


def insert(words: np.ndarray, values: np.ndarray, hashed: bool) -> None:
    """See :func:`secure_bloom.kernels.blocks.insert`."""
    blocks.insert(words, _readonly(values), hashed)


def check(words: np.ndarray, asked: np.ndarray, out: np.ndarray) -> None:
    """See :func:`secure_bloom.kernels.blocks.check`."""
    blocks.check(_readonly(words), _readonly(asked), out)


def sort(values: np.ndarray, spare: np.ndarray, first_bit: int) -> int:
    """See :func:`secure_bloom.kernels.sorting.sort`."""
    return int(sorting.sort(values, spare, first_bit))


def distribute(values: np.ndarray, target: np.ndarray, ends: np.ndarray) -> None:
    """See :func:`secure_bloom.kernels.sorting.distribute`."""
    sorting.distribute(_readonly(values), target, ends)


def gather(starts: np.ndarray, stops: np.ndarray, target: np.ndarray) -> None:
    """See :func:`secure_bloom.kernels.sorting.gather`."""
    sorting.gather(_readonly(starts), _readonly(stops), target)


def scatter(source: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
    """See :func:`secure_bloom.kernels.sorting.scatter`."""
    sorting.scatter(_readonly(source), _readonly(starts), _readonly(stops))


def unite(values: np.ndarray, range_bits: int) -> int:
    """See :func:`secure_bloom.kernels.pairs.unite`."""
    return int(pairs.unite(values, range_bits))


def narrow(values: np.ndarray, *bits: int) -> None:
    """See :func:`secure_bloom.kernels.pairs.narrow`."""
    pairs.narrow(values, *bits)


def encode_pages(values: np.ndarray, starts: np.ndarray, out: np.ndarray, ends: np.ndarray,
                 *bits: int) -> None:
    """See :func:`secure_bloom.kernels.pairs.encode_pages`."""
    pairs.encode_pages(_readonly(values), _readonly(starts), out, ends, *bits)


def _readonly(array: np.ndarray) -> np.ndarray:
    """Return the array as read-only: otherwise numba would compile for both kinds."""
    array = array.view()
    array.flags.writeable = False
    return array


def to_warm_up(footers: Any) -> Iterator[Callable[[], object]]:
    """Yield calls that compile everything, or load it from the cache, kernel by kernel.

    ``footers`` is :mod:`secure_bloom.parquet.footer_kernels`.
    """
    out, words, data = np.empty(0, np.uint64), np.zeros((1, 8), np.uint32), np.empty(0, np.uint8)
    for kind in (np.uint32, np.uint64):
        yield partial(hash_words, np.empty(0, kind), out)
        yield partial(insert, words, np.empty(0, kind), False)
    for offsets in (np.zeros(1, np.int32), np.zeros(1, np.int64)):
        yield partial(hash_binary, offsets, data, out)
    yield partial(hash_fixed, data, 1, out)
    yield partial(check, words, out, np.empty(0, bool))
    yield partial(sort, out, out, 0)
    yield partial(distribute, out, out, np.empty(256, np.uint64))
    yield partial(gather, out, out, out)
    yield partial(scatter, out, out, out)
    yield partial(unite, out, 0)
    yield partial(narrow, out, 1, 1, 1)
    ends, places = np.empty(0, np.int64), np.empty((0, 2), np.int64)
    yield partial(encode_pages, out, ends, data, ends, 1, 1, 1, 1, 1)
    yield partial(footers.struct_ends, b"", 0, ends)
    yield partial(footers.fields, b"", np.empty((0, 4), np.int64))
    yield partial(footers.with_bloom_filters, b"", np.zeros(1, np.int64), places, data, ends)
