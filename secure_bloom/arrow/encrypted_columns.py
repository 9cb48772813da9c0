"""Which columns of a file an EncryptionConfiguration encrypts.

pyarrow looks up a key by the dotted path of a column, then by its first name. Where that differs
from the meaning of a path, pyarrow gets the paths of leaf columns instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow.parquet.encryption as pe

from secure_bloom.display import choices
from secure_bloom.encryption import (
    Encryption,
    EncryptionConfiguration,
    confuses_pyarrow,
    from_pyarrow,
    master_keys_by_leaf,
)
from secure_bloom.errors import ColumnError, UnsupportedError
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn, columns_by_prefix, named_columns, paths_to


def resolve_columns(encryption: Encryption | None, columns: list[LeafColumn]) -> Encryption | None:
    """Return the encryption with column paths that mean the same to pyarrow as they do here.

    A configuration of pyarrow is converted to that of secure_bloom. Raises ColumnError if a path
    matches no column, or several; UnsupportedError if pyarrow would confuse two columns.
    """
    if isinstance(encryption, pe.EncryptionConfiguration):
        _check_pyarrow(encryption, columns)
        encryption = from_pyarrow(encryption)
    if not isinstance(encryption, EncryptionConfiguration) or encryption.uniform_encryption:
        return encryption
    asked = encryption.column_keys or {}
    by_prefix = columns_by_prefix(columns)
    named = {path: _named(columns, by_prefix, path)
             for paths in asked.values() for path in paths}
    # The path of a field takes precedence over that of a group containing it.
    owners = {column.ordinal: path for path in sorted(named, key=len) for column in named[path]}
    column_keys = {}
    for key, paths in asked.items():
        told = [own for path in paths for own in (
            [path] if _is_clear(path, named[path]) else
            [_alone(columns, by_prefix, column.path) for column in named[path]
             if owners[column.ordinal] == path])]
        if told:
            column_keys[key] = list(dict.fromkeys(told))
    if encryption.other_columns == "footer key":
        others = [_alone(columns, by_prefix, column.path) for column in columns
                  if column.ordinal not in owners]
        # pyarrow can encrypt columns with the footer key itself only if it encrypts all of them so.
        own = column_keys.get(encryption.footer_key, [])
        column_keys[encryption.footer_key] = list(dict.fromkeys([*own, *others]))
        if not column_keys[encryption.footer_key]:
            del column_keys[encryption.footer_key]
    return replace(encryption, column_keys=column_keys)


def _check_pyarrow(encryption: pe.EncryptionConfiguration, columns: list[LeafColumn]) -> None:
    if not encryption.internal_key_material:
        raise UnsupportedError("internal_key_material=False needs secure_bloom's "
                               "EncryptionConfiguration, pyarrow's does not say where the file is")
    if encryption.uniform_encryption:
        return
    for column in columns:
        if confuses_pyarrow(column.path):
            raise UnsupportedError("pyarrow's EncryptionConfiguration may encrypt another column "
                                   "instead, because of the punctuation or the spaces in its "
                                   "name; use secure_bloom's", column=column.path)


def _named(columns: list[LeafColumn], by_prefix: dict[str, list[LeafColumn]],
           path: str) -> list[LeafColumn]:
    found = named_columns(by_prefix.get(path, ()), path)
    if not found:
        raise ColumnError("it has a key, but does not exist"
                          + choices(path, [column.path for column in columns]), column=path)
    return found


def _is_clear(path: str, meant: list[LeafColumn]) -> bool:
    """Whether pyarrow encrypts the intended columns when passed this path.

    It may encrypt more, a column ``a.b`` with the key of ``a``, which is harmless.
    """
    return all(path in (column.path, column.path.split(".")[0]) for column in meant)


def _alone(columns: list[LeafColumn], by_prefix: dict[str, list[LeafColumn]], path: str) -> str:
    """Return the path of a leaf column, which no other column or group may have."""
    _named(columns, by_prefix, path)
    return path


def columns_apart_from_footer(encryption: Encryption | None, columns: list[LeafColumn]) -> set[str]:
    """Return the names of columns with a leaf that not everyone who reads the footer may read.

    ``encryption`` is as :func:`resolve_columns` returns it, and ``columns`` are all leaves.
    """
    if not isinstance(encryption, EncryptionConfiguration):
        return {column.parts[0] for column in columns} \
            if encryption is not None and encryption.plaintext_footer else set()
    paths = {path for named in (encryption.column_keys or {}).values() for path in named}
    return {column.parts[0] for column in columns if paths & {column.path, column.parts[0]}}


def protection(encryption: Encryption | None, columns: Sequence[LeafColumn],
               footer: Footer | None = None) -> tuple[dict[str, str | None], list[str]]:
    """Return which columns are encrypted under which master keys, and which are open.

    Parameters
    ----------
    encryption : EncryptionConfiguration or UniformKey or None
        As :func:`resolve_columns` returns it.
    columns : sequence of LeafColumn
        All leaves.
    footer : Footer, optional
        What pyarrow has written: it may encrypt more. A file without row groups says nothing.
    """
    keys = master_keys_by_leaf(encryption, columns)
    if footer is not None:
        for chunk in next(iter(footer.row_groups), ()):
            if chunk.encryption == "column key":
                keys[chunk.column.ordinal] = footer.crypto.master_key(chunk.key_metadata)
    return ({column.path: keys[column.ordinal] for column in columns if column.ordinal in keys},
            [column.path for column in columns if column.ordinal not in keys])


def check_encrypted(encryption: Encryption | None, footer: Footer) -> None:
    """Check in pyarrow's footer that every column for which encryption was requested is encrypted.

    Raises UnsupportedError if a column is not encrypted.
    """
    if encryption is None:
        return
    column_keys = getattr(encryption, "column_keys", None)
    asked = {path for paths in (column_keys or {}).values() for path in paths}
    for chunk in footer.column_chunks():
        if chunk.encryption is None and (
                column_keys is None or not asked.isdisjoint(paths_to(chunk.column))):
            raise UnsupportedError("pyarrow did not encrypt this column, so the file was "
                                   "discarded", **chunk.place)
