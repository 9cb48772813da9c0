"""Which files of an interrupted run are done, so that another run skips them."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from threading import Lock

from secure_bloom.errors import ArgumentError
from secure_bloom.reencryption.result import ReencryptedFile

_DIGITS = frozenset("0123456789abcdef")
_LINE = 128  # characters; an identity has 16


class Journal:
    """The identities (aad_file_unique) of the new versions of files, one on each line of a file.

    A file of the folder with one of them is done. One that was exchanged since then, or put back,
    has another identity, and its footer proves it.

    Parameters
    ----------
    path : str or path
        A local file, which is made if it does not exist. Anyone who can write to it can make a
        run skip files, so it must not be in the folder.
    folder : str, optional
        The folder, if it is local.

    Raises
    ------
    ArgumentError
        If the file is in the folder, or is something else.
    """

    def __init__(self, path: str | os.PathLike[str], folder: str | None):
        if folder and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise ArgumentError("a journal must not be in the folder, because anyone who can write "
                                "there could make a run skip files: name another file",
                                file=os.fspath(path))
        self._path, self._lock = os.fspath(path), Lock()
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._other_file()
            self._done = {self._identity(line) for line in file}

    def _identity(self, line: bytes) -> str:
        text = line.decode("ascii", "replace").removesuffix("\n")
        if len(text) > _LINE or not _DIGITS.issuperset(text):
            raise self._other_file()
        return text

    def _other_file(self) -> ArgumentError:
        return ArgumentError("this is not a journal of reencrypt: pass a file of its own",
                             file=self._path)

    def has(self, identity: bytes) -> bool:
        """Whether the file with this identity is done."""
        return identity.hex() in self._done

    def noted(self, change: ReencryptedFile, identity: bytes | None) -> ReencryptedFile:
        """Note that a file is done; return what is said of it.

        It is done even if that cannot be noted, as on a full disk.
        """
        if identity is None:
            return change
        try:
            self._add(identity)
        except OSError as error:
            note = f"not noted in the journal, so another run with it does this file again: {error}"
            return replace(change, notes=(*change.notes, note))
        return change

    def _add(self, identity: bytes) -> None:
        """Append a line that outlives a crash."""
        with self._lock, open(self._path, "ab") as file:
            file.write(f"{identity.hex()}\n".encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
            self._done.add(identity.hex())
