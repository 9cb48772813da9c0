"""Files of protocols, which are read whole: markers, records, manifests.

Anyone who can write to a folder can put something else in their place. So only regular files are
read, and only up to a size that is known beforehand.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.json_text import decode_json
from secure_bloom.storage.cache import Cache
from secure_bloom.storage.source import Source
from secure_bloom.storage.versions import local_path, open_regular, until_unchanged

MAX_MARKER = 64 * 1024  #: bytes of a marker
MAX_RECORD = 128 * 1024 * 1024  #: bytes of a file that lists others
MAX_CONTAINERS, MAX_ITEMS = 2_000_000, 8_000_000  #: of JSON, in one file
NO_FILE = "it is not a regular file, so it is not what its name says: remove it"

_MAX_CACHED = 16 * 1024 * 1024  # bytes
_SETTLED = 3.0  # seconds: clocks of some filesystems advance in steps of two


class _Cached(NamedTuple):
    """What was seen of a file, since when (monotonic time), and its content if that is certain."""

    identity: tuple[int, ...]
    since: float
    data: bytes | None


_cached: Cache[_Cached] = Cache(_MAX_CACHED)


def read_small(filesystem: pa_fs.FileSystem, path: str, limit: int) -> bytes:
    """Read a whole file that may be replaced or removed at any moment.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    path : str
    limit : int
        Bytes that the file may have at most.

    Raises
    ------
    FileNotFoundError
        Also if the file is removed while it is read.
    FormatError
        If it is larger, or not a regular file.
    ChangedMeanwhileError
        If the file is replaced during each of ten attempts.
    """
    def read() -> bytes:
        # Object stores look an object up again for each request. So the size of one version may be
        # followed by bytes of another, or by none.
        with regular_file_expected(path):
            source = Source(path, filesystem)
        with source.file, source.one_version():
            check_size(source.size, limit, path)
            return bytes(source.read_at(source.size, 0))

    return until_unchanged(read)


def read_constant(filesystem: pa_fs.FileSystem, path: str, limit: int) -> bytes:
    """Read a whole file that may be removed, but is never replaced; see :func:`read_small`."""
    with open_small(filesystem, path) as file:
        size = file.size()
        check_size(size, limit, path)
        return file.read(size)


def read_cached(filesystem: pa_fs.FileSystem, path: str, limit: int) -> bytes:
    """Read a file that is often asked for, as :func:`read_constant` does.

    The content of a local file is kept, and returned as long as inode, size and times are the same;
    no program can set the last of these times (ctime). It is kept only if it was read some seconds
    after these were seen first: earlier, the file might change again within the same tick.
    """
    local = local_path(filesystem, path)
    if local is None or (found := _identity(local)) is None:
        return read_constant(filesystem, path, limit)
    known, now = _cached.get(local), time.monotonic()
    if known is None or known.identity != found:
        known = _Cached(found, now, None)
    if known.data is not None:
        return known.data
    data = read_constant(filesystem, path, limit)
    if now >= known.since + _SETTLED and _identity(local) == found:
        known = known._replace(data=data)
    _cached.put(local, known, len(known.data or b"") + 1)
    return data


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_unlinked(filesystem: pa_fs.FileSystem, path: str, limit: int) -> bytes | None:
    """Read a whole file whose content will be written elsewhere; see :func:`read_small`.

    None if a symbolic or hard link may lead to another file of that name: a copy of what only this
    user may read would be a file that others may read.
    """
    if local_path(filesystem, path) is None:
        return read_small(filesystem, path, limit)
    with regular_file_expected(path):
        try:
            file = open_regular(filesystem, path, by_links=False)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise
    with file:
        check_size(size := file.size(), limit, path)
        return file.read(size)


def open_small(filesystem: pa_fs.FileSystem, path: str) -> pa.NativeFile:
    """Open a file of a protocol.

    Raises FileNotFoundError; FormatError if a local path is a pipe, a folder or similar.
    """
    with regular_file_expected(path):
        return open_regular(filesystem, path)


@contextmanager
def regular_file_expected(path: str) -> Iterator[None]:
    """Raise FormatError if the block fails because something else is in the place of a file."""
    try:
        yield
    except NotADirectoryError:
        raise FormatError("a part of this path is a file, not a folder: remove it",
                          file=path) from None
    except (UnsupportedError, OSError) as error:
        if isinstance(error, UnsupportedError | IsADirectoryError) or error.errno == errno.ELOOP:
            raise FormatError(NO_FILE, file=path) from None
        raise


def check_size(size: int, limit: int, path: str) -> None:
    """Raise FormatError if a file has more bytes than may be read."""
    if size > limit:
        raise FormatError(f"it has {size:,} bytes, but at most {limit:,} are read: it is not what "
                          "its name says", file=path)


def parse_json(data: bytes, containers: int = MAX_CONTAINERS, items: int = MAX_ITEMS,
               decode: Callable[[str], Any] = json.loads) -> Any:
    """Parse JSON whose objects take bounded memory; see :func:`.decode_json`.

    Raises FormatError if it has more lists and objects, or commas; ValueError.
    """
    check_values([data], containers, items)
    return decode_json(data, decode)


def check_values(texts: Iterable[bytes], containers: int, items: int) -> None:
    """Raise FormatError if JSON texts have more lists and objects, or commas, in all."""
    for data in texts:
        containers -= data.count(b"[") + data.count(b"{")
        items -= data.count(b",")
    if min(containers, items) < 0:
        raise FormatError("it has too many values to be what its name says")


def check_total(sizes: Iterable[int | None], limit: int, path: str) -> None:
    """Raise FormatError if the files of a protocol in a folder have more bytes than may be read."""
    total = sum(size or 0 for size in sizes)
    if total > limit:
        raise FormatError(f"the records of jobs in it have {total:,} bytes, but at most {limit:,} "
                          "are read: find out who wrote them, and remove those that no job has "
                          "written", file=path)


def check_names(names: Iterable[object]) -> None:
    """Raise ValueError unless all of these are paths of what can be below a folder; or "".

    Anyone who can write to the folder may have written them.
    """
    for name in names:
        if not isinstance(name, str):
            raise ValueError("a path is not text")
        if "\0" in name or not _is_utf8(name):
            raise ValueError("a path has characters that no file name has")
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError("a path leads outside the folder")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
