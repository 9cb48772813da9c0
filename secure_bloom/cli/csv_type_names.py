"""Types of CSV columns, by name: ``price:decimal(10,2),born:date``."""

from __future__ import annotations

import re

import pyarrow as pa

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
