"""A loopback server that follows the HTTP API of Vault's Transit engine, with real AES-GCM.

Written from the public API documentation: ``POST /v1/<mount>/encrypt/<key>`` and ``decrypt/<key>``,
ciphertexts ``vault:v<version>:<base64 of nonce and ciphertext>``, errors as ``{"errors": [...]}``.
"""

import base64
import binascii
import json
import os
import re
from urllib.parse import quote

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.peers.loopback import Loopback

TOKEN = "hvs.SECRET-token-of-the-tests"


class Transit(Loopback):
    """Transit at ``mount`` for one valid token.

    Attributes
    ----------
    tokens : set of str
        Valid tokens.
    knows_associated_data : bool
        False: as Vault before 1.13, which ignores it with a warning.
    """

    def __init__(self, *names: str, mount: str = "transit", namespace: str | None = None, tls=None):
        super().__init__(self._transit, tls)
        self._path = re.compile(rf"/v1/{re.escape(quote(mount))}/"
                                r"(encrypt|decrypt)/(\w(?:[\w.-]*\w)?)")
        self._namespace = namespace
        self._versions = {name: [os.urandom(32)] for name in names}
        self.minimum = dict.fromkeys(names, 1)  # min_decryption_version
        self.deleted = set()
        self.tokens = {TOKEN}
        self.knows_associated_data = True

    def rotate(self, name: str) -> None:
        self._versions[name].append(os.urandom(32))

    def same_key(self, name: str, other: str) -> None:
        self._versions[other], self.minimum[other] = self._versions[name], 1

    def _transit(self, request):
        try:
            if request.headers.get("X-Vault-Token") not in self.tokens:
                raise _Refused(403, "permission denied")
            if request.headers.get("X-Vault-Namespace") != self._namespace:
                raise _Refused(404, "no handler for route")
            match = self._path.fullmatch(request.path)
            if request.method not in ("POST", "PUT") or not match:
                raise _Refused(404, "no handler for route")
            action, name = match.groups()
            warnings = None
            fields = request.json
            aad = base64.b64decode(fields.get("associated_data", ""))
            if not self.knows_associated_data:
                aad, warnings = b"", ["Endpoint ignored these unrecognized parameters: "
                                      "[associated_data]"]
            if name not in self._versions:
                if action == "encrypt":  # a policy with update but without create
                    raise _Refused(403, "1 error occurred:\n\t* permission denied\n\n")
                raise _Refused(400, "encryption key not found")
            if name in self.deleted:
                raise _Refused(400, "refusing to use soft-deleted key")
            data = getattr(self, f"_{action}")(name, fields, aad)
            return _json(200, {"request_id": "x", "data": data, "warnings": warnings})
        except _Refused as error:
            return _json(error.status, {"errors": [error.message]})

    def _encrypt(self, name, fields, aad):
        versions = self._versions[name]
        nonce = os.urandom(12)
        sealed = AESGCM(versions[-1]).encrypt(nonce, base64.b64decode(fields["plaintext"]), aad)
        text = base64.b64encode(nonce + sealed).decode()
        return {"ciphertext": f"vault:v{len(versions)}:{text}", "key_version": len(versions)}

    def _decrypt(self, name, fields, aad):
        if not fields["ciphertext"]:
            raise _Refused(400, "missing ciphertext to decrypt")
        match = re.fullmatch(r"vault:v(\d+):(.*)", fields["ciphertext"], re.DOTALL)
        if not match:
            raise _Refused(400, "invalid ciphertext: no prefix")
        version = int(match[1])
        if not 1 <= version <= len(self._versions[name]):
            raise _Refused(400, "invalid ciphertext: version is too new")
        if version < self.minimum[name]:
            raise _Refused(400, "ciphertext or signature version is disallowed by policy (too old)")
        try:
            raw = base64.b64decode(match[2], validate=True)
            plaintext = AESGCM(self._versions[name][version - 1]).decrypt(raw[:12], raw[12:], aad)
        except (binascii.Error, ValueError):
            raise _Refused(400, "invalid ciphertext: could not decode base64") from None
        except InvalidTag:
            raise _Refused(400, "cipher: message authentication failed") from None
        return {"plaintext": base64.b64encode(plaintext).decode()}


class _Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message


def _json(status, document):
    return status, {"Content-Type": "application/json"}, json.dumps(document).encode()
