"""Random columns of Spark's types, and random conditions on them, as text of SQL."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

PARTITIONS = ("p", "ps", "pd")
_DEPTH = 3

Values = Callable[[random.Random, int], Any]  # of a row group, by its number
Literal = Callable[[random.Random], str]


@dataclass(frozen=True)
class Column:
    """A column: its type in Spark and Arrow, its values, and text of values like them.

    Values of neighbouring row groups resemble each other, so that statistics tell something.
    """

    name: str
    type: str
    arrow: pa.DataType
    values: Values
    literal: Literal

    @property
    def sql(self) -> str:
        """The name in SQL."""
        return f"`{self.name}`"

    def array(self, draw: random.Random, rows: int, first: int, group: int) -> pa.Array:
        """Return values of some row groups, with nulls."""
        nulls = draw.choice([0.0, 0.1, 0.1, 1.0])
        return pa.array([None if draw.random() < nulls else self.values(draw, first + row // group)
                         for row in range(rows)], self.arrow)


def _number(low: int, high: int, step: int) -> Values:
    return lambda draw, group: max(low, min(high, (group - 20) * step + draw.randrange(3 * step)))


_WORDS = ["", "a", "A", "ab", "aB ", "B", "ä", "Ä", "ß", "\U0001f600", "\ue000", "zz", "Zz ", "a%b",
          "10", "7", " 7", "1.5", "2024-01-05", "true", "x_y"]
_REALS = [0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 0.1, 1e10, 5e-324, 7.0]
_DECIMALS = [Decimal(text) for text in (
    "1234567890123456789012345678.1234567891", "-0.0000000001", "7", "0.5", "-3.25",
    "9999999999999999999999999999.9999999999", "0")]
_OLD_DAYS = [datetime.date(1, 1, 1), datetime.date(1582, 10, 4), datetime.date(1582, 10, 15),
             datetime.date(9999, 12, 31), datetime.date(1900, 1, 1), datetime.date(1, 1, 2)]
_DAY, _MOMENT = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)


def _text(draw: random.Random, group: int) -> str:
    return draw.choice(_WORDS[group % 7:group % 7 + 8]) + draw.choice(["", "", str(group % 9)])


def _day(draw: random.Random, group: int) -> datetime.date:
    return draw.choice(_OLD_DAYS) if group % 11 == 0 and draw.random() < 0.3 \
        else _DAY + datetime.timedelta(group + draw.randrange(2))


def _moment(draw: random.Random, group: int) -> datetime.datetime:
    if group % 13 == 0 and draw.random() < 0.3:
        return draw.choice([
            datetime.datetime(1, 1, 2, 3), datetime.datetime(1883, 11, 18, 12, 3, 58),
            datetime.datetime(9999, 12, 30), datetime.datetime(2024, 3, 10, 7, 30)])
    return _MOMENT + datetime.timedelta(group, draw.randrange(86_400),
                                        draw.choice([0, 0, 1, 999_999]))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


def _any_text(draw: random.Random) -> str:
    return _quoted(draw.choice(_WORDS) + draw.choice(["", "", "1", "4", " ", "  "]))


def _any_day(draw: random.Random) -> str:
    if draw.random() < 0.15:
        return draw.choice(["date'-0044-03-15'", "date'+10000-01-01'", "date'0001-01-01'",
                            "date'1582-10-10'", "date'1582-10-04'", "date'+294247-01-10'"])
    return f"date'{_DAY + datetime.timedelta(draw.randrange(-3, 60))}'"


def _any_moment(kind: str) -> Literal:
    def literal(draw: random.Random) -> str:
        if draw.random() < 0.1:
            old = draw.choice(["-0044-03-15 00:00:00", "+10000-01-01 00:00:00",
                               "0001-01-02 03:00:00"])
            return f"{kind}'{old}'"
        moment = _MOMENT + datetime.timedelta(draw.randrange(-2, 55), draw.choice([0, 43_200, 30]))
        zone = draw.choice(["", "", "Z", " Asia/Tokyo"]) if kind == "timestamp" else ""
        return f"{kind}'{moment}{zone}'"
    return literal


def _float(draw: random.Random, group: int) -> float:
    return draw.choice(_REALS[group % 5:]) if draw.random() < 0.7 else float(group)


def _any_real(kind: str) -> Literal:
    return lambda draw: draw.choice([
        f"cast('{draw.choice(_REALS)}' as {kind})", f"{draw.randrange(-5, 50)}.5D",
        f"{draw.randrange(0, 48)}"])


def _any_int(low: int, high: int) -> Literal:
    return lambda draw: str(draw.randrange(low, high))


def _long(draw: random.Random, group: int) -> int:
    return 2**40 * (group - 20) + draw.randrange(3)


def _any_decimal(draw: random.Random) -> str:
    return draw.choice([f"{draw.choice(_DECIMALS):f}BD", f"{draw.randrange(0, 4800) / 100}BD",
                        f"{draw.randrange(0, 480000) / 10000:.4f}BD"])


def _struct(draw: random.Random, group: int) -> dict[str, Any]:
    return {"q": group if draw.random() < 0.9 else None, "w": _text(draw, group),
            "in": None if draw.random() < 0.1 else {"d": _day(draw, group), "a.b": group % 5}}


_COLUMNS = [
    Column("i", "int", pa.int32(), _number(-2**31, 2**31 - 1, 4), _any_int(-100, 140)),
    Column("s", "string", pa.string(), _text, _any_text),
    Column("day", "date", pa.date32(), _day, _any_day),
    Column("t", "tinyint", pa.int8(), _number(-128, 127, 4), _any_int(-130, 130)),
    Column("h", "smallint", pa.int16(), _number(-2**15, 2**15 - 1, 900), _any_int(-40_000, 40_000)),
    Column("l", "bigint", pa.int64(), _long,
           lambda draw: f"{2**40 * draw.randrange(-22, 32) + draw.randrange(3)}L"),
    Column("f", "float", pa.float32(), _float, _any_real("float")),
    Column("g", "double", pa.float64(), _float, _any_real("double")),
    Column("d9", "decimal(9,2)", pa.decimal128(9, 2),
           lambda draw, group: Decimal(group * 100 + draw.randrange(200)).scaleb(-2), _any_decimal),
    Column("d38", "decimal(38,10)", pa.decimal128(38, 10),
           lambda draw, group: draw.choice(_DECIMALS[group % 4:]), _any_decimal),
    Column("ts", "timestamp", pa.timestamp("us", "UTC"),
           lambda draw, group: _moment(draw, group).replace(tzinfo=datetime.UTC),
           _any_moment("timestamp")),
    Column("ntz", "timestamp_ntz", pa.timestamp("us"), _moment, _any_moment("timestamp_ntz")),
    Column("bin", "binary", pa.binary(), lambda draw, group: bytes([group, draw.choice([0, 255])]),
           lambda draw: f"X'{draw.randrange(0, 50):02X}{draw.choice(['00', 'FF', ''])}'"),
    Column("b", "boolean", pa.bool_(), lambda draw, group: (group + draw.randrange(3)) % 5 < 2,
           lambda draw: draw.choice(["true", "false"])),
    Column("a.b", "int", pa.int32(), _number(-50, 200, 2), _any_int(-50, 100)),
    Column("Mixed", "string", pa.string(), _text, _any_text),
    Column("st", "struct<q: int, w: string, `in`: struct<d: date, `a.b`: int>>",
           pa.struct({"q": pa.int32(), "w": pa.string(),
                      "in": pa.struct({"d": pa.date32(), "a.b": pa.int32()})}), _struct,
           lambda draw: "named_struct('q', 1, 'w', 'a', 'in', null)"),
    Column("nothing", "int", pa.int32(), lambda draw, group: group % 2 * group or None,
           _any_int(-5, 50)),
]
_CHARS = [
    Column("c", "char(4)", pa.string(), lambda draw, group: _text(draw, group)[:4].ljust(
        draw.choice([4, 4, 0])), _any_text),
    Column("v", "varchar(5)", pa.string(), lambda draw, group: _text(draw, group)[:5], _any_text),
    Column("cs", "struct<c: char(4)>", pa.struct({"c": pa.string()}),
           lambda draw, group: {"c": _text(draw, group)[:4].ljust(draw.choice([4, 4, 0]))},
           lambda draw: "named_struct('c', 'a')"),
]
_COLLATED = [Column(f"lc_{number}", f"string collate {collation}", pa.string(), _text, _any_text)
             for number, collation in enumerate(
                 ("UTF8_LCASE", "UNICODE_CI", "UTF8_BINARY_RTRIM", "UNICODE"))]
_IN_PATHS = [
    Column("p", "int", pa.int32(), lambda draw, group: None, _any_int(-1, 5)),
    Column("ps", "string", pa.string(), lambda draw, group: None,
           lambda draw: _quoted(draw.choice(["a", "A", "a/b", "7", "", "B "]))),
    Column("pd", "date", pa.date32(), lambda draw, group: None, _any_day),
]


def choose_columns(draw: random.Random, version: str) -> list[Column]:
    """Return the columns of a table; the first is ``id``."""
    own = Column("id", "bigint", pa.int64(), lambda draw, group: None, _any_int(-10, 1000))
    chosen = [_COLUMNS[0], _COLUMNS[1], _COLUMNS[2], *draw.sample(_COLUMNS[3:], 10)]
    chosen += draw.sample(_CHARS, draw.choice([0, 0, 2]))
    chosen += draw.sample(_COLLATED, draw.choice([0, 0, 2]))
    return [own, *chosen, *_IN_PATHS]


def place(draw: random.Random, columns: list[Column], number: int) -> str:
    """Return the partition folder of a file."""
    return (f"p={[1, 2, '__HIVE_DEFAULT_PARTITION__'][number % 3]}/"
            f"ps={draw.choice(['a', 'A', 'a%2Fb', '7', '__HIVE_DEFAULT_PARTITION__'])}/"
            f"pd=2024-01-{number + 1:02}")


def varied(draw: random.Random, table: pa.Table) -> pa.Table:
    """Return the same rows, in columns that another writer might have made of them."""
    if draw.random() < 0.3:
        table = table.select(draw.sample(table.column_names, table.num_columns))
    for name, narrower in (("id", pa.int16()), ("i", pa.int16()), ("l", pa.int64()),
                           ("s", pa.dictionary(pa.int32(), pa.string())),
                           ("s", pa.large_string()), ("d9", pa.decimal128(12, 2)),
                           ("h", pa.int32()), ("bin", pa.large_binary())):
        if name in table.column_names and draw.random() < 0.2:
            place = table.column_names.index(name)
            table = table.set_column(place, name, table[name].cast(narrower))
    if draw.random() < 0.3:
        table = table.drop_columns([name for name in ("nothing",) if name in table.column_names
                                    and table[name].null_count == len(table)])
    if draw.random() < 0.2:
        table = table.rename_columns([name.upper() if name != "id" else name
                                      for name in table.column_names])
    return table


# --- conditions ----------------------------------------------------------------------------------

_ANY_TEXT = " /* text */"
_OPS = ("=", "=", "=", "<=>", "<", "<=", ">", ">=", "!=")


def conditions(draw: random.Random, columns: list[Column], number: int, *,
               tolerant: bool) -> Iterator[str]:
    """Yield distinct conditions; with text that is compared with numbers only if ``tolerant``."""
    known: set[str] = set()
    while len(known) < number:
        text = _tree(draw, columns, draw.choice([0, 1, 1, 2, _DEPTH]))
        if text not in known and (tolerant or _ANY_TEXT not in text):
            known.add(text)
            yield text


def _tree(draw: random.Random, columns: list[Column], depth: int) -> str:
    if depth == 0:
        return _leaf(draw, columns)
    kind = draw.choice(["and", "and", "or", "or", "not", "leaf"])
    if kind == "not":
        return f"not ({_tree(draw, columns, depth - 1)})"
    if kind == "leaf":
        return _leaf(draw, columns)
    parts = [_tree(draw, columns, draw.randrange(depth)) for _ in range(draw.choice([2, 2, 3, 5]))]
    return f" {kind} ".join(f"({part})" for part in parts)


def _leaf(draw: random.Random, columns: list[Column]) -> str:
    column, other = draw.choice(columns), draw.choice(columns)
    name, kind = column.sql, column.type
    if "struct" in kind:
        name, kind, literal = draw.choice(_fields(column))
    else:
        literal = column.literal
    op = draw.choice(_OPS)
    general = [
        lambda: f"{name} {op} {literal(draw)}", lambda: f"{name} {op} {literal(draw)}",
        lambda: f"{literal(draw)} {op} {name}",
        lambda: f"{name} {draw.choice(['', 'not'])} in ({_list(draw, literal)})",
        lambda: f"{name} in ({_list(draw, literal)})",
        lambda: f"{name} is {draw.choice(['', 'not'])} null", lambda: f"{name} <=> null",
        lambda: f"{name} {draw.choice(['', 'not'])} between {literal(draw)} and {literal(draw)}",
        lambda: f"coalesce({name}, {literal(draw)}) {op} {literal(draw)}",
        lambda: f"nullif({name}, {literal(draw)}) {op} {literal(draw)}",
        lambda: f"if({name} {op} {literal(draw)}, {other.sql} is null, null)",
        lambda: f"cast({name} as string) {op} {_any_text(draw)}",
        lambda: f"{name} {op} concat({_any_text(draw)})"
                f"{'' if _bare(kind) == 'string' else _ANY_TEXT}",
        lambda: f"{name} {op} try_cast({_any_text(draw)} as {_bare(kind)})",
        lambda: f"({name} {op} {literal(draw)}) is {draw.choice(['not true', 'true', 'null'])}",
        lambda: f"case when {name} {op} {literal(draw)} then {name} > {literal(draw)} end",
    ]
    specific: list[Callable[[], str]] = []
    if "string" in kind or "char" in kind:
        specific = [
            lambda: f"{name} like {_pattern(draw)}", lambda: f"{name} like {_pattern(draw)}",
            lambda: f"{name} not like {_pattern(draw)}", lambda: f"{name} ilike {_pattern(draw)}",
            lambda: f"{draw.choice(['startswith', 'endswith', 'contains'])}({name}, "
                    f"{_any_text(draw)})",
            lambda: f"{draw.choice(['upper', 'lower', 'trim', 'rtrim'])}({name}) {op} "
                    f"{_any_text(draw)}",
            lambda: f"length({name}) {op} {draw.randrange(4)}",
            lambda: f"{name} collate {draw.choice(['UTF8_LCASE', 'UNICODE_CI', 'UTF8_BINARY'])} "
                    f"{op} {_any_text(draw)}",
            lambda: f"{name} {op} {_any_text(draw)} collate UTF8_LCASE",
            lambda: f"try_cast({name} as {draw.choice(_TARGETS)}) {op} {_number_text(draw)}",
            lambda: f"substr({name}, 1, 1) {op} {_any_text(draw)}",
            lambda: f"{name} || 'x' {op} {_any_text(draw)}",
            lambda: f"cast({name} as binary) {op} X'61'"]
    elif kind in ("date", "timestamp", "timestamp_ntz"):
        specific = [
            lambda: f"{name} {op} {_any_day(draw)}",
            lambda: f"{name} {op} {_any_moment('timestamp')(draw)}",
            lambda: f"{name} {op} {_any_moment('timestamp_ntz')(draw)}",
            lambda: f"{name} {op} '2024-01-{draw.randrange(1, 29):02}'",
            lambda: f"cast({name} as date) {op} {_any_day(draw)}",
            lambda: f"cast({name} as timestamp) {op} {_any_moment('timestamp')(draw)}",
            lambda: f"cast({name} as timestamp_ntz) {op} {_any_moment('timestamp_ntz')(draw)}",
            lambda: f"cast({name} as date) in ({_list(draw, _any_day)})",
            lambda: f"year({name}) {op} {draw.choice([2023, 2024, 1, 9999])}",
            lambda: f"date_trunc('MONTH', {name}) {op} timestamp'2024-02-01 00:00:00'"]
    elif kind not in ("binary", "boolean"):
        specific = [
            lambda: f"{name} {op} {_number_text(draw)}",
            lambda: f"{_number_text(draw)} {op} {name}",
            lambda: f"{name} in ({_list(draw, _number_text)})",
            lambda: f"cast({name} as double) {op} {draw.randrange(-20, 60)}",
            lambda: f"cast({name} as decimal(38, 4)) {op} {_number_text(draw)}",
            lambda: f"try_cast({name} as {draw.choice(_TARGETS)}) {op} {_number_text(draw)}",
            lambda: f"{name} % 2 {op} {draw.randrange(2)}", lambda: f"-{name} {op} {literal(draw)}",
            lambda: f"isnan({name})", lambda: f"{name} {op} '{draw.randrange(40)}'"]
    elif kind == "boolean":
        specific = [lambda: name, lambda: f"not {name}", lambda: f"{name} is true"]
    return draw.choice([*general, *specific, *specific])()


_TARGETS = ("int", "bigint", "double", "float", "decimal(10,1)", "tinyint")


def _bare(kind: str) -> str:
    return "string" if "string" in kind or "char" in kind else kind


def _number_text(draw: random.Random) -> str:
    number = draw.randrange(-60, 200)
    return draw.choice([f"{number}", f"{number}L", f"{number}.0BD", f"{number}.5BD", f"{number}.5D",
                        f"{number}.005BD", f"{number}.0D", f"cast({number}.1 as float)",
                        f"{number * 2**33}L", f"{number}e30D", "cast('NaN' as double)"])


def _list(draw: random.Random, literal: Literal) -> str:
    values = [literal(draw) for _ in range(draw.choice([1, 2, 3, 12]))]
    return ", ".join([*values, *draw.choice([[], [], ["null"]])])


def _pattern(draw: random.Random) -> str:
    word = draw.choice(_WORDS).replace("%", "")
    return _quoted(draw.choice([f"{word}%", f"{word}%", f"%{word}", f"%{word}%", word,
                                f"{word}_", f"{word[:1]}%{word[1:]}", "%", "\\\\%%", "a\\\\%b%"]))


def _fields(column: Column) -> list[tuple[str, str, Literal]]:
    if column.name == "cs":
        return [("cs.c", "string", _any_text)]
    return [("st.q", "int", _any_int(-5, 50)), ("st.w", "string", _any_text),
            ("st.`in`.d", "date", _any_day), ("st.`in`.`a.b`", "int", _any_int(-1, 7)),
            ("ST.Q", "int", _any_int(-5, 50))]
