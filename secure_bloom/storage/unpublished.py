"""Data files that readers do not see: of jobs that have not ended, or not complete."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow.fs as pa_fs

from secure_bloom.storage.local_files import temporary_target
from secure_bloom.storage.table_names import is_hidden, job_of, relative_path, table_of
from secure_bloom.storage.visibility import PENDING, staged_files, visible_files

_DATA = re.compile(r".*\.parquet|[0-9a-f]{32}", re.DOTALL)  # a long name is hashed


class Unpublished(NamedTuple):
    """Files that readers do not see, sorted; their paths are relative to the table.

    ``of_jobs`` are hidden by markers, which anyone who can write to the table may have put there,
    or wait in ``_staging``. ``temporary`` are being written under another name, or were left there
    by a process that was killed.
    """

    of_jobs: list[str]
    temporary: list[str]


def unpublished_files(filesystem: pa_fs.FileSystem, folder: str) -> Unpublished:
    """Return the files of a folder that are not visible.

    Raises the errors of :func:`.visible_files`.
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
    return Unpublished(sorted(hidden), sorted(prefix + path for path in filter(_is_left, below)))


def _is_left(path: str) -> bool:
    folder, name = posixpath.split(path)
    target = temporary_target(name)
    return target is not None and _DATA.fullmatch(target) is not None and not is_hidden(folder)
