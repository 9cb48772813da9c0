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
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from secure_bloom.errors import KeyringError, KeyUnwrapError
from secure_bloom.keys.kms import check_key, unwrap_locally, wrap_locally

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_AAD = b"secure_bloom keyring 2"
_SALT_SIZE = 16
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
    try:
        with open(path, "rb") as file:
            check_private(file.fileno(), path)
            document = json.loads(file.read())
        if document["version"] == 2:
            return _unseal(document, path, passphrase, known)
        if document["version"] != 1:
            raise KeyringError(f"keyring version {document['version']!r} is not supported",
                               file=str(path))
        return Content(_decode(document["keys"]))
    except OSError as error:
        raise KeyringError(f"the keyring cannot be read: {error.strerror}; create one with "
                           "'secure-bloom keyring create'", file=str(path)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        raise KeyringError("this is no keyring", file=str(path)) from None


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


def replace(path: Path, content: Content) -> None:
    """Put new content in the place of the file in one step."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(serialize(content))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing the file."""
    # The file itself is replaced, so its folder holds the lock.
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unseal(document: dict, path: Path, passphrase: Callable[[], str],
            known: SealingKey | None) -> Content:
    asked = document["scrypt"]
    salt = base64.b64decode(asked["salt"], validate=True)
    n, r, p = (int(asked[name]) for name in "nrp")
    if not (n > 1 and r > 0 and 128 * n * r <= _MAX_MEMORY and 0 < p <= _MAX_P):
        raise KeyringError("its scrypt parameters would take more memory or time than any "
                           "keyring needs", file=str(path))
    sealing = known if known is not None and known.serves(salt, n, r, p) \
        else SealingKey.derive(passphrase(), salt, n, r, p)
    try:
        keys = unwrap_locally(sealing.key, document["sealed"], _AAD)
    except KeyUnwrapError:
        raise KeyringError("it does not open: the passphrase is another, or the file was changed",
                           file=str(path)) from None
    return Content(_decode(json.loads(keys)), sealing)


def _decode(encoded: dict[str, str]) -> dict[str, bytes]:
    keys = {name: base64.b64decode(key, validate=True) for name, key in encoded.items()}
    for name, key in keys.items():
        check_key(key, name)
    return keys


def _json(value: dict) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
