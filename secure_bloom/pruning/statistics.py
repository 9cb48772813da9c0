"""What a column chunk's statistics tell about a predicate: minimum, maximum, null count.

As with Bloom filters, the answer is "perhaps" unless it is certain in every engine that no row
matches. Statistics do not include NaN, which is greater than every other number: an upper bound of
a floating-point column therefore rules nothing out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any

import pyarrow as pa

from secure_bloom.parquet.column_chunk import RawStatistics
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.pruning.predicates import Predicate
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
        return any(_may_equal(probe, statistics, column.type) for probe in predicate.candidates)
    if op in _BELOW:
        return _may_compare(_BELOW[op], bound(statistics.minimum, column.type), value, column.type)
    if op in _ABOVE and not _is_float(column.type):
        return _may_compare(_ABOVE[op], bound(statistics.maximum, column.type), value, column.type)
    return True


_BELOW = {"<": lt, "<=": le}
_ABOVE = {">": gt, ">=": ge}


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
    t = column_type.arrow_type
    if column_type.physical_type == "BOOLEAN":
        return value if isinstance(value, bool) else None
    if t is None or column_type.physical_type == "INT96" or pa.types.is_float16(t):
        return None
    if stored_bytes(value, column_type) is not None:
        return value.encode() if isinstance(value, str) else value
    array = as_arrays([value])[0]
    if pa.types.is_null(array.type):
        return None
    array = convert_exactly(array, column_type)
    if array.null_count:
        return None
    if pa.types.is_temporal(t):
        array = array.view(pa.int32() if t.bit_width == 32 else pa.int64())
    found = array[0].as_py()
    if pa.types.is_decimal(t):
        sign, digits, _ = found.as_tuple()  # the exponent is the scale of the column
        return (-1 if sign else 1) * int("".join(map(str, digits)))
    if isinstance(found, str):
        return found.encode()
    return None if found != found else found


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
