"""A loopback server that follows the REST API of Google Cloud KMS, with real AES-GCM.

Written from the public API documentation: ``POST /v1/<key>:encrypt`` and ``:decrypt``, errors as
``{"error": {...}}``. Requests and responses are the messages of google-cloud-kms, in the JSON form
of protobuf. A caller is a service account, which signs each token itself.
"""

import json
import os
import re
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.auth import jwt
from google.cloud import kms_v1
from google_crc32c import value as crc32c

from tests.peers.loopback import Loopback, answer

KEY_RING = "projects/p/locations/europe-west3/keyRings/ring"
#: In Google's own universe, google-auth would look up in which regions the account may be used.
UNIVERSE = "kms.test"
_PATH = re.compile(rf"/v1/({KEY_RING}/cryptoKeys/([\w-]+)):(encrypt|decrypt)\?.*")


class ServiceAccount:
    """A service account, and the file with its key.

    Parameters
    ----------
    folder : path
        Where the file is written.
    """

    def __init__(self, folder: Path):
        key = rsa.generate_private_key(65537, 2048)
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                    serialization.NoEncryption()).decode()
        self._public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.secret = private.splitlines()[1]
        self.file = folder / "account.json"
        self.file.write_text(json.dumps({
            "type": "service_account", "project_id": "p", "private_key_id": "1",
            "private_key": private, "client_email": "tests@p.iam.gserviceaccount.com",
            "client_id": "1", "token_uri": "http://127.0.0.1:1/token",
            "universe_domain": UNIVERSE}))

    def has_signed(self, token: str) -> bool:
        try:
            jwt.decode(token, certs=self._public)
        except ValueError:
            return False
        return True


class CloudKms(Loopback):
    """Keys in :data:`KEY_RING` for one service account.

    Attributes
    ----------
    denied : set of str
        Operations that the roles of the account lack: ``encrypt``, ``decrypt``.
    disabled : set of str
        Names of keys whose versions are disabled.
    """

    def __init__(self, *names: str, account: ServiceAccount):
        super().__init__(self._kms)
        self._account = account
        self._versions = {name: [os.urandom(32)] for name in names}
        self.denied, self.disabled = set(), set()

    def rotate(self, name: str) -> None:
        self._versions[name].append(os.urandom(32))

    def same_key(self, name: str, other: str) -> None:
        self._versions[other] = self._versions[name]

    def _kms(self, request):
        headers = {name.lower(): value for name, value in request.headers.items()}
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if not self._account.has_signed(token):
            return refusal(401, "UNAUTHENTICATED")(request)
        match = _PATH.fullmatch(request.path)
        if not match:
            return refusal(404, "NOT_FOUND")(request)
        key, name, action = match.groups()
        if action in self.denied or name not in self._versions:  # it hides which keys exist
            return refusal(403, "PERMISSION_DENIED")(request)
        if name in self.disabled:
            return refusal(400, "FAILED_PRECONDITION", "The key version is not enabled")(request)
        try:
            response = getattr(self, f"_{action}")(key, self._versions[name], request.body)
        except ValueError as error:
            return refusal(400, "INVALID_ARGUMENT", str(error))(request)
        return answer(200, type(response).to_json(response).encode(),
                      Content_Type="application/json")(request)

    def _encrypt(self, key, versions, body):
        asked = kms_v1.EncryptRequest.from_json(body)
        _check(asked, "plaintext")
        nonce = os.urandom(12)
        sealed = bytes([len(versions)]) + nonce + AESGCM(versions[-1]).encrypt(
            nonce, asked.plaintext, asked.additional_authenticated_data)
        return kms_v1.EncryptResponse(
            name=f"{key}/cryptoKeyVersions/{len(versions)}", ciphertext=sealed,
            ciphertext_crc32c=crc32c(sealed),
            verified_plaintext_crc32c=asked.plaintext_crc32c is not None,
            verified_additional_authenticated_data_crc32c=(
                asked.additional_authenticated_data_crc32c is not None))

    def _decrypt(self, key, versions, body):
        asked = kms_v1.DecryptRequest.from_json(body)
        _check(asked, "ciphertext")
        sealed = asked.ciphertext
        try:
            plaintext = AESGCM(versions[sealed[0] - 1]).decrypt(
                sealed[1:13], sealed[13:], asked.additional_authenticated_data)
        except (IndexError, InvalidTag, ValueError):
            raise ValueError("Decryption failed: the ciphertext is invalid.") from None
        return kms_v1.DecryptResponse(plaintext=plaintext, plaintext_crc32c=crc32c(plaintext),
                                      used_primary=sealed[0] == len(versions))


def refusal(status: int, reason: str, message: str = "SECRET of the service"):
    """An error as Google words it."""
    return answer(status, {"error": {"code": status, "status": reason, "message": message}},
                  Content_Type="application/json")


def _check(request, field: str) -> None:
    for name in (field, "additional_authenticated_data"):
        told = getattr(request, f"{name}_crc32c")
        if told is not None and told != crc32c(getattr(request, name)):
            raise ValueError(f"The checksum in field {name}_crc32c did not match the data in field "
                             f"{name}.")
