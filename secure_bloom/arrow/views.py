"""Rows of batches with string or binary views, which Arrow 26 cannot filter."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.leaves import with_leaf_types
from secure_bloom.sbbf.light_arrow import filter_rows


def filtered(batch: pa.RecordBatch, rows: pa.BooleanArray) -> pa.RecordBatch:
    """Return the rows of a batch for which a mask without nulls is true; the schema is kept."""
    if rows.true_count == len(rows):
        return batch
    schema = batch.schema
    plain = pa.schema([field.with_type(without_views(field.type)) for field in schema])
    try:
        if plain.equals(schema):
            return filter_rows(batch, rows)
        return batch.cast(plain).filter(rows).cast(schema)
    except pa.ArrowNotImplementedError:
        # Views in list views cannot be cast either. Slices keep the memory of all rows.
        return pa.concat_batches([batch.slice(0, 0), *_runs(batch, rows)])


def _runs(batch: pa.RecordBatch, rows: pa.BooleanArray) -> list[pa.RecordBatch]:
    """Return slices of adjacent rows for which a mask is true."""
    mask = rows.to_numpy(zero_copy_only=False)
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)).tolist()
    return [batch.slice(start, end - start)
            for start, end in zip(edges[::2], edges[1::2], strict=True)]


def without_views(t: pa.DataType) -> pa.DataType:
    """Return the type with large strings and binaries instead of views, at every depth."""
    return with_leaf_types(t, _without_view)


def _without_view(t: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(t):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(t) else t
