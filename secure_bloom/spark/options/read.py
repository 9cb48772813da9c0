"""The options that only reading has."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

from secure_bloom.encryption_requirement import encryption_requirement, parse_required
from secure_bloom.spark.options.options import REQUIRE_ENCRYPTION, OptionError, Options
from secure_bloom.spark.options.row_filters import ColumnPredicate, parse_filters

_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_SIZE = re.compile(r"\s*([0-9]+)\s*([bkmg]?)(?:i?b)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class ReadOptions:
    """What the options of a read say, apart from where and with which keys.

    Attributes
    ----------
    columns : tuple of str or None
        The columns that the DataFrame has; None: all.
    merge_schema : bool or None
        Whether the schema is that of all files. False: that of the first file, and columns that
        only others have are left out. None: likewise, but such a column is an error.
    split_bytes, open_cost_bytes, min_partitions : int
        See :func:`secure_bloom.spark.read.splits.divide`.
    filters : tuple of ColumnPredicate
        What holds for all rows that are wanted.
    single_use : bool
        Whether the DataFrame is used once, so that conditions that Spark hands over may be used.
    all_files : bool
        Whether a folder is read by its files also where a table's log says which of them count.
    require_encryption : bool, list of str, dict of str to str, or None
        As ``require_encryption`` of :class:`secure_bloom.ParquetFile`. None: nothing was said.
    """

    columns: tuple[str, ...] | None = None
    merge_schema: bool | None = None
    split_bytes: int = 128 * 2**20
    open_cost_bytes: int = 4 * 2**20
    min_partitions: int = 1
    filters: tuple[ColumnPredicate, ...] = ()
    single_use: bool = False
    all_files: bool = False
    require_encryption: bool | list[str] | dict[str, str] | None = None


def parse_read_options(options: Options) -> ReadOptions:
    """The meaning of a read's options; their names are already checked.

    Raises
    ------
    OptionError
        With the name of the option and what to do.
    """
    return ReadOptions(
        columns=_columns(options), merge_schema=options.boolean("mergeschema", None),
        split_bytes=_size(options, "split_bytes", ReadOptions.split_bytes, 1),
        open_cost_bytes=_size(options, "open_cost_bytes", ReadOptions.open_cost_bytes, 0),
        min_partitions=options.number("min_partitions", os.cpu_count() or 1),
        filters=parse_filters(options.get("filters")),
        single_use=options.boolean("single_use"), all_files=options.boolean("allfiles"),
        require_encryption=_required(options.get(REQUIRE_ENCRYPTION)))


def _required(text: str | None) -> bool | list[str] | dict[str, str] | None:
    try:
        required = None if text is None else parse_required(text)
        encryption_requirement(required, ignore_case=True)  # which finds contradictions
        return required
    except ValueError as error:
        raise OptionError(str(error), option=REQUIRE_ENCRYPTION) from None


def _columns(options: Options) -> tuple[str, ...] | None:
    """``a, b``, or a list in JSON for names with commas."""
    text = options.get("columns")
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
    else:
        names = [name.strip() for name in text.split(",")]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise OptionError('its form is "a, b", or a list in JSON: ["a", "b"]', option="columns")
    return tuple(dict.fromkeys(names))


def _size(options: Options, name: str, default: int, least: int) -> int:
    def parse(text: str) -> int:
        match = _SIZE.fullmatch(text)
        size = int(match[1]) * _UNITS[match[2].lower()] if match else -1
        if size < least:
            raise ValueError
        return size

    return options.parsed(name, parse, "a number of bytes, such as 134217728 or 128m", default)
