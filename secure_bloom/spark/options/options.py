"""The options of ``secure_parquet``: their names, which are allowed, and how values are parsed.

Does not need Spark. Options never contain keys: keys are named, and kept in a KMS. The other
modules of this package define what the options mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.display import similar_name, without_credentials
from secure_bloom.errors import OptionError, UnsupportedError
from secure_bloom.json_text import decode_json, decode_once
from secure_bloom.storage.files import resolve

FORMAT = "secure_parquet"

KEYS = "keys"
PLAINTEXT = "plaintext"
FOOTER_KEY = "parquet.encryption.footer.key"
COLUMN_KEYS = "parquet.encryption.column.keys"
COMPLETE_COLUMNS = "parquet.encryption.complete.columns"
UNIFORM_KEY = "parquet.encryption.uniform.key"
PLAINTEXT_FOOTER = "parquet.encryption.plaintext.footer"
ALGORITHM = "parquet.encryption.algorithm"
DOUBLE_WRAPPING = "parquet.encryption.double.wrapping"
KEY_BITS = "parquet.encryption.data.key.length.bits"
ENCRYPTION = (FOOTER_KEY, COLUMN_KEYS, COMPLETE_COLUMNS, UNIFORM_KEY, PLAINTEXT_FOOTER, ALGORITHM,
              DOUBLE_WRAPPING, KEY_BITS)

ENABLED = "parquet.bloom.filter.enabled"
FPP = "parquet.bloom.filter.fpp"
NDV = "parquet.bloom.filter.expected.ndv"
MAX_BYTES = "parquet.bloom.filter.max.bytes"
BLOOM_FILTERS = "bloom_filters"

POLICY = "policy"
SESSION_POLICY = f"spark.datasource.{FORMAT}.{POLICY}"  #: if the option is missing
#: what a call of :func:`secure_bloom.spark.write` knows, see :mod:`.spark.options.analysed`
ANALYSED = "analysed"
RECEIPT = "receipt"  #: of such a call, see :mod:`.spark.writing.receipts`; for reading

REQUIRE_ENCRYPTION = "require.encryption"
ON_MISSING_KEY = "on.missing.key"
INDEX = "index"
INDEX_COLUMNS = "index_columns"
PARTITION_BY = "partition_by"
# of Spark, for streams that read:
CHECKPOINT, MAX_FILES, IGNORE_MISSING = "checkpointlocation", "maxfilespertrigger", \
    "ignoremissingfiles"
OVERWRITE_MODE = "partitionoverwritemode"  #: Spark's; DefaultSource.java adds the session's
OVERWRITTEN = "overwritten_partition"  #: set by DefaultSource.java: the condition of an overwrite
ROW_GROUP_SIZE = "row_group_size"
MAX_ROWS_PER_FILE = "max_rows_per_file"
MAX_BYTES_PER_FILE = "max_bytes_per_file"
SWITCHES = ("write_page_index", "write_page_checksum", "use_content_defined_chunking")
SWITCHES_BY_COLUMN = ("use_dictionary", "write_statistics", "use_byte_stream_split")
SIZES = ("data_page_size", "dictionary_pagesize_limit", "write_batch_size", "max_rows_per_page")
WRITER = ("compression", "compression_level", "column_encoding", "data_page_version", *SWITCHES,
          *SWITCHES_BY_COLUMN, *SIZES)

#: names of Spark and parquet-java for options that have their own name here
OTHER_NAMES = {
    "maxrecordsperfile": MAX_ROWS_PER_FILE,
    "parquet.compression": "compression",
    "parquet.dictionary.page.size": "dictionary_pagesize_limit",
    "parquet.enable.dictionary": "use_dictionary",
    "parquet.page.row.count.limit": "max_rows_per_page",
    "parquet.page.size": "data_page_size",
    "parquet.page.write-checksum.enabled": "write_page_checksum",
}

_KNOWN = ("path", KEYS, POLICY, PLAINTEXT, *ENCRYPTION, ENABLED, FPP, MAX_BYTES,
          BLOOM_FILTERS, INDEX_COLUMNS, PARTITION_BY, OVERWRITE_MODE, OVERWRITTEN, ROW_GROUP_SIZE,
          MAX_ROWS_PER_FILE, MAX_BYTES_PER_FILE, *WRITER, *OTHER_NAMES, ANALYSED)
_KNOWN_FOR_COLUMN = (ENABLED, FPP, NDV)
_ONLY_READING = ("columns", "mergeschema", "split_bytes", "open_cost_bytes", "min_partitions",
                 "filters", "allfiles", REQUIRE_ENCRYPTION,
                 ON_MISSING_KEY, INDEX, CHECKPOINT, MAX_FILES, IGNORE_MISSING)

_NO_JAVA = "no Java class is used here: remove it, and specify the KMS in option keys"
_KEYS_NOW = f"it is called {KEYS} now: the path of a keyring, or the URI of a KMS"
_AS_SPARK = "values are stored as Spark stores them: remove it"
_ADVICE = {
    "keyring": _KEYS_NOW,
    "kms": _KEYS_NOW,
    "engine": "it was removed: Spark's own writer and reader are in secure_bloom.spark.native",
    "single_use": "it was removed: conditions are used for each use of a DataFrame; remove it",
    "parquet.crypto.factory.class": _NO_JAVA,
    "parquet.encryption.kms.client.class": _NO_JAVA,
    "parquet.encryption.key.list": "keys must not be passed in options, because Spark shows and "
                                   "logs them: store them in a keyring file, and specify it in "
                                   "option keys",
    "parquet.encryption.key.material.store.internally": "key material is always stored in the "
                                                        "file: remove it",
    "replacewhere": "overwrite always replaces the whole folder: remove it",
    NDV: f"it is for one column: {NDV}#column",
    **dict.fromkeys(("version", "flavor", "coerce_timestamps", "allow_truncated_timestamps",
                     "use_deprecated_int96_timestamps", "use_compliant_nested_type",
                     "store_decimal_as_integer", "write_time_adjusted_to_utc", "store_schema"),
                    _AS_SPARK),
}

_TABLE_PREFIX = "option."
_OF_TABLE = "of_table"  # set by DefaultSource.java for a write to a catalog table

_T = TypeVar("_T")
_Default = TypeVar("_Default")


class Options(Mapping[str, str]):
    """The options of one read or write: an immutable mapping from names to unparsed values.

    Names are case-insensitive, as in Spark. An option may be for one column: ``name#column``. The
    mapping can be pickled, and its repr does not show values. A value of None means that the option
    is not set.
    """

    __slots__ = ("_values",)

    def __init__(self, given: Mapping[str, str | None]):
        self._values = {name.lower(): value for name, value in given.items() if value is not None}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Options({', '.join(self)})"

    def check_names(self, *, reading: bool = False) -> None:
        """Raise OptionError if an option would not be used. The message does not show values.

        Options for writing may also be passed to a read, but options for reading not to a write.
        """
        for name in self:
            base, hash_, column = name.partition("#")
            if name in _ONLY_READING:
                if reading:
                    continue
                raise OptionError("it is for reading only: remove it", option=name)
            if name in _KNOWN or (base in _KNOWN_FOR_COLUMN and column):
                continue
            if base in _KNOWN and hash_:
                raise OptionError("it is for the whole file, not for one column: remove the part "
                                  "from # on" if column else "the column is missing after #",
                                  option=name)
            raise OptionError(_ADVICE.get(base) or _similar(base, reading), option=name)

    def without(self, names: Container[str]) -> Options:
        """Return all options except these."""
        return Options({name: value for name, value in self.items() if name not in names})

    def for_writing(self) -> Options:
        """Return the checked options of a write; an option with several names has ours.

        Options of a catalog table that are for reading only are left out.

        Raises OptionError if an option is not valid for a write, or two names of an option have
        different values.
        """
        options = self.without((_OF_TABLE, *_ONLY_READING)) if _OF_TABLE in self else self
        options.check_names()
        result = dict(options.without(OTHER_NAMES))
        for other, name in OTHER_NAMES.items():
            if other in options:
                value = options[other]
                if result.setdefault(name, value).strip().lower() != value.strip().lower():
                    raise OptionError(f"it contradicts {other}: remove one of them", option=name)
        return Options(result)

    def without_properties(self) -> Options:
        """Return the options of a catalog table, without its other properties.

        At CREATE TABLE, Spark passes all properties of the table, including those from OPTIONS and
        LOCATION. The schema that is returned then becomes the schema of the table. So by default
        the schemas of all files are merged: otherwise a column that is sensitive only in the second
        file would not be marked.

        Raises OptionError if the location is relative.
        """
        if self.get("provider", "").lower() != FORMAT:
            return self
        own = {name.removeprefix(_TABLE_PREFIX): value for name, value in self.items()
               if name.startswith(_TABLE_PREFIX)}
        path = self.get("path", own.get("path"))
        if path is not None and not path.startswith("/") and ":" not in path.split("/")[0]:
            raise OptionError("LOCATION is relative, and Spark resolves it against the database's "
                              "location, which the data source does not see here: use an absolute "
                              "path, or list the columns in CREATE TABLE", option="path")
        return Options({"mergeschema": "true", **own, "path": path})

    def with_default_kms(self, uri: str | None) -> Options:
        """Return the options, with this KMS if they name none."""
        return self if self.get(KEYS) else Options({**self, KEYS: uri})

    def with_default_policy(self, policy: str | None) -> Options:
        """Return the options, with this policy if they name none."""
        return self if POLICY in self else Options({**self, POLICY: policy})

    def by_column(self, name: str) -> Iterator[tuple[str, str]]:
        """Return name and column of each option ``name#column``."""
        prefix = f"{name}#"
        return ((one, one.removeprefix(prefix)) for one in self if one.startswith(prefix))

    def parsed(self, name: str, parse: Callable[[str], _T], allowed: str,
               default: _Default) -> _T | _Default:
        """Return the value parsed by ``parse``; it raises ValueError unless it is ``allowed``."""
        if name not in self:
            return default
        try:
            return parse(self[name])
        except ValueError:
            raise OptionError(f"it must be {allowed}, not {self[name]!r}", option=name) from None

    def text(self, name: str) -> str:
        """Return the value without surrounding whitespace; empty if not set."""
        return self.get(name, "").strip()

    def boolean(self, name: str, default: bool | _Default = False) -> bool | _Default:
        """Parse ``true`` or ``false``."""
        return self.parsed(name, lambda text: ("false", "true").index(text.strip().lower()) == 1,
                           "true or false", default)

    def number(self, name: str, default: _Default, least: int = 1,
               most: int | None = None) -> int | _Default:
        """Parse an integer from ``least`` to ``most``."""
        def parse(text: str) -> int:
            value = int(text)
            if value < least or (most is not None and value > most):
                raise ValueError
            return value

        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        return self.parsed(name, parse, f"a whole number, {allowed}", default)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Parse one of the choices; the first one is the default."""
        lower = [one.lower() for one in choices]
        return self.parsed(name, lambda text: choices[lower.index(text.strip().lower())],
                           f"one of {', '.join(choices)}", choices[0])

    def key(self, name: str) -> str:
        """Return the name of a master key, which may be a JSON string; empty if not set."""
        text = found = self.text(name)
        if text.startswith('"'):
            with suppress(ValueError):
                found = str(decode_json(text))
        if name in self and not found:
            raise OptionError("it is empty: specify the name of a master key", option=name)
        return found

    def names(self, name: str, *, repeated: bool = False) -> list[str]:
        """Parse names of columns: ``a, b``, or a JSON list for names that contain commas.

        None of them may be empty, or given twice unless ``repeated``.
        """
        text = self.text(name)
        found: Any = [part.strip() for part in text.split(",")]
        if text.startswith("[") and text.endswith("]"):
            with suppress(ValueError):
                found = decode_json(text)
        if not found or not all(isinstance(one, str) and one for one in found):
            raise OptionError('a name is missing; it must have the form: column, column, or be a '
                              'JSON list: ["column", "column"]', option=name)
        if len(set(found)) < len(found) and not repeated:
            raise OptionError("a column is listed twice", option=name)
        return list(dict.fromkeys(found))

    def json_object(self, name: str, form: str) -> dict[str, Any]:
        """Parse a JSON object without duplicate names; ``form`` is an example of it."""
        try:
            value = decode_json(self[name], decode_once)
        except ValueError as error:
            raise OptionError(f"it is not a JSON object such as {form}: {error}",
                              option=name) from None
        if not isinstance(value, dict):
            raise OptionError(f"it must be a JSON object such as {form}", option=name)
        return value


def _similar(name: str, reading: bool) -> str:
    known = sorted({*_KNOWN, *(_ONLY_READING if reading else ()),
                    *(f"{base}#column" for base in _KNOWN_FOR_COLUMN)}
                   - {"path", ANALYSED, OVERWRITTEN})
    similar = similar_name(name, known)
    return f"unknown; allowed options: {', '.join(known)}" if similar is None \
        else f"unknown; did you mean {similar}?"


# --- where ---------------------------------------------------------------------------------------

def locate(path: str | None, option: str = "path") -> tuple[pa_fs.FileSystem, str]:
    """Return filesystem and absolute path of option ``path``, which save() and load() set.

    ``option`` is the one to be named in errors.
    """
    if not path:
        raise OptionError(
            "specify the folder, as in save(path) and load(path). For catalog tables, Spark "
            "passes neither path nor options unless secure_bloom.spark.register was called for a "
            "classic (non-Connect) session: specify them in the query, as in SELECT * FROM t WITH "
            "(path '...'), or use a temporary view", option="path")
    try:
        return resolve(without_file_scheme(path))
    except (pa.ArrowInvalid, UnsupportedError) as error:
        raise OptionError(without_credentials(f"{path} cannot be used: {error}"),
                          option=option) from None


def without_file_scheme(path: str) -> str:
    """Return a local path without its scheme, as Hadoop reads it: nothing is percent-encoded."""
    match = re.fullmatch(r"file:(?://)?(/.*)", path, re.DOTALL | re.IGNORECASE)
    return match[1] if match else path
