"""The same conditions for each engine, and their rows: of encrypted files, and of memory."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import secure_bloom
from tests.engines.random_rows import COLUMNS, Leaf, leaves

_COMPARISONS = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__",
                ">=": "__ge__"}


class Engine:
    """An engine over a data set of encrypted files, and over the same rows in memory."""

    def __init__(self, people: ds.Dataset, rows: pa.Table):
        self.people, self.rows = people, rows

    def query(self, rnd, condition):
        """Return a condition as the engine takes it."""
        raise NotImplementedError

    def of_files(self, query) -> list:
        """Return the rows of the files, in any order."""
        raise NotImplementedError

    def of_memory(self, query) -> list:
        """Return the rows of a table that the engine has in memory."""
        raise NotImplementedError

    def of_arrow(self, query) -> list:
        """Return the rows that the engine finds in pyarrow's own data set of these rows."""
        return self.of_memory(query)

    def columns(self, condition) -> list[str]:
        """Return the columns to compare: the number of the row, and those of the condition."""
        return list(dict.fromkeys(
            ["row", *(leaf.column.split(".")[0] for leaf in leaves(condition))]))


# --- pyarrow -------------------------------------------------------------------------------------

class PyArrow(Engine):
    """Expressions, with literals of other types, too."""

    def query(self, rnd, condition):
        return self.columns(condition), self._expression(rnd, condition)

    def of_files(self, query) -> list:
        return self.people.to_table(*query).to_pylist()

    def of_memory(self, query) -> list:
        return ds.dataset(self.rows).to_table(*query).to_pylist()

    def _expression(self, rnd, condition) -> pc.Expression:
        if isinstance(condition, Leaf):
            return _arrow_leaf(rnd, condition)
        kind, *parts = condition
        found = [self._expression(rnd, part) for part in parts]
        if kind == "not":
            return ~found[0]
        if rnd.random() < 0.1:
            return pc.if_else(found[0], found[1], found[0])
        return found[0] & found[1] if kind == "and" else found[0] | found[1]


def _arrow_leaf(rnd, leaf: Leaf) -> pc.Expression:
    field = pc.field(*leaf.column.split("."))
    literals = [_arrow_literal(rnd, leaf.column, value) for value in leaf.values]
    match leaf.op:
        case "IN":
            values = _arrow_set(rnd, leaf, literals[0].type)
            found = pc.is_in(field, values, skip_nulls=rnd.random() < 0.3)
            return found if rnd.random() < 0.7 \
                else pc.if_else(field.is_valid(), found, pa.scalar(None, pa.bool_()))
        case "IS NULL":
            return field.is_null(nan_is_null=rnd.random() < 0.2)
        case "IS NOT NULL":
            return field.is_valid()
        case "BETWEEN":
            return (field >= literals[0]) & (field <= literals[1])
        case "IS NOT DISTINCT FROM":
            return pc.equal(pc.scalar(literals[0]), field)
        case op if rnd.random() < 0.05:
            return getattr(field.cast(pa.string()), _COMPARISONS[op])(pa.scalar("1"))
        case op:
            return getattr(field, _COMPARISONS[op])(literals[0])


def _arrow_set(rnd, leaf: Leaf, t: pa.DataType) -> pa.Array:
    values = [value if rnd.random() > 0.1 else None for value in leaf.values]
    try:
        return pa.array(values, t)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array(values, _value_type(leaf.column))


def _value_type(column: str) -> pa.DataType:
    t = COLUMNS[column][0]
    return t.value_type if pa.types.is_dictionary(t) else t


#: types of literals to compare with a column of another type
_OTHER_TYPES = {
    "i8": [pa.int64(), pa.float64(), pa.float32(), pa.uint8()],
    "i32": [pa.int64(), pa.float64(), pa.decimal128(12, 2), pa.int8()],
    "i64": [pa.int32(), pa.float64(), pa.float32(), pa.uint64(), pa.decimal128(20, 0)],
    "u8": [pa.int8(), pa.float16()], "u32": [pa.int64(), pa.int32(), pa.float64()],
    "u64": [pa.int64(), pa.float64()], "f32": [pa.float64(), pa.int64(), pa.float16()],
    "f64": [pa.float32(), pa.int64()], "st.in.z": [pa.float32()],
    "s": [pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())],
    "ls": [pa.string()], "b": [pa.large_binary(), pa.binary(2)], "fsb": [pa.binary()],
    "d": [pa.timestamp("us"), pa.date64(), pa.timestamp("s"), pa.string()],
    "d64": [pa.date32(), pa.timestamp("ms")],
    "ts": [pa.timestamp("ns"), pa.timestamp("ms"), pa.date32(), pa.timestamp("s"), pa.string()],
    "tms": [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s")],
    "tss": [pa.timestamp("us")], "tns": [pa.timestamp("us")],
    "tz": [pa.timestamp("us", "UTC"), pa.timestamp("ms", "America/New_York"),
           pa.timestamp("ns", "Europe/Rome")],
    "dec": [pa.decimal128(12, 4), pa.decimal128(5, 1), pa.float64(), pa.int64(),
            pa.decimal256(40, 2)],
    "dec38": [pa.decimal128(5, 1), pa.int64(), pa.decimal256(60, 10)],
    "dur": [pa.duration("ns"), pa.duration("s")], "t64": [pa.time64("ns")],
    "t32": [pa.time64("us")]}


#: pyarrow crashes with nulls of large types, so they are refused
_FOR_NULLS = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def _arrow_literal(rnd, column: str, value) -> pa.Scalar:
    own = _value_type(column)
    if rnd.random() < 0.05:
        return pa.scalar(None, _FOR_NULLS.get(own, own))
    if rnd.random() < 0.6 or column not in _OTHER_TYPES:
        return pa.scalar(value, own)
    other = rnd.choice(_OTHER_TYPES[column])
    for make in (lambda: pa.scalar(value, other), lambda: pa.scalar(value, own).cast(
            other, safe=False)):
        try:
            return make()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    return pa.scalar(value, own)


# --- SQL -----------------------------------------------------------------------------------------

class _Sql(Engine):
    def query(self, rnd, condition):
        return ", ".join(self.columns(condition)), self._sql(rnd, condition)

    def _sql(self, rnd, condition) -> str:
        if not isinstance(condition, Leaf):
            kind, *parts = condition
            found = [self._sql(rnd, part) for part in parts]
            return f"NOT ({found[0]})" if kind == "not" else \
                f"({found[0]} {kind.upper()} {found[1]})"
        column = self.name_of(condition.column)
        literals = [self.literal(rnd, condition.column, value) for value in condition.values]
        match condition.op:
            case "IN":
                return f"{column} IN ({', '.join(literals)})"
            case "IS NULL" | "IS NOT NULL":
                return f"{column} {condition.op}"
            case "BETWEEN":
                return f"{column} BETWEEN {literals[0]} AND {literals[1]}"
            case op:
                return f"{column} {op} {literals[0]}"

    def of_files(self, query) -> list:
        return self._rows("people", query)

    def of_memory(self, query) -> list:
        return self._rows("memory_rows", query)

    def of_arrow(self, query) -> list:
        return self._rows("arrow_rows", query)

    def _rows(self, table: str, query) -> list:
        raise NotImplementedError

    def name_of(self, column: str) -> str:
        raise NotImplementedError

    def literal(self, rnd, column: str, value) -> str:
        match value:
            case bool():
                return str(value)
            case int():
                return rnd.choice([str(value), str(value), f"{value}.0"])
            case str():
                return "'" + value.replace("'", "''") + "'"
            case dt.date():
                return rnd.choice([f"DATE '{value}'", f"TIMESTAMP '{value} 00:00:00'"])
        raise TypeError(value)


class DuckDB(_Sql):
    """DuckDB finds the data sets by the names of Python variables, which are registered here."""

    def __init__(self, people, rows):
        super().__init__(people, rows)
        import duckdb
        self.connection = duckdb.connect()
        self.connection.register("people", people)
        self.connection.register("arrow_rows", ds.dataset(rows))
        self.connection.register("given", rows)
        self.connection.execute("CREATE TABLE memory_rows AS SELECT * FROM given")

    def _rows(self, table: str, query) -> list:
        columns, condition = query
        return self.connection.execute(
            f"SELECT {columns} FROM {table} WHERE {condition}").fetchall()

    def name_of(self, column: str) -> str:
        return ".".join(f'"{part}"' for part in column.split("."))

    def literal(self, rnd, column: str, value) -> str:
        match value:
            case float():
                return f"'{value}'::{rnd.choice(['DOUBLE', 'DOUBLE', 'FLOAT'])}"
            case bytes():
                return "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::BLOB"
            case dt.datetime() if column == "tz":
                return f"TIMESTAMPTZ '{value}+00'"
            case dt.datetime():
                return rnd.choice([f"TIMESTAMP '{value}'", f"'{value}'", f"DATE '{value.date()}'"])
            case dt.time():
                return f"TIME '{value}'"
            case dt.timedelta():
                return f"INTERVAL {value.microseconds} MICROSECONDS"
            case Decimal():
                return rnd.choice([str(value), f"{value}::DECIMAL(12,4)"])
        return super().literal(rnd, column, value)


class DataFusion(_Sql):
    """DataFusion scans fragments of registered data sets."""

    def __init__(self, people, rows):
        super().__init__(people, rows)
        import datafusion
        self.context = datafusion.SessionContext()
        self.context.register_dataset("people", people)
        self.context.register_dataset("arrow_rows", ds.dataset(rows))
        self.context.from_arrow(rows, name="memory_rows")

    def _rows(self, table: str, query) -> list:
        columns, condition = query
        found = self.context.sql(f"SELECT {columns} FROM {table} WHERE {condition}")
        return [row for batch in found.collect() for row in batch.to_pylist()]

    def name_of(self, column: str) -> str:
        first, *rest = column.split(".")
        return first + "".join(f"['{part}']" for part in rest)

    def literal(self, rnd, column: str, value) -> str:
        match value:
            case float():
                text = "NaN" if math.isnan(value) else str(value)
                return f"CAST('{text}' AS {rnd.choice(['DOUBLE', 'DOUBLE', 'FLOAT'])})"
            case bytes():
                return f"X'{value.hex()}'"
            case dt.datetime() if column == "tz":
                return f"arrow_cast('{value}Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"
            case dt.datetime():
                return rnd.choice([f"TIMESTAMP '{value}'", f"DATE '{value.date()}'"])
            case dt.time():
                return f"CAST('{value}' AS TIME)"
            case dt.timedelta():
                return f"arrow_cast({value.microseconds}, 'Duration(Microsecond)')"
            case Decimal():
                return rnd.choice([f"CAST('{value}' AS DECIMAL(10,2))",
                                   f"CAST('{value}' AS DECIMAL(12,4))"])
        return super().literal(rnd, column, value)


# --- Polars --------------------------------------------------------------------------------------

class Polars(Engine):
    """A LazyFrame of :func:`secure_bloom.scan`, and a frame in memory."""

    def __init__(self, people, rows):
        super().__init__(people, rows)
        import polars as pl
        self.lazy, self.frame = secure_bloom.scan(people), pl.DataFrame(rows)

    def query(self, rnd, condition):
        return (self.columns(condition), self._expression(rnd, condition),
                rnd.choice(["in-memory", "streaming"]))

    def of_files(self, query) -> list:
        return self._rows(self.lazy, query)

    def of_memory(self, query) -> list:
        return self._rows(self.frame.lazy(), query)

    def _rows(self, lazy, query) -> list:
        columns, expression, engine = query
        return lazy.filter(expression).select(columns).collect(engine=engine).rows()

    def _expression(self, rnd, condition):
        if isinstance(condition, Leaf):
            return _polars_leaf(rnd, condition)
        kind, *parts = condition
        found = [self._expression(rnd, part) for part in parts]
        if kind == "not":
            return ~found[0]
        return found[0] & found[1] if kind == "and" else found[0] | found[1]


def _polars_leaf(rnd, leaf: Leaf):
    import polars as pl
    first, *rest = leaf.column.split(".")
    column = pl.col(first)
    for part in rest:
        column = column.struct.field(part)
    values = [value.replace(tzinfo=dt.UTC) if leaf.column == "tz" else value
              for value in leaf.values]
    match leaf.op:
        case "IN" if rnd.random() < 0.2:
            return column.is_in([*values, None], nulls_equal=rnd.random() < 0.5)
        case "IN":
            return column.is_in(values)
        case "IS NULL":
            return column.is_null()
        case "IS NOT NULL":
            return column.is_not_null()
        case "BETWEEN":
            return column.is_between(*values)
        case "IS NOT DISTINCT FROM":
            return column.eq_missing(rnd.choice([values[0], values[0], None]))
        case "=" if rnd.random() < 0.1:
            return pl.lit(values[0]) == column
        case "=" if isinstance(values[0], bool) and rnd.random() < 0.5:
            return column if values[0] else ~column
        case op:
            return getattr(column, _COMPARISONS[op])(values[0])


ENGINES = {"pyarrow": PyArrow, "duckdb": DuckDB, "datafusion": DataFusion, "polars": Polars}


class Outcome:
    """The rows that a query returns, in any order, or the error that it raises."""

    def __init__(self, run, query):
        self.error: BaseException | None = None
        self.rows: list[str] = []
        try:
            self.rows = sorted(map(repr, run(query)))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # panics of Rust are no Exceptions
            self.error = error

    def may_replace(self, other: "Outcome") -> bool:
        """Whether the rows are the same.

        Where the other query fails, this one may find rows: a condition that cannot be evaluated
        for some row is not evaluated if that row is skipped.
        """
        return other.error is not None or (self.error is None and self.rows == other.rows)

    def __repr__(self) -> str:
        return repr(self.error) if self.error is not None else f"{len(self.rows)} rows"
