"""What a column chunk's statistics tell about a predicate: minimum, maximum, null count.

As with Bloom filters, the answer is "perhaps" unless it is certain in every engine that no row
matches. Statistics do not include NaN, which is greater than every other number: an upper bound of
a floating-point column therefore rules nothing out.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable
from decimal import Decimal
from itertools import chain
from operator import ge, gt, le, lt
from typing import Any

import pyarrow as pa

from secure_bloom.parquet.chunk_states import RawStatistics
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.pruning.value_list import ValueList
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.conversion import convert_exactly
from secure_bloom.sbbf.probes import as_arrays, stored_bytes

Ordered = int | float | bytes  #: a value in a form that sorts in the column's order


def may_hold(predicate: Predicate, statistics: RawStatistics, column: LeafColumn) -> bool:
    """Whether a predicate may hold for a value of a column chunk with these statistics."""
    nulls = statistics.null_count
    only_nulls = nulls is not None and nulls == statistics.num_values
    op, value = predicate.op, predicate.value
    if op == "is null" or (op == "<=>" and value is None):
        # For dictionaries in structs Arrow writes a null count of 0, ignoring nulls of the structs.
        return column.is_repeated or len(column.parts) > 1 or nulls != 0
    if op == "not in":
        return not value or (not only_nulls and None not in value)
    if only_nulls or (value is None and op != "is not null"):
        return False
    if predicate.candidates is not None:
        return _may_equal_any(predicate.candidates, statistics, column.type)
    if op in _BELOW:
        return _may_compare(_BELOW[op], bound(statistics.minimum, column.type), value, column.type)
    if op in _ABOVE and not _is_float(column.type):
        return _may_compare(_ABOVE[op], bound(statistics.maximum, column.type), value, column.type)
    return True


_BELOW = {"<": lt, "<=": le}
_ABOVE = {">": gt, ">=": ge}


def _may_equal_any(values: list[Any], statistics: RawStatistics, column_type: ColumnType) -> bool:
    if not isinstance(values, ValueList) or not values.is_long:
        return any(_may_equal(value, statistics, column_type) for value in values)
    places = values.derived(_sorted_places, column_type)
    if places is None:
        return True
    low, high = bound(statistics.minimum, column_type), bound(statistics.maximum, column_type)
    first = 0 if low is None else bisect_left(places, low)
    return first < len(places) and (high is None or le(places[first], high))


def _sorted_places(values: list[Any], column_type: ColumnType) -> list[Any] | None:
    """Return values in the order of a column; None if one of them has no certain place in it."""
    arrays = as_arrays(values)
    found = [_ordered_array(array, column_type) for array in arrays]
    if None in found:
        return None
    return sorted(chain.from_iterable(filter(None, found)))


def _may_equal(value: object, statistics: RawStatistics, column_type: ColumnType) -> bool:
    return (_may_compare(le, bound(statistics.minimum, column_type), value, column_type)
            and _may_compare(ge, bound(statistics.maximum, column_type), value, column_type))


def _may_compare(compare: Callable[[Any, Any], bool], limit: Ordered | None, value: object,
                 column_type: ColumnType) -> bool:
    if limit is None or (probe := ordered(value, column_type)) is None:
        return True
    # The probe may have been rounded to a narrower float, so it may equal the limit.
    return compare(limit, probe) or (_is_float(column_type) and limit == probe)


def _is_float(column_type: ColumnType) -> bool:
    return column_type.arrow_type is not None and pa.types.is_floating(column_type.arrow_type)


def ordered(value: Any, column_type: ColumnType) -> Ordered | None:
    """Convert a probe value to an ordered form; None if the column has no certain counterpart."""
    if column_type.physical_type == "BOOLEAN":
        return value if isinstance(value, bool) else None
    if _has_order(column_type) and stored_bytes(value, column_type) is not None:
        return value.encode() if isinstance(value, str) else value
    found = _ordered_array(as_arrays([value])[0], column_type)
    return None if found is None else found[0]


def _has_order(column_type: ColumnType) -> bool:
    t = column_type.arrow_type
    return t is not None and column_type.physical_type != "INT96" and not pa.types.is_float16(t)


def _ordered_array(array: pa.Array, column_type: ColumnType) -> list[Ordered] | None:
    """Convert an array as :func:`ordered` does; None if one value has no certain counterpart."""
    t = column_type.arrow_type
    if pa.types.is_null(array.type) or t is None or not _has_order(column_type):
        return None
    array = convert_exactly(array, column_type)
    if array.null_count:
        return None
    if pa.types.is_temporal(t):
        array = array.view(pa.int32() if t.bit_width == 32 else pa.int64())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary())
    found = array.to_pylist()
    if pa.types.is_decimal(t):
        return list(map(_unscaled, found))
    return None if any(value != value for value in found) else found


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()  # the exponent is the scale of the column
    return (-1 if sign else 1) * int("".join(map(str, digits)))


def bound(raw: bytes | None, column_type: ColumnType) -> Ordered | None:
    """Decode a minimum or maximum from the footer; None if it cannot be used."""
    t, physical = column_type.arrow_type, column_type.physical_type
    if physical == "BOOLEAN":
        return None if raw is None else {b"\0": False, b"\1": True}.get(raw)
    if raw is None or t is None or pa.types.is_float16(t):
        return None
    if physical == "BYTE_ARRAY":
        return raw
    if len(raw) != column_type.width or physical == "INT96":
        return None
    if physical == "FIXED_LEN_BYTE_ARRAY":
        return int.from_bytes(raw, "big", signed=True) if pa.types.is_decimal(t) else raw
    if pa.types.is_floating(t):
        [number] = struct.unpack("<f" if physical == "FLOAT" else "<d", raw)
        return None if number != number else number
    return int.from_bytes(raw, "little", signed=not pa.types.is_unsigned_integer(t))
