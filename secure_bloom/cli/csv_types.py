"""Lossless type inference for the columns of a CSV file.

A column gets a type only if all of its values are written in one form of that type, so that
formatting each value in that form returns the original characters. Otherwise it stays text. An
empty field is a null, except in a text column, where it is an empty string.

    bool        true, false
    int64       0, -12
    float64     as Python's repr writes it: 2.0, 0.25, 1e-05, nan
    float64     with no needless zero or exponent, as JavaScript writes it: 2, 0.25, 0.00001
    date32      2020-02-29
    time32      12:30:00
    timestamp   2020-02-29 12:30:00, or with "T", with 3, 6 or 9 digits of a fraction, with "Z"
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

_HEAD = 64  # values that rule out most forms: casting many that do not fit is slow
_FEW_DIGITS = 15  # a double always preserves this many significant digits

_FRACTION = r"(?:0|[0-9]*[1-9])"
_REPR = (r"^(?:"
         r"-?0\.(?:0|0{0,3}[1-9](?:[0-9]*[1-9])?)"
         rf"|-?[1-9][0-9]{{0,15}}\.{_FRACTION}"
         r"|-?[1-9](?:\.[0-9]*[1-9])?e(?:-(?:0[5-9]|[1-9][0-9]{1,2})"
         r"|\+(?:1[6-9]|[2-9][0-9]|[1-9][0-9]{2}))"
         r"|nan|-?inf)$")
_POSITIONAL = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?$"


class Form(ABC):
    """A type, and one way of formatting its values."""

    def __init__(self, type_: pa.DataType):
        self.type = type_

    @abstractmethod
    def fits(self, texts: pa.StringArray) -> bool:
        """Whether formatting the values of these texts returns the texts."""

    def _values(self, texts: pa.StringArray) -> pa.Array | None:
        try:
            return texts.cast(self.type)
        except pa.ArrowInvalid:
            return None


class _AsArrow(Form):
    """The format of pyarrow's cast to text."""

    def fits(self, texts: pa.StringArray) -> bool:
        values = self._values(texts)
        return values is not None and values.cast(pa.string()).equals(texts)


class _Timestamp(Form):
    """pyarrow's format, but separated by ``T`` or a space, and with ``Z`` if there is a zone."""

    def __init__(self, unit: str, separator: str, is_utc: bool):
        super().__init__(pa.timestamp(unit, "UTC" if is_utc else None))
        self._separator = separator

    def fits(self, texts: pa.StringArray) -> bool:
        values = self._values(texts)
        if values is None:
            return False
        # Formatting a zone would require the machine's time zone database.
        formatted = values.view(pa.timestamp(self.type.unit)).cast(pa.string())
        if self._separator != " ":
            formatted = pc.replace_substring(formatted, " ", self._separator)
        if self.type.tz is not None:
            formatted = pc.binary_join_element_wise(formatted, "Z", "")
        return formatted.equals(texts)


class _Time(Form):
    """The time part of a timestamp; pyarrow does not cast text to times."""

    def fits(self, texts: pa.StringArray) -> bool:
        return _SECONDS.fits(pc.binary_join_element_wise("1970-01-01", texts, " "))


class _Float(Form):
    """Numbers in a pattern that allows only one spelling of each decimal number."""

    def __init__(self, pattern: str):
        super().__init__(pa.float64())
        self._pattern = pattern

    def fits(self, texts: pa.StringArray) -> bool:
        values = self._values(texts)
        if values is None or not pc.all(pc.match_substring_regex(texts, self._pattern)).as_py():
            return False
        size = pc.abs(values)
        is_sure = pc.and_(pc.less_equal(pc.binary_length(texts), _FEW_DIGITS),
                          pc.and_(pc.greater(size, 1e-300), pc.less(size, 1e300)))
        in_doubt = pc.invert(is_sure)
        shortest = values.filter(in_doubt).cast(pa.string())
        return _digits(shortest).equals(_digits(texts.filter(in_doubt)))


def _digits(numbers: pa.StringArray) -> pa.StringArray:
    """The significant digits of numbers; equal doubles that differ here are different decimals."""
    mantissa = pc.replace_substring_regex(numbers, "e.*", "")
    return pc.ascii_trim(pc.replace_substring(mantissa, ".", ""), "-0")


_SECONDS = _Timestamp("s", " ", is_utc=False)
_INTEGER = _AsArrow(pa.int64())
_PLAIN_NUMBER = _Float(_POSITIONAL)
_FORMS = (
    _AsArrow(pa.bool_()), _INTEGER, _Float(_REPR), _PLAIN_NUMBER, _AsArrow(pa.date32()),
    _Time(pa.time32("s")),
    *(_Timestamp(unit, separator, is_utc) for unit in ("s", "ms", "us", "ns")
      for separator in " T" for is_utc in (False, True)))


class ColumnType:
    """Infer the type of a column from texts that are added in portions.

    Parameters
    ----------
    is_text : bool
        Whether the column is text, whatever its values look like.
    """

    def __init__(self, *, is_text: bool = False):
        self._forms: tuple[Form, ...] = () if is_text else _FORMS
        self._is_empty = not is_text
        self._is_utf8 = True

    @property
    def type(self) -> pa.DataType:
        """The type for the texts so far; binary if they are not all UTF-8."""
        if not self._is_utf8:
            return pa.binary()
        if self._is_empty:
            return pa.null()
        return self._forms[0].type if self._forms else pa.string()

    def add(self, raw: pa.BinaryArray) -> None:
        """Take more texts into account."""
        try:
            texts = raw.cast(pa.string())
        except pa.ArrowInvalid:
            self._is_utf8, self._forms = False, ()
            return
        if not self._forms:
            return
        filled = texts.filter(pc.greater(pc.binary_length(texts), 0))
        if len(filled):
            self._is_empty = False
            self._forms = _that_fit(_that_fit(self._forms, filled[:_HEAD]), filled)


def _that_fit(forms: Iterable[Form], texts: pa.StringArray) -> tuple[Form, ...]:
    kept: list[Form] = []
    for form in forms:
        # Short integers are plain numbers too, so those need not be tried.
        is_small = form is _PLAIN_NUMBER and _INTEGER in kept \
            and pc.max(pc.binary_length(texts)).as_py() <= _FEW_DIGITS
        if is_small or form.fits(texts):
            kept.append(form)
    return tuple(kept)


# --- types by name: price:decimal(10,2),born:date -------------------------------------------------

_TYPES = {"text": pa.string(), "string": pa.string(), "binary": pa.binary(), "bool": pa.bool_(),
          "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
          "date": pa.date32(), "time": pa.time64("us"), "timestamp": pa.timestamp("us")}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
NAMES = f"{', '.join(_TYPES)}, decimal(10,2)"


def parse_types(text: str) -> dict[str, pa.DataType]:
    """Return the types of some columns, by name; raise ValueError if the text says something else.

    A name may contain a colon, but no comma.
    """
    found: dict[str, pa.DataType] = {}
    for part in filter(str.strip, re.split(r",(?![^()]*\))", text)):
        name, colon, kind = part.rpartition(":")
        if not (colon and name.strip()):
            raise ValueError(f"expected column:type,column:type; types are {NAMES}")
        if name.strip() in found:
            raise ValueError(f"column {name.strip()} has two types")
        found[name.strip()] = _parsed(kind)
    return found


def _parsed(kind: str) -> pa.DataType:
    name = "".join(kind.split()).lower()
    match = _DECIMAL.fullmatch(name)
    if match is not None and 0 < int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
        return pa.decimal128(int(match[1]), int(match[2]))
    if name not in _TYPES:
        raise ValueError(f"there is no type {kind.strip()!r}; types are {NAMES}")
    return _TYPES[name]
