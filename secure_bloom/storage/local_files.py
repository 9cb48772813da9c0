"""Local files that appear whole: temporary files, their names and locks, who may read them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import posixpath
import re
import secrets
import stat
from collections.abc import Callable, Collection, Iterator
from typing import BinaryIO

_ACL = "system.posix_acl_access"
_LONG_NAME = 100  # bytes: longer names are not repeated in those of temporary files
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)


class Replacement:
    """A local file that is written under a temporary name and then takes its place.

    A file that is replaced keeps its mode and, as far as the process may, its owner, its group and
    its access control list. Until then nobody else may read the new one. Where the path is a
    symbolic link, the file that it leads to is replaced.

    Parameters
    ----------
    path : str
    mode : int
        Of a file that is not there yet, before the umask.

    Attributes
    ----------
    file : binary file
    """

    def __init__(self, path: str, mode: int):
        self._path = path_to_replace(path)
        self.file = _open_temporary(self._path, 0o600 if os.path.exists(self._path) else mode)

    def finish(self) -> None:
        """Make the content last."""
        keep_permissions(self._path, self.file.fileno())
        os.fsync(self.file.fileno())

    def publish(self, check: Callable[[], None] | None) -> None:
        """Take the place; see :meth:`secure_bloom.storage.files.Output.commit`."""
        folder = os.path.dirname(self._path) or "."
        if check is None:
            os.replace(self.file.name, self._path)
        else:
            with _locked(folder):
                check()
                os.replace(self.file.name, self._path)
        self.file.close()  # not before: without its lock it would be a leftover
        sync_folder(folder)

    def drop(self) -> None:
        """Remove the temporary file."""
        self.file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file.name)


def is_special(path: str) -> bool:
    """Whether a path is a pipe, a device or the like, which is written to as it is."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def path_to_replace(path: str) -> str:
    """The path without symbolic links at its end, where a file can be."""
    target = os.path.realpath(path) if os.path.islink(path) else path
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return target


# --- temporary files -----------------------------------------------------------------------------

def temporary_name(path: str, kind: str = "tmp") -> str:
    """A hidden name in the same folder that nothing else uses."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f".{temporary_stem(name)}.{secrets.token_hex(8)}.{kind}")


def temporary_stem(name: str) -> str:
    """What the names of temporary files say about the file that they are to become.

    Its name or, where that would make them too long for the file system, a hash of it.
    """
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONG_NAME else hashlib.sha256(encoded).hexdigest()[:32]


def remove_leftovers(folder: str, names: Collection[str]) -> None:
    """Remove the temporary files that processes which are gone have left in a local folder.

    Parameters
    ----------
    folder : str
    names : collection of str
        The files that they were to become.
    """
    stems = set(map(temporary_stem, names))
    with os.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if match and match[1] in stems and entry.is_file(follow_symlinks=False):
                _remove_leftover(entry.path)


def _remove_leftover(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer lives
        os.unlink(path)


def _open_temporary(path: str, mode: int) -> BinaryIO:
    """A new temporary file, locked as long as this process lives; see remove_leftovers."""
    while True:
        file = _open_new(temporary_name(path), mode)
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
        except OSError:  # not on this filesystem; with another name it is no leftover
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)
            return _open_new(temporary_name(path, "unlocked"), mode)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # it was removed before it was locked


def _open_new(name: str, mode: int) -> BinaryIO:
    # Not buffered: a forked process would write the buffer a second time. And not only for writing:
    # over NFS it could not be locked.
    return open(name, "x+b", buffering=0, opener=lambda name, flags: os.open(name, flags, mode))


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keep others that publish with a check waiting, if the filesystem has locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked process may have the descriptor too
        os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Make a rename in a local folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- who may read a file -------------------------------------------------------------------------

def keep_permissions(path: str, descriptor: int) -> None:
    """Let an open file have mode, owner, group and access control list of the one at a path.

    Only root can give files away, and to any group. If the group cannot be kept, what it was
    allowed is taken away.
    """
    try:
        old = os.stat(path)
    except FileNotFoundError:
        return
    for owner, group in ((old.st_uid, -1), (-1, old.st_gid)):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, owner, group)
    mode, acl = stat.S_IMODE(old.st_mode), _acl(path)
    if os.fstat(descriptor).st_gid != old.st_gid:
        mode, acl = mode & ~(stat.S_IRWXG | stat.S_ISGID), None
    if acl is not None:
        os.setxattr(descriptor, _ACL, acl)
    else:
        with contextlib.suppress(OSError, AttributeError):
            os.removexattr(descriptor, _ACL)  # what the folder gives to new files
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # some filesystems have one for all
        os.fchmod(descriptor, mode)


def _acl(path: str) -> bytes | None:
    """The access control list of a file, where it has one."""
    try:
        return os.getxattr(path, _ACL)
    except (OSError, AttributeError):  # on macOS there are none
        return None
