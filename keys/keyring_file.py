"""The keyring file: JSON that only its owner may read, always replaced as a whole.

    {"version": 1, "keys": {name: base64 of 16, 24 or 32 bytes}}

or, with a passphrase,

    {"version": 2, "scrypt": {"salt": base64, "n": ..., "r": ..., "p": ...}, "sealed": base64}

where ``sealed`` is nonce (12 bytes), AES-256-GCM ciphertext and tag (16 bytes) of the JSON of
``keys`` under the key that scrypt (RFC 7914) derives from the passphrase; the additional
authenticated data is the text ``secure_bloom keyring 2``.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from secure_bloom.errors import (
    KeyringError,
    KeyringNotFoundError,
    KeyUnwrapError,
    error_location,
)
from secure_bloom.json_text import decode_json
from secure_bloom.keys.kms import check_key, unwrap_locally, wrap_locally
from secure_bloom.storage.local_files import (
    LOCKED,
    lock_folder,
    sync_folder,
    temporary_stem,
    without_waiting,
)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
#: with which JSON of an object may begin; none, too
_FIRST_BYTES = b"{ \t\r\n"
_AAD = b"secure_bloom keyring 2"
_SALT_SIZE = 16
_TEMPORARY = ".keyring.tmp"
_N, _R, _P = 2**17, 8, 1  # 128 MiB and some tenths of a second for each guess
# Limits, so that a file cannot exhaust its reader's memory or time.
_MAX_MEMORY, _MAX_COST = 2**30, 16 * _N * _R * _P
_MAX_SIZE = 2**26  # bytes; a keyring of 100,000 keys has some 10 MB
_PART = 2**20  # bytes that are read at once


@dataclass(frozen=True)
class SealingKey:
    """The key derived from a passphrase, with the parameters of the derivation: salt, n, r, p."""

    cost: tuple[bytes, int, int, int]
    key: bytes = field(repr=False)

    @classmethod
    def make(cls, passphrase: str, n: int = _N) -> SealingKey:
        """Derive a new key, with a random salt. Only tests choose a lower cost ``n``."""
        return cls.derive(passphrase, os.urandom(_SALT_SIZE), n, _R, _P)

    @classmethod
    def derive(cls, passphrase: str, salt: bytes, n: int, r: int, p: int) -> SealingKey:
        """Derive the key with scrypt.

        Raises KeyringError if there is not enough memory.
        """
        try:
            key = Scrypt(salt=salt, length=32, n=n, r=r, p=p).derive(passphrase.encode())
        except MemoryError:
            raise KeyringError("to make a key of the passphrase, scrypt needs "
                               f"{128 * r * n >> 20} MiB of memory, which are not available"
                               ) from None
        return cls((salt, n, r, p), key)


@dataclass(frozen=True)
class Content:
    """The content of a keyring file. ``sealing`` is None without a passphrase."""

    keys: dict[str, bytes] = field(repr=False)
    sealing: SealingKey | None = None


def read(path: Path, passphrase: Callable[[], str], known: SealingKey | None = None,
         owner: int | None = None) -> Content:
    """Read a keyring.

    ``passphrase`` is called only if it is needed. ``known`` is a key derived earlier, which saves
    running scrypt if its parameters still match. For ``owner``, see :func:`check_private`. Raises
    KeyringNotFoundError if the file does not exist; KeyringError if it cannot be read, is not a
    valid keyring, or is accessible to others, or if the passphrase is wrong.
    """
    with _no_keyring(path):
        document = _load(path, owner)
        if document["version"] == 1:
            return Content(_decode(document["keys"]))
        if document["version"] != 2:
            raise KeyringError(f"keyring version {document['version']!r} is not supported",
                               file=str(path))
        cost = _cost(document["scrypt"], path)
    if known is not None and known.cost == cost:
        sealing = known
    else:
        with error_location(file=str(path)):
            sealing = SealingKey.derive(passphrase(), *cost)
    with _no_keyring(path):
        try:
            keys = unwrap_locally(sealing.key, document["sealed"], _AAD)
        except KeyUnwrapError:
            raise KeyringError("it cannot be decrypted: the passphrase is wrong, or the file was "
                               "changed", file=str(path)) from None
        return Content(_decode(decode_json(keys)), sealing)


def serialize(content: Content) -> bytes:
    """Return the bytes of the file; encrypted under a new nonce if there is a passphrase."""
    keys = {name: base64.b64encode(key).decode("ascii")
            for name, key in sorted(content.keys.items())}
    if content.sealing is None:
        return _json({"version": 1, "keys": keys})
    salt, n, r, p = content.sealing.cost
    return _json({"version": 2,
                  "scrypt": {"salt": base64.b64encode(salt).decode(), "n": n, "r": r, "p": p},
                  "sealed": wrap_locally(content.sealing.key, _json(keys), _AAD)})


def check_private(descriptor: int, path: Path, owner: int | None = None) -> None:
    """Raise KeyringError if users other than the current one and root can read or replace a file.

    ``owner`` is another user who may own the file.
    """
    status = os.fstat(descriptor)
    if status.st_mode & _OTHERS:
        raise KeyringError(f"other users can access it (mode {stat.S_IMODE(status.st_mode):04o}); "
                           "run chmod 600 on it", file=str(path))
    if status.st_uid not in (os.geteuid(), 0, owner):
        raise KeyringError(
            f"it belongs to user {status.st_uid}, who could put other keys there: run chown on it, "
            f"or, if you trust that user, specify owner={status.st_uid} "
            f"(keyring:PATH?owner={status.st_uid}, or Keyring(..., owner={status.st_uid}))",
            file=str(path))
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raise KeyringError if all users can replace a file, or could if it existed."""
    for folder in {os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))}:
        mode = os.stat(folder).st_mode if os.path.isdir(folder) else 0
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:  # a link to any file of the user's
            raise KeyringError("all users can replace it, because they may write into its folder; "
                               f"run chmod o-w on {folder}", file=str(path))


def create(path: Path, content: Content) -> None:
    """Write a new file with mode 0600; an existing file is never overwritten.

    Raises KeyringError if anything exists at the path, or the file cannot be created.
    """
    try:
        create_private(path, serialize(content))
    except FileExistsError:
        raise KeyringError("the file already exists; name another one, or add keys to this one: "
                           "secure-bloom keyring add, or exist_ok=True in Python",
                           file=str(path)) from None
    except OSError as error:
        raise KeyringError(f"cannot be created: {error.strerror}", file=str(path)) from error


def create_private(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a new file that only its owner may read, regardless of the umask.

    Raises FileExistsError if anything exists at the path, even a dangling link.
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
    """Replace the file's content atomically; the caller must hold the lock."""
    path = Path(os.path.realpath(path))
    stem = temporary_stem(path.name)
    for leftover in path.parent.glob(f".{glob.escape(stem)}.*{_TEMPORARY}"):
        leftover.unlink(missing_ok=True)  # left by a killed process, since we hold the lock
    import tempfile  # not to read a keyring
    descriptor, temporary = tempfile.mkstemp(  # mode 0600
        prefix=f".{stem}.", suffix=_TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            owner = os.stat(path)
            with contextlib.suppress(PermissionError):  # only root can restore another owner
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
    """Prevent other processes from changing the file.

    Raises KeyringError if its folder cannot be opened, or stays locked.
    """
    # The file itself is replaced, so the lock is on its folder.
    try:
        descriptor = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY)
    except OSError as error:
        raise KeyringError(f"its folder cannot be opened: {error.strerror}",
                           file=str(path)) from error
    try:
        if not lock_folder(descriptor):
            raise KeyringError(LOCKED, file=os.path.dirname(os.path.realpath(path)))
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _no_keyring(path: Path) -> Iterator[None]:
    """Convert any error in the content to a KeyringError without details."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise KeyringError("this is not a keyring", file=str(path)) from None


def _load(path: Path, owner: int | None) -> dict[str, Any]:
    try:
        with open(path, "rb", opener=without_waiting) as file:
            if file.peek(1)[:1] not in _FIRST_BYTES:
                raise ValueError("not JSON")  # before its mode: nobody should change that of data
            check_private(file.fileno(), path, owner)
            return decode_json(_limited(file))
    except FileNotFoundError as error:
        raise KeyringNotFoundError(
            "there is no such keyring file: correct the path, or restore the file from a backup; "
            f"a new one for new files: secure_bloom.Keyring.create({as_typed(path)!r}, "
            'keys=["footer", "pii"]), or \'secure-bloom keyring create --key footer --key pii\'',
            file=str(path)) from error
    except OSError as error:
        raise KeyringError(f"the keyring cannot be read: {error.strerror}; create one with "
                           "'secure-bloom keyring create'", file=str(path)) from error


def as_typed(path: Path) -> str:
    """Return a path as it can be typed in this process: relative if it is below its folder."""
    with contextlib.suppress(ValueError, OSError):
        return str(path.absolute().relative_to(Path.cwd()))
    return str(path)


def _limited(file: BinaryIO) -> bytes:
    """Read a file in parts: a single read would allocate as much as it may have at most."""
    content = bytearray()
    while part := file.read(_PART):
        content += part
        if len(content) > _MAX_SIZE:
            raise ValueError("too long")
    return bytes(content)


def _cost(asked: dict[str, Any], path: Path) -> tuple[bytes, int, int, int]:
    """Return salt, n, r and p of scrypt, after checking that they limit memory and time."""
    salt = base64.b64decode(asked["salt"], validate=True)
    n, r, p = (asked[name] for name in "nrp")
    if not all(type(value) is int and value > 0 for value in (n, r, p)):
        raise ValueError
    # For small r, RFC 7914 limits n, and OpenSSL reports more as a lack of memory.
    if n & (n - 1) or n < 2 or n.bit_length() > 16 * r or 128 * r * (n + p) > _MAX_MEMORY \
            or n * r * p > _MAX_COST:
        raise KeyringError("its scrypt parameters require more memory or time than any "
                           "keyring needs", file=str(path))
    return salt, n, r, p


def _decode(encoded: dict[str, str]) -> dict[str, bytes]:
    keys = {name: base64.b64decode(key, validate=True) for name, key in encoded.items()}
    for name, key in keys.items():
        check_key(key, name)
    return keys


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
