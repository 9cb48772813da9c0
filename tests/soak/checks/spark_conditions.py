"""Conditions of queries skip nothing that Spark finds: random ones, on plaintext and encrypted.

For each condition, the optimizer's plan of the encrypted table says what is pushed. Spark evaluates
all conditions of a case on plaintext files, with its own Parquet reader, in few jobs. A reader in
this process then says which row groups are left for a condition. Each row that Spark has found must
be in one of them. Some conditions are also run as one query that uses the same DataFrame many
times.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, _parse_datatype_json_string

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.index import build
from secure_bloom.keys import Keyring
from tests.modes import MASTER_KEYS
from tests.reading.ways import by_pages
from tests.soak.check import Case, Check
from tests.soak.checks import condition_grammar, spark_false_negatives

_FILES, _GROUP, _GROUPS = 6, 20, 8  # files, rows of a row group, row groups of a file
_BATCH = 100  # conditions that Spark evaluates in one job
_IN_ONE_QUERY = 6
_SETTINGS: dict[str, Sequence[str]] = {
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.session.timeZone": ("UTC", "America/New_York", "Asia/Kolkata", "Pacific/Apia"),
    "spark.sql.caseSensitive": ("false", "false", "false", "true"),
    "spark.sql.readSideCharPadding": ("true", "true", "false"),
    "spark.sql.legacy.noCharPaddingInPredicate": ("false", "false", "true"),
    "spark.sql.optimizer.inSetConversionThreshold": ("10", "2"),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("CORRECTED",),
    "spark.sql.codegen.wholeStage": ("false",),  # compiling takes longer than these few rows
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN",),
}


def _try(case: Case) -> None:
    compare(case, spark_false_negatives.session(), conditions=400)


def compare(case: Case, spark: Any, conditions: int) -> None:
    """Compare so many conditions on tables of a session."""
    settings = {name: case.random.choice(values) for name, values in _SETTINGS.items()}
    with _set(spark, settings), _database(spark, case) as name:
        tables = _Tables(case, spark, name)
        texts = list(condition_grammar.conditions(
            case.random, tables.columns, conditions,
            tolerant=settings["spark.sql.ansi.enabled"] == "false"))
        for start in range(0, len(texts), _BATCH):
            some = texts[start:start + _BATCH]
            planned = {text: plan for text in some if (plan := tables.planned(text)) is not None}
            found = _rows_found(tables.own, list(planned))
            case.counts["conditions with an error in Spark"] += len(some) - len(found)
            for text, ids in found.items():
                tables.check(text, ids, planned[text], settings)
        _check_together(case, tables, found, settings)


@contextlib.contextmanager
def _set(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@contextlib.contextmanager
def _database(spark: Any, case: Case) -> Iterator[str]:
    name = f"conditions_{case.folder.name.lower().replace('-', '_')}"
    spark.sql(f"create database {name} location '{case.folder}/database'")
    try:
        yield name
    finally:
        spark.sql(f"drop database {name} cascade")


def _rows_found(own: Any, texts: list[str]) -> dict[str, frozenset[int]]:
    """Return the ids of the rows that Spark finds, by condition; none that fail."""
    try:
        rows = own.select("id", *(F.expr(text).alias(str(number))
                                  for number, text in enumerate(texts))).toArrow()
    except PySparkException:  # of one of the conditions
        if len(texts) == 1:
            return {}
        half = len(texts) // 2
        return {**_rows_found(own, texts[:half]), **_rows_found(own, texts[half:])}
    return {text: frozenset(rows["id"].filter(rows[str(number)]).to_pylist())
            for number, text in enumerate(texts)}


# --- tables --------------------------------------------------------------------------------------

class _Plan(NamedTuple):
    """What the optimizer pushes, and the schema that is read.

    None: nothing is read, because the optimizer knows that no row matches.
    """

    conditions: str | None
    schema: str


class _Tables:
    """The same rows twice: for Spark's own reader, and encrypted, with filters, for ours."""

    def __init__(self, case: Case, spark: Any, database: str):
        self._case, self._spark = case, spark
        keys = Keyring.create(case.folder / "keys.json")
        for name, key in MASTER_KEYS.items():
            keys.add(name, key)
        self.columns = condition_grammar.choose_columns(case.random, spark.version)
        self._options = {"keys": str(keys.path), "path": str(case.folder / "ours"),
                         "mergeSchema": "true"}
        self._write(keys)
        definition = ", ".join(f"`{column.name}` {column.type}" for column in self.columns)
        for name, provider, more in (("own", "parquet", f"path '{case.folder}/own'"), (
                "ours", "secure_parquet", ", ".join(
                    f"{name} '{value}'" for name, value in self._options.items()))):
            partitioned = f"partitioned by ({', '.join(condition_grammar.PARTITIONS)})" \
                if name == "own" else ""
            spark.sql(f"create table {database}.{name} ({definition}) using {provider} "
                      f"options ({more}) {partitioned}")
        spark.sql(f"msck repair table {database}.own")
        self.own = spark.table(f"{database}.own")
        if any("char" in column.type for column in self.columns) or case.random.random() < 0.5:
            self.ours = spark.table(f"{database}.ours")  # CHAR is for tables only
        else:
            self.ours = spark.read.format("secure_parquet").options(**self._options).schema(
                definition).load()

    def _write(self, keys: Keyring) -> None:
        case, rows = self._case, _GROUP * _GROUPS
        in_files = [column for column in self.columns
                    if column.name not in condition_grammar.PARTITIONS]
        for number in range(_FILES):
            ids = list(range(number * rows, (number + 1) * rows))
            table = pa.table({column.name: pa.array(ids) if column.name == "id" else column.array(
                case.random, rows, number * _GROUPS, _GROUP) for column in in_files})
            place = condition_grammar.place(case.random, self.columns, number)
            for name in ("own", "ours"):
                (case.folder / name / place).mkdir(parents=True, exist_ok=True)
            pq.write_table(table, case.folder / "own" / place / f"{number}.parquet")
            path, table = case.folder / "ours" / place / f"{number}.parquet", \
                condition_grammar.varied(case.random, table)
            secure_bloom.write_table(
                table, path, row_group_size=_GROUP,
                bloom_filters=[name for name in table.column_names if case.random.random() < 0.8
                               and not pa.types.is_nested(table[name].type)
                               and not pa.types.is_boolean(table[name].type)],
                encryption=EncryptionConfiguration("kf", {"kc1": table.column_names[1:4]}),
                keys=keys)
        if case.random.random() < 0.3:
            for column in in_files[1:4]:
                build(case.folder / "ours", column.name, keys=keys)

    def planned(self, text: str) -> _Plan | None:
        """Return what the optimizer makes of a condition; None if it is an error, for both."""
        try:
            return self._planned(text)
        except PySparkException as error:
            with contextlib.suppress(PySparkException):
                self.own.where(text)._jdf.queryExecution().optimizedPlan()
                raise AssertionError(f"only with our table, {text!r} is an error") from error
            return None

    def check(self, text: str, ids: frozenset[int], plan: _Plan,
              settings: dict[str, str]) -> None:
        """Check that no row is lost by what the condition skips."""
        left = set() if plan.conditions is None else self._left(plan.conditions, plan.schema)
        lost = ids - left
        if lost:  # Spark may evaluate a condition otherwise where it is a column: NaN in an InSet
            lost &= {row.id for row in self.own.where(text).select("id").collect()}
            self._case.counts["conditions that Spark evaluates in two ways"] += not lost
        assert not lost, f"{len(lost)} rows are lost by {text!r}, with {settings}"
        self._case.tried += 1
        self._case.counts["conditions that skip" if len(left) < _FILES * _GROUPS * _GROUP
                          else "conditions that skip nothing"] += 1

    def _planned(self, text: str) -> _Plan:
        plan = self.ours.where(text)._jdf.queryExecution().optimizedPlan()
        leaves = plan.collectLeaves()
        leaf = leaves.apply(0)
        if not leaf.getClass().getSimpleName().startswith("DataSourceV2Scan"):
            return _Plan(None, "")
        return _Plan(leaf.scan().conditions().json(), leaf.scan().readSchema().json())

    def _left(self, conditions: str, schema: str) -> set[int]:
        """Return the ids of the rows that a reader with these conditions returns.

        It reads by pages whatever it can, to drop every row that it takes for one that is not
        wanted. It decodes only the columns of the conditions, because most of the time goes there.
        """
        from secure_bloom.spark.options.conditions import parse
        from secure_bloom.spark.source import SecureParquet
        source = SecureParquet(self._options)
        source.conditions = parse(conditions)
        parsed = _parse_datatype_json_string(schema)
        assert isinstance(parsed, StructType)
        used = StructType([field for field in parsed if field.name in ("id", *(
            source.conditions.columns))])
        with by_pages():
            reader = source.reader(used)
            return {one for task in reader.partitions() for batch in reader.read(task)
                    for one in batch["id"].to_pylist()}


def _check_together(case: Case, tables: _Tables, found: dict[str, frozenset[int]],
                    settings: dict[str, str]) -> None:
    """Check queries that use one DataFrame several times, with different conditions."""
    chosen = case.random.sample(sorted(found), min(_IN_ONE_QUERY, len(found)))
    parts = [tables.ours.where(text).select(F.lit(number).alias("n"), "id")
             for number, text in enumerate(chosen)]
    if case.random.random() < 0.5:
        parts[0] = parts[0].cache()
    everything = tables.ours.select(F.lit(-1), "id")
    rows = reduce(lambda one, other: one.union(other), [*parts, everything]).collect()
    parts[0].unpersist()
    for number, text in enumerate(chosen):
        ids = {row.id for row in rows if row.n == number}
        assert ids == found[text], f"{text!r} in a union, with {settings}"
    assert sum(row.n == -1 for row in rows) == _FILES * _GROUP * _GROUPS
    one, other = chosen[0], chosen[-1]
    pairs = tables.ours.where(one).select("id").join(tables.ours.where(other).select("id"), "id")
    assert {row.id for row in pairs.collect()} == found[one] & found[other], (one, other)
    case.counts["conditions in one query"] += len(chosen) + 2


CHECK = Check("spark_conditions", "no row is lost by a condition of a query, in Spark",
              "conditions", 20_000, _try, is_extra=True)
