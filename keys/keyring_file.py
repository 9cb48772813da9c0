"""The file of a keyring: JSON that only its owner may read, always replaced as a whole.

    {"version": 1, "keys": {name: base64 of 16, 24 or 32 bytes}}

or, with a passphrase,

    {"version": 2, "scrypt": {"salt": base64, "n": ..., "r": ..., "p": ...}, "sealed": base64}

where ``sealed`` is nonce (12 bytes), AES-256-GCM ciphertext and tag (16 bytes) of the JSON of
``keys`` under the key that scrypt (RFC 7914) makes of the passphrase; its additional authenticated
data is the text ``secure_bloom keyring 2``.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import glob
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from secure_bloom.errors import KeyringError, KeyUnwrapError
from secure_bloom.keys.kms import check_key, unwrap_locally, wrap_locally
from secure_bloom.storage.local_files import sync_folder, temporary_stem

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_AAD = b"secure_bloom keyring 2"
_SALT_SIZE = 16
_TEMPORARY = ".keyring.tmp"
_N, _R, _P = 2**17, 8, 1  # 128 MiB and some tenths of a second for each guess
_MAX_MEMORY, _MAX_P = 2**30, 16  # a file must not make its reader take all memory or time


@dataclass(frozen=True)
class SealingKey:
    """What a passphrase became, with the parameters that made it so."""

    salt: bytes
    n: int
    r: int
    p: int
    key: bytes = field(repr=False)

    @classmethod
    def make(cls, passphrase: str) -> SealingKey:
        """A new one, with a random salt."""
        return cls.derive(passphrase, os.urandom(_SALT_SIZE), _N, _R, _P)

    @classmethod
    def derive(cls, passphrase: str, salt: bytes, n: int, r: int, p: int) -> SealingKey:
        """Run scrypt."""
        key = Scrypt(salt=salt, length=32, n=n, r=r, p=p).derive(passphrase.encode())
        return cls(salt, n, r, p, key)

    def serves(self, salt: bytes, n: int, r: int, p: int) -> bool:
        """Whether it was made with these parameters."""
        return (self.salt, self.n, self.r, self.p) == (salt, n, r, p)


@dataclass(frozen=True)
class Content:
    """What a keyring file holds. ``sealing`` is None without a passphrase."""

    keys: dict[str, bytes] = field(repr=False)
    sealing: SealingKey | None = None


def read(path: Path, passphrase: Callable[[], str], known: SealingKey | None = None) -> Content:
    """Read a keyring.

    Parameters
    ----------
    passphrase : callable
        Is asked only where it is needed.
    known : SealingKey, optional
        An earlier one, which saves scrypt where it still serves.

    Raises
    ------
    KeyringError
        If the file is missing, no keyring, open to others, or the passphrase is another.
    """
    with _no_keyring(path):
        document = _load(path)
        if document["version"] == 1:
            return Content(_decode(document["keys"]))
        if document["version"] != 2:
            raise KeyringError(f"keyring version {document['version']!r} is not supported",
                               file=str(path))
        salt, n, r, p = _cost(document["scrypt"], path)
    sealing = known if known is not None and known.serves(salt, n, r, p) \
        else SealingKey.derive(passphrase(), salt, n, r, p)
    with _no_keyring(path):
        try:
            keys = unwrap_locally(sealing.key, document["sealed"], _AAD)
        except KeyUnwrapError:
            raise KeyringError("it does not open: the passphrase is another, or the file was "
                               "changed", file=str(path)) from None
        return Content(_decode(json.loads(keys)), sealing)


def serialize(content: Content) -> bytes:
    """The bytes of the file; sealed under a new nonce."""
    keys = {name: base64.b64encode(key).decode("ascii")
            for name, key in sorted(content.keys.items())}
    if content.sealing is None:
        return _json({"version": 1, "keys": keys})
    made = content.sealing
    return _json({"version": 2,
                  "scrypt": {"salt": base64.b64encode(made.salt).decode("ascii"),
                             "n": made.n, "r": made.r, "p": made.p},
                  "sealed": wrap_locally(made.key, _json(keys), _AAD)})


def check_private(descriptor: int, path: Path) -> None:
    """Raise KeyringError if anyone but its owner may use a file."""
    mode = os.fstat(descriptor).st_mode
    if mode & _OTHERS:
        raise KeyringError(f"others may use it (mode {stat.S_IMODE(mode):04o}); run chmod 600 on "
                           "it", file=str(path))


def create(path: Path, content: Content) -> None:
    """Write a new file with mode 0600; one that exists is never overwritten.

    Raises
    ------
    KeyringError
        If there is something at the path, or nothing can be created there.
    """
    try:
        create_private(path, serialize(content))
    except FileExistsError:
        raise KeyringError("the file exists already", file=str(path)) from None
    except OSError as error:
        raise KeyringError(f"cannot be created: {error.strerror}", file=str(path)) from error


def create_private(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a new file that only its owner may read, whatever the umask says.

    Raises
    ------
    FileExistsError
        If there is something at the path, even a link that leads nowhere.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(path)
        raise
    sync_folder(os.path.dirname(os.path.abspath(path)))


def replace(path: Path, content: Content) -> None:
    """Put new content in the place of the file in one step; call it under the lock."""
    path = Path(os.path.realpath(path))
    stem = temporary_stem(path.name)
    for leftover in path.parent.glob(f".{glob.escape(stem)}.*{_TEMPORARY}"):
        leftover.unlink(missing_ok=True)  # of a process that was killed, since we have the lock
    descriptor, temporary = tempfile.mkstemp(  # mode 0600
        prefix=f".{stem}.", suffix=_TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            owner = os.stat(path)
            with contextlib.suppress(PermissionError):  # only root can give it back to its owner
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(serialize(content))
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
        sync_folder(str(path.parent))
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing the file."""
    # The file itself is replaced, so its folder holds the lock.
    try:
        descriptor = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY)
    except OSError as error:
        raise KeyringError(f"its folder cannot be opened: {error.strerror}",
                           file=str(path)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _no_keyring(path: Path) -> Iterator[None]:
    """Say of whatever is wrong with the content that this is no keyring, and no more."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError,
            binascii.Error):
        raise KeyringError("this is no keyring", file=str(path)) from None


def _load(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            check_private(file.fileno(), path)
            return json.loads(file.read())
    except OSError as error:
        raise KeyringError(f"the keyring cannot be read: {error.strerror}; create one with "
                           "'secure-bloom keyring create'", file=str(path)) from error


def _cost(asked: dict[str, Any], path: Path) -> tuple[bytes, int, int, int]:
    """Salt, n, r and p of scrypt, none of which may take all memory."""
    salt = base64.b64decode(asked["salt"], validate=True)
    n, r, p = (asked[name] for name in "nrp")
    if not all(type(value) is int and value > 0 for value in (n, r, p)):
        raise ValueError
    if n & (n - 1) or n < 2 or 128 * r * (n + p) > _MAX_MEMORY or p > _MAX_P:
        raise KeyringError("its scrypt parameters would take more memory or time than any "
                           "keyring needs", file=str(path))
    return salt, n, r, p


def _decode(encoded: dict[str, str]) -> dict[str, bytes]:
    keys = {name: base64.b64decode(key, validate=True) for name, key in encoded.items()}
    for name, key in keys.items():
        check_key(key, name)
    return keys


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
