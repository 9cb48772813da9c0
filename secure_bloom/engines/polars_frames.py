"""Arrow rows as data frames of Polars."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from secure_bloom.arrow.leaves import with_leaf_types

_MAX_DIGITS = 38  # of decimal128


def as_frame(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """Return rows as a data frame.

    Polars reads every decimal as if it had 128 bits, also beyond the end of the buffer. So others
    are converted first.
    """
    schema = pa.schema([field.with_type(with_leaf_types(field.type, _decimal128))
                        for field in rows.schema], rows.schema.metadata)
    frame = pl.from_arrow(rows if schema.equals(rows.schema) else rows.cast(schema))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _decimal128(t: pa.DataType) -> pa.DataType:
    """Return the type, or decimal128 for a decimal; raise ArrowNotImplementedError if too long."""
    if pa.types.is_dictionary(t):
        return _decimal128(t.value_type) if pa.types.is_decimal(t.value_type) else t
    if not pa.types.is_decimal(t):
        return t
    if t.precision > _MAX_DIGITS:
        raise pa.ArrowNotImplementedError(f"decimals of {t.precision} digits")
    return pa.decimal128(t.precision, t.scale)
