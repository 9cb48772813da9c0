"""What lies inside a table: links that lead out of it are not followed when files are changed.

A user who may write into a table can add links to it, and markers that name files behind them. The
next job runs with the rights of another user, which may suffice to delete those files.
"""

from __future__ import annotations

import os

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.versions import without_subtree

_LOCAL = ("local", "py::fsspec+file")  # filesystems with links


def check_inside(filesystem: pa_fs.FileSystem, table: str, path: str) -> None:
    """Raise UnsupportedError if links lead from a path to a place outside of the table."""
    inner, root = without_subtree(filesystem, table)
    if inner.type_name not in _LOCAL:
        return
    root = os.path.realpath(root)
    real = os.path.realpath(without_subtree(filesystem, path)[1])
    if os.path.commonpath([root, real]) != root:
        raise UnsupportedError(f"a link leads from here out of the table {table}: jobs change "
                               "nothing there; replace the link by a folder, or write to the "
                               "folder itself", file=path)
