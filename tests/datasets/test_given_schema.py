"""Tables read with a schema that the caller gives: partitions that a filter rules out are left out.

What they have cannot matter then, so files there that are damaged are not noticed.
"""

import datetime
import random
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import index
from secure_bloom.errors import (
    ArgumentError,
    AuthenticationError,
    FormatError,
    UnknownColumnError,
    UnsupportedError,
)
from secure_bloom.keys import NO_KEYS
from tests.cases import for_each
from tests.index.helpers import KMS
from tests.tiers import number_of_examples

SCHEMA = pa.schema([("x", pa.int64()), ("zip", pa.string()), ("day", pa.int32())])


def read(folder, filters=None, schema=SCHEMA, **options):
    return secure_bloom.read_table(folder, NO_KEYS, schema=schema, filters=filters, **options)


def put(folder, partition, number=0, **columns):
    (folder / partition).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": [number], **columns}), folder / partition / f"{number}.parquet")


def damage(folder, partition):
    """Add a file that nothing can read."""
    (folder / partition).mkdir(parents=True, exist_ok=True)
    (folder / partition / "damaged.parquet").write_bytes(b"damaged")


@pytest.fixture
def lake(tmp_path):
    for number, (place, day) in enumerate([("01234", 1), ("01234", 2), ("2%2F3", 1), ("2%2F3", 3)]):
        put(tmp_path / "t", f"zip={place}/day={day}", number)
    return tmp_path / "t"


@pytest.mark.parametrize("read_it", [read, lambda *arguments: secure_bloom.dataset(
    arguments[0], NO_KEYS, schema=SCHEMA).to_table(filter=arguments[1])], ids=["table", "dataset"])
def test_partition_columns_have_the_types_of_the_schema(lake, read_it):
    assert read_it(lake, None).schema == SCHEMA
    for condition in ([("zip", "==", "01234")], pc.field("zip") == "01234"):
        assert read_it(lake, condition)["zip"].to_pylist() == ["01234"] * 2
    assert read_it(lake, [("zip", "==", "2/3"), ("day", ">", 1)])["x"].to_pylist() == [3]


@pytest.mark.parametrize(("t", "texts", "values"), [
    (pa.date32(), ["2026-01-02"], [datetime.date(2026, 1, 2)]),
    (pa.decimal128(5, 2), ["1", "1.50"], [Decimal("1.00"), Decimal("1.50")]),
    (pa.bool_(), ["false", "true"], [False, True]),
    (pa.timestamp("us"), ["2026-01-02 03%3A04%3A05"], [datetime.datetime(2026, 1, 2, 3, 4, 5)]),
    (pa.float64(), ["0.5", "1e3"], [0.5, 1000.0]),
    (pa.dictionary(pa.int8(), pa.string()), ["01", "1"], ["01", "1"]),
    (pa.string_view(), ["%C3%A4"], ["ä"]), (pa.large_string(), ["a"], ["a"]),
    (pa.binary(), ["a"], [b"a"]), (pa.uint64(), [str(2**64 - 1)], [2**64 - 1])], ids=str)
def test_each_type_is_converted_and_compared(tmp_path, t, texts, values):
    for number, text in enumerate([*texts, "__HIVE_DEFAULT_PARTITION__"]):
        put(tmp_path, f"a={text}", number)
    schema = pa.schema([("x", pa.int64()), ("a", t)])
    rows = read(tmp_path, None, schema)
    assert rows.schema == schema
    assert dict(zip(*rows.to_pydict().values(), strict=True)) == dict(enumerate([*values, None]))
    for number, value in enumerate(values):
        assert read(tmp_path, [("a", "==", value)], schema)["x"].to_pylist() == [number]
    assert read(tmp_path, [("a", "is null", None)], schema)["x"].to_pylist() == [len(values)]


def test_partitions_that_are_ruled_out_are_not_opened(lake):
    """At any level, whatever form the condition has."""
    damage(lake, "zip=2%2F3/day=3")
    damage(lake, "zip=01234/day=03")  # the same day
    with pytest.raises(FormatError):
        read(lake)
    day, place = pc.field("day"), pc.field("zip")

    @for_each("condition", [
        [("day", "in", [1, 2]), ("x", ">=", 0)], [("day", "not in", [3])],
        [[("day", "==", 1)], [("day", "==", 2), ("zip", "==", "01234")]],
        (day == 1) | (day == 2), ~(day >= 3), ~((day == 3) | (day == 4)), day.isin([1, 2]),
        (pc.field("x") < 9) & ((day == 1) | ((day < 3) & (place != "9"))),
        pc.if_else(place == "01234", day < 3, day == 1)])
    def check(condition):
        for source in (lake, f"{lake}/*/*", [lake / "zip=01234", lake / "zip=2%2F3"]):
            assert sorted(read(source, condition)["x"].to_pylist()) == [0, 1, 2]

    check()


def test_the_rows_are_those_of_a_filter_on_all_rows(tmp_path):
    """For columns in paths and files, nulls, escapes, columns that few paths have, and links."""
    table, rng = tmp_path / "t", random.Random(1)
    names = ["a=1", "a=1/b=x", "a=2/b=y", "a=2/a=1", "b=x/a=1", "a=%31", "c/a=1/b=z", "b=%3D",
             "a=__HIVE_DEFAULT_PARTITION__/b=x", "b=__HIVE_DEFAULT_PARTITION__", "", "a=3/c/b=x",
             "_a=1/b=x", "s.f=1", "x=5/a=1", "B=x/a=1"]
    for number, name in enumerate(names):
        put(table, name, number, **({"a": pa.array([rng.randrange(4)], pa.int32())}
                                    if number % 2 else {}), s=[{"f": number % 3}])
    (tmp_path / "elsewhere").mkdir()
    put(tmp_path / "elsewhere", "b=x", 99, s=[{"f": 1}])
    (table / "a=9").symlink_to(tmp_path / "elsewhere")
    schema = pa.schema([("x", pa.int64()), ("a", pa.int64()), ("b", pa.string()),
                        ("s", pa.struct([("f", pa.int64())]))])
    whole = read(table, None, schema)
    assert len(whole) == len(names) + 1
    a, b, f = pc.field("a"), pc.field("b"), pc.field("s", "f")
    parts = [a == 1, a > 1, a != 2, a.is_null(), ~a.is_null(), b == "x", b.isin(["x", "="]),
             b.is_null(), f == 1, pc.field("x") < 9, a + 1 == 2, b == "z"]
    for _ in range(number_of_examples(25)):
        condition = rng.choice(parts)
        for _ in range(rng.randrange(4)):
            other = rng.choice(parts)
            condition = rng.choice([condition & other, condition | other, ~condition & other,
                                    ~(condition | other), condition])
        expected = ds.InMemoryDataset(whole).to_table(filter=condition)
        assert read(table, condition, schema).sort_by("x") == expected.sort_by("x"), condition


def test_a_value_that_is_not_one_of_the_type_is_an_error_where_it_is_listed(lake):
    put(lake, "zip=01234/day=x", 7)
    with pytest.raises(UnsupportedError, match=r"'x'.*int32") as error:
        read(lake, [("day", "==", 1)])
    assert error.value.column == "day" and error.value.file.endswith("t/zip=01234/day=x/7.parquet")
    assert read(lake, [("zip", "==", "2/3")]).num_rows == 2
    put(lake, "zip=%FF/day=1", 8)
    with pytest.raises(UnsupportedError, match="UTF-8"):
        read(lake, [("zip", "==", "2/3")])


def test_a_table_is_empty_if_all_partitions_are_left_out_but_not_if_there_is_none(lake):
    found = read(lake, [("day", "==", 9)])
    assert found.num_rows == 0 and found.schema == SCHEMA
    assert read([lake / "zip=01234"], [("day", "==", 9)]).num_rows == 0
    (lake.parent / "empty" / "_x").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        read(lake.parent / "empty", [("day", "==", 9)])


def test_files_have_exactly_the_columns_of_the_schema(lake, tmp_path):
    for number, source in enumerate((lake, f"{lake}/*/day=1", [lake / "zip=01234"])):
        assert read(source, schema=pa.schema([("y", pa.string()), ("x", pa.int64())])) \
            .column_names == ["y", "x"], number
    assert read(f"{lake}/*/day=*", [("day", "==", 2)])["x"].to_pylist() == [1]
    file = next(lake.glob("*/day=1/*.parquet"))
    assert secure_bloom.dataset(file, NO_KEYS, schema=SCHEMA).to_table() == read([file])
    assert [read(file, [("day", "==", day)])["day"].to_pylist() for day in (1, 2)] == [[1], []]
    with pytest.raises(UnknownColumnError, match="nothing"):
        read(lake, [("nothing", "==", 1)])
    put(lake, "zip=1/day=1", 2**40)
    with pytest.raises(UnsupportedError, match="do not fit") as error:
        read(lake, schema=pa.schema([("x", pa.int8())]))
    assert error.value.file.endswith(f"{2**40}.parquet")
    for read_it in (read, lambda *_, schema: secure_bloom.dataset(
            lake, NO_KEYS, schema=schema).to_table()):
        with pytest.raises(UnsupportedError, match=r"choose another one, .* dictionary"):
            read_it(lake, schema=pa.schema([("x", pa.dictionary(pa.int8(), pa.int64()))]))
    opened = secure_bloom.dataset(lake, NO_KEYS)
    for with_schema in (partial(secure_bloom.read_table, lake, NO_KEYS),
                        partial(secure_bloom.dataset, lake, NO_KEYS), opened.replace_schema):
        with pytest.raises(TypeError, match=r"a pyarrow\.Schema, not list"):
            with_schema(schema=["x"])
        with pytest.raises(ArgumentError, match="column x: the schema has several columns"):
            with_schema(schema=pa.schema([("x", pa.int8()), ("y", pa.int8()), ("x", pa.int8())]))
    with pytest.raises(TypeError, match="only for paths"):
        read(pa.py_buffer(file.read_bytes()))


def test_row_groups_are_not_skipped_by_types_that_the_files_do_not_have(tmp_path):
    put(tmp_path, "day=1", 5)
    put(tmp_path, "day=2", 7)
    schema = pa.schema([("x", pa.string()), ("day", pa.int64())])
    for condition in ([("x", "==", "5")], pc.field("x") == "5"):
        assert read(tmp_path, condition, schema)["x"].to_pylist() == ["5"]
    put(tmp_path / "f", "day=1", 1, f=[0.1])  # which is another number as float32
    rounded = pa.scalar(0.1, pa.float32()).as_py()
    schema = pa.schema([("f", pa.float32()), ("day", pa.int64())])
    assert read(tmp_path / "f", [("f", "==", rounded)], schema).num_rows == 1


def test_nothing_is_left_out_if_all_files_must_be_encrypted(lake):
    encryption = secure_bloom.EncryptionConfiguration("footer", uniform_encryption=True)
    for file in lake.glob("*/day=1/*.parquet"):
        secure_bloom.write_table(pq.read_table(file, partitioning=None), file, keys=KMS,
                                 encryption=encryption)
    options = {"schema": SCHEMA, "filters": [("day", "==", 1)]}
    assert secure_bloom.read_table(lake, KMS, **options).num_rows == 2
    with pytest.raises(AuthenticationError, match="not encrypted"):
        secure_bloom.read_table(lake, KMS, require_encryption=True, **options)
    with pytest.raises(AuthenticationError, match="from the path"):  # of a column not in the schema
        secure_bloom.read_table(lake, KMS, schema=pa.schema([("x", pa.int64())]),
                                require_encryption=["zip"])


def test_a_table_with_a_log_is_refused_whatever_is_left_out(lake):
    (lake / "_delta_log").mkdir()
    (lake / "_delta_log" / "0.json").write_text("{}")
    with pytest.raises(UnsupportedError, match="Delta"):
        read(lake, [("day", "in", [])])
    assert read(lake, [("day", "in", [])], all_files=True).num_rows == 0


def test_files_of_running_jobs_are_hidden_in_the_partitions_that_are_entered(lake):
    job = "0" * 32
    (lake / "_staging" / job).mkdir(parents=True)
    (lake / "_staging" / job / "started").touch()
    damage(lake, "zip=01234/day=1")
    (lake / "zip=01234/day=1/damaged.parquet").rename(
        lake / f"zip=01234/day=1/part-00000-{job}-{job}.parquet")
    assert read(lake, [("day", "==", 1)])["x"].to_pylist() == [0, 2]


@pytest.mark.parametrize("exclusive", [True, False])
def test_an_index_is_used_and_knows_as_much_afterwards(tmp_path, exclusive):
    """Also one that knows all files, and need not list them."""
    table, encryption = tmp_path / "t", secure_bloom.EncryptionConfiguration(
        "footer", {"pii": ["ssn"]})
    rows = pa.table({"ssn": [f"s{number % 50}" for number in range(200)],
                     "day": pa.array([number % 4 for number in range(200)], pa.int32())})
    secure_bloom.write_dataset(rows, table, partition_by=["day"], keys=KMS, encryption=encryption,
                               max_rows_per_file=20)
    index.build(table, "ssn", KMS, exclusive=exclusive)
    before = index.Index.open(table, KMS).lookup("ssn", "s3")
    schema = pa.schema([("ssn", pa.string()), ("day", pa.string())])
    s3 = ("ssn", "==", "s3")
    for condition, found in (([s3, ("day", "==", "1")], 2), ([s3, ("day", ">", "1")], 2),
                             ([s3, ("day", "==", "9")], 0),
                             ([[s3, ("day", "==", "3")], [("day", "==", "2")]], 52),
                             (pc.field("ssn").isin(["s3", "s4"]) & (pc.field("day") < "3"), 6)):
        for use in ("require", "off"):
            assert secure_bloom.read_table(table, KMS, schema=schema, filters=condition,
                                           index=use).num_rows == found
    assert index.Index.open(table, KMS).lookup("ssn", "s3") == before
    assert secure_bloom.read_table([table / "day=1"], KMS, schema=schema, index="require",
                                   filters=[s3, ("day", "==", "2")]).num_rows == 0
    for file in table.glob("day=3/*.parquet"):
        file.write_bytes(b"damaged")
    assert secure_bloom.read_table(table, KMS, schema=schema, index="require",
                                   filters=[s3, ("day", "==", "1")]).num_rows == 2
