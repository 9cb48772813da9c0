"""Names in the folder of a table: those of data files and their jobs, and those that are hidden."""

from __future__ import annotations

import hashlib
import posixpath
import re
import uuid
from collections.abc import Collection

STAGING = "_staging"
INDEX = "_index"
SUCCESS = "_SUCCESS"
GENERATION = "generation"
KEY_MATERIAL = "_KEY_MATERIAL_FOR_"  #: prefix of the names of key material files

_FILE_NAME = re.compile(r"part-\d+-([0-9a-f]{32})-([0-9a-f]{32})\.parquet")
_LINEAGE = 16  # hex digits


def new_name(partition: int, job: str, replaced: str = "") -> str:
    """Return a name for a data file that no other attempt uses.

    ``replaced`` is the path of the file of which it is a new version, whose lineage it has.
    """
    number = uuid.uuid4().hex
    if replaced:
        number = lineage(replaced) + number[_LINEAGE:]
    return f"part-{partition:05d}-{job}-{number}.parquet"


def job_of(path: str) -> str | None:
    """Return the id of the job that wrote a file, from the file's name."""
    match = _FILE_NAME.fullmatch(posixpath.basename(path))
    return match[1] if match else None


def lineage(path: str) -> str:
    """Return what the names of a file and of its later versions have in common, as hex digits.

    Most changes keep the name. An erasure does not: it is a job with files of its own.
    """
    name = posixpath.basename(path)
    match = _FILE_NAME.fullmatch(name)
    return match[2][:_LINEAGE] if match else \
        hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_LINEAGE // 2) \
        .hexdigest()


def is_job_id(name: str) -> bool:
    """Whether a name is that of a job's folder in ``_staging``."""
    return re.fullmatch(r"[0-9a-f]{32}", name) is not None


def material_path(path: str) -> str:
    """Return the path of the key material file of a Parquet file."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f"{KEY_MATERIAL}{name}.json")


def table_of(folder: str) -> str:
    """Return the folder above all partition folders (``name=value``) at the end of a path."""
    folder = folder.rstrip("/")
    while "=" in posixpath.basename(folder)[1:]:
        folder = posixpath.dirname(folder)
    return folder or "/"


def folders_of(paths: Collection[str]) -> set[str]:
    """Return the folders that files are in; ``""`` is that of a mere name."""
    if paths and "/" not in "".join(paths):
        return {""}  # a large table may have no partitions
    return {path.rpartition("/")[0] for path in paths}


def relative_path(path: str, folder: str) -> str:
    """Return the path of a file relative to the folder that it is in.

    A filesystem may list ``t/f`` in folder ``/t``: a SubTreeFileSystem omits the first slash.
    """
    return path.lstrip("/").removeprefix(folder.strip("/")).lstrip("/")


def relative_paths(paths: list[str], folder: str) -> list[str]:
    """Do the same with the paths of many files."""
    prefix = folder.rstrip("/") + "/"
    start = len(prefix)
    if all(path.startswith(prefix) and path[start:start + 1] != "/" for path in paths):
        return [path[start:] for path in paths]  # as nearly always
    return [relative_path(path, folder) for path in paths]


def is_hidden(relative: str) -> bool:
    """Whether the name of a file, or of a folder above it, hides it, from Spark's readers too."""
    if relative[:1] not in "._" and "/_" not in relative and "/." not in relative:
        return False  # as nearly all
    return any(part.startswith((".", KEY_MATERIAL)) or (part.startswith("_") and "=" not in part)
               for part in relative.split("/"))
