"""The options of ``secure_parquet``: Spark's own names, checked against the schema.

Option names arrive in lower case, so the columns in them are matched without case. Nothing here
needs Spark, and no option holds a key: keys are named, and kept in a keyring.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet.encryption as pe

from secure_bloom.encryption import ALGORITHMS
from secure_bloom.errors import SecureBloomError
from secure_bloom.files import resolve
from secure_bloom.keys import Keyring
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.writer import (
    DEFAULT_ROW_GROUP_ROWS,
    MAX_ROW_GROUP_ROWS,
    BloomFilterOptions,
    parquet_leaves,
)

_FOOTER_KEY = "parquet.encryption.footer.key"
_COLUMN_KEYS = "parquet.encryption.column.keys"
_UNIFORM_KEY = "parquet.encryption.uniform.key"
_PLAINTEXT_FOOTER = "parquet.encryption.plaintext.footer"
_ALGORITHM = "parquet.encryption.algorithm"
_DOUBLE_WRAPPING = "parquet.encryption.double.wrapping"
_KEY_BITS = "parquet.encryption.data.key.length.bits"
_ENCRYPTION = (_FOOTER_KEY, _COLUMN_KEYS, _UNIFORM_KEY, _PLAINTEXT_FOOTER, _ALGORITHM,
               _DOUBLE_WRAPPING, _KEY_BITS)

_ENABLED = "parquet.bloom.filter.enabled"
_FPP = "parquet.bloom.filter.fpp"
_NDV = "parquet.bloom.filter.expected.ndv"
_MAX_BYTES = "parquet.bloom.filter.max.bytes"

_KNOWN = ("path", "keyring", "plaintext", "row_group_size", "compression", "parquet.compression",
          *_ENCRYPTION, _ENABLED, _FPP, _MAX_BYTES)
_KNOWN_FOR_COLUMN = (_ENABLED, _FPP, _NDV)
_ONLY_READING = ("columns", "mergeschema", "split_bytes", "open_cost_bytes", "min_partitions",
                 "filters", "single_use")

_NO_JAVA = "no Java class is used here: remove it, and name a keyring file in option keyring"
_ADVICE = {
    "parquet.crypto.factory.class": _NO_JAVA,
    "parquet.encryption.kms.client.class": _NO_JAVA,
    "parquet.encryption.key.list": "keys do not belong in options, which Spark shows and logs: "
                                   "put them in a keyring file, and name it in option keyring",
    "parquet.encryption.key.material.store.internally": "key material is always stored in the "
                                                        "file: remove it",
    "replacewhere": "overwrite always replaces the whole folder: remove it",
    _NDV: f"it is for one column: {_NDV}#column",
}

_COMPRESSIONS = {"none": "none", "uncompressed": "none", "snappy": "snappy", "gzip": "gzip",
                 "zstd": "zstd", "brotli": "brotli", "lz4": "lz4", "lz4_raw": "lz4"}


class OptionError(SecureBloomError, ValueError):
    """An option is unknown, contradicts another, or has a value that it cannot have."""

    def __init__(self, message: str, *, option: str | None = None, **where):
        super().__init__(f"option {option}: {message}" if option else message, **where)


@dataclass(frozen=True)
class WriteOptions:
    """What the options of a write mean for its schema. Names only, so it can go to every task.

    Attributes
    ----------
    keyring : str or None
        Path of the keyring file, absolute.
    encryption : dict or None
        Arguments of :class:`pyarrow.parquet.encryption.EncryptionConfiguration`; None: plaintext.
    bloom_filters : dict of str to BloomFilterOptions
        By dotted path of the leaf column.
    compression : str
        As pyarrow names it.
    row_group_size : int
        Rows in a row group, at most.
    """

    keyring: str | None = None
    encryption: dict | None = None
    bloom_filters: dict[str, BloomFilterOptions] = field(default_factory=dict)
    compression: str = "snappy"
    row_group_size: int = DEFAULT_ROW_GROUP_ROWS

    def writer_arguments(self) -> dict:
        """Keyword arguments for :class:`secure_bloom.ParquetWriter`; reads the keyring."""
        arguments = {"bloom_filters": self.bloom_filters, "compression": self.compression}
        if self.encryption is not None:
            arguments |= {"encryption": pe.EncryptionConfiguration(**self.encryption),
                          "kms": Keyring(self.keyring)}
        return arguments


def parse_write_options(options: Mapping[str, str], schema: pa.Schema) -> WriteOptions:
    """The meaning of a write's options.

    Parameters
    ----------
    options : mapping of str to str
        Names in lower case.
    schema : pyarrow.Schema
        Of the rows to be written.

    Raises
    ------
    OptionError
        With the name of the option and what to do.
    """
    check_names(options)
    columns = parquet_leaves(schema)
    return WriteOptions(
        keyring=keyring_path(options),
        encryption=_encryption(options, columns),
        bloom_filters=_bloom_filters(options, columns),
        compression=_compression(options),
        row_group_size=_number(options, "row_group_size", DEFAULT_ROW_GROUP_ROWS,
                               lambda rows: 1 <= rows <= MAX_ROW_GROUP_ROWS,
                               f"1 to {MAX_ROW_GROUP_ROWS}"))


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


# --- where ---------------------------------------------------------------------------------------

def locate(options: Mapping[str, str]) -> tuple[pa_fs.FileSystem, str]:
    """Filesystem and absolute path of option ``path``, which save() and load() set."""
    path = options.get("path")
    if not path:
        raise OptionError("give the folder, as in save(path) and load(path)", option="path")
    try:
        return resolve(_without_file_scheme(path))
    except pa.ArrowInvalid as error:
        raise OptionError(f"{path} cannot be used: {error}", option="path") from None


def keyring_path(options: Mapping[str, str]) -> str | None:
    """The keyring file, absolute, because tasks may run in another folder."""
    path = options.get("keyring")
    return os.path.abspath(os.path.expanduser(_without_file_scheme(path))) if path else None


def _without_file_scheme(path: str) -> str:
    # As Hadoop reads it: file:/a and file:///a are the path /a, nothing is percent-encoded.
    match = re.fullmatch(r"file:(?://)?(/.*)", path, re.DOTALL | re.IGNORECASE)
    return match[1] if match else path


# --- encryption ----------------------------------------------------------------------------------

def _encryption(options: Mapping[str, str], columns: list[LeafColumn]) -> dict | None:
    """Arguments of EncryptionConfiguration; None only where plaintext was asked for."""
    given = [name for name in _ENCRYPTION if name in options]
    if _boolean(options, "plaintext", False):
        if given:
            raise OptionError(f"it contradicts {given[0]}: remove one of them",
                              option="plaintext")
        return None
    if not given:
        raise OptionError(
            f"no encryption is asked for, and nothing was written. Set {_FOOTER_KEY} and "
            f"{_COLUMN_KEYS}, or {_UNIFORM_KEY}; to write without encryption, set plaintext to "
            "true")
    if not options.get("keyring"):
        raise OptionError(f"{given[0]} needs it: name the keyring file with the master keys",
                          option="keyring")
    encryption = _keys(options, columns)
    encryption |= {"encryption_algorithm": _choice(options, _ALGORITHM, ALGORITHMS),
                   "double_wrapping": _boolean(options, _DOUBLE_WRAPPING, True),
                   "data_key_length_bits": int(_choice(options, _KEY_BITS,
                                                       ("128", "192", "256"))),
                   "plaintext_footer": _boolean(options, _PLAINTEXT_FOOTER, False)}
    if encryption["plaintext_footer"] and _UNIFORM_KEY in options:
        raise OptionError(f"not possible with {_UNIFORM_KEY}: use {_FOOTER_KEY} and "
                          f"{_COLUMN_KEYS}", option=_PLAINTEXT_FOOTER)
    return encryption


def _keys(options: Mapping[str, str], columns: list[LeafColumn]) -> dict:
    """Which master key encrypts what."""
    for name in (_UNIFORM_KEY, _FOOTER_KEY):
        if name in options and not options[name].strip():
            raise OptionError("it is empty: give the name of a master key", option=name)
    if _UNIFORM_KEY in options:
        for name in (_FOOTER_KEY, _COLUMN_KEYS):
            if name in options:
                raise OptionError(f"it contradicts {name}: remove one of them",
                                  option=_UNIFORM_KEY)
        return {"footer_key": options[_UNIFORM_KEY].strip(), "uniform_encryption": True}
    for name in (_FOOTER_KEY, _COLUMN_KEYS):
        if name not in options:
            raise OptionError(f"missing: encryption needs {_FOOTER_KEY} and {_COLUMN_KEYS}, or "
                              f"{_UNIFORM_KEY} for one key for everything", option=name)
    return {"footer_key": options[_FOOTER_KEY].strip(),
            "column_keys": _column_keys(options[_COLUMN_KEYS], columns)}


def _column_keys(text: str, columns: list[LeafColumn]) -> dict[str, list[str]]:
    """``"key1: a, b; key2: c"`` as {master key: paths of leaf columns}; a group means its leaves.
    """
    column_keys: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    for part in filter(str.strip, text.split(";")):
        key, _, names = (piece.strip() for piece in part.partition(":"))
        if not key or not names or ":" in names:
            raise OptionError('its form is "key1: column, column; key2: column", without ":" in '
                              "the names", option=_COLUMN_KEYS)
        for name in names.split(","):
            for leaf in _leaves(name.strip(), columns, _COLUMN_KEYS, keeps_case=True):
                if owner.setdefault(leaf.path, key) != key:
                    raise OptionError(f"column {leaf.path} has two keys, {owner[leaf.path]} and "
                                      f"{key}: remove one of them", option=_COLUMN_KEYS)
                if leaf.path not in column_keys.setdefault(key, []):
                    column_keys[key].append(leaf.path)
    if not column_keys:
        raise OptionError("it is empty: name the columns to encrypt", option=_COLUMN_KEYS)
    for path in owner:
        if any(character in path for character in ":;,"):
            raise OptionError(f"column {path} cannot have a key of its own, because of the "
                              f"punctuation in its name: rename it, or use {_UNIFORM_KEY}",
                              option=_COLUMN_KEYS)
    return column_keys


# --- Bloom filters -------------------------------------------------------------------------------

def _bloom_filters(options: Mapping[str, str],
                   columns: list[LeafColumn]) -> dict[str, BloomFilterOptions]:
    enabled = _per_column(options, _ENABLED, columns, _boolean)
    fpp = _per_column(options, _FPP, columns, _fpp)
    ndv = _per_column(options, _NDV, columns, _ndv)
    default = {"fpp": _fpp(options, _FPP), "max_bytes": _max_bytes(options)}
    if _boolean(options, _ENABLED, False):
        enabled = {c.path: True for c in columns if c.type.can_have_filter} | enabled
    for path in ndv:  # as in parquet-java, it implies a filter
        if not enabled.setdefault(path, True):
            raise OptionError(f"it contradicts {_ENABLED}#{path}: remove one of them",
                              option=f"{_NDV}#{path}")
    filters = {path for path, wanted in enabled.items() if wanted}
    for path in fpp.keys() - filters:
        raise OptionError(f"the column has no Bloom filter: set {_ENABLED}#{path} to true",
                          option=f"{_FPP}#{path}")
    own = {path: {name: given[path] for name, given in (("fpp", fpp), ("ndv", ndv))
                  if path in given} for path in filters}
    return {path: BloomFilterOptions(**default | own[path]) for path in sorted(filters)}


def _per_column(options: Mapping[str, str], base: str, columns: list[LeafColumn],
                parse: Callable) -> dict[str, object]:
    """The values of ``base#column`` by path; each column exists and can have a filter."""
    values = {}
    for name in options:
        if not name.startswith(f"{base}#"):
            continue
        asked = name.removeprefix(f"{base}#")
        leaves = _leaves(asked, columns, name, keeps_case=False)
        if len(leaves) > 1 or leaves[0].path.lower() != asked.lower():
            raise OptionError("this is a group of columns; name one of its leaves: "
                              + ", ".join(leaf.path for leaf in leaves), option=name)
        value = parse(options, name)
        if value is not False and not leaves[0].type.can_have_filter:
            raise OptionError(f"a column of type {leaves[0].type} cannot have a Bloom filter: "
                              "remove it", option=name)
        values[leaves[0].path] = value
    return values


def _leaves(name: str, columns: list[LeafColumn], option: str, *,
            keeps_case: bool) -> list[LeafColumn]:
    """The leaf column with this dotted path, or the leaves of the group that has it."""
    below: dict[str, list[LeafColumn]] = {}
    for column in columns:
        for depth in range(1, len(column.parts) + 1):
            below.setdefault(".".join(column.parts[:depth]), []).append(column)
    if keeps_case and name in below:
        return below[name]
    found = [path for path in below if path.lower() == name.lower()]
    if not found:
        names = ", ".join(c.path for c in columns[:20]) + (", ..." if columns[20:] else "")
        raise OptionError(f"there is no column {name!r}; there are: {names}", option=option)
    if len(found) > 1:
        raise OptionError(f"{name!r} may mean {' or '.join(found)}, which differ in case only: "
                          "rename one of them", option=option)
    return below[found[0]]


def _fpp(options: Mapping[str, str], name: str) -> float:
    if name not in options:
        return BloomFilterOptions.fpp
    try:
        return BloomFilterOptions(fpp=float(options[name])).fpp
    except ValueError:
        raise OptionError(f"it must be a number between 0 and 1, both excluded, not "
                          f"{options[name]!r}", option=name) from None


def _ndv(options: Mapping[str, str], name: str) -> int:
    return _number(options, name, None, lambda ndv: ndv > 0, "at least 1")


def _max_bytes(options: Mapping[str, str]) -> int | None:
    if _MAX_BYTES not in options:
        return None
    try:
        return BloomFilterOptions(max_bytes=int(options[_MAX_BYTES])).max_bytes
    except ValueError:
        raise OptionError(f"it must be a number of bytes, 32 to 134217728 (128 MiB), not "
                          f"{options[_MAX_BYTES]!r}", option=_MAX_BYTES) from None


# --- single values -------------------------------------------------------------------------------

def _boolean(options: Mapping[str, str], name: str, default: bool | None = None) -> bool | None:
    value = options.get(name)
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f"it must be true or false, not {value!r}", option=name)
    return value.strip().lower() == "true"


def _number(options: Mapping[str, str], name: str, default: int | None,
            is_valid: Callable[[int], bool], allowed: str) -> int | None:
    if name not in options:
        return default
    try:
        number = int(options[name])
    except ValueError:
        number = None
    if number is None or not is_valid(number):
        raise OptionError(f"it must be a whole number, {allowed}, not {options[name]!r}",
                          option=name)
    return number


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of the choices; the first one is the default."""
    value = options.get(name, choices[0]).strip()
    for choice in choices:
        if choice.lower() == value.lower():
            return choice
    raise OptionError(f"it must be one of {', '.join(choices)}, not {value!r}", option=name)


def _compression(options: Mapping[str, str]) -> str:
    names = [name for name in ("compression", "parquet.compression") if name in options]
    values = {_COMPRESSIONS[_choice(options, name, tuple(_COMPRESSIONS))] for name in names}
    if len(values) > 1:
        raise OptionError("it contradicts parquet.compression: remove one of them",
                          option="compression")
    return values.pop() if values else WriteOptions.compression
