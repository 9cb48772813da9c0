"""Floating-point columns with NaN, which get no column index.

Arrow C++ leaves NaN out of the bounds of a page. Spark's own reader and DataFusion take NaN for the
greatest number but skip pages by these bounds, so ``x > 5`` would lose rows. parquet-java writes no
column index for a column chunk with NaN either.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom.arrow.leaves import contains, leaf_arrays, leaf_types


def leaves_with_nan(table: pa.Table) -> set[int]:
    """Return the ordinals of the leaf columns that have a NaN."""
    found: set[int] = set()
    first = 0
    for column in table.columns:
        if contains(column.type, _is_floating):
            for chunk in column.chunks:
                found.update(first + number for number, leaf in enumerate(leaf_arrays(chunk))
                             if _is_floating(leaf.type) and _has_nan(leaf))
        first += len(leaf_types(column.type))
    return found


def _is_floating(t: pa.DataType) -> bool:
    return pa.types.is_floating(t) or (pa.types.is_dictionary(t)
                                       and pa.types.is_floating(t.value_type))


def _has_nan(leaf: pa.Array) -> bool:
    values = leaf.dictionary if pa.types.is_dictionary(leaf.type) else leaf
    return bool(pc.any(pc.is_nan(values)).as_py())
