"""Attach Bloom filters and offset indexes to existing files."""

from __future__ import annotations

from collections.abc import Callable, Container

import pyarrow.fs as pa_fs

from secure_bloom.errors import PolicyError, UnsupportedError
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.change import Plan, leaks
from secure_bloom.maintain.folders import MaintainResult, Planner, change_files
from secure_bloom.maintain.offset_indexes import MissingIndexes
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.schema import filter_columns, filterable_paths
from secure_bloom.policy.environment import given_or_of_environment
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.violations import column_violations
from secure_bloom.policy.writing import by_column, with_policy_filters
from secure_bloom.progress import shown_progress
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options
from secure_bloom.storage.files import FilePath


def attach(path: FilePath, bloom_filters: BloomFilters = None, keys: Keys = None, *,
           policy: Policy | FilePath | None = None, replace: bool = False,
           page_index: bool = False, dry_run: bool = False,
           filesystem: pa_fs.FileSystem | None = None, files_at_once: int | None = None,
           advance: Callable[[float], None] | None = None,
           progress: bool | None = None) -> MaintainResult:
    """Add Bloom filters and offset indexes to a Parquet file, or to the files of a folder.

    Only the pages of these columns are read, a few at a time. Everything else is copied byte for
    byte into a new file, which atomically replaces the old one. Filters of encrypted columns are
    encrypted with the column's key; all others are stored in plaintext.

    An interrupted run can be repeated: it continues with the remaining files.

    Parameters
    ----------
    path : str or path
        A Parquet file from any writer, or a folder of Parquet files.
    bloom_filters : bool, iterable of str, or mapping, optional
        The leaf columns that get a filter. ``True``: every column of each file that can have one.
        A list names them by dotted path. A mapping from dotted paths also configures each filter:
        ``True``, BloomFilterOptions, a dict of its fields such as ``{"fpp": 0.001}``, or ``False``.
        Required, unless a policy or ``page_index`` is given.
    keys : KmsClient or ExplicitKeys, optional
        For encrypted files. The keys of the footer and of these columns are required.
    policy : Policy, str or path, optional
        Its filters are added for columns that ``bloom_filters`` does not name. A file is not
        changed if a column that would get a filter is not encrypted as the policy requires.
    replace : bool
        Rebuild existing filters. By default they are left unchanged.
    page_index : bool
        Also add an offset index to every column that has none: where its pages are, and the first
        row of each. Readers then read single pages instead of whole row groups. That of an
        encrypted column is encrypted with the column's key. Columns that cannot have one, or whose
        key is not available, are listed in the ``notes`` of the result: columns below lists and
        maps whose pages are of version 1 and may begin within a row.
    dry_run : bool
        Report what would be done, without changing anything.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    progress : bool, optional
        Whether to show the progress on standard error. Default: if it takes more than two seconds,
        in a terminal or a notebook, and without ``advance``.

    Returns
    -------
    MaintainResult
        Files that could not be changed are listed in ``failed``, for instance because the column
        does not exist, or because its key is missing or denied.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    UnsupportedError
        If the files belong to a table that records their sizes elsewhere.
    ColumnError
        If the column exists in no file of the folder, or can have a filter in none of them.
    PolicyError
        If the policy is not valid.
    KeyRetrievalError
        If the KMS does not respond.

    Examples
    --------
    >>> secure_bloom.attach("people/", ["ssn"], "keyring.json")  # doctest: +SKIP
    """
    planner = planner_for(bloom_filters, policy, replace=replace, page_index=page_index)
    with shown_progress("attach", progress, advance) as advance:
        return change_files(path, keys, planner, dry_run=dry_run, filesystem=filesystem,
                            files_at_once=files_at_once, advance=advance)


def planner_for(bloom_filters: BloomFilters, policy: Policy | FilePath | None = None, *,
                replace: bool, page_index: bool) -> Planner:
    """Return what plans the changes of a file; the parameters are those of :func:`attach`."""
    rules = given_or_of_environment(policy)
    wanted: BloomFilters = bloom_filters
    if rules is None:
        wanted = filters_for_files(bloom_filters, page_index=page_index)
    elif bloom_filters is not None and not isinstance(bloom_filters, bool):
        wanted = by_column(bloom_filters)

    def planner(file: OpenFile) -> Plan:
        filters = wanted if rules is None else with_policy_filters(
            rules.for_path(file.path), wanted, file.columns)
        asked = normalize_options(filters, filterable_paths(file.columns, opaque=True))
        columns = list(zip(filter_columns(file.columns, asked, opaque=True), asked.values(),
                           strict=True))
        columns.sort(key=lambda one: one[0].ordinal)
        if rules is not None:
            _check_policy(rules, file, {column.ordinal for column, _ in columns})
        chunks = [(chunks[column.ordinal], options) for chunks in file.footer.row_groups
                  for column, options in columns]
        plan = Plan([(chunk, options) for chunk, options in chunks
                     if replace or _lacks_filter(file, chunk)])
        if page_index:
            missing = MissingIndexes(file)
            plan.index, plan.notes = missing.found, missing.notes
            if not plan:
                missing.check_any()
        return plan

    return planner


def filters_for_files(bloom_filters: BloomFilters, *, page_index: bool = False) \
        -> bool | dict[str, BloomFilterOptions]:
    """Check the requested filters before any file is opened; return True or filters by column.

    Raises TypeError or ValueError if the argument has another form, or requests no filter although
    nothing else (``page_index``) is requested.
    """
    wanted = bloom_filters is True or normalize_options(bloom_filters)
    if not wanted and not page_index:
        raise ValueError("bloom_filters must name at least one column")
    return wanted


def _check_policy(policy: Policy, file: OpenFile, ordinals: Container[int]) -> None:
    """Check that columns of a file are encrypted as a policy requires.

    Parameters
    ----------
    policy : Policy
    file : OpenFile
    ordinals : container of int
        The columns to check.

    Raises
    ------
    PolicyError
        If one of them is not.
    """
    columns = policy.for_path(file.path).of_leaves(file.columns)
    for leaf, column in zip(file.columns, columns, strict=True):
        if leaf.ordinal in ordinals:
            chunks = (chunks[leaf.ordinal] for chunks in file.footer.row_groups)
            for violation in column_violations(file.footer, chunks, column):
                raise PolicyError(f"{violation.message}; write the file again",
                                  row_group=violation.row_groups[0], column=leaf.path)


def _lacks_filter(file: OpenFile, chunk: ColumnChunk) -> bool:
    if leaks(file, chunk):
        raise UnsupportedError("the column is encrypted but its filter is not: anyone can test "
                               "which values it contains. Repair it with seal, or with replace",
                               **chunk.place)
    return chunk.bloom_filter is None
