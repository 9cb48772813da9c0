"""What distinguishes a listed file from another one of the same name.

Size and time are not enough: a program can set the time of a file. So a stamp also has what the
filesystem alone sets, as far as a listing shows it: on a local disk the inode, and the time of the
last change of anything (ctime). The listings of object stores have nothing of that kind, but there
the store itself sets the time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import pyarrow.fs as pa_fs

from secure_bloom.storage.local_listing import LocalFile
from secure_bloom.storage.versions import FileVersion, wait_for_the_clock, without_subtree


class _Listed(Protocol):
    @property
    def size(self) -> int: ...

    @property
    def mtime_ns(self) -> int | None: ...


class Stamp(NamedTuple):
    """Size, time and tag of a listed file; a time of -1 if the filesystem has none.

    The tag of a local file is ``inode-ctime``, both in hexadecimal digits; of others it is empty.
    """

    size: int
    mtime_ns: int
    tag: str = ""

    @classmethod
    def of(cls, listed: _Listed) -> Stamp:
        """Return the stamp of a ``pyarrow.fs.FileInfo``, or another record, which may have a tag.
        """
        time = listed.mtime_ns
        return cls(listed.size, -1 if time is None else time, getattr(listed, "tag", ""))

    @property
    def inode(self) -> str:
        """The part of the tag that stays when the file is renamed."""
        return self.tag.partition("-")[0]

    def is_of(self, version: FileVersion | None, filesystem: pa_fs.FileSystem) -> bool:
        """Whether the listing refers to this version of the file, which is open."""
        if version is None or not version.is_as_listed(
                self.size, self.mtime_ns, exactly=filesystem.type_name == "local"):
            return False
        return not self.tag or (isinstance(version.tag, tuple)
                                and self.inode == f"{version.tag[1]:x}")

    def wait(self) -> None:
        """Wait until any later change of the file is certain to change the tag."""
        if self.tag:
            wait_for_the_clock(int(self.tag.partition("-")[2], 16))


def stamps(filesystem: pa_fs.FileSystem, infos: Iterable[pa_fs.FileInfo]) -> list[Stamp]:
    """Return the stamps of listed files."""
    if without_subtree(filesystem, "")[0].type_name != "local":
        return list(map(Stamp.of, infos))
    return [Stamp(info.size, info.mtime_ns, info.tag) if type(info) is LocalFile
            else _looked_up(filesystem, info) for info in infos]


def stamp(filesystem: pa_fs.FileSystem, info: pa_fs.FileInfo) -> Stamp:
    """Return the stamp of one file."""
    return stamps(filesystem, [info])[0]


def _looked_up(filesystem: pa_fs.FileSystem, info: pa_fs.FileInfo) -> Stamp:
    path = without_subtree(filesystem, info.path)[1]
    try:
        return Stamp.of(LocalFile(path, os.stat(path)))
    except OSError:  # it was removed after it was listed
        return Stamp.of(info)
