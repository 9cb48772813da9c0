"""Random tables of all types, and random Expressions on them."""

import functools
import operator
import random

import pyarrow as pa
import pyarrow.compute as pc

from secure_bloom.arrow.views import without_views
from secure_bloom.pruning.expressions import columns_of
from tests.pruning.random_rows import Rows
from tests.pruning.row_domains import domains

DOMAINS = domains()
STRUCTS = {name: DOMAINS[name] for name in ("double", "string", "timestamp[ns]", "int64")}
GROUP = 6  # rows

_FAMILIES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal,
             lambda t: pa.types.is_timestamp(t) or pa.types.is_date(t), pa.types.is_time,
             pa.types.is_duration)
_COMPARISONS = (operator.eq, operator.eq, operator.lt, operator.le, operator.gt, operator.ge,
                operator.ne)
_OTHER_SETS = [*(pa.nulls(1, t) for t in (
    pa.int8(), pa.uint64(), pa.float32(), pa.string(), pa.binary(3), pa.date32(), pa.uuid(),
    pa.timestamp("s"), pa.decimal128(5, 2), pa.bool_(), pa.null())),
    pa.array([0, 1, 300]), pa.array([0.0, 1.0, 2.5]), pa.array(["0", "a", "true"]),
    pa.array([bytes(16), bytes(range(16))], pa.uuid())]


def random_table(draw: random.Random, rows: int) -> pa.Table:
    return Rows(draw, DOMAINS, {"st": STRUCTS}, rows, GROUP).table


def selected(table: pa.Table, expression: pc.Expression) -> list[int]:
    """The numbers of the rows that Arrow selects in memory."""
    names = columns_of(expression)
    if names is not None:  # saves time
        table = table.select(["row", *names])
    plain = pa.schema([field.with_type(without_views(field.type)) for field in table.schema])
    return table.cast(plain).filter(expression)["row"].to_pylist()


def random_expression(draw: random.Random, depth: int = 3) -> pc.Expression:
    if depth == 0 or draw.random() < 0.3:
        return _leaf(draw)
    parts = [random_expression(draw, depth - 1) for _ in range(3)]
    match draw.randrange(10):
        case 0 | 1 | 2:
            return parts[0] & parts[1]
        case 3 | 4 | 5 | 6:
            return functools.reduce(operator.or_, parts[:draw.choice([2, 2, 3])])
        case 7:
            return pc.if_else(*parts)
        case _:
            return ~parts[0]


def _leaf(draw: random.Random) -> pc.Expression:
    name = draw.choice([*DOMAINS, *STRUCTS, "flag"])
    is_nested = name in STRUCTS and draw.random() < 0.5
    field = pc.field("st", name) if is_nested else pc.field(name)
    match draw.randrange(20):
        case 0:
            return draw.choice([field.is_null(), field.is_valid()])
        case 1:
            return field.is_null(nan_is_null=True)
        case 2:
            return pc.scalar(pa.scalar(draw.choice([True, False, None]), pa.bool_()))
        case 3:
            return field == field
        case 4:
            return pc.field("flag")
        case 5 | 6 | 7 | 8 | 9:
            return _is_in(draw, field, _source(draw, name))
        case _:
            source = _source(draw, name)
            # Not a null of its type: pyarrow 26 crashes on some, such as large_string.
            literal = pc.scalar(None if draw.random() < 0.05 else draw.choice(source))
            compare = draw.choice(_COMPARISONS)
            return compare(field, literal) if draw.random() < 0.8 else compare(literal, field)


def _is_in(draw: random.Random, field: pc.Expression, source: pa.Array) -> pc.Expression:
    if draw.random() < 0.1:  # Arrow turns values that do not fit the column into null
        source = draw.choice(_OTHER_SETS)
    places = [draw.randrange(len(source)) for _ in range(draw.choice([0, 1, 2, 3]))]
    values = source.take(pa.array([*places, *([None] if draw.random() < .3 else [])], pa.int64()))
    found = pc.is_in(field, values, skip_nulls=draw.random() < 0.3)
    if draw.random() < 0.2:  # as DuckDB writes it
        return pc.if_else(field.is_valid(), found, pa.scalar(None, pa.bool_()))
    return found


@functools.cache
def _alike(name: str) -> list[str]:
    """Columns of the same family of types."""
    t = DOMAINS[name].stored.type
    families = [is_kind for is_kind in _FAMILIES if is_kind(t)]
    return [other for other, domain in DOMAINS.items()
            if any(is_kind(domain.stored.type) for is_kind in families)] or [name]


def _source(draw: random.Random, name: str) -> pa.Array:
    """Values to compare a column with: mostly of its type."""
    which = draw.random()
    if which < 0.03:
        name = draw.choice([*DOMAINS])
    elif which < 0.3:
        name = draw.choice(_alike(name))
    source = DOMAINS[name].stored
    if pa.types.is_string_view(source.type) or pa.types.is_binary_view(source.type):
        return source.cast(without_views(source.type))
    if pa.types.is_dictionary(source.type):
        return source.dictionary_decode()
    if pa.types.is_null(source.type):
        return pa.nulls(1)
    return source
