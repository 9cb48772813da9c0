"""Atomic replacement of local files: temporary files, their names and locks, and permissions."""

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
import time
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from secure_bloom.errors import ChangedMeanwhileError, SecureBloomError

LONGEST_WAIT = 60.0  #: seconds for the lock of a folder
#: messages of those who change files
LEFT_AS_IT_IS = "the file was changed in the meantime; it is left as it is"
LOCKED = "another program has locked this folder for a minute: end it (see fuser), and try again"
_PAUSE = 0.002  # seconds between two attempts
_ACL = "system.posix_acl_access"
_LONG_NAME = 100  # bytes: longer names are hashed in the names of temporary files


class Replacement:
    """A local file that is written under a temporary name and then renamed.

    When a file is replaced, its mode is preserved and, if the process is permitted to, its owner,
    its group and its access control list. Until then, only the owner of the new file can read it.
    If the path is a symbolic link, the target of the link is replaced; without ``follow``, the link
    itself. ``mode`` is that of a new file, before the umask. Without ``durable``, neither content
    nor name is synced to the disk. ``replaced`` is a descriptor of the only file that may be
    replaced, whatever somebody else puts at the path or above it meanwhile.
    """

    def __init__(self, path: str, mode: int, *, durable: bool = True, follow: bool = True,
                 replaced: int | None = None):
        self._path = path_to_replace(path, follow=follow)
        self._durable, self._replaced = durable, replaced
        self._old = self._path if replaced is None else replaced
        # A hard link to a program that somebody put there must not make the content run (setuid).
        self._bits = 0o7777 if follow else 0o777
        self.file = _open_temporary(self._path, mode if _regular(self._old) is None else 0o600)

    def finish(self) -> None:
        """Set the permissions and make the content durable."""
        keep_permissions(self._old, self.file.fileno(), self._bits)
        if self._durable:
            os.fsync(self.file.fileno())

    def publish(self, check: Callable[[], None] | None) -> None:
        """Rename the file to its path; see :meth:`secure_bloom.storage.files.Output.commit`."""
        folder = os.path.dirname(self._path) or "."
        if check is None:
            os.replace(self.file.name, self._path)
        else:
            with _locked(folder) as opened:
                check()  # nothing but the renaming follows; see wait_for_rewrites
                self._rename_in(opened)
        self.file.close()  # not earlier: without its lock it would be removed as a leftover
        if self._durable:
            sync_folder(folder)

    def _rename_in(self, folder: int) -> None:
        if self._replaced is None:
            os.replace(self.file.name, self._path)
            return
        source, target = map(os.path.basename, (self.file.name, self._path))
        if not is_in(folder, target, self._replaced):
            raise ChangedMeanwhileError(LEFT_AS_IT_IS, file=self._path)
        os.replace(source, target, src_dir_fd=folder, dst_dir_fd=folder)

    def drop(self) -> None:
        """Remove the temporary file."""
        self.file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file.name)


def create(path: str, write: Callable[[BinaryIO], None]) -> None:
    """Write a complete local file at a path where no file exists yet.

    Raises FileExistsError if the file exists. A process that dies leaves no part of the file under
    its name, except on filesystems without hard links.
    """
    temporary = _open_temporary(path, 0o666)
    try:
        write(temporary)
        os.fsync(temporary.fileno())
        try:
            os.link(temporary.name, path)
        except FileExistsError:
            raise FileExistsError(f"{path} exists") from None
        except OSError:  # there are no hard links on this filesystem
            _create_in_place(path, write)
    finally:
        temporary.close()
        with contextlib.suppress(FileNotFoundError):  # deleted with an index
            os.unlink(temporary.name)
    sync_folder(os.path.dirname(path) or ".")


def _create_in_place(path: str, write: Callable[[BinaryIO], None]) -> None:
    with open(path, "xb", buffering=0) as file:
        try:
            write(file)
            os.fsync(file.fileno())
        except BaseException:
            os.unlink(path)
            raise


def is_special(path: str) -> bool:
    """Whether a path is a pipe, a device or similar, which is written to directly."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def path_to_replace(path: str, *, follow: bool = True) -> str:
    """Resolve symbolic links at the end of a path, and check that a file can be there.

    Without ``follow``, a link is not resolved, as it will be replaced.
    """
    target = os.path.realpath(path) if follow and os.path.islink(path) else path
    if os.path.islink(target):
        if not follow:
            return target
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return target


# --- temporary files -----------------------------------------------------------------------------

def temporary_name(path: str, kind: str = "tmp") -> str:
    """Return a unique hidden name in the same folder."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f".{temporary_stem(name)}.{secrets.token_hex(8)}.{kind}")


def is_temporary(name: str) -> bool:
    """Whether a name is one of :func:`temporary_name`, of any kind."""
    return temporary_target(name) is not None


def temporary_target(name: str) -> str | None:
    """Return the stem in one of :func:`temporary_name`; None if the name is another one."""
    match = re.fullmatch(r"\.(.+)\.[0-9a-f]{16}\.[a-z]+", name, re.DOTALL)
    return None if match is None else match[1]


def temporary_stem(name: str) -> str:
    """Return the part of a temporary file's name that identifies the file it will become.

    This is the file's name or, if that would be too long for the file system, a hash of it.
    """
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONG_NAME else hashlib.sha256(encoded).hexdigest()[:32]


def _open_temporary(path: str, mode: int) -> BinaryIO:
    """Open a new temporary file, locked for the lifetime of this process; see leftovers.py."""
    while True:
        file = _open_new(temporary_name(path), mode)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # another process was faster, to remove it or to make us wait
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)
            continue
        except OSError:  # no locks on this filesystem; the other name is not taken for a leftover
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)
            return _open_new(temporary_name(path, "unlocked"), mode)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # it was removed before it was locked


def _open_new(name: str, mode: int) -> BinaryIO:
    # Not buffered: a forked process would write the buffer a second time. Not write-only: such a
    # file cannot be locked over NFS.
    try:
        return open(name, "x+b", buffering=0, opener=lambda name, flags: os.open(name, flags, mode))
    except FileNotFoundError:
        folder = os.path.dirname(name)
        raise FileNotFoundError(f"there is no folder {folder}; create it first") from None


def is_in(folder: int, name: str, file: int) -> bool:
    """Whether an open file has a name in an open folder; not if that is a link to it."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(file))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[int]:
    """Make other publishers with a check wait, if the filesystem has locks; yield the open folder.

    Raises SecureBloomError if another program does not unlock the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            if not lock_folder(descriptor):
                raise SecureBloomError(LOCKED, file=folder)
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked process may have the descriptor too
        os.close(descriptor)


def lock_folder(descriptor: int) -> bool:
    """Lock an open folder; return False if it is still locked by somebody else after a while.

    Anyone who can read a folder can lock it, and keep it locked. Raises OSError if the filesystem
    has no locks.
    """
    end = time.monotonic() + LONGEST_WAIT
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)


def wait_for_rewrites(folders: Iterable[str]) -> None:
    """Wait until those who have checked a file in these folders have replaced it, or given up.

    Later ones see in their check what was written before this call. Raises SecureBloomError if a
    folder stays locked.
    """
    for folder in folders:
        with contextlib.suppress(FileNotFoundError), _locked(folder):
            pass


def sync_file(path: str) -> None:
    """Make the content of a local file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # no pipe makes it wait
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Make a rename in a local folder durable."""
    sync_file(folder)


# --- file permissions ----------------------------------------------------------------------------

def keep_permissions(path: str | int, descriptor: int, bits: int = 0o7777) -> None:
    """Copy mode, owner, group and access control list from one file to another, which is open.

    The first one is at a path, or open, too.

    Only root can change a file's owner, or set an arbitrary group. If the group cannot be
    preserved, group permissions are removed. A link, pipe or similar has none to be kept.
    Of the mode, only some ``bits`` are preserved.
    """
    old = _regular(path)
    if old is None:
        return
    for owner, group in ((old.st_uid, -1), (-1, old.st_gid)):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, owner, group)
    mode, acl = old.st_mode & bits, _acl(path)
    if os.fstat(descriptor).st_gid != old.st_gid:
        mode, acl = mode & ~(stat.S_IRWXG | stat.S_ISGID), None
    if acl is not None:
        os.setxattr(descriptor, _ACL, acl)
    else:
        with contextlib.suppress(OSError, AttributeError):
            os.removexattr(descriptor, _ACL)  # the default that the folder sets on new files
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # some filesystems have a fixed mode
        os.fchmod(descriptor, mode)


def _regular(path: str | int) -> os.stat_result | None:
    """Return what is known of a regular file; None if none is at the path, but perhaps a link."""
    try:
        found = os.fstat(path) if isinstance(path, int) else os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _acl(path: str | int) -> bytes | None:
    """Return the access control list of a file, if it has one."""
    try:
        return os.getxattr(path, _ACL, follow_symlinks=isinstance(path, int))
    except (OSError, AttributeError):  # macOS has none
        return None


def remove_checksum(path: str) -> None:
    """Remove the checksum file that Hadoop stores next to a local file and verifies it against.

    This happens before the rename, so that a power cut leaves no file that Spark considers corrupt.
    """
    folder, name = os.path.split(path)
    try:
        os.unlink(os.path.join(folder, f".{name}.crc"))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
    else:
        sync_folder(folder)


def without_waiting(path: str, flags: int) -> int:
    """Open a file that a user has named, as ``opener`` of :func:`open`; never wait for a writer.

    Anyone who can write to its folder can put a named pipe in its place. A pipe that the shell
    passes, such as ``/dev/fd/63`` for ``<(command)``, is read. Raises OSError.
    """
    if any(one.startswith(("/dev/fd/", "/proc/")) or one == "/dev/stdin"
           for one in (os.path.abspath(path), os.path.realpath(path))):
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is a named pipe, which may wait for ever: put a file "
                          "in its place", path)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
