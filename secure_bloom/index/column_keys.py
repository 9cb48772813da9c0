"""Which master key encrypts a column of a file."""

from __future__ import annotations

from secure_bloom.errors import KeyNotFoundError, UnsupportedError
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.reading.described_file import DescribedFile

UNENCRYPTED = None  #: stands for a column chunk without encryption


def master_keys(file: DescribedFile, column: LeafColumn) -> set[str | None]:
    """Return the master keys of a column's chunks; None for those without encryption.

    Raises
    ------
    KeyNotFoundError
        If the file was opened without keys.
    UnsupportedError
        If the file was encrypted with explicit keys, which have no master key.
    """
    return {_master_key(file, chunks[column.ordinal]) for chunks in file.footer.row_groups}


def _master_key(file: DescribedFile, chunk: ColumnChunk) -> str | None:
    if chunk.encryption is None:
        return UNENCRYPTED
    metadata = file.footer.key_metadata_of(chunk)
    found = file.footer.crypto.master_key(metadata)
    if found is None and metadata is not None:
        raise KeyNotFoundError("the column is encrypted; pass keys (--keys)", file=file.name,
                               **chunk.place)
    if found is None:
        raise UnsupportedError("the file was encrypted with explicit keys; an index needs a KMS, "
                               "whose master key protects it", file=file.name, **chunk.place)
    return found
