"""Repair leaks: plaintext Bloom filters and statistics of encrypted columns."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.fs as pa_fs

from secure_bloom.display import shown
from secure_bloom.errors import NO_KEY, KeyNotFoundError, PolicyError, UnsupportedError
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.change import Plan, leaks
from secure_bloom.maintain.folders import MaintainResult, change_files
from secure_bloom.parquet.bloom_filter import read_plain_header
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.redaction import revealed
from secure_bloom.policy.environment import given_or_of_environment
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.violations import violations
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK
from secure_bloom.storage.files import FilePath


def seal(path: FilePath, keys: Keys, *, policy: Policy | FilePath | None = None,
         dry_run: bool = False, filesystem: pa_fs.FileSystem | None = None,
         files_at_once: int | None = None,
         advance: Callable[[float], None] | None = None) -> MaintainResult:
    """Encrypt the plaintext Bloom filters of encrypted columns, in a file or a folder.

    A plaintext filter is not authenticated, so anyone with write access may have changed it. Its
    bits are therefore not reused: the filter is rebuilt, with the same size, from the pages of the
    column, and no byte of the old one is left in the file. If filters of its type are not
    supported, it is removed.

    Statistics and other metadata of encrypted columns that readers without their keys can read in
    the footer are removed from it. They stay in the encrypted metadata of the column.

    Parameters
    ----------
    path : str or path
        A Parquet file from any writer, or a folder of Parquet files.
    keys : KmsClient or ExplicitKeys
        The keys of the footer and of these columns.
    policy : Policy, str or path, optional
        What the file must meet when its filters are sealed. A file is not changed and counts as
        failed if the policy requires more than sealing can repair: a column or footer that is not
        encrypted, or is under another master key. It must be written again; without a policy, its
        other columns can be sealed meanwhile.
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
    PolicyError
        If the policy is not valid.
    KeyRetrievalError
        If the KMS does not respond.

    Notes
    -----
    Existing copies of the data cannot be repaired: copies, backups, disk snapshots and hard links
    to the same file keep the old bytes, and so do disk blocks that have been freed.

    Examples
    --------
    >>> secure_bloom.seal("people/", "keyring.json").changed  # doctest: +SKIP
    """
    rules = given_or_of_environment(policy)

    def planner(file: OpenFile) -> Plan:
        if rules is not None:
            _check_policy(rules, file)
        return _plan(file)

    return change_files(path, keys, planner, dry_run=dry_run, filesystem=filesystem,
                        files_at_once=files_at_once, advance=advance)


def _check_policy(policy: Policy, file: OpenFile) -> None:
    for violation in violations(policy.for_path(file.path), file.footer):
        raise PolicyError(f"{violation.message}; sealing filters cannot repair this: write the "
                          "file again", column=violation.column,
                          row_group=next(iter(violation.row_groups), None))


def _plan(file: OpenFile) -> Plan:
    plan, hidden = Plan(), set()
    removed: dict[str, None] = {}
    resized: dict[str, None] = {}
    exposed: dict[str, dict[str, None]] = {}
    for chunk in file.footer.column_chunks():
        if chunk.has_metadata_module and (what := revealed(chunk)):
            plan.redact.append(chunk)
            exposed.setdefault(chunk.column.path, {}).update(dict.fromkeys(what))
        try:
            is_leaking = leaks(file, chunk)
        except NO_KEY:
            hidden.add(chunk.column.path)
            continue
        if is_leaking and chunk.column.type.can_be_hashed:
            plan.build.append((chunk, _size(file, chunk, resized)))
        elif is_leaking:
            plan.remove.append(chunk)
            removed[chunk.column.path] = None
    if hidden and not plan:
        raise KeyNotFoundError("cannot check whether these columns leak without their keys: "
                               + ", ".join(map(shown, sorted(hidden))))
    notes = [f"column {shown(path)}: filters of its type are not supported, so the filter "
             "is removed"
             for path in removed]
    notes += resized
    notes += [f"column {shown(path)}: readers without its key could read in the footer: "
              f"{', '.join(what)}; only its encrypted metadata has them now"
              for path, what in exposed.items()]
    notes += [f"column {shown(path)}: cannot check whether it leaks without its key"
              for path in sorted(hidden)]
    plan.notes = tuple(notes)
    return plan


def _size(file: OpenFile, chunk: ColumnChunk,
          notes: dict[str, None]) -> BloomFilterOptions | int:
    """The number of blocks of the plaintext filter, or the default options and a note."""
    where = chunk.bloom_filter
    assert where is not None  # the filter was found to be in plaintext
    try:
        num_bytes, _ = read_plain_header(file, where[0])
    except UnsupportedError as error:
        notes[f"column {shown(chunk.column.path)}: the old filter cannot be used: {error.message}; "
              "the new one has another size"] = None
        return BloomFilterOptions()
    return num_bytes // BYTES_PER_BLOCK
