"""The options that are for reading only."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal, cast

from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.errors import OptionError
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import Requirement, encryption_requirement, parse_required
from secure_bloom.spark.options.options import (
    CHECKPOINT,
    IGNORE_MISSING,
    INDEX,
    MAX_FILES,
    ON_MISSING_KEY,
    REQUIRE_ENCRYPTION,
    Options,
)
from secure_bloom.spark.options.policy import parse_policy
from secure_bloom.spark.options.row_filters import ColumnPredicate, parse_filters

_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_SIZE = re.compile(r"\s*([0-9]+)\s*([bkmg]?)(?:i?b)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class ReadOptions:
    """The parsed options of a read, except for the path and the keys.

    Attributes
    ----------
    columns : tuple of str or None
        The columns of the DataFrame; None: all.
    merge_schema : bool or None
        Whether the schemas of all files are merged. False: the schema is that of the first file,
        and columns and fields of structs that only other files have are left out. None: likewise,
        but such a column or field is an error.
    split_bytes, open_cost_bytes, min_partitions : int
        See :func:`secure_bloom.spark.reading.splits.divide`.
    filters : tuple of ColumnPredicate
        Predicates that hold for all requested rows.
    all_files : bool
        Whether all files of a folder are read even if a table's log defines which are current.
    require_encryption : Requirement, False, or None
        What must be encrypted. False: nothing, not even sensitive columns. None: not set.
    on_missing_key : {"error", "null"}
        What happens to columns whose key is missing.
    index : {"auto", "off", "require"}
        Whether to use the index of the table. Columns are masked by what is in each file, so it is
        off if ``on_missing_key`` is "null".
    checkpoint : str or None
        The folder of the checkpoint, if an option names it. This and the next two are for streams.
    max_files : int or None
        Files of a batch at most.
    ignore_missing : bool
        Whether files that disappear before they are read are left out.
    """

    columns: tuple[str, ...] | None = None
    merge_schema: bool | None = None
    split_bytes: int = 128 * 2**20
    open_cost_bytes: int = 4 * 2**20
    min_partitions: int = 1
    filters: tuple[ColumnPredicate, ...] = ()
    all_files: bool = False
    require_encryption: Requirement | Literal[False] | None = None
    policy: Policy | None = None
    on_missing_key: OnMissingKey = "error"
    index: Literal["auto", "off", "require"] = "auto"
    checkpoint: str | None = None
    max_files: int | None = None
    ignore_missing: bool = False


def parse_read_options(options: Options) -> ReadOptions:
    """Parse the options of a read, whose names have been checked.

    Raises OptionError if a value is not valid. The message names the option and says what to do.
    """
    on_missing_key = cast(OnMissingKey, options.choice(ON_MISSING_KEY, ("error", "null")))
    return ReadOptions(
        columns=tuple(options.names("columns", repeated=True)) if "columns" in options else None,
        merge_schema=options.boolean("mergeschema", None),
        split_bytes=_size(options, "split_bytes", ReadOptions.split_bytes, 1),
        open_cost_bytes=_size(options, "open_cost_bytes", ReadOptions.open_cost_bytes, 0),
        min_partitions=options.number("min_partitions", os.cpu_count() or 1),
        filters=parse_filters(options.get("filters")),
        all_files=options.boolean("allfiles"),
        require_encryption=_required(options.get(REQUIRE_ENCRYPTION)),
        policy=parse_policy(options),
        on_missing_key=on_missing_key, index=_index(options, on_missing_key),
        checkpoint=options.get(CHECKPOINT), max_files=options.number(MAX_FILES, None),
        ignore_missing=options.boolean(IGNORE_MISSING))


def _index(options: Options, on_missing_key: OnMissingKey) -> Literal["auto", "off", "require"]:
    index = options.choice(INDEX, ("auto", "off", "require"))
    if on_missing_key == "null":
        if index == "require":
            raise OptionError(f"it must not be require together with {ON_MISSING_KEY}=null, for "
                              "which every file is opened", option=INDEX)
        return "off"
    return cast(Literal["auto", "off", "require"], index)


def _required(text: str | None) -> Requirement | Literal[False] | None:
    try:
        required = None if text is None else parse_required(text)
        return False if required is False else encryption_requirement(required, ignore_case=True)
    except ValueError as error:
        raise OptionError(str(error), option=REQUIRE_ENCRYPTION) from None


def _size(options: Options, name: str, default: int, least: int) -> int:
    def parse(text: str) -> int:
        match = _SIZE.fullmatch(text)
        size = int(match[1]) * _UNITS[match[2].lower()] if match else -1
        if size < least:
            raise ValueError
        return size

    return options.parsed(name, parse, "a number of bytes, such as 134217728 or 128m", default)
