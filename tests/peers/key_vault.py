"""A loopback server that follows the REST API of Azure Key Vault, with real RSA-OAEP-256.

Written from the public API documentation: the challenge that precedes authentication,
``POST /keys/<name>/[<version>]/wrapkey`` and ``unwrapkey``, errors as ``{"error": {...}}``. Beside
it, :class:`Identity` issues tokens as the managed identity of an Azure App Service does.
"""

import base64
import functools
import json
import re
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.peers.loopback import Loopback, answer

TOKEN = "eyJ.SECRET-token-of-the-tests"
RESOURCE = "https://vault.azure.net"
_OAEP = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
_PATH = re.compile(r"/keys/([0-9A-Za-z-]+)/([0-9a-f]*)/(wrapkey|unwrapkey)\?api-version=.+")


@functools.cache
def _private_key(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


class KeyVault(Loopback):
    """A vault with RSA keys, for holders of a valid token.

    Attributes
    ----------
    tokens : set of str
        Valid tokens.
    denied : set of str
        Operations that the role of the caller lacks: ``wrapkey``, ``unwrapkey``.
    disabled, deleted : set of str
        Names of keys.
    resource : str
        For which the vault requests a token.
    """

    def __init__(self, *names: str, tls):
        super().__init__(self._vault, tls)
        self._versions = {name: [number] for number, name in enumerate(names)}
        self.tokens = {TOKEN}
        self.denied, self.disabled, self.deleted = set(), set(), set()
        self.resource = RESOURCE

    def rotate(self, name: str) -> None:
        self._versions[name].append(10 * len(self._versions[name]) + self._versions[name][0])

    def same_key(self, name: str, other: str) -> None:
        self._versions[other] = self._versions[name]

    def calls(self) -> list:
        """The requests that had a token."""
        return [request for request in self.requests if "Authorization" in request.headers]

    def _vault(self, request):
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return answer(401, _error("Unauthorized"), WWW_Authenticate=(
                'Bearer authorization="https://login.microsoftonline.com/tenant", '
                f'resource="{self.resource}"'))(request)
        match = _PATH.fullmatch(request.path)
        if not match:
            return answer(404, b"")(request)
        name, version, action = match.groups()
        if action in self.denied:
            return answer(403, _error("Forbidden", "ForbiddenByRbac"))(request)
        if name in self.deleted:
            return answer(409, _error("Conflict", "ObjectIsDeletedButRecoverable"))(request)
        versions = self._versions.get(name, [])
        number = versions[-1] if versions and not version else int(version or "0", 16)
        if number not in versions:
            return answer(404, _error("KeyNotFound"))(request)
        if name in self.disabled and action == "unwrapkey":  # a disabled key still wraps
            return answer(403, _error("Forbidden", "KeyDisabled"))(request)
        try:
            value = _operate(action, number, request.json)
        except (KeyError, ValueError):
            return answer(400, _error("BadParameter"))(request)
        return answer(200, {"kid": f"{self.url}/keys/{name}/{number:032x}",
                            "value": _text(value)})(request)


class Identity(Loopback):
    """Issues tokens for the resource that is requested, by HTTP."""

    def __init__(self):
        super().__init__(self._issue)
        self.token = TOKEN

    def _issue(self, request):
        document = {"access_token": self.token, "token_type": "Bearer", "resource": RESOURCE,
                    "expires_on": str(int(time.time()) + 3600)}
        return answer(200, document)(request)


def _operate(action: str, number: int, fields: dict) -> bytes:
    if fields["alg"] != "RSA-OAEP-256":
        raise ValueError
    value = base64.urlsafe_b64decode(fields["value"] + "==")
    key = _private_key(number)
    return key.public_key().encrypt(value, _OAEP) if action == "wrapkey" \
        else key.decrypt(value, _OAEP)


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _error(code: str, inner: str | None = None) -> bytes:
    return json.dumps({"error": {"code": code, "message": "SECRET of the vault",
                                 "innererror": inner and {"code": inner}}}).encode()
