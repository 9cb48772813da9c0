"""What lies inside a table: links that lead out of it are not followed when files are changed.

A user who may write into a table can add links to it, and markers that name files behind them. The
next job runs with the rights of another user, which may suffice to delete those files.

Deletions on a local filesystem are safe from links that are put there at the same moment, because
no link is followed from the table on. So are changes of files in place: what was opened is compared
with what is inside. On Linux, markers and indexes are written, and files published, in folders that
are open. Before anything else is written, its path is checked.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import pyarrow.fs as pa_fs

from secure_bloom.errors import ChangedMeanwhileError, UnsupportedError
from secure_bloom.storage.local_files import LEFT_AS_IT_IS, is_in
from secure_bloom.storage.table_names import relative_path, table_of
from secure_bloom.storage.versions import DESCRIPTORS, local_path, without_subtree

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check_inside(filesystem: pa_fs.FileSystem, table: str, path: str) -> None:
    """Raise UnsupportedError if links lead from a path to a place outside of the table.

    Also if the table itself is a link to a partition of another one, which has the markers of jobs.
    """
    _real_paths(filesystem, table, path)


def real_name(filesystem: pa_fs.FileSystem, table: str, path: str) -> str:
    """Return to which path, relative to the table, links in it lead.

    Raises UnsupportedError if they lead out of the table.
    """
    found = _real_paths(filesystem, table, path)
    return relative_path(path, table) if found is None else os.path.relpath(found[1], found[0])


def check_below(filesystem: pa_fs.FileSystem, where: str, path: str) -> None:
    """Do the same for a file that was found at a path: below a folder, or the file itself.

    A link that somebody has named is followed.
    """
    if path != where:
        check_inside(filesystem, table_of(where), path)


def check_opened(filesystem: pa_fs.FileSystem, table: str, path: str, descriptor: int) -> None:
    """Raise ChangedMeanwhileError unless an open file is the one at a path inside of a table.

    Raises UnsupportedError as :func:`check_inside`: here, links that were put there since then are
    not followed either.
    """
    found = _real_paths(filesystem, table, path)
    if found is None:
        return
    folder, name = os.path.split(found[1])
    try:
        with _descended(found[0], folder) as opened:
            is_same = is_in(opened, name, descriptor)
    except OSError:
        is_same = False
    if not is_same:
        raise ChangedMeanwhileError(LEFT_AS_IT_IS, file=path)


def table_and_name(filesystem: pa_fs.FileSystem, folder: str, within: str | None = None) \
        -> tuple[str, str]:
    """Return the table of a folder, and the path of the folder relative to it.

    If the folder, or one above it, is a link that leads out of the table, they are those of its
    target. Within the table, jobs name files by the links. ``within`` is the table that the folder
    is listed in; default: that of its path.
    """
    table = table_of(folder) if within is None else within
    if filesystem.type_name != "local":
        return table, relative_path(folder, table)
    root, real = os.path.realpath(table), os.path.realpath(folder)
    if _is_whole(root) and _is_below(real, root):
        return table, relative_path(folder, table)
    above = table_of(real)
    return above, relative_path(real, above)


def is_own_table(filesystem: pa_fs.FileSystem, table: str) -> bool:
    """Whether the folder of a table is not a link to a partition of another one."""
    local = local_path(filesystem, table)
    if local is None or not _is_whole(local):
        return True
    try:
        found = os.stat(local)
    except OSError:
        return True  # there is no folder
    return _leads_to_whole(local, found.st_dev, found.st_ino, found.st_ctime_ns)


@lru_cache(maxsize=256)  # each lookup asks for it; a folder that is moved gets another ctime
def _leads_to_whole(folder: str, *_identity: int) -> bool:
    return _is_whole(os.path.realpath(folder))


def leads_out(filesystem: pa_fs.FileSystem, table: str, names: Iterable[str]) -> bool:
    """Whether links lead from some files or folders of a table to a place outside of it."""
    root = local_path(filesystem, table)
    if root is None:
        return False
    real = os.path.realpath(root)
    return not all(_is_below(os.path.realpath(os.path.join(root, name)), real) for name in names)


def table_above(filesystem: pa_fs.FileSystem, file: str) -> str:
    """Return the table of a file; of a link that somebody has named, that of its target."""
    where = os.path.realpath(file) if filesystem.type_name == "local" else file
    return table_of(posixpath.dirname(where))


def delete_file(filesystem: pa_fs.FileSystem, table: str, path: str) -> None:
    """Delete a file of a table; of a link, the link.

    Raises UnsupportedError if its folder is outside of the table; FileNotFoundError; OSError.
    """
    with _opened(filesystem, table, posixpath.dirname(path)) as folder:
        if folder is None:
            filesystem.delete_file(path)
        else:
            os.unlink(posixpath.basename(path), dir_fd=folder)


def delete_folder(filesystem: pa_fs.FileSystem, table: str, path: str) -> None:
    """Delete a folder of a table, and everything below it; of links in it, the links.

    Raises the errors of :func:`delete_file`.
    """
    check_inside(filesystem, table, path)
    with _opened(filesystem, table, posixpath.dirname(path)) as folder:
        if folder is None:
            filesystem.delete_dir(path)
        else:
            shutil.rmtree(posixpath.basename(path), dir_fd=folder)


def _real_paths(filesystem: pa_fs.FileSystem, table: str, path: str) -> tuple[str, str] | None:
    """Return the real paths of a table and of what is in it; None if there can be no links."""
    named, real = local_path(filesystem, table), local_path(filesystem, path)
    if named is None or real is None:
        return None
    root, real = os.path.realpath(named), os.path.realpath(real)
    if not is_own_table(filesystem, table):
        raise UnsupportedError(f"{table} is a link to a partition of the table {table_of(root)}, "
                               "whose readers would not see what a job does here: use the path "
                               f"{root}", file=path)
    if not _is_below(real, root):
        raise UnsupportedError(f"a link leads from here out of the table {table}: nothing is "
                               "changed there; replace the link by what it leads to, or use the "
                               "path to which it leads", file=path)
    return root, real


def _is_below(real: str, root: str) -> bool:
    """Whether a folder is another one, or below it; both are without links."""
    return os.path.commonpath([root, real]) == root


def _is_whole(folder: str) -> bool:
    """Whether the path of a folder is that of a table, and not of a partition."""
    return table_of(folder) == (folder.rstrip("/") or "/")


@contextmanager
def held_folder(filesystem: pa_fs.FileSystem, table: str, folder: str) \
        -> Iterator[tuple[pa_fs.FileSystem, str]]:
    """Yield a filesystem, and a path in it that is this folder of a table, whatever comes there.

    Links that are put there meanwhile change nothing on Linux. Raises the errors of
    :func:`delete_file`.
    """
    with _opened(filesystem, table, folder) as descriptor:
        if descriptor is None or not DESCRIPTORS:
            yield filesystem, folder
            return
        place = f"{DESCRIPTORS}/{descriptor}/"
        try:
            yield without_subtree(filesystem, folder)[0], place
        except OSError as error:
            for name in ("filename", "filename2"):
                if (path := getattr(error, name)) is not None:  # set, even None would be shown
                    setattr(error, name, _renamed(path, place, folder))
            error.args = tuple(_renamed(one, place, folder) for one in error.args)
            raise


def _renamed(value: object, place: str, folder: str) -> object:
    return value.replace(place, posixpath.join(folder, "")) if isinstance(value, str) else value


@contextmanager
def _opened(filesystem: pa_fs.FileSystem, table: str, folder: str) -> Iterator[int | None]:
    """Open a folder of a local table, without following links from the table on; else None."""
    found = _real_paths(filesystem, table, folder)
    # A subclass may have operations of its own.
    if found is None or type(without_subtree(filesystem, table)[0]) is not pa_fs.LocalFileSystem:
        yield None
        return
    with _descended(*found) as descriptor:
        yield descriptor


@contextmanager
def _descended(root: str, real: str) -> Iterator[int]:
    """Open a folder that is another one, or below it; follow no link from that on."""
    descriptor = os.open(root, _FOLDER)
    try:
        for part in real[len(root):].strip("/").split("/") if real != root else ():
            above, descriptor = descriptor, os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)
