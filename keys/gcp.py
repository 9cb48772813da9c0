"""A KMS client for Google Cloud KMS.

Tested against a loopback server that implements the REST API; it has not been tested with Google
Cloud itself.

A wrapped key is ``gcpkms:v1:`` and the ciphertext of Cloud KMS in base64, to which the name of the
master key is bound as additional authenticated data. The ciphertext says which version of the key
made it. Checksums (CRC-32C) in both directions detect bytes that were damaged on the way.
"""

from __future__ import annotations

import base64
import io
import re
from typing import Any

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
    needs_extra,
)
from secure_bloom.keys.kms import check_endpoint, is_plain_http
from secure_bloom.keys.remote import (
    LONGEST_RESPONSE,
    RemoteKms,
    decoded,
    no_response,
    until_available,
)

_PREFIX = "gcpkms:v1:"
_KEY_RING = re.compile(r"projects/[a-z0-9.:-]+/locations/[a-z0-9-]+/keyRings/[\w-]{1,63}", re.ASCII)
# Cloud KMS's own rule. Names come from untrusted files: a slash must not lead to another key ring.
_KEY_NAME = re.compile(r"[\w-]{1,63}", re.ASCII)


class GcpKms(RemoteKms):
    """Master keys in Google Cloud KMS, through google-cloud-kms.

    A master key is named by the id of a key in the key ring, which must be a symmetric key for
    encryption and decryption. The name is authenticated.

    Uses REST rather than gRPC, which does not work in forked processes. Only the settings are
    pickled; a client with credentials passed as an object cannot be pickled. Thread-safe, and
    usable after a fork.

    Parameters
    ----------
    key_ring : str
        ``projects/PROJECT/locations/LOCATION/keyRings/RING``.
    endpoint_url : str, optional
        An endpoint other than ``https://cloudkms.googleapis.com``; HTTPS, or HTTP on a loopback
        address.
    credentials : google.auth.credentials.Credentials, optional
        Default: Application Default Credentials.
    timeout : float
        Seconds to wait for the connection, and again for the response.
    attempts : int
        Maximum number of attempts per call, with pauses of at most 1, 2, 4, ... 10 seconds in
        between.

    Raises
    ------
    ValueError
        If the key ring, the endpoint or a limit cannot be used.
    """

    _no_pickle = ("a GcpKms with credentials given as an object cannot be pickled, because the "
                  "pickle might contain secrets: use Application Default Credentials where it is "
                  "used")

    def __init__(self, key_ring: str, *, endpoint_url: str | None = None, credentials: Any = None,
                 timeout: float = 5, attempts: int = 4):
        if not _KEY_RING.fullmatch(key_ring):
            raise ValueError("a key ring must be named by "
                             "projects/PROJECT/locations/LOCATION/keyRings/RING")
        if endpoint_url is not None:
            check_endpoint(endpoint_url)
        super().__init__(timeout, attempts)
        self.key_ring = key_ring
        self.endpoint_url = endpoint_url
        self._secret = credentials

    def _wrap(self, key: bytes, name: str) -> str:
        ciphertext = self._call("encrypt", "ciphertext", name, plaintext=key)
        return _PREFIX + base64.b64encode(ciphertext).decode("ascii")

    def _unwrap(self, wrapped: str, name: str) -> bytes:
        ciphertext = decoded(wrapped[len(_PREFIX):])
        if not wrapped.startswith(_PREFIX) or not ciphertext:
            raise KeyUnwrapError("this is not a key that was wrapped with Google Cloud KMS")
        return self._call("decrypt", "plaintext", name, ciphertext=ciphertext)

    def _call(self, action: str, result: str, name: str, **data: bytes) -> bytes:
        if not _KEY_NAME.fullmatch(name):
            raise KeyNotFoundError("this is not a valid key name; it may contain letters, digits, "
                                   "'_' and '-'")
        client = self._connection.get(self._connect)
        from google_crc32c import value as crc32c
        fields = {**data, "additional_authenticated_data": name.encode()}
        request = {"name": f"{self.key_ring}/cryptoKeys/{name}", **fields,
                   **{f"{field}_crc32c": crc32c(value) for field, value in fields.items()}}

        def attempt() -> bytes:
            answer = self._ask(getattr(client, action), request)
            value = getattr(answer, result)
            verified = action == "decrypt" or (
                answer.verified_plaintext_crc32c
                and answer.verified_additional_authenticated_data_crc32c)
            if not value or not verified or getattr(answer, f"{result}_crc32c") != crc32c(value):
                raise KmsUnavailableError("the request or the response was damaged on the way: a "
                                          "checksum is missing or wrong")
            return value

        return until_available(attempt, self.attempts)

    def _ask(self, method: Any, request: dict[str, Any]) -> Any:
        """Return the response to one request; errors do not show what either contains."""
        from google.api_core.exceptions import GoogleAPICallError
        from google.api_core.universe import UniverseMismatchError
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException, TooManyRedirects
        try:
            return method(request=request, retry=None, timeout=self.timeout)
        except GoogleAPICallError as error:
            raise _refusal(error, "ciphertext" in request) from None
        except GoogleAuthError as error:
            raise _without_credentials(error) from None
        except TooManyRedirects:
            raise KeyRetrievalError("the endpoint redirects to another address, which is not "
                                    "followed; specify the address of Cloud KMS") from None
        except RequestException as error:
            raise no_response(error) from None
        except (OSError, UniverseMismatchError) as error:
            raise _unusable(error) from None
        except Exception as error:  # the parsers of JSON and protobuf, which quote the response
            raise KmsUnavailableError("this is not a valid response of Cloud KMS "
                                      f"({type(error).__name__})") from None

    def _connect(self) -> Any:
        with needs_extra("Google Cloud KMS needs google-cloud-kms", "gcp"):
            import google_crc32c  # noqa: F401
            from google.auth.exceptions import GoogleAuthError
            from google.cloud.kms_v1 import KeyManagementServiceClient
        options = {"api_endpoint": self.endpoint_url} if self.endpoint_url else None
        try:
            client: Any = KeyManagementServiceClient(
                credentials=self._secret, transport="rest", client_options=options)
        except GoogleAuthError as error:
            raise _without_credentials(error) from None
        except Exception as error:  # for malformed files and variables, of many kinds
            raise _unusable(error) from None
        self._restrict(client.transport._session)  # there is no public way to it
        return client

    def _restrict(self, session: Any) -> None:
        """Let a session of requests send keys to the endpoint only, and read short responses."""
        session.max_redirects = 0
        if is_plain_http(self.endpoint_url or ""):
            session.trust_env = False  # a proxy that the environment names would see the keys
        session.hooks["response"].append(_read_short)

    def _where(self, name: str) -> str:
        return f"Google Cloud KMS, master key {name!r} of {self.key_ring}"

    def __repr__(self) -> str:
        return f"<GcpKms key_ring={self.key_ring!r} endpoint_url={self.endpoint_url!r}>"


def _read_short(response: Any, **_: Any) -> None:
    """Read the body of a response of requests, which would read any length."""
    body = response.raw.read(LONGEST_RESPONSE + 1, decode_content=True)
    if len(body) > LONGEST_RESPONSE:
        response.close()
        raise ValueError("the response is too long")
    response.raw = io.BytesIO(body)


def _refusal(error: Any, unwrapping: bool) -> KeyRetrievalError:
    """Return the error for an error response, whose message is inspected but never shown."""
    status, reason, message = _parts(error)
    shown = f"HTTP {status}, {reason}" if re.fullmatch("[A-Z_]{1,40}", reason) else f"HTTP {status}"
    if status in (408, 429, 499) or status >= 500 or "checksum" in message:
        return KmsUnavailableError(f"overloaded, out of quota or failing ({shown}); try again "
                                   "later")
    if status == 401:
        return KeyAccessError(f"the credentials are wrong or expired ({shown})")
    if status == 403:
        action = "useToDecrypt" if unwrapping else "useToEncrypt"
        return KeyAccessError("access is denied, or there is no such key; an IAM role must allow "
                              f"cloudkms.cryptoKeyVersions.{action} on the key ({shown})")
    if status == 404:
        return KeyNotFoundError(f"there is no such key, key ring or location ({shown})")
    if reason == "FAILED_PRECONDITION":
        return KeyAccessError("the key, or this version of it, is disabled or destroyed, or it is "
                              f"not a symmetric encryption key ({shown})")
    if status == 400 and unwrapping:
        return KeyUnwrapError("the wrapped key cannot be unwrapped; it was changed, or wrapped "
                              "with another key or under another name")
    return KeyRetrievalError(f"the request was refused ({shown})")


def _parts(error: Any) -> tuple[int, str, str]:
    """Return the HTTP status, the status of the API and the message of an error."""
    try:
        details = error.response.json()["error"]
        return error.code, str(details.get("status")), str(details.get("message"))
    except Exception:  # it is not an error of Google's API
        return int(error.code or 0), "", ""


def _without_credentials(error: Any) -> KeyRetrievalError:
    from google.auth.exceptions import TransportError
    if isinstance(error, TransportError) or error.retryable:
        return KmsUnavailableError("no response from the service that issues credentials "
                                   f"({type(error).__name__}); try again later")
    return KeyAccessError(f"Google credentials could not be obtained ({type(error).__name__}); set "
                          "up Application Default Credentials")


def _unusable(error: Exception) -> KeyRetrievalError:
    return KeyRetrievalError(f"the settings for Google Cloud are unusable ({type(error).__name__});"
                             " check the variables GOOGLE_* and REQUESTS_CA_BUNDLE, and the file "
                             "with the credentials")
