"""DataFrames written and read with arguments of Python instead of options."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

from pyarrow.parquet.encryption import EncryptionConfiguration as ArrowEncryptionConfiguration

from secure_bloom.encryption import EncryptionConfiguration, as_configuration
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.keyring import Keyring
from secure_bloom.keys.uri import has_scheme
from secure_bloom.parquet.schema import is_at_or_below
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.writing import by_column
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters
from secure_bloom.spark import native_job, native_scan
from secure_bloom.spark.engine import Engine, EngineName, check_name
from secure_bloom.spark.options.analysed import Analysed
from secure_bloom.spark.options.options import (
    ALGORITHM,
    ANALYSED,
    BLOOM_FILTERS,
    COLUMN_KEYS,
    DOUBLE_WRAPPING,
    ENABLED,
    FOOTER_KEY,
    FORMAT,
    KEY_BITS,
    KEYRING,
    KMS,
    OVERWRITE_MODE,
    PARTITION_BY,
    PLAINTEXT,
    PLAINTEXT_FOOTER,
    POLICY,
    UNIFORM_KEY,
)
from secure_bloom.spark.schema.types import field_metadata, leaf_paths
from secure_bloom.storage.files import FilePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: loads a path with further options
Load: TypeAlias = Callable[[str, Mapping[str, str]], "DataFrame"]

_MODES = {"error": "append", "append": "append", "overwrite": "overwrite"}


def write(df: DataFrame, path: FilePath, *, mode: str, keys: Keyring | FilePath | None,
          policy: Policy | FilePath | None,
          encryption: EncryptionConfiguration | ArrowEncryptionConfiguration | None,
          bloom_filters: BloomFilters, plaintext: bool, partition_by: str | Iterable[str],
          engine: EngineName, options: Mapping[str, Any]) -> Engine:
    """See :func:`secure_bloom.spark.write`."""
    check_name(engine)
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    schema = df.schema  # as analysed: the optimizer drops some of its metadata later
    leaves = leaf_paths(schema)
    made = {**key_options(keys), **_policy(policy), **_encryption(encryption, leaves),
            **_filters(bloom_filters, leaves), **_partition_by(partition_by),
            ANALYSED: Analysed(field_metadata(schema), mode == "error").to_json()}
    if plaintext:
        made[PLAINTEXT] = "true"
    given = _with(made, options)
    if mode == "overwrite" and OVERWRITE_MODE not in map(str.lower, given):
        given[OVERWRITE_MODE] = df.sparkSession.conf.get(
            "spark.sql.sources.partitionOverwriteMode", "static")
    chosen = native_job.write(df, str(path), given, mode == "overwrite", engine)
    if chosen.name == "python":
        df.write.format(FORMAT).options(**given).mode(_MODES[mode]).save(str(path))
    return chosen.log("written", str(path))


def loader(spark: SparkSession, *, keys: Keyring | FilePath | None,
           policy: Policy | FilePath | None, engine: EngineName,
           options: Mapping[str, Any]) -> Load:
    """Return a function that loads a path, given further options."""
    check_name(engine)
    given = _with({**key_options(keys), **_policy(policy)}, options)

    def load(path: str, more: Mapping[str, str]) -> DataFrame:
        chosen = Engine("python", "Spark's reader does not check what it reads") \
            if engine == "auto" else Engine(engine, "as requested")
        chosen.log("read", path)
        if engine == "native":  # Spark derives its filters from the condition on the frame
            return native_scan.load(spark, path, given)
        return spark.read.format(FORMAT).options(**given, **more).load(path)
    return load


def _with(made: dict[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Add the caller's own options to those that were made from arguments."""
    for name in options:
        if name.lower() in made:
            raise TypeError(f"option {name} is also set by an argument: remove one of them")
    return {**made, **options}


def key_options(keys: object) -> dict[str, str]:
    """Return the options that name the keys of an argument."""
    if keys is None:
        return {}
    if isinstance(keys, Keyring):
        return {KEYRING: str(keys.path.absolute())}
    if isinstance(keys, str) and has_scheme(keys):
        return {KMS: keys}
    if isinstance(keys, str | os.PathLike):
        return {KEYRING: os.fsdecode(os.fspath(keys))}
    raise TypeError(
        f"keys must be the path of a keyring, the URI of a KMS, or a Keyring, not "
        f"{type(keys).__name__}: Spark passes text to its workers, which open the KMS themselves")


def _policy(policy: object) -> dict[str, str]:
    if policy is None:
        return {}
    if isinstance(policy, Policy):
        return {POLICY: policy.to_toml()}
    if isinstance(policy, str | os.PathLike):
        return {POLICY: os.fsdecode(os.fspath(policy))}
    raise TypeError("policy must be a Policy or the path of its file, not "
                    f"{type(policy).__name__}")


def _partition_by(names: str | Iterable[str]) -> dict[str, str]:
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if "," in name:
            raise UnsupportedError("a comma in the name of a partition column: rename the column",
                                   column=name)
    return {PARTITION_BY: ",".join(names)} if names else {}


# --- encryption ----------------------------------------------------------------------------------

def _encryption(encryption: object, leaves: Sequence[str]) -> dict[str, str]:
    if encryption is None:
        return {}
    encryption = as_configuration(encryption)
    if not encryption.internal_key_material:
        raise UnsupportedError("internal_key_material=False: the key material of this format is "
                               "always in the file; leave it out")
    settings = {ALGORITHM: encryption.encryption_algorithm,
                DOUBLE_WRAPPING: str(encryption.double_wrapping).lower(),
                KEY_BITS: str(encryption.data_key_length_bits)}
    if encryption.uniform_encryption:
        return {**settings, UNIFORM_KEY: encryption.footer_key}
    return {**settings, FOOTER_KEY: encryption.footer_key,
            PLAINTEXT_FOOTER: str(encryption.plaintext_footer).lower(),
            COLUMN_KEYS: _column_keys(encryption.column_keys or {}, leaves)}


def _column_keys(column_keys: Mapping[str, Sequence[str]], leaves: Sequence[str]) -> str:
    """Return the text of the option; the key of a column replaces that of its group."""
    keys = {path: key for key, paths in column_keys.items() for path in paths}
    found: dict[str, list[str]] = {}
    for path, key in keys.items():
        if ";" in key or key != key.strip():
            raise UnsupportedError(f"master key {key!r} cannot be passed to Spark, because of a "
                                   "semicolon or spaces in its name", column=path)
        deeper = [other for other in keys if other != path and is_at_or_below(other, path)]
        own = [leaf for leaf in leaves if is_at_or_below(leaf, path)
               and not any(is_at_or_below(leaf, other) for other in deeper)]
        found.setdefault(key, []).extend(own if deeper else [path])
    return "; ".join(f"{key}: {', '.join(paths)}" for key, paths in found.items() if paths)


# --- filters -------------------------------------------------------------------------------------

def _filters(bloom_filters: BloomFilters, leaves: Sequence[str]) -> dict[str, str]:
    if bloom_filters is None:
        return {}
    if bloom_filters is True:
        return {ENABLED: "true"}
    if bloom_filters is False:  # also none from a policy or a mark
        return {BLOOM_FILTERS: json.dumps(dict.fromkeys(leaves, False))}
    return {BLOOM_FILTERS: json.dumps({path: _filter(value)
                                       for path, value in by_column(bloom_filters).items()})}


def _filter(value: object) -> object:
    if isinstance(value, BloomFilterOptions):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {name: number for name, number in value.items() if number is not None}
    return value
