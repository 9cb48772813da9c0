"""Which master key encrypts a column of a file."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Sequence
from contextlib import suppress

from secure_bloom.errors import NO_KEY, FileError, KeyNotFoundError, UnsupportedError
from secure_bloom.index.folder import IndexFolder
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.reader import ParquetFile
from secure_bloom.storage.files import Source
from secure_bloom.storage.visibility import visible_files

UNENCRYPTED = None  #: stands for a column chunk without encryption
_TRIES = 3  # covered files that are opened; most of them usually exist


def master_keys(file: ParquetFile, column: LeafColumn) -> set[str | None]:
    """Return the master keys of a column's chunks; None for those without encryption.

    Raises
    ------
    KeyNotFoundError
        If the file was opened without keys.
    UnsupportedError
        If the file was encrypted with explicit keys, which have no master key.
    """
    return {_master_key(file, chunks[column.ordinal]) for chunks in file.footer.row_groups}


def _master_key(file: ParquetFile, chunk: ColumnChunk) -> str | None:
    footer = file.footer
    encryption = chunk.encryption
    if encryption is None:
        return UNENCRYPTED
    metadata = chunk.key_metadata if encryption == "column key" else footer.footer_key_metadata
    found = footer.crypto.master_key(metadata)
    if found is None and metadata is not None:
        raise KeyNotFoundError("the column is encrypted; pass keys (--keyring)", file=file.name,
                               **chunk.place)
    if found is None:
        raise UnsupportedError("the file was encrypted with explicit keys; an index needs a KMS, "
                               "whose master key protects it", file=file.name, **chunk.place)
    return found


def check_is_unencrypted(folder: IndexFolder, paths: Sequence[str], kms: CachedKms) -> None:
    """Check, with a covered file, that an index without encryption may be used for its column.

    Anyone who can write to the folder can make such an index, also of a column that is encrypted.

    Raises
    ------
    UnsupportedError
        If the file encrypts the column.
    """
    some = random.SystemRandom().sample(paths, min(_TRIES, len(paths)))
    if any(_is_unencrypted(folder, path, kms) for path in some):
        return
    for path in visible_files(folder.filesystem, folder.table).keys() & set(paths):
        if _is_unencrypted(folder, path, kms):
            return


def _is_unencrypted(folder: IndexFolder, path: str, kms: CachedKms) -> bool:
    """Return whether a file does not encrypt a column; False also if it cannot be opened.

    Raises UnsupportedError if it does.
    """
    if path.startswith("/") or ".." in path.split("/"):
        return False
    source = posixpath.join(folder.table, path)
    with suppress(FileNotFoundError, FileError, *NO_KEY), \
            ParquetFile(Source(source, folder.filesystem), kms) as file:
        ordinals = [leaf.ordinal for leaf in file.columns if leaf.path == folder.column]
        if any(chunks[ordinal].encryption is not None
               for chunks in file.footer.row_groups for ordinal in ordinals):
            raise UnsupportedError(
                "this file encrypts the column, but its index has no encryption, so that anyone "
                f"may have made it; delete {folder.path}, and build the index again",
                file=source, column=folder.column)
        return True
    return False
