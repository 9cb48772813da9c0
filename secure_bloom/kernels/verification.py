"""A quick test of compiled kernels: each function once, against numpy or a known result."""

from __future__ import annotations

from typing import Any

import numpy as np

from secure_bloom.kernels import vectorized

_COUNT = 300  #: several vectors and batches, and a remainder
_SMALL, _LARGE = 3, (1 << 15) + 1  #: blocks of filters, without and with prefetching
_CHUNK = bytes.fromhex("3c 1602 163c 11 00 00")  # a ColumnChunk, its metadata with fields 1 to 3
_PATCHED = bytes.fromhex("3c 1602 163c 11 b608 150a 00 00")  # with a filter: offset 4, length 5


def verify(raw: Any) -> str | None:
    """Return the name of a function with a wrong result; None if all are right."""
    for name, test in _TESTS.items():
        if not test(raw):
            return name
    return None


def _noise(count: int, kind: type) -> np.ndarray:
    """Return fixed numbers that use all bits: multiples of an odd number."""
    multiples = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (multiples ^ (multiples >> np.uint64(29))).astype(kind)


def _hash_words(raw: Any) -> bool:
    each = [_noise(_COUNT, kind) for kind in (np.uint32, np.uint64)]
    return all(_same(lambda way, out, values=values: way.hash_words(values, out), raw)
               for values in each)


def _hash_fixed(raw: Any) -> bool:
    data = _noise(5 * _COUNT, np.uint64).view(np.uint8)
    return _same(lambda way, out: way.hash_fixed(data, 37, out), raw)


def _hash_binary(raw: Any) -> bool:
    """Test strings of several lengths, strings of one length, and invalid offsets."""
    data = _noise(5 * _COUNT, np.uint64).view(np.uint8)
    lengths = np.array([3, 13, 39])[_noise(_COUNT, np.uint64) % np.uint64(3)]
    for kind in (np.int32, np.int64):
        for each in (lengths, np.full(_COUNT, 12)):
            offsets = np.cumsum([1, *each]).astype(kind)
            if not _same(lambda way, out, at=offsets: way.hash_binary(at, data, out), raw):
                return False
        if raw.hash_binary(offsets[::-1].copy(), data, np.empty(_COUNT, np.uint64)) != -1:
            return False
    return True


def _insert(raw: Any) -> bool:
    for blocks, kind, hashed in ((_SMALL, np.uint64, True), (_SMALL, np.uint64, False),
                                 (_SMALL, np.uint32, False), (_LARGE, np.uint64, True)):
        found, expected = np.zeros((2, blocks, 8), np.uint32)
        values = _noise(_COUNT, kind)
        raw.insert(found, values, hashed)
        (vectorized.insert_hashes if hashed else vectorized.insert_words)(expected, values)
        if not np.array_equal(found, expected):
            return False
    return True


def _check(raw: Any) -> bool:
    values = _noise(_COUNT, np.uint64)
    for blocks in (_SMALL, _LARGE):
        words = np.zeros((blocks, 8), np.uint32)
        vectorized.insert_hashes(words, values[:10])
        found, expected = np.zeros((2, _COUNT), bool)
        raw.check(words, values, found)
        vectorized.check_hashes(words, values, expected)
        if not np.array_equal(found, expected):
            return False
    return True


def _sort(raw: Any) -> bool:
    for count in (_COUNT, (1 << 16) + 1):  # one part, and several
        expected = np.arange(count, dtype=np.uint64) << np.uint64(47)
        values = expected[::-1].copy()
        if raw.sort(values, np.empty_like(values), 0) or not np.array_equal(values, expected):
            return False
    return True


def _distribute(raw: Any) -> bool:
    values = _noise(_COUNT, np.uint64)
    expected, found, ends = (np.empty(count, np.uint64) for count in (_COUNT, _COUNT, 256))
    bounds = vectorized.distribute(values, expected)
    raw.distribute(values, found, ends)
    return np.array_equal(found, expected) and np.array_equal(ends, bounds[1:])


def _gather_and_scatter(raw: Any) -> bool:
    values, found = _noise(_COUNT, np.uint64), np.zeros(2 * _COUNT, np.uint64)
    bounds = np.array([5, 5, 8, 100, _COUNT], np.uint64)
    places = values.ctypes.data + 8 * bounds
    raw.gather(places[:-1], places[1:], found[:_COUNT - 5])
    raw.scatter(values[:200], *(found.ctypes.data + 8 * (_COUNT + one)
                                for one in (bounds[:-1], bounds[1:])))
    return np.array_equal(found[:_COUNT - 5], values[5:]) \
        and np.array_equal(found[_COUNT + 5:][:200], values[:200]) and not found[-95:].any()


def _unite(raw: Any) -> bool:
    values = np.sort(_noise(_COUNT, np.uint64) % np.uint64(2 * _COUNT))
    for range_bits in (0, 6):
        found, expected = values.copy(), values.copy()
        left = vectorized.unite(expected, range_bits)
        if raw.unite(found, range_bits) != left or not np.array_equal(found[:left],
                                                                      expected[:left]):
            return False
    return True


def _narrow(raw: Any) -> bool:
    found = _noise(_COUNT, np.uint64)
    expected = found.copy()
    raw.narrow(found, 26, 6, 3)
    vectorized.narrow(expected, 26, 6, 3)
    return np.array_equal(found, expected)


def _encode_pages(raw: Any) -> bool:
    bits = 7, 27, 20, 26  # of bucket, remainder, place, and everything below the remainder
    pairs = np.sort(_noise(_COUNT, np.uint64))
    starts = np.append(np.searchsorted(pairs, np.arange(16, dtype=np.uint64) << np.uint64(60)),
                       _COUNT)
    for width in (6, 8):
        expected, ends = vectorized.encode_pages(pairs, starts, width, *bits)
        found, found_ends = np.zeros(expected.size + 8, np.uint8), np.zeros_like(ends)
        raw.encode_pages(pairs, starts, found, found_ends, width, *bits)
        if not np.array_equal(found[:-8], expected) or not np.array_equal(found_ends, ends):
            return False
    return True


def _footers(raw: Any) -> bool:
    size = len(_CHUNK)
    ends, table = np.zeros(2, np.int64), np.zeros((4, 4), np.int64)
    raw.struct_ends(_CHUNK * 2, 0, ends)
    if ends.tolist() != [size, 2 * size]:
        return False
    if raw.fields(_CHUNK, table) != 1 or table[0].tolist() != [3, 12, 1, size - 1]:
        return False
    bounds, places = np.array([0, size, 2 * size]), np.array([[4, 5], [4, 5]])
    out = np.zeros(2 * size + 64, np.uint8)
    raw.with_bloom_filters(_CHUNK * 2, bounds, places, out, ends)
    if ends.tolist() != [len(_PATCHED), 2 * len(_PATCHED)]:
        return False
    return raw.fields(_CHUNK[:-1], table) == -1 and out[:ends[1]].tobytes() == 2 * _PATCHED


_TESTS = {"hash_words": _hash_words, "hash_fixed": _hash_fixed, "hash_binary": _hash_binary,
          "insert": _insert, "check": _check, "sort": _sort, "distribute": _distribute,
          "gather": _gather_and_scatter, "unite": _unite, "narrow": _narrow,
          "encode_pages": _encode_pages, "footers": _footers}


def _same(hash_all: Any, raw: Any) -> bool:
    found, expected = np.zeros((2, _COUNT), np.uint64)
    hash_all(raw, found)
    hash_all(vectorized, expected)
    return np.array_equal(found, expected)
