"""A KMS client for the Transit engine of HashiCorp Vault and OpenBao, over HTTP.

Tested with Vault 1.21.4, and against a loopback server that implements the HTTP API of Transit; it
has not been tested with OpenBao.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
    UnsupportedError,
    needs_extra,
)
from secure_bloom.json_text import decode_json
from secure_bloom.keys.kms import check_endpoint
from secure_bloom.keys.remote import LONGEST_RESPONSE, RemoteKms, until_available
from secure_bloom.storage.local_files import without_waiting

# Transit's own rule. Names come from untrusted files: dots and slashes must not lead from the path
# of Transit to other paths of Vault.
_KEY_NAME = re.compile(r"\w([\w.-]*\w)?", re.ASCII)
_TRANSIENT = (412, 429)  # and what begins with 5


class VaultKms(RemoteKms):
    """Master keys in the Transit engine of Vault 1.13 or newer, or of OpenBao.

    Tested with Vault 1.21.4, and against a loopback server that implements the HTTP API of Transit;
    it has not been tested with OpenBao.

    A master key is named by the name of a Transit key of type ``aes256-gcm96``, ``aes128-gcm96`` or
    ``chacha20-poly1305``. A wrapped key is Transit's ciphertext (``vault:v1:...``), to which the
    name of the master key is bound as ``associated_data``.

    Only the settings are pickled; a client with a token passed as text cannot be pickled.
    Thread-safe, and usable after a fork.

    Parameters
    ----------
    address : str, optional
        HTTPS, or HTTP on a loopback address. Default: the environment variable ``VAULT_ADDR``.
    mount : str
        Mount path of the Transit engine.
    namespace : str, optional
        Default: ``VAULT_NAMESPACE``.
    token : str or callable, optional
        The token, or a function without arguments that returns it. Default: ``VAULT_TOKEN`` or the
        content of ``~/.vault-token``. Looked up again for every call.
    ca_file : str, optional
        Certificates of the authorities to trust. Default: ``VAULT_CACERT``, or the system's.
    timeout : float
        Seconds to wait for the connection, and again for the response.
    attempts : int
        Maximum number of attempts per call, with pauses of at most 1, 2, 4, ... 10 seconds in
        between.

    Raises
    ------
    ValueError
        If the address, the mount or a limit cannot be used.
    """

    _no_pickle = ("a VaultKms with a token given as a string cannot be pickled, because the pickle "
                  "would contain the token: set VAULT_TOKEN where it is used, or pass a function "
                  "that returns the token")

    def __init__(self, address: str | None = None, *, mount: str = "transit",
                 namespace: str | None = None, token: str | Callable[[], str] | None = None,
                 ca_file: str | os.PathLike[str] | None = None, timeout: float = 5,
                 attempts: int = 4):
        address = address or os.environ.get("VAULT_ADDR")
        if not address:
            raise ValueError("the address of Vault is unknown: specify it, or set VAULT_ADDR")
        check_endpoint(address)
        super().__init__(timeout, attempts)
        steps = mount.strip("/").split("/")
        if not all(steps) or {".", ".."} & set(steps):
            raise ValueError("the mount of Transit must be a path without empty, '.' or '..' "
                             "segments")
        ca_file = ca_file or os.environ.get("VAULT_CACERT")
        self.address = address.rstrip("/")
        self.mount = "/".join(steps)
        self.namespace = namespace or os.environ.get("VAULT_NAMESPACE") or None
        self.ca_file = os.fspath(ca_file) if ca_file else None
        self._token = token
        self._secret = token if isinstance(token, str) else None

    def _wrap(self, key: bytes, name: str) -> str:
        plaintext = base64.b64encode(key).decode("ascii")
        return self._call("encrypt", "ciphertext", name, plaintext=plaintext)

    def _unwrap(self, wrapped: str, name: str) -> bytes:
        plaintext = self._call("decrypt", "plaintext", name, ciphertext=wrapped)
        try:
            return base64.b64decode(plaintext, validate=True)
        except ValueError:
            raise KmsUnavailableError("this is not a valid Transit response") from None

    def _call(self, action: str, result: str, name: str, **fields: str) -> str:
        if not _KEY_NAME.fullmatch(name):
            raise KeyNotFoundError("this is not a valid Transit key name; it may contain letters, "
                                   "digits, '_', '-' and '.'")
        fields["associated_data"] = base64.b64encode(name.encode()).decode("ascii")

        def attempt() -> str:
            status, answer = self._post(f"{quote(self.mount)}/{action}/{name}", fields)
            if status != 200:
                raise _refusal(status, str(answer.get("errors")), action)
            if "associated_data" in str(answer.get("warnings")):
                raise UnsupportedError("this Vault does not support associated_data, which binds a "
                                       "wrapped key to its master key; it needs Vault 1.13 or "
                                       "newer")
            data = answer.get("data")
            if not isinstance(data, dict) or not isinstance(data.get(result), str):
                raise KmsUnavailableError("this is not a valid Transit response")
            return data[result]

        return until_available(attempt, self.attempts)

    def _post(self, path: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send a request; return the status and JSON of the response."""
        pool = self._connection.get(self._connect)
        from urllib3.exceptions import HTTPError
        try:
            response = pool.request("POST", f"{self.address}/v1/{path}",
                                    headers=self._headers(), body=json.dumps(fields),
                                    redirect=False, preload_content=False)
            body = response.read(LONGEST_RESPONSE + 1, decode_content=True)
        except (HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise KmsUnavailableError(
                f"no response ({type(reason).__name__}); check the address, the network and the "
                "certificates, or try again later") from None  # it comes with the token
        if len(body) > LONGEST_RESPONSE:
            response.close()
            raise KmsUnavailableError("the response is too long for Transit")
        try:
            answer = decode_json(body)
        except ValueError:
            answer = None
        return response.status, answer if isinstance(answer, dict) else {}

    def _headers(self) -> dict[str, str]:
        headers = {"X-Vault-Token": self._read_token(), "X-Vault-Request": "true",
                   "Content-Type": "application/json"}
        return headers | ({"X-Vault-Namespace": self.namespace} if self.namespace else {})

    def _read_token(self) -> str:
        token = self._token() if callable(self._token) else self._token
        token = token or os.environ.get("VAULT_TOKEN")
        if not token:
            try:
                with open(Path("~/.vault-token").expanduser(), opener=without_waiting) as file:
                    token = file.read()
            except (OSError, ValueError, RuntimeError):
                raise KeyAccessError("there is no token; set VAULT_TOKEN, or log in so that "
                                     "~/.vault-token exists") from None
        token = token.strip()
        if not (token.isascii() and token.isprintable()):  # http.client's error would quote it
            raise KeyAccessError("the token contains characters that are not valid in a token")
        return token

    def _connect(self) -> Any:
        with needs_extra("Vault needs urllib3", "vault"):
            import urllib3
        return urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=self.timeout, read=self.timeout), retries=False,
            ca_certs=self.ca_file, cert_reqs="CERT_REQUIRED", maxsize=10)

    def _where(self, name: str) -> str:
        return f"Vault at {self.address}, master key {name!r} of {self.mount!r}"

    def __repr__(self) -> str:
        return (f"<VaultKms address={self.address!r} mount={self.mount!r} "
                f"namespace={self.namespace!r}>")


def _refusal(status: int, errors: str, action: str) -> KeyRetrievalError:
    """Return the error for an error response. Vault's own message is inspected but never shown."""
    if status in _TRANSIENT or status >= 500:
        return KmsUnavailableError(f"sealed, overloaded or failing (HTTP {status}); try again "
                                   "later")
    if status == 403:
        created = ("; with this policy, Vault also answers this when the key does not exist"
                   if action == "encrypt" else "")
        return KeyAccessError("access is denied; the token must be valid, and its policy must "
                              f"allow update on .../{action}/<key>{created} (HTTP 403)")
    if status == 404 or "key not found" in errors:
        return KeyNotFoundError("there is no such key, or no Transit engine is mounted there "
                                f"(HTTP {status})")
    if "disallowed by policy" in errors or "soft-deleted" in errors:
        return KeyAccessError("the key, or this version of it, is deleted or below "
                              "min_decryption_version")
    if 300 <= status < 400:
        return KeyRetrievalError(f"Vault redirects to another address (HTTP {status}), which is "
                                 "not followed; specify the address of the active node")
    if action == "decrypt" and status == 400 and "non-AEAD" not in errors:
        return KeyUnwrapError("the wrapped key cannot be unwrapped; it was changed, or wrapped "
                              "with another key or under another name")
    return KeyRetrievalError(f"the request was refused (HTTP {status}); the key must have an AEAD "
                             "type such as aes256-gcm96 and must not be derived")
