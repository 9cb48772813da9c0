"""A KMS client for hardware security modules, through PKCS#11.

A key is wrapped inside the module with AES-GCM, in the form of
:func:`secure_bloom.keys.kms.wrap_locally`: base64 of nonce (12 bytes), ciphertext and tag (16
bytes), with the master key's name in UTF-8 as additional authenticated data.

python-pkcs11 initializes a library without locks, so a lock in this module lets only one thread at
a time call any library. A login applies to the whole process, and closing its session ends it; so
all clients in a process share one session per token, which stays open. A forked child has to
initialize the library and log in again.
"""

from __future__ import annotations

import base64
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from secure_bloom.crypto.aes_gcm import NONCE_SIZE, TAG_SIZE
from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyUnwrapError,
    KmsUnavailableError,
    SecureBloomError,
    UnsupportedError,
    needs_extra,
)
from secure_bloom.keys.kms import KmsClient
from secure_bloom.keys.remote import decoded
from secure_bloom.storage.local_files import without_waiting

_PAUSES = (0.05, 0.2, 0.5, None)  # seconds after the first attempts; None: no further attempt

_lock = threading.Lock()
_sessions: dict[tuple[Any, ...], Any] = {}  # (library, token, serial) -> session
_stale: set[str] = set()  # libraries to initialize again, chiefly those of a parent process


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread of the parent may have held it
    _stale.update(library for library, *_ in _sessions)
    _sessions.clear()


os.register_at_fork(after_in_child=_after_fork)


class Pkcs11Kms(KmsClient):
    """Master keys in a token: a hardware security module, or SoftHSM.

    A master key is an AES key of the token, named by its label (``CKA_LABEL``). The label must be
    unique, and the key must be allowed to encrypt and decrypt. Wrapped keys are interchangeable
    with those of :class:`InMemoryKms` and :class:`Keyring` for the same key.

    Only the settings are pickled, without the PIN. Thread-safe (calls are serialized), and usable
    after a fork. The only time limit of a call is the library's own.

    Parameters
    ----------
    library : str or path
        The PKCS#11 library of the module's vendor.
    token : str
        Label of the token.
    serial : str, optional
        Serial number of the token, needed if several have the same label.
    pin_file : str or path, optional
        A file with the PIN; a final line break is not part of the PIN.
    pin : callable, optional
        A function without arguments that returns the PIN.
    pin_env : str, optional
        Name of the environment variable with the PIN.

    Raises
    ------
    TypeError
        Unless exactly one of ``pin_file``, ``pin`` and ``pin_env`` is given.
    """

    def __init__(self, library: str | os.PathLike[str], token: str, *, serial: str | None = None,
                 pin_file: str | os.PathLike[str] | None = None,
                 pin: Callable[[], str] | None = None, pin_env: str | None = None):
        if sum(source is not None for source in (pin_file, pin, pin_env)) != 1:
            raise TypeError("specify the PIN with exactly one of pin_file, pin and pin_env")
        if pin is not None and not callable(pin):
            raise TypeError("pin must be a function that returns the PIN, not the PIN itself")
        self.library = os.fspath(library)
        self.token = token
        self.serial = serial
        self._pin_file = None if pin_file is None else os.fspath(pin_file)
        self._pin = pin
        self._pin_env = pin_env
        self._pin_refused: str | None = None

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """See :meth:`KmsClient.wrap_key`."""
        nonce = os.urandom(NONCE_SIZE)
        sealed = self._call("encrypt", master_key_identifier, nonce, bytes(key_bytes))
        return base64.b64encode(nonce + sealed).decode("ascii")

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """See :meth:`KmsClient.unwrap_key`."""
        raw = decoded(wrapped_key)
        if len(raw) < NONCE_SIZE + TAG_SIZE:
            raise KeyUnwrapError(f"{self._where(master_key_identifier)}: the wrapped key is "
                                 "truncated or not valid base64")
        return self._call("decrypt", master_key_identifier, raw[:NONCE_SIZE], raw[NONCE_SIZE:])

    def _call(self, action: str, name: str, nonce: bytes, data: bytes) -> bytes:
        with needs_extra("PKCS#11 needs python-pkcs11", "pkcs11"):
            import pkcs11
        with _lock:
            for pause in _PAUSES:
                known = self._slot in _sessions
                try:
                    return self._attempt(pkcs11, action, name, nonce, data)
                except pkcs11.PKCS11Error as error:
                    # Private keys are found only after a login; other code may have logged out.
                    passing = isinstance(error, _passing(pkcs11)) or (
                        known and isinstance(error, pkcs11.NoSuchKey))
                    if pause is None or not passing:
                        raise _refusal(pkcs11, error, self._where(name)) from error
                    self._forget(pkcs11, error)
                time.sleep(pause * random.uniform(0.5, 1.5))
        raise AssertionError("the last attempt either returns or raises")

    def _forget(self, pkcs11: Any, error: Exception) -> None:
        """Make the next attempt open a new session, or initialize the library again."""
        session = _sessions.pop(self._slot, None)
        if session is not None:
            with suppress(pkcs11.PKCS11Error):
                session.close()
        path = self._slot[0]
        in_use = any(library == path for library, *_ in _sessions)
        if isinstance(error, _overlooked(pkcs11)) and not in_use:
            _stale.add(path)

    def _attempt(self, pkcs11: Any, action: str, name: str, nonce: bytes, data: bytes) -> bytes:
        """Encrypt or decrypt; the caller must hold the lock."""
        if self._slot not in _sessions:
            _sessions[self._slot] = self._open(pkcs11)
        # Not get_key: if it fails, it leaves a search open, which blocks the session.
        found = list(_sessions[self._slot].get_objects({
            pkcs11.Attribute.CLASS: pkcs11.ObjectClass.SECRET_KEY,
            pkcs11.Attribute.KEY_TYPE: pkcs11.KeyType.AES, pkcs11.Attribute.LABEL: name}))
        if not found:
            raise pkcs11.NoSuchKey
        if len(found) > 1:
            raise KeyNotFoundError(f"{self._where(name)}: several AES keys have this label")
        if not hasattr(found[0], action):  # python-pkcs11 adds only the methods the key permits
            raise KeyAccessError(f"{self._where(name)}: the key must not {action}; its attribute "
                                 f"CKA_{action.upper()} is false")
        parameters = pkcs11.GCMParams(nonce, name.encode(), 8 * TAG_SIZE)
        try:
            return getattr(found[0], action)(data, mechanism=pkcs11.Mechanism.AES_GCM,
                                             mechanism_param=parameters)
        except _wrong_tag(pkcs11) as error:
            if action == "encrypt":
                raise
            raise KeyUnwrapError(f"{self._where(name)}: the wrapped key cannot be unwrapped; it "
                                 "was changed, or wrapped with another key or under another name "
                                 f"({type(error).__name__})") from error

    def _open(self, pkcs11: Any) -> Any:
        """Open a session that is logged in."""
        path = self._slot[0]
        library = pkcs11.lib(path)
        if path in _stale:
            _stale.discard(path)
            with suppress(pkcs11.PKCS11Error):  # some libraries detect the fork themselves
                library.finalize()
            library = pkcs11.lib(path)
        serial = None if self.serial is None else self.serial.encode()
        token = library.get_token(token_label=self.token, token_serial=serial)
        try:
            return token.open(user_pin=self._read_pin())
        except pkcs11.UserAlreadyLoggedIn:  # by other code of this process
            return token.open()
        except (pkcs11.PinIncorrect, pkcs11.PinLenRange) as error:
            self._pin_refused = type(error).__name__
            raise

    @property
    def _slot(self) -> tuple[Any, ...]:
        """The key by which clients share a session; links to a library are resolved."""
        library = os.path.realpath(self.library) if os.path.exists(self.library) else self.library
        return library, self.token, self.serial

    def _read_pin(self) -> str:
        where = f"token {self.token!r}"
        if self._pin_refused:
            raise KeyAccessError(f"{where}: the PIN was refused before ({self._pin_refused}) and "
                                 "is not retried, because that might lock the token; create a new "
                                 "client")
        try:
            if self._pin is not None:
                return self._pin()
            if self._pin_env is not None:
                return os.environ[self._pin_env]
            assert self._pin_file is not None
            with open(self._pin_file, opener=without_waiting) as file:
                return file.read().removesuffix("\n")
        except KeyError:
            raise KeyAccessError(f"{where}: there is no PIN: the environment variable "
                                 f"{self._pin_env} is not set") from None
        except (OSError, UnicodeDecodeError) as error:
            raise KeyAccessError(f"{where}: the PIN cannot be read from {self._pin_file} "
                                 f"({type(error).__name__})") from None

    def _where(self, name: str) -> str:
        return f"token {self.token!r}, master key {name!r}"

    def __repr__(self) -> str:
        return f"<Pkcs11Kms library={self.library!r} token={self.token!r}>"


def _passing(pkcs11: Any) -> tuple[Any, ...]:
    """Return the errors after which a new session may help."""
    return (pkcs11.SessionHandleInvalid, pkcs11.SessionClosed, pkcs11.UserNotLoggedIn,
            pkcs11.DeviceError, pkcs11.DeviceRemoved, pkcs11.TokenNotPresent,
            pkcs11.KeyHandleInvalid, pkcs11.ObjectHandleInvalid, *_overlooked(pkcs11))


def _overlooked(pkcs11: Any) -> tuple[Any, ...]:
    """Return the errors for a token that the library missed or misread when it was initialized.

    SoftHSM does not see a token that another process is logging in to at that moment.
    """
    return pkcs11.NoSuchToken, pkcs11.GeneralError, pkcs11.UserPinNotInitialized


def _wrong_tag(pkcs11: Any) -> tuple[Any, ...]:
    """Return the errors for a wrong tag, which differ by module; SoftHSM raises GeneralError."""
    return (pkcs11.GeneralError, pkcs11.EncryptedDataInvalid, pkcs11.EncryptedDataLenRange,
            pkcs11.DataInvalid, pkcs11.SignatureInvalid, pkcs11.FunctionFailed)


def _refusal(pkcs11: Any, error: Exception, where: str) -> SecureBloomError:
    """Return the error for an error response."""
    name = type(error).__name__
    if isinstance(error, pkcs11.NoSuchKey):
        return KeyNotFoundError(f"{where}: the token has no AES key with this label")
    if isinstance(error, pkcs11.PinIncorrect | pkcs11.PinLenRange | pkcs11.PinLocked
                  | pkcs11.PinExpired | pkcs11.PinInvalid | pkcs11.UserPinNotInitialized
                  | pkcs11.UserNotLoggedIn):
        return KeyAccessError(f"{where}: the token rejected the PIN ({name})")
    if isinstance(error, pkcs11.MechanismInvalid | pkcs11.MechanismParamInvalid):
        return UnsupportedError(f"{where}: the token does not support AES-GCM (CKM_AES_GCM) with "
                                f"a nonce from the caller ({name})")
    if isinstance(error, pkcs11.NoSuchToken | pkcs11.MultipleTokensReturned):
        return KmsUnavailableError(f"{where}: the library lists no such token, or several ({name})")
    return KmsUnavailableError(f"{where}: the token or its library failed ({name}); see the cause")
