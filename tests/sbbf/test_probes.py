"""Values given by a caller."""

import datetime
import decimal
import subprocess
import sys
import uuid

import numpy as np
import pyarrow as pa
import pytest

from secure_bloom import SplitBlockBloomFilter
from secure_bloom.errors import ColumnError
from secure_bloom.sbbf.column_type import PHYSICAL_TYPES, ColumnType
from secure_bloom.sbbf.probes import as_arrays, is_scalar
from tests.cases import for_each


@pytest.mark.parametrize("value", [
    None, 5, 5.0, True, "text", "", b"raw", bytearray(b"raw"), memoryview(b"raw"),
    np.int8(5), np.datetime64(1, "ns"), np.str_("x"), pa.scalar(5), pa.scalar([1, 2]),
    uuid.UUID(int=1), decimal.Decimal(5), datetime.date(2020, 1, 1), object()], ids=range(18))
def test_scalars(value):
    assert is_scalar(value)
    [array] = as_arrays(value)
    assert len(array) == 1


def test_objects_in_a_numpy_array_are_what_they_are_in_a_list():
    """To pyarrow, an array of UUIDs is of another type, in which no file has them."""
    values = [uuid.UUID(int=1), None]
    assert as_arrays(np.array(values, object)) == as_arrays(values) \
        == [pa.array([uuid.UUID(int=1).bytes, None])]


@pytest.mark.parametrize("values", [
    [1, 2], (1, 2), {1, 2}, range(1, 3), iter([1, 2]), {1: "a", 2: "b"}, np.array([1, 2]),
    pa.array([1, 2]), pa.chunked_array([[1], [2]])], ids=range(9))
def test_collections(values):
    assert not is_scalar(values)
    assert [value for array in as_arrays(values) for value in array.to_pylist()] == [1, 2]


@pytest.mark.parametrize("values", [
    [1, "a"], ["a", None, 2.5], [2**70, 1], [2**63, -1], [object(), 1], [1, True], [2**53 + 1, .5],
    [np.datetime64(1, "s"), np.datetime64(1, "ns")]], ids=range(8))
def test_values_without_a_common_type_stay_apart(values):
    arrays = as_arrays(values)
    assert [len(array) for array in arrays] == [1] * len(values)
    for value, array in zip(values, arrays, strict=True):
        got = array[0].as_py()
        assert got == value or got is None or isinstance(value, np.datetime64)
    with pytest.raises(ColumnError, match="common Arrow type"):
        as_arrays(values, strict=True)


@pytest.mark.slow
def test_no_mixture_of_values_crashes_pyarrow():
    """In a process of its own: pyarrow.array([np.datetime64(1, "s"), np.int64(1)]) ends it."""
    program = """
import datetime, decimal, io, itertools
import numpy as np, pyarrow as pa
import secure_bloom
from secure_bloom.errors import PredicateError
from secure_bloom.sbbf.probes import as_arrays
sink = io.BytesIO()
secure_bloom.write_table(pa.table({'a': [1, 2]}), sink, bloom_filters={'a': True})
file = secure_bloom.ParquetFile(sink.getvalue())
filter_ = file.read_bloom_filter(0, 'a')
several = [np.int64(1), np.float32(2), np.str_('x'), np.bytes_(b'x'), np.datetime64(1, 's'),
           np.datetime64('NaT'), np.timedelta64(1, 's'), np.bool_(True), np.float16(1), 1, 'a',
           datetime.date(2020, 1, 1), decimal.Decimal(1), pa.scalar(1), None, np.complex64(1),
           np.longdouble(1), np.datetime64(2**40, 'D'), np.void(b'x')]
ways = [as_arrays, lambda values: as_arrays(np.array([*values, None], dtype=object)),
        lambda values: file.prune([('a', 'in', list(values))]), filter_.check,
        lambda values: file.might_contain('a', values),
        lambda values: file.read(filters=[('a', 'in', list(values))]),
        lambda values: as_arrays([values])]
for values, ask in itertools.product(itertools.permutations(several, 2), ways):
    print(values, ways.index(ask))
    try:
        ask(values)
    except PredicateError:
        pass
print('alive')
"""
    done = subprocess.run([sys.executable, "-uc", program], capture_output=True, text=True)
    assert done.stdout.endswith("alive\n"), (done.stdout[-200:], done.stderr)


def test_mixed_values_are_answered_one_by_one():
    mixed = [np.int64(5), np.float32(6), np.str_("x"), np.datetime64(1, "s"), np.int8(7), 5]
    arrays = as_arrays(mixed)
    assert [array[0].as_py() for array in arrays] \
        == [5, 6.0, "x", datetime.datetime(1970, 1, 1, 0, 0, 1), 7, 5]
    filter_ = SplitBlockBloomFilter(64, column_type=pa.int32())
    filter_.insert([5])
    assert filter_.check(mixed).tolist() == [True, True, True, True, False, True]


def test_values_of_one_numpy_type_keep_it():
    for last in (np.int32(6), np.int16(6), None):
        [array] = as_arrays([np.int32(5), last])
        assert array.type == pa.int32()


@pytest.mark.parametrize("values", [[[1, 2]], [{"a": 1}], [(1,)], [np.array([1])], [{1}]],
                         ids=range(5))
def test_nested_values_are_no_values(values):
    [array] = as_arrays(values)
    assert array.to_pylist() == [None]
    with pytest.raises(ColumnError):
        as_arrays(values, strict=True)


@for_each("physical_type", PHYSICAL_TYPES)
@for_each("value", [1, 1.5, "a", b"a"])
def test_a_column_of_an_unknown_logical_type_may_hold_everything(physical_type, value):
    filter_ = SplitBlockBloomFilter(column_type=ColumnType(physical_type, 1, None))
    assert filter_.check(value)
    assert filter_.check([value]).all()
