"""The files below a local folder, each with all that the filesystem says of it.

pyarrow's listings have only size and time. To look each file up again would take as long as the
whole listing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import compress
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.storage.table_names import relative_paths

if TYPE_CHECKING:
    from secure_bloom.storage.hive_partitioning import PartitionChoice

# Of a link: it leads nowhere
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
# In one listing: links to folders that are listed already, and what may be found once more by way
# of them, beyond as much as was found once
_MAX_AGAIN, _MAX_ENTRIES_AGAIN = 1000, 100_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LocalFile:
    """A regular file as it was listed. It has the attributes of a ``pyarrow.fs.FileInfo``.

    ``tag`` is what the filesystem alone sets: inode and time of the last change of anything
    (ctime), both in hexadecimal digits, as ``inode-ctime``. ``is_link``: whether its name is a
    symbolic link.
    """

    # few objects for the garbage collector
    __slots__ = ("is_link", "mtime_ns", "path", "size", "tag")

    type, is_file = pa_fs.FileType.File, True

    def __init__(self, path: str, found: os.stat_result, is_link: bool = False):
        self.path, self.size, self.mtime_ns = path, found.st_size, found.st_mtime_ns
        self.is_link = is_link
        self.tag = _tag(found)

    @property
    def base_name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.path)

    @property
    def mtime(self) -> datetime:
        """Time of the last change of its content, in UTC."""
        return _EPOCH + timedelta(microseconds=self.mtime_ns // 1000)


def _tag(found: os.stat_result) -> str:
    return f"{found.st_ino:x}-{found.st_ctime_ns:x}"


def walk(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool,
         links: list[str] | None = None,
         partitions: PartitionChoice | None = None) -> Iterator[Any]:
    """Yield the files below a local folder, each a LocalFile or FileInfo; follow symbolic links.

    The paths of those links to folders are added to ``links``, in any order, if given. Folders that
    ``partitions`` does not enter are left out, and so are links in their place.

    pyarrow would follow a link to a folder above it 40 times, and return each file as often.

    Raises
    ------
    UnsupportedError
        If links form a circle, or too many lead to the same folders, or a name is not valid UTF-8.
    """
    root = os.path.realpath(folder)
    # with the folders above, and whether it was seen before
    waiting: list[tuple[str, tuple[str, ...], bool]] = [(folder, (root,), False)]
    seen, num_again, surplus = {root}, 0, 0
    while waiting:
        here, above, is_again = waiting.pop()
        files, folders = _listed(filesystem, here, allow_not_found or len(above) > 1)
        surplus += (len(files) + len(folders)) * (1 if is_again else -1)
        if surplus > _MAX_ENTRIES_AGAIN:
            raise UnsupportedError("links make the same files and folders appear again and again; "
                                   "remove links such as the one that leads here", file=here)
        yield from files
        if partitions is not None and folders:
            folders = list(compress(folders, partitions.enters(relative_paths(folders, folder))))
        for path in folders:
            is_link = os.path.islink(path)
            real = os.path.realpath(path) if is_link \
                else os.path.join(above[-1], os.path.basename(path))
            if real in above:
                if _is_hidden_below(path, folder):
                    continue  # no data file is there
                raise UnsupportedError("links form a circle: this folder is also above itself; "
                                       "remove the link", file=path)
            is_again = real in seen  # also below a folder that was seen
            num_again += is_link and is_again
            if num_again > _MAX_AGAIN:  # 48 links can make 2**24 paths
                raise UnsupportedError(f"more than {_MAX_AGAIN:,} links lead to folders that were "
                                       "listed before; remove links such as this one", file=path)
            seen.add(real)
            if is_link and links is not None:
                links.append(path)
            waiting.append((path, (*above, real), is_again))


def _listed(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool) \
        -> tuple[list[Any], list[str]]:
    """Return the files in a folder, and the paths of the folders in it."""
    try:
        if type(filesystem) is pa_fs.LocalFileSystem:  # a subclass may list in a way of its own
            return _scanned(folder, allow_not_found)
        infos = list_folder(filesystem, folder, allow_not_found)
        return [info for info in infos if info.is_file and info.path], \
            [info.path for info in infos if info.type == pa_fs.FileType.Directory]
    except UnicodeDecodeError as error:
        raise UnsupportedError(f"the name {error.object!r} is not valid UTF-8: rename the file",
                               file=folder) from None


def list_folder(filesystem: pa_fs.FileSystem, folder: str, allow_not_found: bool) \
        -> list[pa_fs.FileInfo]:
    """List what is in a folder; raise FormatError if something else is in its place."""
    with folder_expected(folder):
        try:
            return filesystem.get_file_info(
                pa_fs.FileSelector(folder, allow_not_found=allow_not_found))
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG or filesystem.type_name != "local":
                raise
        with os.scandir(folder) as entries:  # pyarrow refuses links to names that cannot exist
            return filesystem.get_file_info([entry.path for entry in entries
                                             if _is_true(entry.stat)])


def real_places(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield folder and name of files without links, resolving each folder once."""
    known: dict[str, str] = {}
    for path in paths:
        folder, name = os.path.split(path)
        if os.path.islink(path):
            folder, name = os.path.split(os.path.realpath(path))
        elif folder in known:
            folder = known[folder]
        else:
            folder = known[folder] = os.path.realpath(folder)
        yield folder, name


def file_names(filesystem: pa_fs.FileSystem, folder: str) -> list[str]:
    """Return the names of the files in a folder; none if it does not exist.

    Raises FormatError if something else is in its place. Names that are not valid UTF-8 may be
    left out.
    """
    if type(filesystem) is not pa_fs.LocalFileSystem:
        infos = list_folder(filesystem, folder, allow_not_found=True)
        return [info.base_name for info in with_valid_names(infos) if info.is_file]
    try:  # nothing is looked up of each file
        with folder_expected(folder), os.scandir(folder) as entries:
            return [entry.name for entry in entries if _is_true(entry.is_file)]
    except FileNotFoundError:
        return []


def _is_true(ask: Callable[[], object]) -> bool:
    """Return an answer about what is in a folder; False for a link that leads nowhere."""
    try:
        return bool(ask())
    except OSError as error:
        if error.errno in _NOTHING:
            return False
        raise


def with_valid_names(infos: Iterable[pa_fs.FileInfo]) -> list[pa_fs.FileInfo]:
    """Return those whose names are valid UTF-8, as every name is that this library makes."""
    return [info for info in infos if _has_valid_name(info)]


def _has_valid_name(info: pa_fs.FileInfo) -> bool:
    try:
        return info.base_name is not None
    except UnicodeDecodeError:
        return False


@contextlib.contextmanager
def folder_expected(path: str) -> Iterator[None]:
    """Raise FormatError if the block fails because something else is in the place of a folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EEXIST):
            raise
        raise FormatError("this is not a folder, but a file or a link to itself, where a folder "
                          "belongs: remove it", file=path) from None


def _scanned(folder: str, allow_not_found: bool) -> tuple[list[LocalFile], list[str]]:
    files: list[LocalFile] = []
    folders: list[str] = []
    try:
        with folder_expected(folder):
            entries = os.scandir(folder)
    except FileNotFoundError:
        if allow_not_found:
            return files, folders
        raise FileNotFoundError(f"there is no folder {folder}") from None
    with entries:
        for entry in entries:
            path = entry.path
            if not path.isascii():
                _check_name(entry.name)
            try:
                found = entry.stat()
            except OSError as error:
                if error.errno in _NOTHING:  # or it was just removed
                    continue
                raise
            if stat.S_ISREG(found.st_mode):
                files.append(LocalFile(path, found, entry.is_symlink()))
            elif stat.S_ISDIR(found.st_mode):
                folders.append(path)
    return files, folders


def _check_name(name: str) -> None:
    os.fsencode(name).decode()


def _is_hidden_below(path: str, folder: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path[len(folder):].split("/"))
