"""Expressions of pyarrow as row filters: what they skip, and which rows they find."""

import datetime
import functools
import io
import operator
import os
import pickle
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from secure_bloom import ParquetFile, read_table, write_table
from secure_bloom.arrow.predicate_rows import PredicateRows
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.errors import PredicateError, UnknownColumnError
from secure_bloom.pruning import expression_tree
from secure_bloom.pruning.expressions import alternatives_in, columns_of, usable_for
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.row_groups import row_groups_for
from tests.arrow.test_row_filter import filterable
from tests.pruning.random_expressions import (
    DOMAINS,
    GROUP,
    random_expression,
    random_table,
    selected,
)
from tests.support import encryptions
from tests.tiers import number_of_examples

#: set the variable to repeat a failure
SEED = int(os.environ.get("SECURE_BLOOM_SEED", random.randrange(2**32)))
NAN = float("nan")
NOON = datetime.datetime(2024, 2, 29, 12)
field = pc.field


def alternatives_of(expression, schema):
    return alternatives_in(expression_tree.parse(expression), schema)


def written(table: pa.Table, mode: str = "plain", of: type = ParquetFile) -> ParquetFile | OpenFile:
    encryption, kms, keys = encryptions(table.column_names[0])[mode]
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters=dict.fromkeys(filterable(table), True),
                encryption=encryption, keys=kms, row_group_size=GROUP)
    return of(sink.getvalue(), keys)


# --- random --------------------------------------------------------------------------------------

@pytest.mark.slow
def test_the_filter_for_pruning_holds_for_every_row_that_arrow_selects():
    draw = random.Random(SEED)
    table = random_table(draw, 120)
    [batch] = table.combine_chunks().to_batches()
    narrow = compared = 0
    for number in range(number_of_examples(1500)):
        expression = random_expression(draw)
        alternatives = alternatives_of(expression, table.schema)
        if alternatives is None:
            continue
        holds = PredicateRows(alternatives, table.schema).holds(batch).to_pylist() \
            if alternatives else [False] * len(table)
        try:
            found = selected(table, expression)
        except pa.ArrowException:
            continue
        message = f"seed {SEED}, case {number}: {expression} became {alternatives}"
        assert all(holds[row] for row in found), message
        compared += 1
        narrow += not all(holds)
    assert narrow > compared / 2 > 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["plain", "uniform"])
def test_a_file_has_the_rows_that_arrow_selects_in_memory(mode):
    draw = random.Random(SEED)
    file = written(random_table(draw, 120), mode)
    whole = file.read()
    skipped = 0
    for number in range(number_of_examples(200)):
        expression = random_expression(draw)
        message = f"seed {SEED}, case {number}: {expression}"
        try:
            right = selected(whole, expression)
        except pa.ArrowException:
            right = None
        try:
            found = file.read(["row"], expression)["row"].to_pylist()
        except PredicateError:
            assert right is None, message
            continue
        if right is not None:  # otherwise the rows that Arrow cannot compare were skipped
            assert found == right, message
            kept = file.prune(expression)
            assert {row // GROUP for row in right} <= set(kept), message
            skipped += file.num_row_groups - len(kept)
    assert skipped > 0


@pytest.mark.slow
def test_a_folder_has_the_rows_that_arrow_selects_in_memory(tmp_path):
    """One file lacks columns, and the values of three columns are in the paths."""
    draw = random.Random(SEED)
    table = random_table(draw, 72)
    for place, part in {
            "int32=5/string=ab/new=7": table.slice(0, 36),
            "int32=0/string=__HIVE_DEFAULT_PARTITION__/new=8":
                table.slice(36).drop_columns(list(DOMAINS)[::2])}.items():
        (tmp_path / place).mkdir(parents=True)
        write_table(part, tmp_path / place / "x", row_group_size=GROUP,
                    bloom_filters=dict.fromkeys(filterable(part), True))
    whole, schema = read_table(tmp_path), read_table(tmp_path, columns=["row"]).schema
    assert sorted(whole["new"].unique().to_pylist()) == [7, 8]
    for number in range(number_of_examples(150)):
        expression = random_expression(draw)
        if number % 2:
            expression = draw.choice([
                field("int32") == draw.choice([0, 5, 6]), field("string") == "ab", field("new") > 7,
                field("string").is_null(), field("new").isin([7, 9])]) & expression
        message = f"seed {SEED}, case {number}: {expression}"
        try:
            right = selected(whole, expression)
        except pa.ArrowException:
            continue
        found = read_table(tmp_path, columns=["row"], filters=expression)
        assert sorted(found["row"].to_pylist()) == sorted(right), message
        assert found.schema == schema


# --- comparisons ---------------------------------------------------------------------------------

def check(array: pa.Array, condition: pc.Expression, row_groups: list[int] | None):
    """Check the rows that a file of row groups of one row has, and which ones are skipped.

    None as ``row_groups``: all are read.
    """
    table = pa.table({"row": range(len(array)), "c": array})
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters=dict.fromkeys(filterable(table), True), row_group_size=1)
    file = ParquetFile(sink.getvalue())
    kept = file.prune(condition)
    assert kept == (list(range(len(array))) if row_groups is None else row_groups)
    assert file.read(["row"], condition)["row"].to_pylist() == selected(file.read(), condition)


C = field("c")
FLOATS = pa.array([0.0, -0.0, NAN, 5.0, None])


@pytest.mark.parametrize(("condition", "row_groups"), [
    (C == 0.0, [0, 1]), (C == -0.0, [0, 1]), (C.isin([0.0]), [0, 1]), (C.isin([-0.0]), [0, 1]),
    (C == NAN, [0, 1, 2, 3]), (C.isin([NAN]), [0, 1, 2, 3]), (C != 0.0, [0, 1, 2, 3]),
    (C != NAN, None), (~(C == 5.0), [0, 1, 2, 3]), (~(C < 5.0), None), (~(C != 5.0), [3]),
    (~C.isin([5.0]), None), (C.is_null(), [4]), (C.is_null(nan_is_null=True), None),
    (~C.is_null(), [0, 1, 2, 3]), (~C.is_null(nan_is_null=True), [0, 1, 2, 3]),
    (C.is_valid(), [0, 1, 2, 3]), (~C.is_valid(), [4]), (pc.scalar(None) == C, []),
    (C.isin([5.0, None]), [3, 4]), (pc.is_in(C, pa.array([5.0, None]), skip_nulls=True), [3]),
    (C < 3, [0, 1, 2]), (C == 2**24 + 1, []), (pc.scalar(5) <= C, [0, 1, 2, 3]),
    (pc.if_else(C.is_valid(), C.isin([5.0]), pc.scalar(None)), [3]),
])
def test_zeros_nan_and_null(condition, row_groups):
    check(FLOATS, condition, row_groups)


@pytest.mark.parametrize(("array", "condition", "row_groups"), [
    (pa.array([1, 2, 300]), (C == 1) | (C == 300), [0, 2]),
    (pa.array([1, 2, 3], pa.int8()), C == 300, None),
    (pa.array([1, 2, 3]), C == 2.0, None),
    (pa.array([1, 2, 3]), C == 2.5, None),
    (pa.array([0.1, 0.5], pa.float32()), C == 0.1, [0]),
    (pa.array([0.1, 0.5], pa.float32()), C.isin([0.1]), None),  # Arrow rounds it, and finds it
    (pa.array([Decimal("1.10"), Decimal("2.00")]), C == 1.1, None),
    (pa.array([Decimal("1.10"), Decimal("2.00")]), Decimal("1.1") == C, [0]),
    (pa.array([Decimal("1.10"), Decimal("2.00")]), Decimal("1.5") < C, [1]),
    (pa.array([NOON.date(), datetime.date(2025, 1, 1)]), C.isin([NOON]), None),
    (pa.array([NOON.date(), datetime.date(2025, 1, 1)]), C == NOON, None),
    (pa.array([NOON.date(), datetime.date(2025, 1, 1)]), C > NOON, None),
    (pa.array([NOON, None], pa.timestamp("ms")), C == NOON, [0]),
    (pa.array([NOON, None], pa.timestamp("ms", "Europe/Rome")),
     pa.scalar(NOON, pa.timestamp("ms", "UTC")) == C, [0]),
    (pa.array(["a", "b"]).dictionary_encode(), C == "b", [1]),
    (pa.array(["a", "b"], pa.string_view()), C.isin(["b"]), [1]),
    (pa.array(["a", "b"], pa.large_string()), pc.scalar("a") < C, [1]),
    (pa.array([b"ab", b"cd"], pa.binary(2)), C == b"cd", [1]),
    (pa.array([True, False, None]), C, [0]),
    (pa.array([True, False, None]), ~C, [1]),
    (pa.array([{"x": 1}, {"x": 2}, None]), field("c", "x") == 2, [1]),
    (pa.array([{"x": 1}, {"x": 2}, None]), field("c").is_null(), None),
    (pa.array([b"a" * 16, None]).cast(pa.binary(16)).cast(pa.uuid()), C.is_null(), [1]),
    (pa.array([1, 2]), C.cast(pa.string()) == "2", None),
    (pa.array([1, 2]), pc.scalar(False), []),
    (pa.array([1, 2]), pc.scalar(True), None),
    (pa.array([1, 2]), pc.field(1) == 2, None),
], ids=str)
def test_comparisons(array, condition, row_groups):
    check(array, condition, row_groups)


def test_integers_beyond_a_float_are_an_error_and_not_equal_to_another():
    file = written(pa.table({"c": [2**53 + 1, 5]}))
    with pytest.raises(PredicateError, match=r"cannot evaluate the filter; .* c: int64") as e:
        file.read(filters=C == 2.0**53)
    assert "90071992547" not in str(e.value)
    assert file.read(filters=C == 2**53 + 1)["c"].to_pylist() == [2**53 + 1]
    assert alternatives_of(C == 2.0**53, file.schema) is None


@pytest.mark.parametrize(("arrow_type", "literal"), [
    (pa.timestamp("ns"), pa.scalar(datetime.datetime(9999, 1, 1))),
    (pa.timestamp("s"), pa.scalar(datetime.date(9999, 1, 1))),
    (pa.duration("ns"), pa.scalar(2**40, pa.duration("s"))),
    (pa.decimal128(38, 30), pa.scalar(Decimal(10**20))), (pa.float16(), pa.scalar(1.5)),
    (pa.float32(), pa.scalar(2**24 + 1)), (pa.float64(), pa.scalar(-2**53 - 1)),
    (pa.int64(), pa.scalar(1.5)), (pa.float64(), pa.scalar(Decimal("1.5"))),
    (pa.date64(), pa.scalar(datetime.date(2024, 1, 1))), (pa.json_(), pa.scalar("a")),
    (pa.string(), pa.scalar("a", pa.string_view())), (pa.uuid(), pa.scalar(b"a" * 16)),
    (pa.timestamp("us", "UTC"), pa.scalar(NOON)), (pa.timestamp("us"), pa.scalar("a")),
    (pa.list_(pa.int64()), pa.scalar(1)), (pa.struct({"x": pa.int64()}), pa.scalar(1)),
], ids=str)
def test_comparisons_in_which_a_cast_may_change_a_value_rule_nothing_out(arrow_type, literal):
    for condition in (literal == C, literal < C, C.isin(pa.array([literal], literal.type))):
        assert alternatives_of(condition, pa.schema({"c": arrow_type})) is None


def test_a_dotted_name_that_could_mean_two_columns_rules_nothing_out():
    table = pa.table({"st.x": [1, 1], "st": [{"x": 2}, {"x": 3}]})
    for condition in (field("st", "x") == 2, field("st.x") == 1):
        assert alternatives_of(condition, table.schema) is None
    alone = table.drop_columns("st.x").schema
    assert alternatives_of(field("st", "x") == 2, alone) == [[Predicate("st.x", "==", 2)]]
    assert alternatives_of(field("st.x") == 2, alone) is None


# --- errors --------------------------------------------------------------------------------------

MOMENTS = pa.table({"s": ["a"], "t": pa.array([NOON], pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize(("condition", "message", "error"), [
    (field("other") == 1, "column other: there is no such column; existing columns: s, t",
     UnknownColumnError),
    (field("s") == 4711, "(no kernel matching input types (string, int16)); the columns are s: str",
     PredicateError),
    (field("s").isin([4711]), "set: string vs int64); the columns are s: string", PredicateError),
    (field("t") == NOON, "timestamp with timezone to timestamp without", PredicateError),
    (field("s", "x") == 4711, "Arrow cannot evaluate the filter; the columns are s: string",
     PredicateError),
    (field("s") == pa.scalar(None, pa.large_string()), "null of a large type, with which pyarrow",
     PredicateError),
    (field("t"), "the filter is not a condition: its type is timestamp", PredicateError),
    (field(7) == 4711, "Arrow cannot evaluate the filter; the columns are s:", PredicateError),
], ids=str)
def test_a_filter_that_arrow_cannot_evaluate(tmp_path, monkeypatch, condition, message, error):
    """The error is about the filter, names the file, and comes before any row is read."""
    write_table(MOMENTS, tmp_path / "x")
    monkeypatch.setattr("secure_bloom.arrow.pages.read_batches", None)
    for read in (lambda: ParquetFile(tmp_path / "x").read(filters=condition),
                 lambda: next(ParquetFile(tmp_path / "x").iter_tables(filters=condition)),
                 lambda: ParquetFile(tmp_path / "x").prune(condition),
                 lambda: read_table(tmp_path / "x", filters=condition),
                 lambda: read_table(tmp_path, filters=condition)):
        with pytest.raises(error) as caught:
            read()
        assert type(caught.value) is error
        assert message in str(caught.value) and str(tmp_path) in str(caught.value)
        assert "4711" not in str(caught.value)


def test_filters_are_a_list_or_an_expression():
    file = written(pa.table({"c": [1]}))
    for filters in ("c == 1", {"c": 1}, 5, lambda: None):
        with pytest.raises(TypeError, match="a pyarrow Expression, a list of"):
            file.read(filters=filters)


# --- files with other types ----------------------------------------------------------------------

@pytest.mark.parametrize(("of_file", "of_table", "is_usable"), [
    (pa.int32(), pa.int64(), True), (pa.int64(), pa.float64(), True), (pa.null(), pa.int64(), True),
    (pa.float64(), pa.float32(), False), (pa.float32(), pa.float64(), True),
    (pa.string(), pa.int64(), False), (pa.string(), pa.large_string(), True),
    (pa.string_view(), pa.string(), True), (pa.float64(), pa.int64(), False),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), False), (pa.date32(), pa.timestamp("s"), True),
    (pa.timestamp("us"), pa.date32(), False), (pa.list_(pa.int64()), pa.int64(), False),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
], ids=str)
def test_a_file_whose_column_has_another_type(of_file, of_table, is_usable):
    """It is pruned only if the cast to the table's type keeps all values."""
    alternatives = [[Predicate("c", "==", 5), Predicate("d", "==", 1)]]
    schema = pa.schema({"c": of_table, "d": pa.int64()})
    d = Predicate("d", "==", 1)
    assert usable_for(alternatives, schema, pa.schema({"c": of_file, "d": pa.int64()})) == \
        (alternatives if is_usable else [[d]])
    assert usable_for([[alternatives[0][0]], [d]], schema, pa.schema({"c": of_file})) == \
        ([[alternatives[0][0]], [d]] if is_usable else None)


def test_a_file_in_which_a_dotted_name_could_mean_two_columns():
    alternatives = [[Predicate("st.x", "==", 5)]]
    schema = pa.schema({"st": pa.struct({"x": pa.int64()})})
    both = schema.append(pa.field("st.x", pa.int64()))
    assert usable_for(alternatives, schema, both) is None
    assert usable_for(alternatives, schema, pa.schema({"st.x": pa.int64()})) is None


def test_a_filter_of_a_table_prunes_a_file_with_smaller_integers():
    file = written(pa.table({"c": pa.array(range(20), pa.int32())}), of=OpenFile)
    row_filter = RowFilter(C == 13, pa.schema({"c": pa.int64(), "new": pa.string()}))
    assert row_groups_for(file, row_filter.alternatives_for(file.schema)) == [2]
    absent = RowFilter(field("new") == "a", pa.schema({"c": pa.int64(), "new": pa.string()}))
    assert row_groups_for(file, absent.alternatives_for(file.schema)) == []
    assert row_filter.columns == ["c"]


# --- the tree ------------------------------------------------------------------------------------

def test_columns_are_found_below_any_function():
    assert columns_of((field("a", "x") == 1) & (pc.add(field("b"), field("a")) > 1)) == ["a", "b"]
    assert columns_of(pc.scalar(True)) == []
    assert columns_of(pc.field(0) == 1) is None


@pytest.mark.parametrize("change", [
    lambda content: b"", lambda content: content[:100], lambda content: content[::-1],
    lambda content: content.replace(b"field_ref", b"field_rex"),
    lambda content: content.replace(b"literal", b"litoral"),
    lambda content: content.replace(b"call", b"cill"), lambda content: None,
])
def test_an_expression_that_is_pickled_in_another_form_rules_nothing_out(monkeypatch, change):
    class Other:
        def __reduce__(self):
            [content] = (C == 5).__reduce__()[1]
            return pickle.loads, (change(bytes(content)),)

    schema = pa.schema({"c": pa.int64()})
    assert alternatives_of(Other(), schema) is None
    assert columns_of(Other()) is None
    monkeypatch.setattr(expression_tree, "_is_known_form", lambda: False)
    assert alternatives_of(C == 5, schema) is None
    file = written(pa.table({"c": range(20)}))
    assert file.prune(C == 5) == [0, 1, 2, 3]
    assert file.read(filters=C == 5)["c"].to_pylist() == [5]


def test_the_form_is_checked_against_a_known_expression(monkeypatch):
    right = expression_tree._metadata
    expression_tree._is_known_form.cache_clear()
    assert expression_tree._is_known_form()
    for changed in (lambda words: [("call", "less") if word == ("call", "is_null") else word
                                   for word in words],
                    lambda words: [], lambda words: words[:-1], lambda words: words * 2,
                    lambda words: [(kind, "7") if kind == "literal" else (kind, value)
                                   for kind, value in words]):
        monkeypatch.setattr(expression_tree, "_metadata",
                            lambda schema, changed=changed: changed(right(schema)))
        expression_tree._is_known_form.cache_clear()
        assert not expression_tree._is_known_form()
    expression_tree._is_known_form.cache_clear()


@pytest.mark.slow
def test_deep_and_long_expressions():
    schema = pa.schema({"c": pa.int64(), "d": pa.int64()})
    for chain in (functools.reduce(operator.or_, [i == C for i in range(3000)]),
                  functools.reduce(lambda one, other: other | one, [i == C for i in range(3000)])):
        [[(column, op, values)]] = alternatives_of(chain, schema)
        assert (column, op, sorted(values)) == ("c", "in", list(range(3000)))
    found = alternatives_of(functools.reduce(operator.and_, [i < C for i in range(3000)]), schema)
    assert found and len(found[0]) == 3000
    nested = functools.reduce(lambda part, i: pc.if_else(part, i == C, field("d") == i),
                              range(300), C == 0)
    assert len(alternatives_of(nested, schema) or ()) <= 64
    negated = functools.reduce(lambda part, _: ~part, range(1000), C == 0)
    assert alternatives_of(negated, schema) is None
    assert alternatives_of(~~(C == 0), schema) == [[Predicate("c", "==", 0)]]


def test_products_of_alternatives_stay_short():
    schema = pa.schema({f"c{i}": pa.int64() for i in range(40)})
    pairs = [(field(f"c{i}") == 1) | (field(f"c{i + 1}") > 1) for i in range(0, 40, 2)]
    found = alternatives_of(functools.reduce(operator.and_, pairs), schema)
    assert found is not None and 1 < len(found) <= 64
    assert alternatives_of(functools.reduce(operator.or_, [
        field(f"c{i % 40}") > i for i in range(100)]), schema) is None
    many = [field("c0").isin(pa.array(range(10_000))) | (field("c1") > 5) for _ in range(10)]
    found = alternatives_of(functools.reduce(operator.and_, [*many, *pairs]), schema)
    assert found and sum(len(p.value) for one in found for p in one if p.op == "in") < 300_000


@pytest.mark.slow
def test_a_million_values_are_one_predicate_and_one_list():
    values = pa.array(range(10**6))
    schema = pa.schema({"c": pa.int64()})
    [[found]] = alternatives_of(C.isin(values), schema)
    assert (found.column, found.op, len(found.value)) == ("c", "in", 10**6)
    [[both]] = alternatives_of(C.isin(values) | C.isin(pa.array([-1])), schema)
    assert len(both.value) == 10**6 + 1


def test_hostile_expressions_raise_nothing():
    draw = random.Random(SEED)
    schema = pa.schema({"c": pa.int64()})
    [content] = ((C == 5) | C.isin([1, 2]) | C.is_null()).__reduce__()[1]
    for _ in range(number_of_examples(300)):
        words = expression_tree._metadata(pa.ipc.open_file(content).schema)
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(words))
            match draw.randrange(4):
                case 0:
                    del words[place]
                case 1:
                    words.insert(place, draw.choice(words))
                case 2:
                    words[place] = (words[place][0], draw.choice(words)[1])
                case 3:
                    words[place] = (draw.choice(words)[0], words[place][1])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(expression_tree, "_is_known_form", lambda: True)
            patch.setattr(expression_tree, "_metadata", lambda schema, words=words: words)
            alternatives_of(C == 5, schema)
            columns_of(C == 5)


def test_a_null_among_values_of_another_kind_may_match_all_rows():
    # Arrow turns numbers that cannot be a UUID into null, which is in this list.
    table = pa.table({"row": [0, 1], "a": [5, None]})
    condition = pc.is_in(field("a"), value_set=pa.array([None], pa.uuid()), skip_nulls=False)
    assert selected(table, condition) == [0, 1]
    assert alternatives_of(condition, table.schema) is None
    condition = pc.is_in(field("a"), value_set=pa.array([None], pa.int64()), skip_nulls=False)
    assert alternatives_of(condition, table.schema) == [[Predicate("a", "is null", None)]]
