"""A value that is there is never reported absent: any way to write, any way to ask."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from itertools import compress
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.index import Index, file_table
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.row_groups import prune
from tests.index.helpers import age
from tests.modes import Mode
from tests.reading.ways import by_pages, with_ranges
from tests.soak import partitions
from tests.soak.check import Case, Check
from tests.soak.generators import (
    KMS_MODES,
    LEAVES,
    column_keys,
    distinct_values,
    plain,
    random_options,
    random_table,
)
from tests.soak.lookups import check_filters, count_rows, questions, sample

_SMALL, _LARGE = 50_000, 2_000_000  # rows of the largest small table, and of a large one
_SAMPLE, _LARGE_SAMPLE = 200, 50_000  # values that are looked up in a table
_PRUNED, _LARGE_PRUNED = 50_000, 2000  # values that are looked up in a file, one at a time
_LARGE_SHARE = 0.4  # of the cases
_IN_PARTITIONS, _CONDITIONS = 200, 30  # rows of a table in partitions, and its conditions


def _try(case: Case) -> None:
    is_large = case.random.random() < _LARGE_SHARE
    table = random_table(case, _LARGE if is_large else case.random.choice([1, 100, 5000, _SMALL]))
    mode, folder = case.random.choice(KMS_MODES), case.folder / "lake"
    write = case.random.choice(list(_WRITERS))
    _WRITERS[write](case, table, mode, folder)
    table = secure_bloom.read_table(folder, mode.keys)  # of all types as the files have them
    names = [name for name in table.column_names
             if _can_have_filter(folder, mode, LEAVES.get(name, name))]
    looked_up = case.random.sample(names, min(len(names), 1 if is_large else 2))
    for name in names:
        for ask, ways in _ASKERS.items():
            if ask == "filters" or (name in looked_up and name not in LEAVES):
                number = ways(case, table, mode, folder, name)
                case.tried += number
                case.counts[f"{write}, {ask}"] += number


def _can_have_filter(folder: Path, mode: Mode, name: str) -> bool:
    with secure_bloom.ParquetFile(next(folder.glob("*.parquet")), mode.keys) as file:
        return file.footer.column(name).type.can_have_filter


# --- ways to write -------------------------------------------------------------------------------

def _write(case: Case, table: pa.Table, mode: Mode, folder: Path, filters: bool = True) -> None:
    folder.mkdir()
    mode.write(table, folder / "a.parquet", column_keys(case, table), bloom_filters=filters,
               row_group_size=_row_group_size(case, table), **random_options(case))


def _row_group_size(case: Case, table: pa.Table) -> int:
    return case.random.choice([1000, 20_000, _SMALL] if table.num_rows < _LARGE
                              else [250_000, _LARGE])


def _write_dataset(case: Case, table: pa.Table, mode: Mode, folder: Path) -> None:
    columns = {} if mode.is_uniform else {"column_keys": column_keys(case, table)}
    secure_bloom.write_dataset(
        table, folder, bloom_filters=True, keys=mode.keys,
        encryption=EncryptionConfiguration("kf", **columns, **mode.options),
        max_rows_per_file=max(20_000, table.num_rows // 4),
        row_group_size=_row_group_size(case, table),
        **random_options(case))


def _attach(case: Case, table: pa.Table, mode: Mode, folder: Path) -> None:
    _write(case, table, mode, folder, filters=False)
    assert not secure_bloom.attach(folder, True, mode.keys).failed


def _seal(case: Case, table: pa.Table, mode: Mode, folder: Path) -> None:
    """Encrypt plaintext filters of encrypted columns, as another writer leaves them."""
    folder.mkdir()
    names = ["id", *(name for name in table.column_names[1:3]
                     if not pa.types.is_dictionary(table.schema.field(name).type))]
    columns = {} if mode.is_uniform else {"column_keys": {"kc1": names}}
    (folder / "a.parquet").write_bytes(leaking_file(
        table, names, mode.keys, row_group_size=_row_group_size(case, table),
        encryption=EncryptionConfiguration("kf", **columns, **mode.options)))
    assert not secure_bloom.seal(folder, mode.keys).failed


def _erase(case: Case, table: pa.Table, mode: Mode, folder: Path) -> None:
    _write(case, table, mode, folder)
    ids = case.random.sample(range(table.num_rows), min(3, table.num_rows - 1))
    if ids:
        assert secure_bloom.erase(folder, "id", ids, mode.keys, max_share=1).ok


def _by_pyarrow(case: Case, table: pa.Table, mode: Mode, folder: Path) -> None:
    """Plaintext: pyarrow writes no other filters."""
    folder.mkdir()
    names = [LEAVES.get(name, name) for name in table.column_names
             if not pa.types.is_dictionary(table.schema.field(name).type)]
    pq.write_table(table, folder / "a.parquet", row_group_size=_row_group_size(case, table),
                   bloom_filter_options=dict.fromkeys(names, True), **random_options(case))


_WRITERS: dict[str, Callable[[Case, pa.Table, Mode, Path], None]] = {
    "write_table": _write, "write_dataset": _write_dataset, "attach": _attach, "seal": _seal,
    "erase": _erase, "pyarrow": _by_pyarrow}


# --- ways to ask ---------------------------------------------------------------------------------

def _filters(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    return check_filters(folder, mode.keys, name)


def _prune(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    """Some values of each row group, one at a time."""
    most = _PRUNED if table.num_rows <= _SMALL else _LARGE_PRUNED
    number = 0
    for path in folder.glob("*.parquet"):
        with OpenFile(path, mode.keys) as file:
            # Each lookup reads the filters of all row groups, hence the square.
            number_here = max(3, most // file.num_row_groups**2)
            for group in range(file.num_row_groups):
                part = file.open_in_pyarrow().read_row_group(group, [name])
                for value in sample(case, part[name], number_here):
                    assert group in prune(file, [(name, "==", value)]), name
                    number += 1
    return number


def _read(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    values = _sample(case, table, name)
    for some in questions(values):
        condition = (name, "in", some) if len(some) > 1 else (name, "==", some[0])
        rows = secure_bloom.read_table(folder, mode.keys, filters=[condition])
        assert rows.num_rows == count_rows(table[name], some), f"{name}: {len(some)} values"
    return len(values)


def _dataset(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    values, lake = _sample(case, table, name), secure_bloom.dataset(folder, mode.keys)
    for some in questions(values):
        rows = lake.count_rows(pc.field(name).isin(pa.array(some, _plain(table, name))))
        assert rows == count_rows(table[name], some), f"{name}: {len(some)} values"
    return len(values)


def _duckdb(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    values, lake = _sample(case, table, name), secure_bloom.dataset(folder, mode.keys)
    with duckdb.connect() as connection:
        connection.register("lake", lake)
        for some in questions(values):
            query = f'SELECT count(*) FROM lake WHERE "{name}" IN ({", ".join("?" * len(some))})'
            [(rows,)] = connection.execute(query, some).fetchall()
            assert rows == count_rows(table[name], some), f"{name}: {len(some)} values"
    return len(values)


def _find(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    values = _sample(case, table, name)
    for some in questions(values):
        found = secure_bloom.find(folder, name, pa.array(some, _plain(table, name)), mode.keys)
        assert found.num_rows == count_rows(table[name], some), f"{name}: {len(some)} values"
    return len(values)


def _index(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    values = _sample(case, table, name)
    if not values:
        return 0
    _build_index(case, folder, mode, name)
    with by_pages() if case.random.random() < 0.5 else nullcontext():
        _read_by_index(table, mode, folder, name, values)
    looked_up = pa.array(values, _plain(table, name))
    found = Index.open(folder, mode.keys).lookup(name, looked_up)
    assert not found.uncovered
    for path in folder.glob("*.parquet"):
        with OpenFile(path, mode.keys) as file:
            for group in range(file.num_row_groups):
                column = file.open_in_pyarrow().read_row_group(group, [name])[name]
                is_there = pc.is_in(looked_up, pa.array(distinct_values(column), looked_up.type))
                for groups in compress(found.row_groups, is_there.to_numpy(zero_copy_only=False)):
                    assert group in groups.get(path.name, []), f"{name}: one of the values"
    return len(values)


def _index_after_erasing(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    """In a copy, of which an erasure has changed pages of the index."""
    values = _sample(case, table, name)
    if not values or table.num_rows < 4 or case.random.random() < 0.7:
        return 0
    copy = case.folder / f"without {name}"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("_index"))
    _build_index(case, copy, mode, name)
    ids = case.random.sample(range(table.num_rows), 3)
    assert secure_bloom.erase(copy, "id", ids, mode.keys, max_share=1).ok
    assert Index.open(copy, mode.keys).verify(None).ok
    rest = secure_bloom.read_table(copy, mode.keys)
    assert rest.num_rows == table.num_rows - 3
    _read_by_index(rest, mode, copy, name, values)
    return len(values)


def _in_partitions(case: Case, table: pa.Table, mode: Mode, folder: Path, name: str) -> int:
    """With a schema, by which partitions that a condition rules out are not listed."""
    values = _sample(case, table, name)
    if not values or pa.types.is_nested(table[name].type) or case.random.random() < 0.5:
        return 0
    copy = case.folder / f"partitions {name}"
    rows = partitions.write(case.random, plain(table[name].slice(0, _IN_PARTITIONS)), copy)
    assert secure_bloom.read_table(copy, schema=rows.schema).num_rows == rows.num_rows
    for _ in range(_CONDITIONS):
        condition = partitions.condition(case.random, rows.schema, values)
        found = secure_bloom.read_table(copy, schema=rows.schema, filters=condition)
        assert sorted(found["n"].to_pylist()) == partitions.rows_of(condition, rows)
    return _CONDITIONS


def _build_index(case: Case, folder: Path, mode: Mode, name: str) -> None:
    age(folder)  # the index is not used for files that are too young
    encryption = "column" if _is_encrypted(folder, mode, name) else None
    with with_ranges() if case.random.random() < 0.5 else nullcontext(), \
            mock.patch.object(file_table, "PAGE_FILES", case.random.choice([1, 2, 128])):
        secure_bloom.index.build(folder, name, mode.keys, encryption=encryption,
                                 exclusive=case.random.random() < 0.5)
        assert Index.open(folder, mode.keys).verify(None).ok


def _read_by_index(table: pa.Table, mode: Mode, folder: Path, name: str,
                   values: list[Any]) -> None:
    for some in questions(values):
        rows = secure_bloom.read_table(folder, mode.keys, index="require",
                                       filters=[(name, "in", some)])
        assert rows.num_rows == count_rows(table[name], some), f"{name}: {len(some)} values"


def _is_encrypted(folder: Path, mode: Mode, name: str) -> bool:
    return any(chunk.encryption for path in folder.glob("*.parquet")
               for chunk in secure_bloom.ParquetFile(path, mode.keys).footer.column_chunks()
               if chunk.column.path == name)


def _sample(case: Case, table: pa.Table, name: str) -> list[Any]:
    return sample(case, table[name], _SAMPLE if table.num_rows <= _SMALL else _LARGE_SAMPLE)


def _plain(table: pa.Table, name: str) -> pa.DataType:
    return plain(table[name]).type


_ASKERS = {"filters": _filters, "prune": _prune, "read_table": _read, "dataset": _dataset,
            "duckdb": _duckdb, "find": _find, "index": _index,
            "index after erasing": _index_after_erasing, "partitions": _in_partitions}

CHECK = Check("false_negatives", "a value that is there is never reported absent",
              "values", 10**9, _try)
