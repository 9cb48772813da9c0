"""What the last write to a folder published. Does not need Spark."""

from __future__ import annotations

import pyarrow.fs as pa_fs

from secure_bloom.spark.options.options import locate
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.summary import CommitSummary, read_summary


def last_commit(path: FilePath, filesystem: pa_fs.FileSystem | None = None) -> CommitSummary:
    """Return what the last write to a folder published: files, rows, bytes and Bloom filters.

    Does not need Spark.

    Parameters
    ----------
    path : str or path
        The folder, as given to ``save``.
    filesystem : pyarrow.fs.FileSystem, optional

    Raises
    ------
    FileNotFoundError
        If nothing has been committed, or a commit is in progress.
    FormatError
        If the last write was made by another program.
    ChangedMeanwhileError
        If jobs commit faster than this can be read.

    Examples
    --------
    >>> secure_bloom.spark.last_commit("/data/people").rows  # doctest: +SKIP
    """
    if filesystem is None:
        filesystem, path = locate(str(path))
    return read_summary(filesystem, str(path))
