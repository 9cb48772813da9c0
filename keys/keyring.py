"""A keyring: master keys in a local file that only its owner may read. The embedded default."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from secure_bloom.errors import KeyringError
from secure_bloom.keys import keyring_file
from secure_bloom.keys.keyring_file import Content, SealingKey
from secure_bloom.keys.kms import InMemoryKms, check_key


class Keyring(InMemoryKms):
    """A KMS client over a local file of named master keys; wraps as :class:`InMemoryKms` does.

    Keys that are added to the file later, by anyone, are seen at once. Pickled as its path alone:
    whoever unpickles it must be able to read the file.

    Parameters
    ----------
    path : str or path
        An existing keyring; see :meth:`create`.
    passphrase : str or callable that gives one, optional
        For a keyring that has one. Never pickled: a keyring that is sent elsewhere needs a file.
    passphrase_file : str or path, optional
        A file whose first line is the passphrase, and that only its owner may read.

    Raises
    ------
    KeyringError
        If the file is missing, no keyring, or open to others, or the passphrase is another.
    """

    def __init__(self, path: str | os.PathLike, passphrase: str | Callable[[], str] | None = None,
                 *, passphrase_file: str | os.PathLike | None = None):
        self.path = Path(path)
        self._given = passphrase
        self._passphrase_file = None if passphrase_file is None else Path(passphrase_file)
        super().__init__({})
        self._seen = self._read(None)

    @classmethod
    def create(cls, path: str | os.PathLike,
               passphrase: str | Callable[[], str] | None = None) -> Keyring:
        """Create an empty keyring with mode 0600; an existing file is never overwritten."""
        path = Path(path)
        if callable(passphrase):
            passphrase = _checked(passphrase())
        sealing = _derived(passphrase)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise KeyringError("the file exists already", file=str(path)) from None
        except OSError as error:
            raise KeyringError(f"cannot be created: {error.strerror}", file=str(path)) from error
        with os.fdopen(descriptor, "wb") as file:
            file.write(keyring_file.serialize(Content({}, sealing)))
        return cls(path, passphrase)

    def add(self, name: str, key: bytes | None = None, *, bits: int = 256) -> None:
        """Add a master key: the one given, or a new random one of 128, 192 or 256 bits.

        Raises
        ------
        KeyringError
            If the name is taken.
        ValueError
            If the name is empty or the key has no AES length.
        """
        if not name or not name.isprintable():
            raise ValueError("a key name has at least one character, all printable")
        if key is None:
            if bits not in (128, 192, 256):
                raise ValueError(f"a key has 128, 192 or 256 bits, not {bits}")
            key = os.urandom(bits // 8)
        check_key(key, name)
        with keyring_file.locked(self.path):
            content, _ = self._read(self._seen[0].sealing)
            if name in content.keys:
                raise KeyringError(f"a key named {name!r} exists already", file=str(self.path))
            self._replace(Content({**content.keys, name: bytes(key)}, content.sealing))

    def set_passphrase(self, passphrase: str | None) -> None:
        """Change the passphrase, or with None leave the keyring without one."""
        sealing = _derived(passphrase)
        with keyring_file.locked(self.path):
            content, _ = self._read(self._seen[0].sealing)
            self._given = passphrase
            self._replace(Content(content.keys, sealing))

    def names(self) -> list[str]:
        """The names of the master keys, sorted."""
        return sorted(self._current().keys)

    def _master_keys(self) -> dict[str, bytes]:
        return self._current().keys

    def _current(self) -> Content:
        """What the file holds; read again where it has changed."""
        content, stamp = self._seen
        if _stamp(self.path) != stamp:  # two threads may both read it, to no harm
            content, _ = self._seen = self._read(content.sealing)
        return content

    def _read(self, known: SealingKey | None) -> tuple[Content, tuple]:
        stamp = _stamp(self.path)
        return keyring_file.read(self.path, self._passphrase, known), stamp

    def _replace(self, content: Content) -> None:
        keyring_file.replace(self.path, content)
        self._seen = content, _stamp(self.path)

    def _passphrase(self) -> str:
        if self._passphrase_file is not None:
            return _read_passphrase(self._passphrase_file)
        if self._given is None:
            raise KeyringError("it needs a passphrase: give a file that holds it "
                               "(keyring:PATH?passphrase-file=PATH, or passphrase_file=)",
                               file=str(self.path))
        return _checked(self._given() if callable(self._given) else self._given)

    def __reduce__(self):
        if self._seen[0].sealing is not None and self._passphrase_file is None:
            raise TypeError("a passphrase is never pickled: open the keyring with passphrase_file=")
        return _open, (str(self.path), self._passphrase_file and str(self._passphrase_file))

    def __repr__(self) -> str:
        return f"<Keyring {self.path} with keys {sorted(self._seen[0].keys)}>"


def _open(path: str, passphrase_file: str | None) -> Keyring:
    return Keyring(path, passphrase_file=passphrase_file)


def _derived(passphrase: str | None) -> SealingKey | None:
    return None if passphrase is None else SealingKey.make(_checked(passphrase))


def _checked(passphrase: str) -> str:
    if not isinstance(passphrase, str):
        raise TypeError(f"the passphrase must be text, not {type(passphrase).__name__}")
    if not passphrase:
        raise ValueError("the passphrase is empty")
    return passphrase


def _read_passphrase(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            keyring_file.check_private(file.fileno(), path)
            passphrase = file.readline().rstrip("\r\n")
    except OSError as error:
        raise KeyringError("the file with the passphrase cannot be read: "
                           f"{error.strerror}", file=str(path)) from error
    except UnicodeDecodeError:  # which quotes it
        raise KeyringError("the passphrase is no UTF-8", file=str(path)) from None
    if not passphrase:
        raise KeyringError("its first line, the passphrase, is empty", file=str(path))
    return passphrase


def _stamp(path: Path) -> tuple:
    try:
        stat = os.stat(path)
    except OSError:
        return ()  # reading it says what is wrong
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
