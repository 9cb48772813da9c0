"""Repair leaks: replace plaintext Bloom filters of encrypted columns by encrypted ones."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.fs as pa_fs

from secure_bloom.display import shown
from secure_bloom.errors import NO_KEY, KeyNotFoundError, UnsupportedError
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.change import Plan, leaks
from secure_bloom.maintain.folders import MaintainResult, change_files
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.header import MAX_HEADER_SIZE, decode_header
from secure_bloom.reader import ParquetFile
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK
from secure_bloom.storage.files import FilePath


def seal(path: FilePath, keys: Keys, *, dry_run: bool = False,
         filesystem: pa_fs.FileSystem | None = None, files_at_once: int | None = None,
         advance: Callable[[float], None] | None = None) -> MaintainResult:
    """Encrypt the plaintext Bloom filters of encrypted columns, in a file or a folder.

    A plaintext filter is not authenticated, so anyone with write access may have changed it. Its
    bits are therefore not reused: the filter is rebuilt, with the same size, from the pages of the
    column, and no byte of the old one is left in the file. If the values of a column have no
    well-defined hash, the filter is removed.

    Parameters
    ----------
    path : str or path
        A Parquet file from any writer, or a folder of Parquet files.
    keys : KmsClient or ExplicitKeys
        The keys of the footer and of these columns.
    dry_run : bool
        Report what would be done, without changing anything.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.

    Returns
    -------
    MaintainResult
        Files that could not be changed are listed in ``failed``, for instance because
        a key is missing or denied.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    UnsupportedError
        If the files belong to a table that records their sizes elsewhere.
    KeyRetrievalError
        If the KMS does not respond.

    Notes
    -----
    Existing copies of the data cannot be repaired: copies, backups, disk snapshots and hard links
    to the same file keep the old bytes, and so do disk blocks that have been freed.
    """
    return change_files(path, keys, _plan, dry_run=dry_run, filesystem=filesystem,
                        files_at_once=files_at_once, advance=advance)


def _plan(file: ParquetFile) -> Plan:
    plan, hidden = Plan(), set()
    removed: dict[str, None] = {}
    for chunk in file.footer.column_chunks():
        try:
            is_leaking = leaks(file, chunk)
        except NO_KEY:
            hidden.add(chunk.column.path)
            continue
        if is_leaking and chunk.column.type.can_have_filter:
            plan.build.append((chunk, _size(file, chunk)))
        elif is_leaking:
            plan.remove.append(chunk)
            removed[chunk.column.path] = None
    if hidden and not plan:
        raise KeyNotFoundError("cannot check whether these columns leak without their keys: "
                               + ", ".join(map(shown, sorted(hidden))))
    notes = [f"column {shown(path)}: its values have no well-defined hash, so the filter is removed"
             for path in removed]
    notes += [f"column {shown(path)}: cannot check whether it leaks without its key"
              for path in sorted(hidden)]
    plan.notes = tuple(notes)
    return plan


def _size(file: ParquetFile, chunk: ColumnChunk) -> BloomFilterOptions | int:
    """The number of blocks of the plaintext filter, or the default options."""
    where = chunk.bloom_filter
    assert where is not None  # the filter was found to be in plaintext
    try:
        num_bytes, _ = decode_header(file.read_at(MAX_HEADER_SIZE, where[0]))
    except UnsupportedError:  # not a filter of a known kind
        return BloomFilterOptions()
    return num_bytes // BYTES_PER_BLOCK
