"""Convert a caller's values to hashes for insertion or lookup, never causing a false "absent".

Equality of values differs from equality of bytes, so a probe value may need several hashes, or
the filter may be unable to answer:

- 0.0 equals -0.0, which has different bytes: both are looked up;
- NaN has many bit patterns: the answer is "perhaps";
- null is never inserted: the answer is "perhaps";
- if a value of the logical type has several encodings, or an unknown one, only bytes and integers
  that are given as they are stored can be looked up;
- a value without a certain counterpart in the column's type
  (:func:`secure_bloom.sbbf.conversion.convert_exactly`): the answer is "perhaps".
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

from secure_bloom.errors import ColumnError
from secure_bloom.sbbf.arrow_types import column_type_of, plain_type, storage_array
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.conversion import convert_exactly
from secure_bloom.sbbf.hashing import hash_values
from secure_bloom.sbbf.scalars import plain_value

_FIRST_PART = 1024  # hashes
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary,
          pa.types.is_binary_view)
_TEXT_AND_BYTES = (pa.string(), pa.binary())
_SCALARS = (str, bytes, bytearray, memoryview, int, float, np.generic, pa.Scalar, uuid.UUID)


class HashFilter(Protocol):
    """What is asked of a filter: :class:`secure_bloom.SplitBlockBloomFilter`."""

    column_type: ColumnType | None

    @property
    def is_empty(self) -> bool: ...

    def check_hash(self, value: int) -> bool: ...

    def check_hashes(self, hashes: np.ndarray) -> np.ndarray: ...


def insertable(filter_: HashFilter, values: object) \
        -> Iterator[tuple[pa.Array, ColumnType]]:
    """Yield the non-null values, converted to the filter's column type, and that type.

    Sets the filter's type if it has none.
    """
    for array in as_arrays(values, strict=True):
        if pa.types.is_null(array.type):
            continue
        if filter_.column_type is None:
            filter_.column_type = _first_type(filter_, array.type)
        column_type = filter_.column_type
        array = storage_array(array)
        if pa.types.is_dictionary(array.type):
            array = storage_array(array.dictionary_decode())
        array = array.drop_null()
        converted = convert_exactly(array, column_type) if column_type.can_have_filter else None
        if converted is None or converted.null_count:
            raise ColumnError(f"values of type {plain_type(array.type)} cannot be looked up in a "
                              f"filter of {column_type}")
        yield converted, column_type


_DEFAULTS = {int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}


def _first_type(filter_: HashFilter, arrow_type: pa.DataType) -> ColumnType:
    """Derive the type of an untyped filter from the first values inserted."""
    if not filter_.is_empty:
        raise ColumnError("the filter contains values of an unknown type, and equal values of "
                          "different types have different hashes: pass column_type to the "
                          "constructor or from_bitset, or use hashes")
    return column_type_of(arrow_type)


def check_values(filter_: HashFilter, values: object) -> bool | np.ndarray:
    """See :meth:`secure_bloom.SplitBlockBloomFilter.check`."""
    if type(values) in _DEFAULTS:
        column_type = filter_.column_type or _first_type(filter_, _DEFAULTS[type(values)])
        value_hash = plain_hash(values, column_type)
        if value_hash is not None:
            return filter_.check_hash(value_hash)
    answers = [_check(filter_, array) for array in as_arrays(values)]
    if is_scalar(values):
        return bool(answers[0][0])
    return np.concatenate([np.empty(0, bool), *answers])


def plain_hash(value: Any, column_type: ColumnType) -> int | None:
    """Return the hash of a Python value of common types; None: as for :func:`stored_bytes`."""
    stored = stored_bytes(value, column_type) if type(value) in _DEFAULTS else None
    return None if stored is None else xxh64_intdigest(stored)


def stored_bytes(value: Any, column_type: ColumnType) -> bytes | None:
    """Encode a plain Python value that the column can certainly hold; None otherwise.

    pyarrow would import pandas for any Python value, which takes longer than the rest of a lookup.
    """
    physical_type, arrow_type = column_type.physical_type, column_type.arrow_type
    if arrow_type is None:
        return None
    if type(value) is int and pa.types.is_integer(arrow_type):
        signed, bits = pa.types.is_signed_integer(arrow_type), arrow_type.bit_width
        low, high = (-2**(bits - 1) if signed else 0), 2**min(bits - signed, 63)
        return value.to_bytes(column_type.width or 0, "little", signed=signed) \
            if low <= value < high else None
    if type(value) is float and physical_type == "DOUBLE":
        return struct.pack("<d", value) if value < 0 or value > 0 else None  # neither zero nor NaN
    if type(value) in (str, bytes) and arrow_type in _TEXT_AND_BYTES:
        with suppress(UnicodeEncodeError):
            return value.encode() if isinstance(value, str) else value
    return None


def _check(filter_: HashFilter, array: pa.Array) -> np.ndarray:
    column_type = filter_.column_type
    if column_type is None and not pa.types.is_null(array.type):
        column_type = _first_type(filter_, array.type)
    return _Hashed(array, column_type).check(filter_)


class Probes:
    """Values to look up in many filters of one column type; they are hashed once.

    Parameters
    ----------
    values : scalar, sequence, or Arrow array
    column_type : ColumnType
    """

    def __init__(self, values: object, column_type: ColumnType):
        self._arrays = [_Hashed(array, column_type) for array in as_arrays(values)]

    def __len__(self) -> int:
        return sum(array.size for array in self._arrays)

    def check(self, filter_: HashFilter) -> np.ndarray:
        """Return for each value whether a filter may hold it; bool."""
        answers = [array.check(filter_) for array in self._arrays]
        return np.concatenate([np.empty(0, bool), *answers])

    def check_any(self, filter_: HashFilter) -> bool:
        """Return whether a filter may hold one of the values."""
        return any(array.check_any(filter_) for array in self._arrays)


class _Hashed:
    """The hashes of an array, for filters of a column type."""

    def __init__(self, array: pa.Array, column_type: ColumnType | None):
        self.size = len(array)
        self._known: np.ndarray | None  # which values a filter can answer for; None: all
        if column_type is not None and column_type.is_opaque:
            column_type = _if_stored(array.type, column_type)
        if column_type is None or not column_type.can_have_filter:
            self._known = np.zeros(len(array), dtype=bool)
            self._hashes = self._zero_hashes = np.empty(0, dtype=np.uint64)
            return
        converted = convert_exactly(array, column_type)
        self._known = known_values(converted)
        if self._known is not None:
            converted = converted.filter(pa.array(self._known))
        self._hashes = hash_values(converted, column_type)
        self._zeros, self._zero_hashes = zero_hashes(converted, column_type)

    def check(self, filter_: HashFilter) -> np.ndarray:
        known = filter_.check_hashes(self._hashes)
        if self._zero_hashes.size:
            known[self._zeros] = filter_.check_hashes(self._zero_hashes).any()
        if self._known is None:
            return known
        answers = np.ones(self.size, dtype=bool)
        answers[self._known] = known
        return answers

    def by_value(self) -> ValueHashes:
        """Return the hashes with the positions of their values."""
        numbers, unknown = np.arange(self.size), np.empty(0, np.int64)
        if self._known is not None:
            numbers, unknown = numbers[self._known], numbers[~self._known]
        hashes, of_zeros = self._hashes, self._zero_hashes
        if of_zeros.size:
            zeros = numbers[self._zeros]
            hashes = np.concatenate([hashes, np.tile(of_zeros, zeros.size)])
            numbers = np.concatenate([numbers, np.repeat(zeros, of_zeros.size)])
        return ValueHashes(hashes, numbers, unknown)

    def check_any(self, filter_: HashFilter) -> bool:
        if self._known is not None and not self._known.all():
            return True
        return any(filter_.check_hashes(part).any()
                   for part in (self._zero_hashes, *_parts(self._hashes)))


def _if_stored(t: pa.DataType, column_type: ColumnType) -> ColumnType | None:
    """Return the physical type of an opaque column if it stores values of this type as they are."""
    if column_type.physical_type in ("INT32", "INT64"):
        is_stored = pa.types.is_integer(t)
    else:
        is_stored = any(is_kind(t) for is_kind in _BYTES)
    return column_type.without_annotation if is_stored else None


class ValueHashes(NamedTuple):
    """The hashes of some values, of which one must be present if the value is.

    Attributes
    ----------
    hashes : uint64 array
    numbers : int64 array
        For each hash the position of its value. A zero has two hashes.
    unknown : int64 array
        Positions of the values for which hashes cannot answer.
    """

    hashes: np.ndarray
    numbers: np.ndarray
    unknown: np.ndarray


def value_hashes(values: object, column_type: ColumnType) -> ValueHashes:
    """Hash values of any form as a column of this type stores them."""
    few = values if isinstance(values, list) and len(values) <= _FEW else [values]
    known = [plain_hash(value, column_type) for value in few]
    if None not in known:
        return ValueHashes(np.array(known, np.uint64), np.arange(len(known)),
                           np.empty(0, np.int64))
    parts, start = [], 0
    for array in as_arrays(values):
        hashes, numbers, unknown = _Hashed(array, column_type).by_value()
        parts.append((hashes, numbers + start, unknown + start))
        start += len(array)
    if len(parts) == 1:
        return ValueHashes(*parts[0])
    empty = np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64)
    return ValueHashes(*map(np.concatenate, zip(empty, *parts, strict=True)))


def _parts(hashes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a few hashes, then more of them: the first may be enough."""
    start, size = 0, _FIRST_PART
    while start < hashes.size:
        yield hashes[start:start + size]
        start, size = start + size, 4 * size


def known_values(array: pa.Array) -> np.ndarray | None:
    """Return which values a filter can answer for; None means all of them."""
    if pa.types.is_floating(array.type):
        return ~np.isnan(array.to_numpy(zero_copy_only=False))  # null is converted to NaN
    if array.null_count == 0:
        return None
    return array.is_valid().to_numpy(zero_copy_only=False)


def zero_hashes(array: pa.Array, column_type: ColumnType) -> tuple[np.ndarray, np.ndarray]:
    """Return which values are signed zeros (bool), and the hashes of both zeros.

    No hashes if there is no such value. The array has no nulls, and has the column's type.
    """
    if pa.types.is_floating(array.type):
        zeros = array.to_numpy(zero_copy_only=False) == 0
        if zeros.any():
            both = np.array([0.0, -0.0], dtype=array.type.to_pandas_dtype())
            return zeros, hash_values(pa.array(both), column_type)
    return np.zeros(len(array), dtype=bool), np.empty(0, dtype=np.uint64)


def is_scalar(values: object) -> bool:
    """Whether this is a single value rather than many."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return False
    return values is None or isinstance(values, _SCALARS) or not hasattr(values, "__iter__")


def is_plain(values: Iterable[object]) -> bool:
    """Whether all values are None, or of Python's types for numbers, texts and bytes."""
    return _SIMPLE.issuperset(map(type, values))


def as_arrays(values: Any, *, strict: bool = False) -> list[pa.Array]:
    """Return values of any form as Arrow arrays, in order; a scalar as one array of length 1.

    Python values without a common Arrow type become arrays of one element each, and values unknown
    to Arrow become null; with ``strict`` both raise :class:`ColumnError`.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.chunks
    if isinstance(values, pa.Array):
        return [values]
    if isinstance(values, np.ndarray) and values.dtype != object:
        if (array := _infer(values)) is not None:
            return [array]
        values = values.tolist()  # of a kind that Arrow rejects, such as 0-d or big-endian
    values = [values] if is_scalar(values) else list(values)
    if not is_plain(values):
        values = [_plain(value) for value in values]
        if _may_crash(values):
            values = [_without_numpy(value) for value in values]
    if (array := _infer(values)) is not None:
        return [array]
    if strict:
        raise ColumnError("these values have no common Arrow type")
    return [_infer([value]) or pa.nulls(1) for value in values]


def _infer(values: list[Any] | np.ndarray) -> pa.Array | None:
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None


_SIMPLE = frozenset((type(None), bool, int, float, str, bytes))
_FEW = 16  # values, for which arrays would take longer
_UNKNOWN = object()  # a value without an Arrow counterpart


def _plain(value: object) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, np.generic | pa.Scalar):
        return value
    return plain_value(value) if is_scalar(value) else _UNKNOWN


def _may_crash(values: list[Any]) -> bool:
    """Whether pyarrow may crash, which it does on NumPy times mixed with other NumPy values."""
    types = {value.dtype for value in values if isinstance(value, np.generic)}
    return len(types) > 1 and any(dtype.kind in "mM" for dtype in types)


def _without_numpy(value: object) -> Any:
    value = plain_value(value)
    return _UNKNOWN if isinstance(value, np.generic) else value
