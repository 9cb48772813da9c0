"""Options for the files: pyarrow's own writer options, under pyarrow's names."""

from __future__ import annotations

from typing import Any

from secure_bloom.errors import OptionError
from secure_bloom.spark.options.columns import Columns
from secure_bloom.spark.options.options import SIZES, SWITCHES, SWITCHES_BY_COLUMN, Options

_COMPRESSIONS = {"snappy": "snappy", "none": "none", "uncompressed": "none", "gzip": "gzip",
                 "zstd": "zstd", "brotli": "brotli", "lz4": "lz4", "lz4_raw": "lz4"}
_ENCODINGS = ("PLAIN", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
              "BYTE_STREAM_SPLIT", "RLE")
_MAX_SIZE = 2 ** 31 - 1

#: as Spark stores decimals: those of up to 18 digits as integers
AS_SPARK = {"store_decimal_as_integer": True}


def parse_writer_options(options: Options, columns: Columns) -> dict[str, Any]:
    """Return keyword arguments for :class:`pyarrow.parquet.ParquetWriter`.

    pyarrow checks whether they are compatible with each other and with the column types.

    Raises OptionError if a value is not valid for the option, or a column does not exist.
    """
    compression = options.choice("compression", tuple(_COMPRESSIONS))
    writer: dict[str, Any] = {**AS_SPARK, "compression": _COMPRESSIONS[compression]}
    writer |= {name: options.boolean(name) for name in SWITCHES if name in options}
    writer |= {name: _switch_by_column(options, name, columns)
               for name in SWITCHES_BY_COLUMN if name in options}
    writer |= {name: options.number(name, None, most=_MAX_SIZE)
               for name in SIZES if name in options}
    if "compression_level" in options:
        writer["compression_level"] = options.number("compression_level", None,
                                                     -_MAX_SIZE, _MAX_SIZE)
    if "data_page_version" in options:
        writer["data_page_version"] = options.choice("data_page_version", ("1.0", "2.0"))
    if "column_encoding" in options:
        writer["column_encoding"] = _column_encoding(options, columns)
    return writer


def _switch_by_column(options: Options, name: str, columns: Columns) -> bool | list[str]:
    """Parse ``true``, ``false``, or the columns for which the option is true."""
    if options.text(name).lower() in ("true", "false"):
        return options.boolean(name)
    return sorted({leaf.path for column in options.names(name)
                   for leaf in columns.find(column, name)})


def _column_encoding(options: Options, columns: Columns) -> str | dict[str, str]:
    """Parse one encoding for all columns, or a JSON object of encodings by column."""
    name = "column_encoding"
    if not options.text(name).startswith("{"):
        return options.choice(name, _ENCODINGS)
    encodings: dict[str, str] = {}
    form = '{"id": "DELTA_BINARY_PACKED"}'
    for column, encoding in options.json_object(name, form).items():
        if not isinstance(encoding, str):
            raise OptionError(f"it must be a JSON object such as {form}", option=name)
        for leaf in columns.find(column, name):
            if encodings.setdefault(leaf.path, encoding) != encoding:
                raise OptionError(f"column {leaf.path} has two encodings", option=name)
    return {path: Options({name: encoding}).choice(name, _ENCODINGS)
            for path, encoding in encodings.items()}
