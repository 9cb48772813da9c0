"""Data files that readers do not see, because of jobs that have not ended."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.fs as pa_fs

from secure_bloom.storage.table_names import is_hidden, job_of, relative_path, table_of
from secure_bloom.storage.visibility import PENDING, staged_files, visible_files


def unpublished_files(filesystem: pa_fs.FileSystem, folder: str) -> list[str]:
    """Return the files of a folder that markers hide, and those that wait in ``_staging``, sorted.

    Their paths are relative to the table. Anyone who can write to the table may have put the
    markers there. Raises the errors of :func:`.visible_files`.
    """
    below: set[str] = set()

    def note(found: Iterable[str]) -> None:
        below.clear()
        below.update(found)

    table = table_of(folder)
    prefix = relative_path(folder.rstrip("/"), table)
    prefix = f"{prefix}/" if prefix else ""
    visible = visible_files(filesystem, folder, note).keys()
    hidden = {prefix + path for path in below - visible if not is_hidden(path)}
    for path in staged_files(filesystem, table):
        name = path.partition("/")[2]
        if not name.startswith(f"{PENDING}/") and job_of(name) and name.startswith(prefix):
            hidden.add(path)
    return sorted(hidden)
