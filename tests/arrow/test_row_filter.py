"""Rows that filters find: the same in every way to ask, and those of an evaluation in Python."""

import io
import math
import os
import random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from secure_bloom import ParquetFile, read_table, write_table
from secure_bloom.arrow import expression_rows, predicate_rows
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.pruning.predicates import OPERATORS, normalize
from secure_bloom.sbbf import light_arrow
from tests.pruning.random_rows import Rows
from tests.pruning.row_domains import domains
from tests.support import encryptions
from tests.tiers import number_of_examples, sweep_where

#: set the variable to repeat a failure
SEED = int(os.environ.get("SECURE_BLOOM_SEED", random.randrange(2**32)))
DOMAINS = domains()
STRUCTS = {name: DOMAINS[name] for name in ("double", "string", "timestamp[ns]", "dictionary")}
ROWS, GROUP = 240, 30


COLUMNS = DOMAINS | {f"st.{name}": domain for name, domain in STRUCTS.items()}


def random_rows(draw: random.Random, count: int = ROWS) -> Rows:
    return Rows(draw, DOMAINS, {"st": STRUCTS}, count, GROUP)


def random_filter(draw: random.Random, columns: dict) -> tuple[list, list]:
    """A filter on columns that have these domains, and the same for the reference."""
    both = [[_random_predicate(draw, columns) for _ in range(draw.choice([1, 1, 1, 2]))]
            for _ in range(draw.choice([1, 1, 1, 2]))]
    return tuple([[(column, op, value[which]) for column, op, value in alternative]
                  for alternative in both] for which in (0, 1))


def _random_predicate(draw: random.Random, columns: dict) -> tuple:
    weights = [6 if name in ("halffloat", "float", "double", "st.double") else 1
               for name in columns]
    [column], op = draw.choices(list(columns), weights), draw.choice(OPERATORS)
    asked = [*columns[column].asked, (None, None)]
    if op in ("in", "not in"):
        chosen = draw.choices(asked, k=draw.choice([0, 1, 2, 3, 8, 20]))
        if draw.random() < 0.7:
            chosen = [pair for pair in chosen if pair[0] is not None]
        return column, op, ([one for one, _ in chosen], [one for _, one in chosen])
    return column, op, (None, None) if "null" in op else draw.choice(asked)


@pytest.mark.slow
@pytest.mark.parametrize("many", [predicate_rows._MANY, 1], ids=["short lists", "long lists"])
def test_random_filters_on_rows(monkeypatch, many):
    monkeypatch.setattr(predicate_rows, "_MANY", many)
    draw = random.Random(SEED)
    rows = random_rows(draw, 40)
    [batch] = rows.table.combine_chunks().to_batches()
    for number in range(number_of_examples(1000)):
        filters, reference = random_filter(draw, COLUMNS)
        holds = RowFilter(normalize(filters), rows.table.schema).holds(batch)
        found = [row for row, is_there in enumerate(holds.to_pylist()) if is_there]
        assert found == rows.found(reference), f"seed {SEED}, filter {number}: {reference}"


@pytest.mark.parametrize("is_text", [False, True], ids=["int64", "string"])
@pytest.mark.parametrize("is_expression", [False, True], ids=["predicates", "expression"])
def test_arrow_does_not_prepare_a_long_list_for_each_batch(monkeypatch, is_text, is_expression):
    def as_stored(numbers):
        return pa.array([f"{number}" if is_text and number is not None else number
                         for number in numbers])

    members = as_stored(range(0, 100_000, 7))
    numbers = [None if number % 5 == 0 else number for number in range(80_000, 120_000)]
    batch = pa.record_batch([as_stored(numbers)], ["n"]).slice(3)
    expected = pc.is_in(batch.column(0), members)
    filters = pc.field("n").isin(members) if is_expression else normalize(
        [("n", "in", members.to_pylist())])
    rows = RowFilter(filters, batch.schema)
    monkeypatch.setattr(light_arrow, "is_in", None)
    monkeypatch.setattr(expression_rows, "_evaluated", None)
    assert rows.holds(batch).equals(expected) and expected.true_count == 2285


@pytest.mark.parametrize("skip_nulls", [False, True])
@pytest.mark.parametrize("members", [["x", None], [None], [], ["x", "y"], [1, None, 2], [0.0, None],
                                     [math.nan], [-0.0]], ids=str)
def test_values_in_a_list_are_those_of_arrow(members, skip_nulls):
    is_float = any(isinstance(one, float) for one in members)
    members = pa.array(members, None if any(members) or is_float else pa.string())
    stored = pa.array(["x", None, "z"]) if pa.types.is_string(members.type) else pa.array(
        [1, None, 3], members.type) if pa.types.is_integer(members.type) else pa.array(
        [0.0, -0.0, None, math.nan])
    expression = pc.is_in(pc.field("n"), members, skip_nulls=skip_nulls)
    batch = pa.record_batch([stored], ["n"])
    expected = pc.is_in(stored, members, skip_nulls=skip_nulls)
    assert RowFilter(expression, batch.schema).holds(batch).equals(expected)


def filterable(table: pa.Table) -> list[str]:
    sink = io.BytesIO()
    pq.write_table(table.slice(0, 0), sink)
    return [leaf.path for leaf in ParquetFile(sink.getvalue()).columns
            if leaf.type.can_have_filter and leaf.path != "null"]


def written(table: pa.Table, mode="plain", filters=True, **options) -> tuple[bytes, object]:
    encryption, kms, keys = encryptions("row")[mode]
    sink = io.BytesIO()
    columns = filterable(table) if filters else ()
    write_table(table, sink, bloom_filters=dict.fromkeys(columns, True), encryption=encryption,
                keys=kms, row_group_size=GROUP, **options)
    return sink.getvalue(), keys


VARIANTS = [
    {}, {"write_statistics": False}, {"use_dictionary": False, "mode": "uniform"},
    {"store_decimal_as_integer": True, "filters": False}, {"store_schema": False},
]


@sweep_where(lambda variant: variant not in (VARIANTS[0], VARIANTS[3]))
@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_random_filters_on_files(variant):
    draw = random.Random(SEED)
    rows = random_rows(draw)
    data, keys = written(rows.table, **variant)
    file = ParquetFile(data, keys)
    whole = file.read()
    columns = COLUMNS if variant != {"store_schema": False} else {
        name: domain for name, domain in COLUMNS.items() if "duration" not in name}  # now integers
    for number in range(number_of_examples(80)):
        filters, reference = random_filter(draw, columns)
        message = f"seed {SEED}, filter {number}: {reference}"
        right = rows.found(reference)
        assert file.read(["row"], filters)["row"].to_pylist() == right, message
        assert {row // GROUP for row in right} <= set(file.prune(filters)), message
        if number % 10 == 0:
            found = pa.concat_tables([whole.slice(0, 0), *file.iter_tables(filters=filters)])
            found.validate(full=True)
            expected = pa.concat_tables([whole.slice(0, 0), *(whole.slice(i, 1) for i in right)])
            assert found.schema.equals(whole.schema, check_metadata=True)
            assert str(found.to_pylist()) == str(expected.to_pylist()), message  # NaN is not NaN


@pytest.mark.slow
def test_random_filters_on_folders(tmp_path):
    """One file lacks columns, and both have a column that their path has too."""
    draw = random.Random(SEED)
    rows = random_rows(draw)
    missing = list(DOMAINS)[::2]
    halves = {"p=5/q=a": rows.table.slice(0, 120),
              "p=100/q=__HIVE_DEFAULT_PARTITION__": rows.table.slice(120).drop_columns(missing)}
    for place, table in halves.items():
        (tmp_path / place).mkdir(parents=True)
        with_p = table.append_column("p", pa.array([0] * len(table), pa.int32()))
        (tmp_path / place / "x.parquet").write_bytes(written(with_p)[0])
    for row in rows.rows[:120]:
        row.update({"p": 5, "q": "a"})
    for row in rows.rows[120:]:
        row.update({"p": 100, "q": None} | dict.fromkeys(missing))
    columns = COLUMNS | {"p": DOMAINS["int32"], "q": DOMAINS["string"]}
    for number in range(number_of_examples(100)):
        filters, reference = random_filter(draw, columns)
        if number % 3 == 0:
            some = random_filter(draw, {name: columns[name] for name in ("p", "q")})
            filters, reference = ([[*one, *other] for one in these for other in those]
                                  for these, those in zip((filters, reference), some, strict=True))
        found = read_table(tmp_path, columns=["row"], filters=filters)["row"].to_pylist()
        assert sorted(found) == rows.found(reference), f"seed {SEED}, filter {number}: {reference}"


def test_columns_are_those_of_an_unfiltered_read():
    """In any order, twice, none at all, fields of structs; with the metadata of the schema."""
    table = pa.table({"d.t": [1, 2], "s": [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}],
                      "c": pa.array(["a", "b"]).dictionary_encode()})
    schema = table.schema.set(0, table.schema.field(0).with_nullable(False)
                              .with_metadata({"k": "v"})).with_metadata({"m": "n"})
    file = ParquetFile(written_plainly(table.cast(schema)))
    for columns in (None, [], ["c"], ["s", "c", "s"], ["s.y"], ["d.t", "s.x"]):
        for path in ("d.t", "s.x"):
            found = file.read(columns, [(path, "==", 2)])
            assert found.schema.equals(file.read(columns).schema, check_metadata=True)
            assert found.num_rows == 1
            expected = file.read(columns).slice(1).columns
            assert [one.to_pylist() for one in found.columns] \
                == [one.to_pylist() for one in expected]
    for columns in ("c", ("c",), ["none"], {"c": 5}):
        with pytest.raises((ValueError, TypeError)):
            file.read(columns, [("d.t", "==", 2)])


def written_plainly(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
