"""What is erased is gone, and nothing else is."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

import secure_bloom
from tests.modes import MODES
from tests.soak.check import Case, Check
from tests.soak.generators import (
    LEAVES,
    column_keys,
    distinct_values,
    plain,
    random_options,
    random_table,
)


def _try(case: Case) -> None:
    """Erase some values of a column of a random file; compare with a filter in memory."""
    mode = case.random.choice(MODES)
    path = case.folder / "a.parquet"
    written = random_table(case, case.random.choice([10, 500, 5000]))
    mode.write(written, path, column_keys(case, written), bloom_filters=True,
               row_group_size=case.random.choice([7, 100, 10_000]), **random_options(case))
    table = secure_bloom.read_table(path, mode.keys)
    name = case.random.choice([name for name in table.column_names if name not in LEAVES])
    values = distinct_values(table[name]).to_pylist()
    if not values:
        return
    erased = case.random.sample(values, min(len(values), case.random.choice([1, 3, 1000])))
    result = secure_bloom.erase(path, name, erased, mode.keys, max_share=1)
    table = _plain(table)
    gone = pc.is_in(table[name], pa.array(erased, table[name].type))
    kept = table.filter(pc.invert(gone))
    found = _plain(secure_bloom.read_table(path, mode.keys))
    assert result.ok and result.rows_removed == len(table) - len(kept), f"{mode}: {name}"
    assert repr(found.to_pydict()) == repr(kept.to_pydict()), f"{mode}: {name}"
    checked = secure_bloom.verify_file(path, mode.keys)
    assert checked.ok, f"{mode}: {checked}"
    case.tried += result.rows_removed
    case.counts["rows kept"] += len(kept)


def _plain(table: pa.Table) -> pa.Table:
    return pa.table({name: plain(table[name]) for name in table.column_names})


CHECK = Check("erasing", "what is erased is gone, and nothing else is", "rows erased", 10**5, _try)
