"""A KMS client for Azure Key Vault and Managed HSM.

Tested against a loopback server that implements the REST API; it has not been tested with Azure
itself.

The keys of a vault are RSA keys, which cannot bind the name of a master key to what they wrap. So
the vault wraps a new random key (32 bytes, RSA-OAEP-256), and that key wraps the given one with
AES-GCM. A wrapped key is

    azurekeyvault:v1:VERSION:WRAPPED:SEALED

    VERSION   the version of the vault's key, which is needed to unwrap
    WRAPPED   base64 of what the vault returned
    SEALED    base64 of nonce (12 bytes), ciphertext and tag (16 bytes), with the master key's name
              in UTF-8 as additional authenticated data
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
    MissingExtraError,
    installation,
    needs_extra,
)
from secure_bloom.keys.kms import check_endpoint, is_loopback, unwrap_locally, wrap_locally
from secure_bloom.keys.remote import (
    LONGEST_RESPONSE,
    RemoteKms,
    decoded,
    no_response,
    until_available,
)

_ALGORITHM = "RSA-OAEP-256"
# Before, the first requests of several threads could be sent with the body of one of them.
_OLDEST = (4, 11, 3)
_WRAPPED = re.compile(r"azurekeyvault:v1:([0-9A-Za-z]{1,64}):([\w+/]+=*):([\w+/]+=*)", re.ASCII)
_VERSION = re.compile(r"/keys/([^/]+)/([0-9A-Za-z]{1,64})", re.ASCII)
# The vault's own rule. Names come from untrusted files: a slash must not lead to other paths.
_KEY_NAME = re.compile(r"[0-9A-Za-z-]{1,127}", re.ASCII)


class AzureKms(RemoteKms):
    """Master keys in Azure Key Vault or Managed HSM, through azure-keyvault-keys.

    A master key is named by the name of an RSA key in the vault. The newest version of the key
    wraps; the wrapped key names the version that unwraps it. The name is authenticated.

    Only the settings are pickled; a client with a credential passed as an object cannot be pickled.
    Thread-safe, and usable after a fork.

    Parameters
    ----------
    vault_url : str
        ``https://NAME.vault.azure.net``, or the URL of a Managed HSM.
    credential : azure.core.credentials.TokenCredential, optional
        Default: ``azure.identity.DefaultAzureCredential()``.
    timeout : float
        Seconds to wait for the connection, and again for the response.
    attempts : int
        Maximum number of attempts per call, with pauses of at most 1, 2, 4, ... 10 seconds in
        between.

    Raises
    ------
    ValueError
        If the address or a limit cannot be used.
    """

    _no_pickle = ("an AzureKms with a credential given as an object cannot be pickled, because the "
                  "pickle might contain secrets: let DefaultAzureCredential find one where it is "
                  "used")

    def __init__(self, vault_url: str, *, credential: Any = None, timeout: float = 5,
                 attempts: int = 4):
        check_endpoint(vault_url)
        parts = urlsplit(vault_url)
        if parts.scheme != "https" or parts.path not in ("", "/"):
            raise ValueError("the address of a vault must be https://NAME.vault.azure.net")
        super().__init__(timeout, attempts)
        self.vault_url = vault_url.rstrip("/")
        self._secret = credential

    def _wrap(self, key: bytes, name: str) -> str:
        between = os.urandom(32)
        wrapped, version = self._call("wrapkey", name, "", between)
        sealed = wrap_locally(between, key, name.encode())
        return f"azurekeyvault:v1:{version}:{base64.b64encode(wrapped).decode('ascii')}:{sealed}"

    def _unwrap(self, wrapped: str, name: str) -> bytes:
        parts = _WRAPPED.fullmatch(wrapped)
        raw = decoded(parts[2]) if parts else b""
        if parts is None or not raw:
            raise KeyUnwrapError("this is not a key that was wrapped with Azure Key Vault")
        between, _ = self._call("unwrapkey", name, parts[1], raw)
        try:
            return unwrap_locally(between, parts[3], name.encode())
        except KeyUnwrapError:
            del between  # programs that report errors show variables
            raise KeyUnwrapError("the wrapped key cannot be unwrapped; it was changed, or wrapped "
                                 "under another name") from None

    def _call(self, action: str, name: str, version: str, value: bytes) -> tuple[bytes, str]:
        """Have the vault wrap or unwrap; return the result, and the key's version."""
        if not _KEY_NAME.fullmatch(name):
            raise KeyNotFoundError("this is not a valid key name; it may contain letters, digits "
                                   "and '-'")
        client = self._connection.get(self._connect)
        from azure.core.rest import HttpRequest
        path = f"/keys/{name}/{version}/{action}"  # with "//", as Microsoft's own client
        body = {"alg": _ALGORITHM, "value": base64.urlsafe_b64encode(value).decode().rstrip("=")}

        # Not CryptographyClient: it wraps with a public key that it has cached, so that neither
        # a revoked permission nor a new version of the key is noticed, and nothing is logged.
        def attempt() -> tuple[bytes, str]:
            status, answer = _ask(lambda: _sent(client, HttpRequest("POST", path, json=body)))
            if status != 200:
                raise _refusal(status, action)
            return _result(answer, name)

        return until_available(attempt, self.attempts)

    def _connect(self) -> Any:
        with needs_extra("Azure Key Vault needs azure-keyvault-keys and azure-identity", "azure"):
            from azure.identity import DefaultAzureCredential
            from azure.keyvault.keys import KeyClient, __version__
        if tuple(map(int, re.findall("[0-9]+", __version__)[:3])) < _OLDEST:
            raise MissingExtraError(
                f"Azure Key Vault needs another azure-keyvault-keys than {__version__}, which may "
                f"mix up the keys of threads: {installation('azure')}")
        try:
            credential = self._secret or DefaultAzureCredential()
        except ValueError as error:
            raise _unusable(error) from None
        # A vault may request tokens only for its own domain, which a loopback address is not.
        return KeyClient(
            self.vault_url, credential, connection_timeout=self.timeout,
            read_timeout=self.timeout, retry_total=0, permit_redirects=False,
            verify_challenge_resource=not is_loopback(urlsplit(self.vault_url).hostname or ""))

    def _where(self, name: str) -> str:
        return f"Azure Key Vault {self.vault_url}, master key {name!r}"

    def __repr__(self) -> str:
        return f"<AzureKms vault_url={self.vault_url!r}>"


def _ask(call: Callable[[], tuple[int, bytes]]) -> tuple[int, bytes]:
    """Return the response to one request; errors do not show what either contains."""
    from azure.core.exceptions import (
        ClientAuthenticationError,
        ServiceRequestError,
        ServiceResponseError,
    )
    try:
        return call()
    except ClientAuthenticationError as error:
        raise KeyAccessError(f"Azure credentials could not be obtained ({type(error).__name__}); "
                             "see DefaultAzureCredential of azure-identity for where they are "
                             "searched") from None
    except (ServiceRequestError, ServiceResponseError) as error:
        raise no_response(error, "address") from None
    except OSError as error:
        raise _unusable(error) from None
    except ValueError as error:  # the vault requests a token for somewhere else
        raise KeyRetrievalError(
            f"this is not an Azure Key Vault ({type(error).__name__})") from None
    except Exception as error:  # decoders, which may quote the response
        raise _no_answer(error) from None


def _sent(client: Any, request: Any) -> tuple[int, bytes]:
    """Send a request; return the status of the response, and its body if it is a result."""
    response = client.send_request(request, stream=True)
    body = b""
    try:
        if response.status_code == 200:
            for part in response.iter_bytes():
                body += part
                if len(body) > LONGEST_RESPONSE:
                    raise OverflowError("the response is too long")
    finally:
        response.close()
    return response.status_code, body


def _result(body: bytes, name: str) -> tuple[bytes, str]:
    """Return what the vault wrapped or unwrapped, and with which version of the key."""
    try:
        answer = json.loads(body)
        value = str(answer["value"])
        key = _VERSION.fullmatch(urlsplit(str(answer["kid"])).path)
        raw = base64.b64decode(value + "=" * (-len(value) % 4), b"-_", validate=True)
    except Exception as error:  # those of JSON and of base64 quote the response
        raise _no_answer(error) from None
    if key is None or key[1].lower() != name.lower() or not raw:
        raise _no_answer()
    return raw, key[2]


def _no_answer(error: Exception | None = None) -> KmsUnavailableError:
    kind = f" ({type(error).__name__})" if error else ""
    return KmsUnavailableError(f"this is not a valid response of Azure Key Vault{kind}")


def _unusable(error: Exception) -> KeyRetrievalError:
    return KeyRetrievalError(f"the settings for Azure are unusable ({type(error).__name__}); check "
                             "the variables AZURE_* and REQUESTS_CA_BUNDLE")


def _refusal(status: int, action: str) -> KeyRetrievalError:
    """Return the error for an error response. The vault's own message is never read."""
    shown = f"HTTP {status}"
    if status in (408, 429) or status >= 500:
        return KmsUnavailableError(f"overloaded or failing ({shown}); try again later")
    if status == 401:
        return KeyAccessError("the credentials are wrong or expired, or belong to another tenant "
                              f"({shown})")
    if status == 403:
        verb = action.removesuffix("key")
        return KeyAccessError(
            f"access is denied; a role must allow Microsoft.KeyVault/vaults/keys/{verb}/action, "
            f"the key must be enabled and valid now, its operations must include {verb}Key and the "
            f"firewall of the vault must let this machine pass ({shown})")
    if status == 404:
        return KeyNotFoundError(f"there is no such key, or no such version of it ({shown})")
    if status == 409:
        return KeyAccessError(f"the key is deleted or being recovered ({shown})")
    if status == 400 and action == "unwrapkey":
        return KeyUnwrapError("the wrapped key cannot be unwrapped; it was changed, or wrapped "
                              "with another key")
    return KeyRetrievalError(f"the request was refused ({shown}); the key must be an RSA key, and "
                             "the address that of the vault")
