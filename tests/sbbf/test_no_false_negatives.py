"""The one promise of a Bloom filter: what was written is never reported absent.

Tables of every supported type, with nulls, NaN, both zeros and nested values, written in a random
mode; then every value is looked for in every way.
"""

import decimal
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom import ParquetFile, SplitBlockBloomFilter, write_table
from secure_bloom.arrow import table_filters
from secure_bloom.arrow.leaves import leaf_arrays
from secure_bloom.errors import PredicateError
from tests.support import MODES, encryptions, examples


@pytest.fixture(autouse=True, scope="module")
def _several_parts():
    """Filters are built part by part: here the parts are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_filters, "_PART", 3)
        yield


# --- values of every type ------------------------------------------------------------------------

YEARS_1_TO_9999 = {"s": (-62_135_596_800, 253_402_300_799)}
YEARS_1_TO_9999 |= {unit: tuple(factor * bound for bound in YEARS_1_TO_9999["s"])
                    for unit, factor in (("ms", 10**3), ("us", 10**6))}
YEARS_1_TO_9999["ns"] = -2**63 + 10**9, 2**63 - 10**9


def columns() -> dict:
    """For each type: a strategy of values, and how to make an array of a list of them."""
    found = {}

    def add(arrow_type, values, array=None):
        found[str(arrow_type)] = values, array or (lambda v: pa.array(v, arrow_type))

    def as_integers(arrow_type, low, high):
        bare = pa.int32() if arrow_type.bit_width == 32 else pa.int64()
        add(arrow_type, st.integers(low, high), lambda v: pa.array(v, bare).view(arrow_type))

    for bits in (8, 16, 32, 64):
        add(getattr(pa, f"int{bits}")(), st.integers(-2**(bits - 1), 2**(bits - 1) - 1))
        add(getattr(pa, f"uint{bits}")(), st.integers(0, 2**bits - 1))
    for t, width in ((pa.float16(), 16), (pa.float32(), 32), (pa.float64(), 64)):
        floats = st.floats(width=width) | st.sampled_from([0.0, -0.0, float("nan")])
        kind = t.to_pandas_dtype()
        add(t, floats, lambda v, t=t, kind=kind: pa.array(
            [None if x is None else kind(x) for x in v], t))
    for t in (pa.decimal32(5, 2), pa.decimal64(12, 0), pa.decimal128(7, 7), pa.decimal128(38, 10),
              pa.decimal256(20, 3), pa.decimal256(76, 38)):
        add(t, st.integers(1 - 10**t.precision, 10**t.precision - 1).map(
            lambda n, scale=t.scale: decimal.Decimal(f"{n}E-{scale}")))
    for t in (pa.string(), pa.large_string(), pa.string_view()):
        add(t, st.text(max_size=20))
    for t in (pa.binary(), pa.large_binary(), pa.binary_view()):
        add(t, st.binary(max_size=40))
    add(pa.binary(5), st.binary(min_size=5, max_size=5))
    add(pa.uuid(), st.uuids())
    add(pa.dictionary(pa.int16(), pa.string()), st.text(max_size=5))
    add(pa.dictionary(pa.int8(), pa.float64()), st.floats(allow_nan=False))
    add(pa.date32(), st.dates())
    add(pa.date64(), st.dates())
    as_integers(pa.time32("s"), 0, 86_399)
    as_integers(pa.time32("ms"), 0, 86_399_999)
    as_integers(pa.time64("us"), 0, 86_400 * 10**6 - 1)
    as_integers(pa.time64("ns"), 0, 86_400 * 10**9 - 1)
    for unit, bounds in YEARS_1_TO_9999.items():
        as_integers(pa.timestamp(unit), *bounds)
        as_integers(pa.timestamp(unit, "UTC"), *bounds)
        as_integers(pa.duration(unit), -10**13, 10**13)
    return found


COLUMNS = columns()

#: how a column holds the values: name -> (array -> column, path of the leaf)
SHAPES = {
    "flat": (lambda a: a, "c"),
    "chunked": (lambda a: pa.chunked_array([a[:3], a[3:3], a[3:]], a.type), "c"),
    "struct": (lambda a: pa.StructArray.from_arrays(
        [a], ["x"], mask=pa.array([i % 5 == 4 for i in range(len(a))], pa.bool_())), "c.x"),
    "list": (lambda a: pa.ListArray.from_arrays(_offsets(a), a), "c.list.element"),
    "large list": (lambda a: pa.LargeListArray.from_arrays(
        _offsets(a).cast(pa.int64()), a), "c.list.element"),
    "map": (lambda a: pa.MapArray.from_arrays(
        _offsets(a), pa.array(range(len(a)), pa.int64()), a), "c.key_value.value"),
}


def _offsets(array: pa.Array) -> pa.Array:
    """Lists of 0 to 3 values."""
    offsets = [0]
    while offsets[-1] < len(array):
        offsets.append(min(len(array), offsets[-1] + len(offsets) % 4))
    return pa.array(offsets, pa.int32())


OPTIONS = [{}, {"use_dictionary": False}, {"version": "1.0"}, {"store_schema": False},
           {"use_deprecated_int96_timestamps": True}, {"store_decimal_as_integer": True},
           {"coerce_timestamps": "ms", "allow_truncated_timestamps": True},
           {"flavor": "spark"}, {"data_page_version": "2.0"}, {"compression": "zstd"}]


# --- the promise ---------------------------------------------------------------------------------

@pytest.mark.parametrize("name", COLUMNS)
@given(st.data())
@examples(8)
def test_what_was_written_is_never_reported_absent(name, data):
    values, array_of = COLUMNS[name]
    shape = data.draw(st.sampled_from([s for s in SHAPES if "view" not in name or s == "flat"]))
    options = data.draw(st.sampled_from(OPTIONS))
    if name.startswith("timestamp[ns") and ("version" in options or "flavor" in options):
        options = {}  # pyarrow then refuses nanoseconds that are no whole microseconds
    mode = data.draw(st.sampled_from(MODES))
    rows = data.draw(st.integers(1, 12))
    wrap, path = SHAPES[shape]
    column = wrap(array_of(data.draw(st.lists(st.none() | values, max_size=25))))
    table = pa.table({"c": column})
    encryption, kms, keys = encryptions(path)[mode]
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters={path: True}, encryption=encryption, keys=kms,
                row_group_size=rows, **options)
    file = ParquetFile(sink.getvalue(), keys)
    unfiltered = file.read()
    for group, start in enumerate(range(0, table.num_rows, rows)):
        part = table["c"].slice(start, rows)
        filter_ = file.read_bloom_filter(group, path)
        for chunk in part.chunks:
            *_, leaf = leaf_arrays(chunk)
            check_values(file, filter_, group, path, leaf)
            if name != "time64[ns]":  # Python's times have no nanoseconds
                check_values(file, filter_, group, path, leaf.to_pylist())
            if shape in ("flat", "chunked", "struct"):
                check_reading(file, unfiltered, path, leaf)


def check_values(file, filter_, group, path, values):
    """An Arrow array, or a list of Python values."""
    assert file.might_contain(path, values)[group].all()
    assert filter_.check(values).all()
    present = [value for value in values if not is_null(value)]
    for value in values[:3]:
        assert filter_.check(value) is True
        assert group in pruned(file, (path, "<=>" if is_null(value) else "==", value))
        assert not is_null(value) or file.prune([(path, "==", value)]) == []
    assert (group in pruned(file, (path, "in", list(values)))) >= bool(present)


def pruned(file, predicate) -> list[int]:
    """All row groups where the file does not say what the values were: with or without a zone."""
    try:
        return file.prune([predicate])
    except PredicateError:
        lost = next(leaf.type for leaf in file.columns if leaf.path == predicate[0])
        assert lost.physical_type == "INT96" or lost.arrow_type == pa.int64()  # of a duration
        assert not (file.schema.metadata or {}) or lost.physical_type == "INT96"
        return list(range(file.num_row_groups))


def is_null(value) -> bool:
    return value is None or (isinstance(value, pa.Scalar) and not value.is_valid)


def check_reading(file, unfiltered, path, leaf):
    """Filtered reading gives the rows that pyarrow's filter keeps; but NaN equals NaN."""
    field = pc.field(*path.split("."))
    for value in leaf[:2]:
        try:
            # A typed null may crash pyarrow, which is why it is not given one.
            expected = unfiltered.filter(field.is_nan() if str(value) == "nan" else
                                         field == (value if value.is_valid else None))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            continue  # pyarrow does not compare such values
        assert same_rows(file.read(filters=[(path, "==", value)]), expected)


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Equal, where NaN equals itself."""
    return left.schema.equals(right.schema) and repr(left.to_pylist()) == repr(right.to_pylist())


# --- cases that deserve a name -------------------------------------------------------------------

def test_every_bit_pattern_of_nan():
    patterns = np.array([0x7ff8000000000000, 0xfff8000000000001, 0x7ff0000000000001], np.uint64)
    sink = io.BytesIO()
    write_table(pa.table({"c": patterns[:1].view(np.float64)}), sink, bloom_filters={"c": True})
    file = ParquetFile(sink.getvalue())
    assert file.might_contain("c", patterns.view(np.float64)).all()
    assert file.might_contain("c", [float("nan"), -float("nan")]).all()


@pytest.mark.parametrize(("stored", "probe"), [
    (pa.array([2**53], pa.int64()), 2.0**53), (pa.array([2**53 + 1]), 2.0**53),
    (pa.array([2.0**53]), 2**53 + 1), (pa.array([2.0**24], pa.float32()), 2**24 + 1),
    (pa.array([5]), decimal.Decimal(5)),
    (pa.array([1.5]), decimal.Decimal("1.5")), (pa.array([5], pa.uint8()), 5.0),
    (pa.array([decimal.Decimal("5.00")]), 5), (pa.array([decimal.Decimal("5.00")]), 5.0),
    (pa.array([decimal.Decimal("1.50")]), decimal.Decimal("1.5")),
    (pa.array(["text"]), b"text"), (pa.array([b"text"]), "text"),
    (pa.array([b"four"], pa.binary(4)), "four"),
    (pa.array([86_400]).cast(pa.timestamp("s")), pa.scalar(86_400 * 10**9, pa.timestamp("ns"))),
    (pa.array([0]).cast(pa.timestamp("us")), pa.scalar(0, pa.date32())),
    (pa.array([0], pa.int32()).cast(pa.date32()), pa.scalar(0, pa.timestamp("s"))),
    (pa.array([0], pa.int32()).cast(pa.date32()), pa.scalar(0, pa.date64())),
    (pa.array([0.1], pa.float32()), 0.1),
], ids=range(18))
def test_values_that_some_engine_finds_equal(stored, probe):
    sink = io.BytesIO()
    write_table(pa.table({"c": stored}), sink, bloom_filters={"c": True})
    file = ParquetFile(sink.getvalue())
    assert file.prune([("c", "==", probe)]) == [0]
    assert file.prune([("c", "in", [probe])]) == [0]


@pytest.mark.parametrize(("stored", "probe"), [
    (pa.array([1], pa.int32()), True), (pa.array([1]), "1"),
    (pa.array([0]).cast(pa.timestamp("us", "UTC")), pa.scalar(0, pa.timestamp("us"))),
], ids=range(3))
def test_values_that_only_other_engines_compare_are_not_denied(stored, probe):
    sink = io.BytesIO()
    write_table(pa.table({"c": stored}), sink, bloom_filters={"c": True})
    file = ParquetFile(sink.getvalue())
    assert file.might_contain("c", [probe]).tolist() == [[True]]
    assert file.read_bloom_filter(0, "c").check(probe)
    with pytest.raises(PredicateError):
        file.prune([("c", "==", probe)])


def test_nanoseconds_of_pandas():
    """Arrow cuts them off where it infers a type."""
    instant, length = pd.Timestamp(1, unit="ns"), pd.Timedelta(1, unit="ns")
    table = pa.table({"t": pa.array([1, 0]).cast(pa.timestamp("ns")),
                      "u": pa.array([1, 0]).cast(pa.timestamp("ns", "Europe/Rome"))})
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters={"t": True, "u": True}, row_group_size=1)
    file = ParquetFile(sink.getvalue())
    for column, probe in (("t", instant), ("u", instant.tz_localize("Asia/Tokyo")
                                           + pd.Timedelta(hours=9))):
        assert file.might_contain(column, [probe, None, probe]).tolist() \
            == [[True] * 3, [False, True, False]]
        assert file.prune([(column, "in", [probe, pd.NaT])]) == [0]
        assert file.prune([(column, "==", probe)]) == [0]
        assert file.read(filters=[(column, "==", probe)]).equals(table.slice(0, 1))
        assert file.read(filters=[(column, "in", [probe])]).equals(table.slice(0, 1))
    lengths = SplitBlockBloomFilter(4)
    lengths.insert([length])
    assert lengths.check([length, 2 * length]).tolist() == [True, False]
    assert file.might_contain("t", pd.NaT).all()
    assert file.read(filters=[("t", "==", pd.NaT)]).num_rows == 0
