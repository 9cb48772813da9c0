"""Encryption as requested by options and schema: which master key encrypts which columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from secure_bloom.encryption import ALGORITHMS, EncryptionConfiguration, confuses_pyarrow
from secure_bloom.errors import OptionError
from secure_bloom.spark.options.columns import KEY, Columns
from secure_bloom.spark.options.options import (
    ALGORITHM,
    COLUMN_KEYS,
    COMPLETE_COLUMNS,
    DOUBLE_WRAPPING,
    ENCRYPTION,
    FOOTER_KEY,
    KEY_BITS,
    KEYS,
    PLAINTEXT,
    PLAINTEXT_FOOTER,
    POLICY,
    UNIFORM_KEY,
    Options,
)
from secure_bloom.spark.options.policy import WritePolicy

_METADATA = f"metadata {KEY}"
_FORM = '{"key1": ["column", "column"], "key2": ["column"]}'
_MAKE_PUBLIC = ("to make the column public, remove its metadata, as "
                'df.withMetadata("name", {}) does, or a cast of its struct')


def parse_encryption(options: Options, columns: Columns,
                     policy: WritePolicy | None = None) -> EncryptionConfiguration | None:
    """Return which master keys encrypt what; None only if plaintext was asked for by name.

    If the options do not name columns, the policy does. Otherwise they are not changed, and must
    meet the policy themselves.

    Raises OptionError if options contradict each other or the schema, or do not specify encryption
    at all; PolicyError if the result does not meet the policy.
    """
    encryption = _encryption(options, columns, policy)
    if policy is not None:
        policy.check(encryption)
    return encryption


def _encryption(options: Options, columns: Columns,
                policy: WritePolicy | None) -> EncryptionConfiguration | None:
    asked = [name for name in ENCRYPTION if name in options]
    sensitive = [f"{_METADATA} of column {path}" for path, _ in columns.sensitive()]
    if options.boolean(PLAINTEXT):
        if asked:
            raise OptionError(f"it contradicts {asked[0]}: remove one of them", option=PLAINTEXT)
        if sensitive:
            raise OptionError(f"it contradicts {sensitive[0]}: {_MAKE_PUBLIC}", option=PLAINTEXT)
        return None
    asked += sensitive
    by_policy = None
    if policy is not None and not (COLUMN_KEYS in options or UNIFORM_KEY in options):
        by_policy = policy.encryption(options.key(FOOTER_KEY) or None)
        asked += [f"option {POLICY}"] if by_policy is not None else []
        if by_policy is None and not sensitive:
            policy.check_plaintext()
            if not asked:
                return None
    if not asked:
        raise OptionError(
            f"no encryption was requested, and nothing was written. Set {FOOTER_KEY} and "
            f"{COLUMN_KEYS}, or {UNIFORM_KEY}; to write without encryption, set plaintext to true")
    if not options.get(KEYS):
        raise OptionError(f"{asked[0]} needs it: specify the path of a keyring with the master "
                          "keys, or the URI of their KMS", option=KEYS)
    keys = _keys(options, columns, policy, by_policy)
    plaintext_footer = options.boolean(PLAINTEXT_FOOTER)
    if plaintext_footer and UNIFORM_KEY in options:
        raise OptionError(f"not possible with {UNIFORM_KEY}: use {FOOTER_KEY} and {COLUMN_KEYS}",
                          option=PLAINTEXT_FOOTER)
    return EncryptionConfiguration(
        **keys, plaintext_footer=plaintext_footer,
        encryption_algorithm=options.choice(ALGORITHM, ALGORITHMS),
        double_wrapping=options.boolean(DOUBLE_WRAPPING, True),
        data_key_length_bits=int(options.choice(KEY_BITS, ("128", "192", "256"))))


def keys_by_column(encryption: EncryptionConfiguration | None) -> dict[str, str]:
    """Return the master key of each leaf column that has its own, by dotted path."""
    column_keys = {} if encryption is None else encryption.column_keys or {}
    return {path: key for key, paths in column_keys.items() for path in paths}


def _keys(options: Options, columns: Columns, policy: WritePolicy | None,
          by_policy: EncryptionConfiguration | None) -> dict[str, Any]:
    if UNIFORM_KEY in options:
        return {"footer_key": _uniform_key(options, columns), "uniform_encryption": True}
    footer_key = options.key(FOOTER_KEY) or (policy and policy.policy.footer_key)
    if not footer_key:
        raise OptionError(f"missing: encryption needs {FOOTER_KEY} in addition to the column "
                          f"keys, or {UNIFORM_KEY} for one key for everything", option=FOOTER_KEY)
    if by_policy is not None and by_policy.uniform_encryption \
            and not any(columns.sensitive()) and not options.boolean(PLAINTEXT_FOOTER):
        return {"footer_key": footer_key, "uniform_encryption": True}
    added = {} if policy is None or by_policy is None else policy.keys(footer_key)
    if options.boolean(COMPLETE_COLUMNS):
        added = {**{leaf.path: footer_key for leaf in columns.leaves}, **added}
    return {"footer_key": footer_key, "column_keys": _column_keys(options, columns, added)}


def _uniform_key(options: Options, columns: Columns) -> str:
    for name in (FOOTER_KEY, COLUMN_KEYS, COMPLETE_COLUMNS):
        if name in options:
            raise OptionError(f"it contradicts {name}: remove one of them", option=UNIFORM_KEY)
    uniform = options.key(UNIFORM_KEY)
    for path, key in columns.sensitive():
        if key != uniform:
            raise OptionError(f"column {path} has two keys, {uniform} (option {UNIFORM_KEY}) and "
                              f"{key} ({_METADATA}): remove one of them")
    return uniform


def _column_keys(options: Options, columns: Columns,
                 added: Mapping[str, str]) -> dict[str, list[str]]:
    """Return {master key: paths of leaf columns}, from the option, the schema and the policy.

    ``added`` has the policy's key for each column that it adds; it may also contain others.
    """
    asked = [(path, key, f"option {COLUMN_KEYS}")
             for path, key in _column_keys_option(options, columns)]
    if not asked and COLUMN_KEYS in options:
        raise OptionError("it is empty: specify the columns to encrypt", option=COLUMN_KEYS)
    asked += [(path, key, _METADATA) for path, key in columns.sensitive()]
    named = {path for path, _, _ in asked}
    asked += [(path, key, f"option {POLICY}") for path, key in added.items() if path not in named]
    if not asked:
        raise OptionError(f"missing: encryption needs {FOOTER_KEY} and {COLUMN_KEYS}, or "
                          f"{UNIFORM_KEY} for one key for everything", option=COLUMN_KEYS)
    column_keys: dict[str, list[str]] = {}
    owner: dict[str, tuple[str, str]] = {}
    for path, key, source in asked:
        first = owner.setdefault(path, (key, source))
        if first[0] != key:
            raise OptionError(f"column {path} has two keys, {first[0]} ({first[1]}) and {key} "
                              f"({source}): remove one of them")
        if path not in column_keys.setdefault(key, []):
            column_keys[key].append(path)
        if confuses_pyarrow(path):
            raise OptionError(f"column {path} cannot have its own key, because of punctuation or "
                              f"spaces in its name: rename it, or use {UNIFORM_KEY}")
    return column_keys


def _column_keys_option(options: Options, columns: Columns) -> Iterator[tuple[str, str]]:
    """Yield path and key of each leaf column that the option names; a group means its leaves.

    Its value is ``key1: a, b; key2: c``, or for all names a JSON object: ``{"key1": ["a", "b"]}``.
    """
    text = options.text(COLUMN_KEYS)
    if text.startswith("{"):
        for key, paths in options.json_object(COLUMN_KEYS, _FORM).items():
            if not key or not isinstance(paths, list) \
                    or not all(isinstance(path, str) for path in paths):
                raise OptionError(f"it must be a JSON object such as {_FORM}", option=COLUMN_KEYS)
            for path in paths:
                for leaf in columns.find(path, COLUMN_KEYS):
                    yield leaf.path, key
        return
    for part in filter(str.strip, text.split(";")):
        key, _, names = (piece.strip() for piece in part.rpartition(":"))  # ARNs have ":"
        if not key or not names:
            raise OptionError('it must have the form "key1: column, column; key2: column"',
                              option=COLUMN_KEYS)
        for name in names.split(","):
            for leaf in columns.find(name.strip(), COLUMN_KEYS):
                yield leaf.path, key
