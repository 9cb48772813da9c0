"""Rows that are read by pages are those of whole row groups: any type, filter and writer."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import secure_bloom
from secure_bloom.keys import InMemoryKms
from tests.index.helpers import age
from tests.modes import MODES
from tests.reading.ways import by_pages, by_row_groups, counted, with_ranges
from tests.soak.check import Case, Check
from tests.soak.generators import LEAVES, column_keys, plain, random_options, random_table

_FILTERS = 40  # that a file is asked for
_OPERATORS = ("=", "=", "=", "!=", "<", "<=", ">", ">=", "in", "in", "not in", "<=>", "is null",
              "is not null")


def _try(case: Case) -> None:
    table = random_table(case, case.random.choice([1, 30, 2000, 10_000]))
    if not any("view" in str(one) for one in table.schema.types) and case.random.random() < 0.4:
        table = table.sort_by(_sorted_by(case, table))  # views cannot be sorted
    writer, keys = _write(case, table, case.folder / "a.parquet")
    with secure_bloom.ParquetFile(case.folder / "a.parquet", keys) as file:
        table = file.read()
        for _ in range(_FILTERS):
            filters = [[_predicate(case, table) for _ in range(case.random.choice([1, 1, 2]))]
                       for _ in range(case.random.choice([1, 1, 2]))]
            columns = None if case.random.random() < 0.5 else case.random.sample(
                table.column_names, case.random.randint(1, table.num_columns))
            with by_row_groups():
                expected = _read(file, columns, filters)
            with by_pages(), counted() as row_groups:
                found = _read(file, columns, filters)
            assert _same(found, expected), (filters, columns)
            case.tried += 1
            case.counts[writer] += len(row_groups)
    if keys is None or isinstance(keys, InMemoryKms):
        _try_with_index(case, table, keys)


def _try_with_index(case: Case, table: pa.Table, keys: Any) -> None:
    """Compare lookups that an index tells where the rows are with those without it."""
    folder = case.folder / "lake"
    folder.mkdir()
    (case.folder / "a.parquet").rename(folder / "a.parquet")
    age(folder)
    with with_ranges():
        indexed = [name for name in table.column_names
                   if name != "l" and _build(folder, LEAVES.get(name, name), keys)]
        for _ in range(_FILTERS if indexed else 0):
            filters = [[_equals(case, table) for _ in range(case.random.choice([1, 1, 2]))]
                       for _ in range(case.random.choice([1, 1, 2]))]
            with by_row_groups():
                expected = _read_folder(folder, keys, filters, "off")
            with by_pages(), counted() as row_groups:
                found = _read_folder(folder, keys, filters, "require")
            assert _same(found, expected), filters
            case.tried += 1
            case.counts["with an index"] += len(row_groups)


def _build(folder: Path, column: str, keys: Any) -> bool:
    for encryption in ("column", None):
        with suppress(secure_bloom.errors.ColumnError):
            result = secure_bloom.index.build(folder, column, keys, encryption=encryption)
            return not result.uncovered
    return False


def _equals(case: Case, table: pa.Table) -> tuple[str, str, Any]:
    while True:
        name, operator, value = _predicate(case, table)
        if operator in ("=", "in"):
            return name, operator, value


def _read_folder(folder: Path, keys: Any, filters: Any, index: Any) -> Any:
    try:
        return secure_bloom.read_table(folder, keys, filters=filters, index=index)
    except secure_bloom.errors.SecureBloomError as error:  # a value of a type without comparison
        return type(error)


def _sorted_by(case: Case, table: pa.Table) -> str:
    names = [name for name in table.column_names if name not in LEAVES
             and not pa.types.is_dictionary(table[name].type)]
    return str(case.random.choice(names))


def _write(case: Case, table: pa.Table, path: Path) -> tuple[str, Any]:
    """Write a file in one of the ways; return which, and the keys to read it."""
    groups = case.random.choice([table.num_rows, max(table.num_rows // 3, 1)])
    writer = case.random.choice(["ours", "ours", "ours", "pyarrow", "duckdb", "polars"])
    options = random_options(case) | {
        "write_page_index": case.random.random() < 0.9, "write_batch_size": case.random.choice(
            [10, 100, 1024]), "data_page_size": case.random.choice([200, 5000, 1 << 20])}
    if writer == "ours":
        mode = case.random.choice(MODES)
        mode.write(table, path, column_keys(case, table), row_group_size=groups,
                   bloom_filters=case.random.random() < 0.5, **options)
        return writer, mode.keys
    if writer == "pyarrow":
        pq.write_table(table, path, row_group_size=groups, **options)
    elif writer == "duckdb":
        table = pa.table({name: plain(table[name]) for name in table.column_names})
        duckdb.from_arrow(table).write_parquet(str(path), row_group_size=groups)
    else:
        pl.from_arrow(_for_polars(table)).write_parquet(path, row_group_size=groups,
                                                        data_page_size=options["data_page_size"])
    return writer, None


def _for_polars(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names
                         if not pa.types.is_fixed_size_binary(table[name].type)])


def _predicate(case: Case, table: pa.Table) -> tuple[str, str, Any]:
    names = [LEAVES.get(name, name) for name in table.column_names if name != "l"]
    name = case.random.choice(names)
    values = plain(table[name.split(".")[0]])
    found = [one["a"] if isinstance(one, dict) else one for one in (
        values[row].as_py() for row in case.random.choices(range(table.num_rows), k=40))]
    operator = case.random.choice(_OPERATORS)
    if operator.startswith("is"):
        return name, operator, None
    if operator in ("in", "not in"):
        return name, operator, found[:case.random.choice([0, 1, 3, 40])]
    return name, operator, found[0]


def _read(file: secure_bloom.ParquetFile, columns: list[str] | None, filters: Any) -> Any:
    try:
        return file.read(columns, filters=filters)
    except secure_bloom.errors.SecureBloomError as error:  # a value of a type without comparison
        return type(error)


def _same(found: Any, expected: Any) -> bool:
    """Whether two tables have the same schema and values, NaN and -0.0 among them."""
    if not isinstance(found, pa.Table) or not isinstance(expected, pa.Table):
        return found is expected
    return bool(found.schema.equals(expected.schema, check_metadata=True)) \
        and repr(found.to_pylist()) == repr(expected.to_pylist())


CHECK = Check("pages", "rows that are read by pages are those that whole row groups have",
              "comparisons", 50_000, _try)
