"""The storage type of a leaf column, which determines what a filter hashes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

PHYSICAL_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY",
                  "FIXED_LEN_BYTE_ARRAY")
WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}  #: bytes of a value


_PLAIN = {"INT32": pa.int32(), "INT64": pa.int64(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(),
          "BYTE_ARRAY": pa.binary()}
_UNKNOWN = "UNKNOWN_TYPE_"  # followed by its number, which need not be one of the specification


def physical_type_name(number: int) -> str:
    """Return the name of a physical type by its number in Parquet's enum Type."""
    return PHYSICAL_TYPES[number] if 0 <= number < len(PHYSICAL_TYPES) else f"{_UNKNOWN}{number}"


@dataclass(frozen=True)
class ColumnType:
    """How the values of a leaf column are stored, and therefore hashed.

    Attributes
    ----------
    physical_type : str
        Parquet's name: INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY
        or BOOLEAN; ``UNKNOWN_TYPE_8`` and the like for types that are not known here.
    length : int
        Length in bytes of a FIXED_LEN_BYTE_ARRAY value, else 0.
    arrow_type : pyarrow.DataType or None
        The Arrow type of the values; None if values cannot be looked up (BOOLEAN and logical types
        without a unique or known encoding).
    has_order : bool
        Whether Parquet defines an order for the type. INTERVAL has none: writers that store a
        minimum and a maximum compare months, days and milliseconds, or bytes.
    is_opaque : bool
        Whether values can only be hashed as they are stored, because it is not certain how a value
        to be looked up is stored, as for decimals in BYTE_ARRAY, which may be padded. Filters
        answer for bytes and integers as they are stored, and "perhaps" for all other values.
    """

    physical_type: str
    length: int
    arrow_type: pa.DataType | None
    has_order: bool = field(default=True, compare=False)
    is_opaque: bool = field(default=False, compare=False)

    @property
    def number(self) -> int:
        """The number of the physical type in Parquet's enum Type."""
        if self.physical_type in PHYSICAL_TYPES:
            return PHYSICAL_TYPES.index(self.physical_type)
        return int(self.physical_type.removeprefix(_UNKNOWN))

    @property
    def width(self) -> int | None:
        """Bytes per value; None if the width varies, and for BOOLEAN, which has single bits."""
        return WIDTHS.get(self.physical_type, self.length or None)

    @property
    def can_have_filter(self) -> bool:
        """Whether a Bloom filter over this column can be built and queried."""
        return self.arrow_type is not None

    @property
    def can_be_hashed(self) -> bool:
        """Whether a filter over the stored values of this column can be built."""
        return self.can_have_filter or self.is_opaque

    @property
    def without_annotation(self) -> ColumnType:
        """The physical type alone."""
        arrow_type = pa.binary(self.length) if self.length else _PLAIN[self.physical_type]
        return ColumnType(self.physical_type, self.length, arrow_type)

    def __str__(self) -> str:
        length = f"({self.length})" if self.length else ""
        return f"{self.physical_type}{length}" + (f" {self.arrow_type}" if self.arrow_type else "")
