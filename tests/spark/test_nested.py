"""Nulls that exist only because the enclosing struct is null, without Spark."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom.errors import UnsupportedError
from secure_bloom.spark.schema.nested import without_hidden_nulls

INNER = pa.struct([pa.field("t", pa.string(), nullable=False), pa.field("n", pa.int64())])
OUTER = pa.struct([
    pa.field("i", pa.int32(), nullable=False), pa.field("in", INNER, nullable=False),
    pa.field("l", pa.list_(pa.field("element", INNER)), nullable=False),
    pa.field("m", pa.map_(pa.string(), INNER), nullable=False)])


def as_spark_sets_it(type_, value):
    """An array in which the fields of a null struct are null, all the way down."""
    if pa.types.is_struct(type_):
        children = [as_spark_sets_it(field.type, [v and v[field.name] for v in value])
                    for field in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_),
                                          mask=pa.array([v is None for v in value], pa.bool_()))
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        offsets, parts = [0], []
        for v in value:
            parts += v or []
            offsets.append(len(parts))
        mask = pa.array([v is None for v in value], pa.bool_())
        offsets = pa.array(offsets, pa.int32())
        if pa.types.is_list(type_):
            return pa.ListArray.from_arrays(offsets, as_spark_sets_it(type_.value_type, parts),
                                            type=type_, mask=mask)
        return pa.MapArray.from_arrays(
            offsets, pa.array([k for k, _ in parts], type_.key_type),
            as_spark_sets_it(type_.item_type, [v for _, v in parts]), type=type_, mask=mask)
    return pa.array(value, type_)


VALUE = {"i": 1, "in": {"t": "x", "n": None}, "l": [{"t": "y", "n": 2}, None],
         "m": [("k", None), ("j", {"t": "z", "n": 3})]}


@pytest.mark.parametrize("values", [[VALUE, None, VALUE], [None, None], [VALUE], []])
@pytest.mark.parametrize("around", ["nothing", "list", "map"])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_values_stay_and_pyarrow_writes_them(values, around, start):
    array = as_spark_sets_it(OUTER, values)
    offsets = pa.array([0, len(values), None, len(values)], pa.int32())
    if around == "list":
        array = pa.ListArray.from_arrays(offsets, array)
    if around == "map":
        keys = pa.array(range(len(values)), pa.int8())
        array = pa.MapArray.from_arrays(offsets, keys, array)
    batch = pa.RecordBatch.from_arrays([array], names=["s"]).slice(start)
    result = without_hidden_nulls(batch)
    result.validate(full=True)
    assert result.schema == batch.schema
    assert result.to_pylist() == batch.to_pylist()
    sink = io.BytesIO()
    pq.write_table(pa.table(result), sink)
    assert pq.read_table(sink).to_pylist() == batch.to_pylist()


def test_pyarrow_still_refuses_what_spark_passes():
    table = pa.table({"s": as_spark_sets_it(OUTER, [VALUE, None])})
    with pytest.raises(pa.ArrowInvalid, match="non-nullable but contains nulls"):
        pq.write_table(table, io.BytesIO())


def test_a_null_that_is_not_hidden_is_refused():
    array = pa.StructArray.from_arrays([pa.array(["a", None]), pa.array([1, 2])],
                                       fields=list(INNER))
    with pytest.raises(UnsupportedError, match="column s: a field that cannot be null is null"):
        without_hidden_nulls(pa.RecordBatch.from_arrays([array], names=["s"]))


def test_flat_batches_are_not_touched():
    batch = pa.RecordBatch.from_pydict({"a": [1, None]})
    assert without_hidden_nulls(batch) is batch
