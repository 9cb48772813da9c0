"""A keyring: master keys in a local file that only its owner may read. The embedded default.

The file is JSON: ``{"version": 1, "keys": {name: base64 of 16, 24 or 32 bytes}}``. It is refused
when anyone but the owner may read or write it, and it is always replaced as a whole.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from secure_bloom.errors import KeyringError
from secure_bloom.keys.kms import InMemoryKms, check_key

_VERSION = 1
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Keyring(InMemoryKms):
    """A KMS client over a local file of named master keys; wraps as :class:`InMemoryKms` does.

    Pickled as its path alone: whoever unpickles it must be able to read the file.

    Parameters
    ----------
    path : str or path
        An existing keyring; see :meth:`create`.

    Raises
    ------
    KeyringError
        If the file is missing, no keyring, or open to others.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        super().__init__(_read(self.path))

    @classmethod
    def create(cls, path: str | os.PathLike) -> Keyring:
        """Create an empty keyring with mode 0600; an existing file is never overwritten."""
        path = Path(path)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise KeyringError("the file exists already", file=str(path)) from None
        except OSError as error:
            raise KeyringError(f"cannot be created: {error.strerror}", file=str(path)) from error
        with os.fdopen(descriptor, "wb") as file:
            file.write(_serialize({}))
        return cls(path)

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
        with _locked(self.path):
            keys = _read(self.path)
            if name in keys:
                raise KeyringError(f"a key named {name!r} exists already", file=str(self.path))
            keys[name] = bytes(key)
            _replace(self.path, _serialize(keys))
        self._keys = keys

    def names(self) -> list[str]:
        """The names of the master keys, sorted."""
        return sorted(self._keys)

    def __reduce__(self):
        return Keyring, (str(self.path),)

    def __repr__(self) -> str:
        return f"<Keyring {self.path} with keys {self.names()}>"


def _read(path: Path) -> dict[str, bytes]:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _OTHERS:
                raise KeyringError(f"others may use it (mode {stat.S_IMODE(mode):04o}); run "
                                   f"chmod 600 on it", file=str(path))
            document = json.loads(file.read())
        if document["version"] != _VERSION:
            raise KeyringError(f"keyring version {document['version']!r} is not supported",
                               file=str(path))
        keys = {name: base64.b64decode(key, validate=True)
                for name, key in document["keys"].items()}
        for name, key in keys.items():
            check_key(key, name)
        return keys
    except OSError as error:
        raise KeyringError(f"the keyring cannot be read: {error.strerror}; create one with "
                           "'secure-bloom keyring create'", file=str(path)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        raise KeyringError("this is no keyring", file=str(path)) from None


def _serialize(keys: dict[str, bytes]) -> bytes:
    encoded = {name: base64.b64encode(key).decode("ascii") for name, key in sorted(keys.items())}
    return json.dumps({"version": _VERSION, "keys": encoded}, indent=1).encode() + b"\n"


def _replace(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The file itself is replaced, so its folder holds the lock.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
