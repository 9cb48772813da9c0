"""The options of ``secure_parquet``: their names, where they point to, and how values are read.

Option names arrive in lower case, values as they were written. Nothing here needs Spark, and no
option holds a key: keys are named, and kept in a KMS. What options mean for a write is in
``write_options``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError, UnsupportedError
from secure_bloom.storage.files import resolve

FORMAT = "secure_parquet"

KEYRING = "keyring"
KMS = "kms"
PLAINTEXT = "plaintext"
FOOTER_KEY = "parquet.encryption.footer.key"
COLUMN_KEYS = "parquet.encryption.column.keys"
UNIFORM_KEY = "parquet.encryption.uniform.key"
PLAINTEXT_FOOTER = "parquet.encryption.plaintext.footer"
ALGORITHM = "parquet.encryption.algorithm"
DOUBLE_WRAPPING = "parquet.encryption.double.wrapping"
KEY_BITS = "parquet.encryption.data.key.length.bits"
ENCRYPTION = (FOOTER_KEY, COLUMN_KEYS, UNIFORM_KEY, PLAINTEXT_FOOTER, ALGORITHM, DOUBLE_WRAPPING,
              KEY_BITS)

ENABLED = "parquet.bloom.filter.enabled"
FPP = "parquet.bloom.filter.fpp"
NDV = "parquet.bloom.filter.expected.ndv"
MAX_BYTES = "parquet.bloom.filter.max.bytes"
BLOOM_FILTERS = "bloom_filters"

REQUIRE_ENCRYPTION = "require.encryption"
PARTITION_BY = "partition_by"
ROW_GROUP_SIZE = "row_group_size"
MAX_ROWS_PER_FILE = "max_rows_per_file"
MAX_BYTES_PER_FILE = "max_bytes_per_file"
SWITCHES = ("write_page_index", "write_page_checksum", "use_content_defined_chunking")
SWITCHES_BY_COLUMN = ("use_dictionary", "write_statistics", "use_byte_stream_split")
SIZES = ("data_page_size", "dictionary_pagesize_limit", "write_batch_size", "max_rows_per_page")
WRITER = ("compression", "compression_level", "column_encoding", "data_page_version", *SWITCHES,
          *SWITCHES_BY_COLUMN, *SIZES)

#: other names, Spark's and parquet-java's own, for options that have one here
OTHER_NAMES = {
    "maxrecordsperfile": MAX_ROWS_PER_FILE,
    "parquet.compression": "compression",
    "parquet.dictionary.page.size": "dictionary_pagesize_limit",
    "parquet.enable.dictionary": "use_dictionary",
    "parquet.page.row.count.limit": "max_rows_per_page",
    "parquet.page.size": "data_page_size",
    "parquet.page.write-checksum.enabled": "write_page_checksum",
}

_KNOWN = ("path", KEYRING, KMS, PLAINTEXT, *ENCRYPTION, ENABLED, FPP, MAX_BYTES, BLOOM_FILTERS,
          PARTITION_BY, ROW_GROUP_SIZE, MAX_ROWS_PER_FILE, MAX_BYTES_PER_FILE, *WRITER,
          *OTHER_NAMES)
_KNOWN_FOR_COLUMN = (ENABLED, FPP, NDV)
_ONLY_READING = ("columns", "mergeschema", "split_bytes", "open_cost_bytes", "min_partitions",
                 "filters", "single_use", "allfiles", REQUIRE_ENCRYPTION)

_NO_JAVA = "no Java class is used here: remove it, and name the KMS in option keyring or kms"
_AS_SPARK = "values are stored as Spark stores them: remove it"
_ADVICE = {
    "parquet.crypto.factory.class": _NO_JAVA,
    "parquet.encryption.kms.client.class": _NO_JAVA,
    "parquet.encryption.key.list": "keys do not belong in options, which Spark shows and logs: "
                                   "put them in a keyring file, and name it in option keyring",
    "parquet.encryption.key.material.store.internally": "key material is always stored in the "
                                                        "file: remove it",
    "replacewhere": "overwrite always replaces the whole folder: remove it",
    NDV: f"it is for one column: {NDV}#column",
    **dict.fromkeys(("version", "flavor", "coerce_timestamps", "allow_truncated_timestamps",
                     "use_deprecated_int96_timestamps", "use_compliant_nested_type",
                     "store_decimal_as_integer", "write_time_adjusted_to_utc", "store_schema"),
                    _AS_SPARK),
}


class OptionError(SecureBloomError, ValueError):
    """An option is unknown, contradicts another, or has a value that it cannot have."""

    def __init__(self, message: str, *, option: str | None = None, **where):
        super().__init__(f"option {option}: {message}" if option else message, **where)


def check_names(options: Iterable[str], *, reading: bool = False) -> None:
    """Raise OptionError if there is an option that nobody would look at. Tells no values.

    The options of a write may also be given to a read, those of a read not to a write.
    """
    for name in options:
        base, hash_, column = name.partition("#")
        if name in _ONLY_READING:
            if reading:
                continue
            raise OptionError("it is for reading only: remove it", option=name)
        if name in _KNOWN or (base in _KNOWN_FOR_COLUMN and column):
            continue
        if base in _KNOWN and hash_:
            raise OptionError("it is for the whole file, not for one column: remove the part from "
                              "# on" if column else "the column is missing after #", option=name)
        raise OptionError(_ADVICE.get(base) or _similar(base, reading), option=name)


def _similar(name: str, reading: bool) -> str:
    known = sorted({*_KNOWN, *(_ONLY_READING if reading else ()),
                    *(f"{base}#column" for base in _KNOWN_FOR_COLUMN)} - {"path"})
    close = difflib.get_close_matches(name, known, n=1)
    return (f"unknown; did you mean {close[0]}?" if close
            else f"unknown, and so refused; there are: {', '.join(known)}")


def with_one_name(options: Mapping[str, str]) -> dict[str, str]:
    """The options with our name for each that has several.

    Raises
    ------
    OptionError
        If two names of an option have different values.
    """
    result = {name: value for name, value in options.items() if name not in OTHER_NAMES}
    for other, name in OTHER_NAMES.items():
        if other in options:
            value = options[other]
            if result.setdefault(name, value).strip().lower() != value.strip().lower():
                raise OptionError(f"it contradicts {other}: remove one of them", option=name)
    return result


# --- tables in catalogs --------------------------------------------------------------------------

_PREFIX = "option."
_OF_TABLE = "of_table"  # set by DefaultSource.java for a write into a table


def without_properties(options: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a table.

    At CREATE TABLE, Spark hands over all properties of the table; those from OPTIONS and LOCATION
    are among them. The schema that it gets then is that of the table from there on. So by default
    all files are merged: else a column that only the second file says is sensitive has no mark.
    """
    if options.get("provider", "").lower() != FORMAT:
        return options
    own = {"mergeschema": "true"} | {name.removeprefix(_PREFIX): value
                                     for name, value in options.items() if name.startswith(_PREFIX)}
    return own | ({"path": options["path"]} if "path" in options else {})


def for_writing(options: Mapping[str, str]) -> Mapping[str, str]:
    """The same options without those of a table that are for reading only."""
    if _OF_TABLE not in options:
        return options
    return {name: value for name, value in options.items()
            if name not in (_OF_TABLE, *_ONLY_READING)}


# --- where ---------------------------------------------------------------------------------------

def locate(options: Mapping[str, str]) -> tuple[pa_fs.FileSystem, str]:
    """Filesystem and absolute path of option ``path``, which save() and load() set."""
    path = options.get("path")
    if not path:
        raise OptionError(
            "give the folder, as in save(path) and load(path). Of tables in a catalog Spark tells "
            "neither path nor options unless secure_bloom.spark.register was called for a session "
            "that is not one of Spark Connect: say them in the query, as in "
            "SELECT * FROM t WITH (path '...'), or use a temporary view", option="path")
    try:
        return resolve(without_file_scheme(path))
    except (pa.ArrowInvalid, UnsupportedError) as error:
        raise OptionError(_without_credentials(f"{path} cannot be used: {error}"),
                          option="path") from None


def _without_credentials(text: str) -> str:
    """The same without user and password of URIs."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def without_file_scheme(path: str) -> str:
    """The path of a local file, as Hadoop reads it: nothing is percent-encoded."""
    match = re.fullmatch(r"file:(?://)?(/.*)", path, re.DOTALL | re.IGNORECASE)
    return match[1] if match else path


# --- values --------------------------------------------------------------------------------------

def boolean(options: Mapping[str, str], name: str,
            default: bool | None = False) -> bool | None:
    """``true`` or ``false``."""
    if name not in options:
        return default
    value = options[name].strip().lower()
    if value not in ("true", "false"):
        raise OptionError(f"it must be true or false, not {options[name]!r}", option=name)
    return value == "true"


def number(options: Mapping[str, str], name: str, default: int | None,
           is_valid: Callable[[int], bool], allowed: str) -> int | None:
    """A whole number; ``allowed`` says in words what ``is_valid`` accepts."""
    if name not in options:
        return default
    try:
        value = int(options[name])
    except ValueError:
        value = None
    if value is None or not is_valid(value):
        raise OptionError(f"it must be a whole number, {allowed}, not {options[name]!r}",
                          option=name)
    return value


def choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of the choices; the first one is the default."""
    value = options.get(name, choices[0]).strip()
    for one in choices:
        if one.lower() == value.lower():
            return one
    raise OptionError(f"it must be one of {', '.join(choices)}, not {value!r}", option=name)


def names(options: Mapping[str, str], name: str) -> list[str]:
    """Names separated by commas, none of them empty or given twice."""
    found = [part.strip() for part in options[name].split(",")]
    if not all(found):
        raise OptionError("a name is missing; its form is: column, column", option=name)
    if len(set(found)) < len(found):
        raise OptionError("a column is named twice", option=name)
    return found


def json_object(options: Mapping[str, str], name: str, form: str) -> dict[str, Any]:
    """A JSON object without a name given twice; ``form`` is an example of it."""
    def unique(pairs):
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a name is given twice")
        return dict(pairs)

    try:
        value = json.loads(options[name], object_pairs_hook=unique)
    except ValueError as error:
        raise OptionError(f"it is no JSON object such as {form}: {error}", option=name) from None
    if not isinstance(value, dict):
        raise OptionError(f"it must be a JSON object such as {form}", option=name)
    return value
