"""All that reads a table, with a requirement."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pyarrow.fs as pa_fs

import secure_bloom
from secure_bloom import Policy, errors
from secure_bloom.errors import SecureBloomError
from secure_bloom.storage.visibility import data_files
from tests.soak.checks.adversary.table import OWNER, Row, Table, rows_of

MODES = "off", "auto", "require"

#: reads the rows of some persons
Reader = Callable[[Table, list[str], dict[str, Any]], list[Row]]

_NAMES = tuple(name for name, one in vars(errors).items()
               if isinstance(one, type) and issubclass(one, SecureBloomError))


def requirements(master_key: str) -> dict[str, Any]:
    """Return what readers may demand, by name."""
    return {
        "column and key": {"ssn": master_key},
        "columns and keys": {"ssn": master_key, "balance": master_key},
        "policy": Policy(footer_key="kf", columns={"ssn": master_key, "balance": master_key}),
        "column": ["ssn"],
        "every column": True,
    }


def names_the_key(requirement: str) -> bool:
    """Whether a file that a player has encrypted under another key does not meet it."""
    return requirement not in ("column", "every column")


def names_the_footer_key(requirement: str) -> bool:
    """Whether a footer that a player has written around the owner's columns does not meet it."""
    return requirement == "policy"


def demands_balances(requirement: str) -> bool:
    """Whether the balances must be encrypted, too."""
    return requirement not in ("column", "column and key")


def _read_table(table: Table, persons: list[str], options: dict[str, Any]) -> list[Row]:
    return [*rows_of(secure_bloom.read_table(table.folder, OWNER, filters=[
        ("ssn", "in", persons) if len(persons) > 1 else ("ssn", "==", persons[0])], **options))]


def _dataset(table: Table, persons: list[str], options: dict[str, Any]) -> list[Row]:
    people = secure_bloom.dataset(table.folder, OWNER, **options)
    condition = pc.field("ssn").isin(persons)
    rows = people.to_table(filter=condition)
    assert people.count_rows(condition) == rows.num_rows
    return [*rows_of(rows)]


def _files(table: Table, persons: list[str], options: dict[str, Any]) -> list[Row]:
    """Read a list of the files, instead of their folder."""
    paths = data_files(pa_fs.LocalFileSystem(), str(table.folder))
    if not paths:
        raise FileNotFoundError("there are no files to list")
    return [*rows_of(secure_bloom.dataset(paths, OWNER, **options).to_table(
        filter=pc.field("ssn").isin(persons)))]


def _find(table: Table, persons: list[str], options: dict[str, Any]) -> list[Row]:
    return [*rows_of(secure_bloom.find(table.folder, "ssn", persons, OWNER, **options))]


def _duckdb(table: Table, persons: list[str], options: dict[str, Any]) -> list[Row]:
    import duckdb
    people = secure_bloom.dataset(table.folder, OWNER, **options)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("people", people)
        shown = ", ".join(f"'{person}'" for person in persons)
        where = f"ssn IN ({shown})" if len(persons) > 1 else f"ssn = {shown}"
        return connection.sql(f"SELECT ssn, balance FROM people WHERE {where}").fetchall()


def _polars(table: Table, persons: list[str], options: dict[str, Any]) -> list[Row]:
    import polars as pl
    frame = secure_bloom.scan(table.folder, OWNER, **options)
    return frame.filter(pl.col("ssn").is_in(persons)).select("ssn", "balance").collect().rows()



READERS: dict[str, Reader] = {"read_table": _read_table, "dataset": _dataset, "files": _files,
                              "find": _find,
                              "duckdb": _duckdb, "polars": _polars}


def answer(name: str, table: Table, persons: list[str], **options: Any) \
        -> Counter[Row] | Exception:
    """Return the rows of some persons, or the typed error. Other errors are raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Counter(READERS[name](table, persons, options))
        except Exception as error:
            if is_typed(error):
                return error
            raise


def is_typed(error: Exception) -> bool:
    """Whether an error is one of ours, or one of an engine that shows one of ours."""
    if isinstance(error, SecureBloomError | FileNotFoundError):
        return True
    engine = type(error).__module__.partition(".")[0].strip("_")
    return engine in ("duckdb", "polars") and any(
        name in str(error) for name in (*_NAMES, "FileNotFoundError"))
