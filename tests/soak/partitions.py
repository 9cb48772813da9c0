"""Tables in partitions of random columns, and conditions that rule some of these partitions out."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import secure_bloom
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.pruning.predicates import condition_of

_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [0, 1, -1, 7, 2**31 - 1], pa.uint64(): [0, 7, 2**64 - 1],
    pa.string(): ["1", "01", "a=b/c", "ä %", "true", "x" * 40], pa.bool_(): [False, True],
    pa.date32(): [datetime.date(2026, 1, 1), datetime.date(1970, 1, 1), datetime.date(1, 1, 1)],
    pa.decimal128(5, 2): [Decimal("1.00"), Decimal("-0.50"), Decimal("999.99")]}
_PARTITIONS = ["p", "q", "r"]


def write(draw: random.Random, values: pa.ChunkedArray, folder: Path) -> pa.Table:
    """Write values in partitions; return all rows, with their numbers.

    Some folders have other spellings of the same values, or of null.
    """
    names = _PARTITIONS[:draw.randint(1, 3)]
    rows = {"n": pa.array(range(len(values)), pa.int64()), "v": values}
    for name in names:
        t = draw.choice(list(_VALUES))
        some = [*draw.sample(_VALUES[t], draw.randint(1, len(_VALUES[t]))), None]
        rows[name] = pa.array(draw.choices(some, k=len(values)), t)
    table = pa.table(rows)
    secure_bloom.write_dataset(table, folder, partition_by=names,
                               bloom_filters=draw.random() < 0.5)
    for path in sorted(folder.rglob("*=*"), reverse=True):
        if path.is_dir() and draw.random() < 0.3:
            name, _, value = path.name.partition("=")
            is_number = pa.types.is_integer(table.schema.field(name).type)
            first = f"%{ord(value[0]):02X}" if value[0] in "0123456789_tfx" else value[0]
            path.rename(path.with_name(f"{name}=0{value}" if is_number and value.isdecimal()
                                       else f"{name}={first}{value[1:]}"))
    return table


def condition(draw: random.Random, schema: pa.Schema, values: list[Any]) -> Any:
    """Return a condition: a list, also on some of the values, or an Expression."""
    if draw.random() < 0.5:
        return [[_predicate(draw, schema, values) for _ in range(draw.randint(1, 3))]
                for _ in range(draw.randint(1, 3))]
    return _tree(draw, schema, draw.randint(0, 4))


def rows_of(condition: Any, table: pa.Table) -> list[int]:
    """Return the numbers of the rows for which a condition holds, found without any file."""
    batch = table.combine_chunks().to_batches()[0]
    holds = RowFilter(condition_of(condition), table.schema).holds(batch)
    return batch["n"].filter(holds).to_pylist()


def _tree(draw: random.Random, schema: pa.Schema, depth: int) -> pc.Expression:
    if depth:
        parts = [_tree(draw, schema, draw.randrange(depth)) for _ in range(2)]
        whole = reduce(draw.choice([and_, or_]), parts)
        return ~whole if draw.random() < 0.3 else whole
    name, operator, value = _predicate(draw, schema, [])
    field, t = pc.field(name), schema.field(name).type
    if operator.startswith("is"):
        return field.is_null() if operator == "is null" else field.is_valid()
    if "in" in operator:
        found = field.isin(pa.array(value, t))
        return found if operator == "in" else ~found
    operands = field, pa.scalar(value, t)
    return {"==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
            ">=": lambda a, b: a >= b}[operator](*operands)


def _predicate(draw: random.Random, schema: pa.Schema, values: list[Any]) -> tuple[str, str, Any]:
    name = draw.choice([*schema.names[2:], *schema.names[2:], "v"][:None if values else -1])
    known = values if name == "v" else _VALUES[schema.field(name).type]
    operator = draw.choice(["==", "==", "!=", "<", ">=", "in", "not in", "is null", "is not null"])
    if name == "v":  # not all types have an order
        operator = draw.choice(["==", "in"])
    if operator.startswith("is"):
        return name, operator, None
    if "in" in operator:
        return name, operator, draw.choices(known, k=draw.randint(0, 3))
    return name, operator, draw.choice(known)
