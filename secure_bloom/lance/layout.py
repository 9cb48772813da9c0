"""The layout of ``bloomfilter.lance``: its columns, its metadata, and how values are hashed.

A row is a zone: up to ``bloomfilter_item`` consecutive rows of one fragment. Source: Lance's format
documentation, "Bloom Filter Index". What it does not specify (the bytes of each type,
``null_bitmap``) follows pylance; the tests compare the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from secure_bloom.errors import ColumnError, FormatError
from secure_bloom.sbbf.arrow_types import is_bytes, is_text
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK, num_blocks_in_lance

DEFAULT_ITEMS = 8192
DEFAULT_PROBABILITY = 0.00057

SCHEMA = pa.schema([
    pa.field("fragment_id", pa.uint64(), nullable=False),
    pa.field("zone_start", pa.uint64(), nullable=False),
    pa.field("zone_length", pa.uint64(), nullable=False),
    pa.field("has_null", pa.bool_(), nullable=False),
    pa.field("bloom_filter_data", pa.binary(), nullable=False),
])
ROW_ADDRESS = "_rowaddr"  #: pylance's column of fragment id (upper 32 bits) and row (lower 32)
NULL_BITMAP = "null_bitmap"  #: metadata: the number of the global buffer with the null rows
MAX_ROWS = 2**32  #: maximum rows of a fragment, and maximum fragments of a data set

_ITEMS, _PROBABILITY = "bloomfilter_item", "bloomfilter_probability"
_MAX_ITEMS = 2**64 - 1


class Zone(NamedTuple):
    """A range of rows of one fragment that has its own Bloom filter.

    Attributes
    ----------
    fragment_id : int
        Id of the fragment in the data set at the time when the index was built.
    zone_start : int
        Offset of the first row in the fragment; deleted rows count.
    zone_length : int
        Offset of the last row minus that of the first, plus 1; deleted rows count.
    has_null : bool
        Whether a row of the zone is null.
    """

    fragment_id: int
    zone_start: int
    zone_length: int
    has_null: bool


@dataclass(frozen=True)
class Parameters:
    """The number of values each filter is sized for, and its false-positive probability then.

    ``items`` is also the maximum number of rows in a zone when the index is built. ``probability``
    is between 0 and 1.
    """

    items: int = DEFAULT_ITEMS
    probability: float = DEFAULT_PROBABILITY

    def __post_init__(self) -> None:
        if not 1 <= self.items <= _MAX_ITEMS:
            raise ValueError(f"items must be at least 1 and less than 2^64, got {self.items}")
        if not 0.0 < self.probability < 1.0:
            raise ValueError("probability must be between 0 and 1, both excluded, got "
                             f"{self.probability}")

    @cached_property
    def num_blocks(self) -> int:
        """Number of blocks in each filter."""
        return num_blocks_in_lance(self.items, self.probability)

    @property
    def num_bytes(self) -> int:
        """Size of each filter in bytes."""
        return self.num_blocks * BYTES_PER_BLOCK

    def to_metadata(self) -> dict[str, str]:
        """Return the entries of the schema's metadata; numbers without exponent, as in Rust."""
        return {_ITEMS: str(self.items), _PROBABILITY: format(Decimal(repr(self.probability)), "f")}

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes] | None) -> Parameters:
        """Parse the parameters from the schema's metadata; a missing one has Lance's default.

        Raises FormatError if one is not a number, or out of range: the size of the filters, and so
        which block a value belongs to, would be a guess.
        """
        items = _number(metadata, _ITEMS, r"[0-9]{1,20}", DEFAULT_ITEMS)
        probability = _number(metadata, _PROBABILITY, r"[0-9]*\.?[0-9]+([eE][+-]?[0-9]{1,4})?",
                              DEFAULT_PROBABILITY)
        try:
            return cls(int(items), float(probability))
        except ValueError as error:
            raise FormatError(f"the metadata says {_ITEMS} {items}, {_PROBABILITY} {probability}, "
                              f"which is not possible: {error}") from None


def _number(metadata: dict[bytes, bytes] | None, key: str, pattern: str, default: float) -> str:
    value = (metadata or {}).get(key.encode())
    if value is None:
        return str(default)
    text = value.decode("ascii", "replace")
    if len(text) > 400 or not re.fullmatch(pattern, text):
        raise FormatError(f"{key} in the schema's metadata is not a valid number; rebuild the "
                          "index")
    return text


# --- how Lance hashes a value --------------------------------------------------------------------

def column_type_of(arrow_type: pa.DataType) -> ColumnType:
    """Return how Lance hashes a column of this type: the bytes of the Arrow value, unchanged.

    This is Parquet's plain encoding, except for types that Parquet widens or rescales: integers of
    8 and 16 bits are hashed as 1 and 2 bytes; date64 as 8 bytes of milliseconds; times and
    timestamps in seconds as seconds.

    Raises ColumnError if Lance does not have a BLOOMFILTER index for such columns.
    """
    t = arrow_type
    if is_text(t):
        return ColumnType("BYTE_ARRAY", 0, pa.string())
    if is_bytes(t):
        return ColumnType("BYTE_ARRAY", 0, pa.binary())
    if pa.types.is_float32(t) or pa.types.is_float64(t):
        return ColumnType("FLOAT" if t.bit_width == 32 else "DOUBLE", 0, t)
    if pa.types.is_integer(t) and t.bit_width < 32:
        return ColumnType("FIXED_LEN_BYTE_ARRAY", t.bit_width // 8, t)
    if (pa.types.is_integer(t) or pa.types.is_date(t) or pa.types.is_time(t)
            or pa.types.is_timestamp(t)):
        return ColumnType("INT32" if t.bit_width == 32 else "INT64", 0, t)
    raise ColumnError(f"Lance does not support BLOOMFILTER indexes for columns of type {t}; it "
                      "supports integers, float, double, strings, binaries, dates, times and "
                      "timestamps")
