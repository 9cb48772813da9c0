"""Lookups that must find what is there, whichever writer wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom.reading.open_file import OpenFile
from tests.soak.check import Case
from tests.soak.generators import LEAVES, distinct_values, leaf, plain

_ALONE = 3


def check_filters(folder: Path, keys: Any, name: str) -> int:
    """Look up every value of every row group in its filter; return how many there are."""
    number = 0
    for path in folder.glob("*.parquet"):
        with OpenFile(path, keys) as file:
            for group in range(file.num_row_groups):
                column = file.open_in_pyarrow().read_row_group(group, [name])[name]
                values = distinct_values(leaf(column))
                if len(values):
                    answers = file.might_contain(LEAVES.get(name, name), values)
                    assert answers[group].all(), f"{name} of row group {group}"
                number += len(values)
    return number


def sample(case: Case, column: pa.ChunkedArray, most: int) -> list[Any]:
    """Return some of the values of a column that a lookup must find."""
    values = distinct_values(column)
    chosen = case.random.sample(range(len(values)), min(most, len(values)))
    return values.take(pa.array(chosen, pa.int64())).to_pylist()


def questions(values: list[Any]) -> list[list[Any]]:
    """Return lists to ask for: some values alone, and all of them.

    A reader skips a row group only if its filter denies all values of a list. So a long list hardly
    shows a wrong filter, but whether all rows are returned.
    """
    return [[value] for value in values[:_ALONE]] + ([values] if values else [])


def count_rows(column: pa.ChunkedArray, values: list[Any]) -> int:
    """Return how many rows have one of these values."""
    column = plain(column)
    return pc.sum(pc.is_in(column, pa.array(values, column.type))).as_py() or 0
