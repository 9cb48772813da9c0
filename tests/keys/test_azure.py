"""Azure Key Vault: against a loopback server that follows its REST API, not Azure itself.

Tokens come from a managed identity, through azure-identity, as in an Azure App Service.
"""

import base64
import logging
import pickle
from functools import partial

import pytest

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
    MissingExtraError,
)
from secure_bloom.keys import AzureKms
from tests.keys.checks import (
    KEY,
    compressed,
    padded,
    refused,
    without_secrets,
)
from tests.keys.remote import *  # noqa: F403
from tests.keys.remote import (  # noqa: F401
    Service,
    test_keys_of_older_versions_open,
    test_no_other_name_opens_it,
)
from tests.peers.certificates import self_signed
from tests.peers.key_vault import RESOURCE, TOKEN, Identity, KeyVault
from tests.peers.loopback import answer, hang_up

URL = "https://bloom.vault.azure.net"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def identity():
    with Identity() as server:
        yield server


@pytest.fixture(autouse=True)
def environment(monkeypatch, identity, certificate):
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "HTTPS_PROXY",
                 "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    monkeypatch.setenv("IDENTITY_ENDPOINT", identity.url + "/token")
    monkeypatch.setenv("IDENTITY_HEADER", "SECRET header")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))


@pytest.fixture
def vault(certificate):
    with KeyVault("footer", "column", "a-B1", tls=certificate) as server:
        yield server


def client(server, **options) -> AzureKms:
    return AzureKms(server.url, **{"timeout": 60, "attempts": 3, **options})


class Credential:
    """A credential as azure-identity has them."""

    def __init__(self, error=None):
        self.requested = []
        self._error = error

    def get_token(self, *scopes, **options):
        from azure.core.credentials import AccessToken
        self.requested.append(scopes)
        if self._error:
            raise self._error
        return AccessToken(TOKEN, 2**40)


@pytest.fixture
def service(vault) -> Service:
    return Service(
        vault, partial(client, vault), ("footer", "a-B1"), "azurekeyvault:v1:0:AAAA:AAAA",
        dict.fromkeys(["azure.identity", "azure.keyvault.keys"], "azure-keyvault-keys"),
        [*((f"HTTP {status}", failing(status)) for status in (408, 429, 500, 501, 502, 503, 504)),
         ("HTTP 429", failing(429, Retry_After="3600")), ("", hang_up)], [TOKEN],
        foreign=["", "AAAA", "azurekeyvault:v1:", "azurekeyvault:v1:0/../x:AAAA:AAAA",
                 "gcpkms:v1:AAAA", "azurekeyvault:v1:0:A:AAAA", "azurekeyvault:v2:0:AAAA:AAAA",
                 "azurekeyvault:v1::AAAA:AAAA", "azurekeyvault:v1:0:AAAA:AAAA\n", b"\xff"],
        impossible=["", ".", "..", "a/b", "../secrets", "a_b", "a b", "a?b", "ä", "a\n", "k" * 128,
                    "https://x.vault.azure.net/keys/k"],
        too_long=[padded(vault), compressed(padded(vault))], odd=compressed(vault._respond))


# --- what it is for ------------------------------------------------------------------------------

def test_what_a_call_sends(vault, identity):
    kms = client(vault)
    version, wrapped, _ = kms.wrap_key(KEY, "footer").split(":")[2:]
    kms.unwrap_key(kms.wrap_key(KEY, "footer"), "footer")
    wrap, _, unwrap = vault.calls()
    assert wrap.path.partition("?")[0] == "/keys/footer//wrapkey"
    assert unwrap.path.partition("?")[0] == f"/keys/footer/{version}/unwrapkey"
    for call in (wrap, unwrap):
        assert call.headers["Authorization"] == f"Bearer {TOKEN}"
        assert call.json["alg"] == "RSA-OAEP-256"
    assert len(base64.urlsafe_b64decode(wrap.json["value"] + "==")) == 32  # not the key itself
    assert len(base64.b64decode(wrapped)) == 256
    assert [request.body for request in vault.requests if request not in vault.calls()] == [b""]
    assert [RESOURCE in request.path.replace("%3A", ":").replace("%2F", "/")
            for request in identity.requests] == [True]


def test_a_call_is_what_the_client_of_azure_sends(vault):
    """Microsoft's own, which the service accepts, and which also reads the stand-in's responses."""
    from azure.keyvault.keys.crypto import CryptographyClient, KeyWrapAlgorithm
    kms = client(vault, credential=Credential())
    version = kms.wrap_key(KEY, "footer").split(":")[2]
    kms.unwrap_key(kms.wrap_key(KEY, "footer"), "footer")
    ours = vault.calls()[1:]

    def theirs(path):
        return CryptographyClient(f"{vault.url}/keys/{path}", Credential(),
                                  verify_challenge_resource=False)

    vault.requests.clear()
    between = base64.urlsafe_b64decode(ours[0].json["value"] + "==")
    theirs("footer").wrap_key(KeyWrapAlgorithm.rsa_oaep_256, between)
    wrapped = base64.urlsafe_b64decode(ours[1].json["value"] + "==")
    assert theirs(f"footer/{version}").unwrap_key(KeyWrapAlgorithm.rsa_oaep_256,
                                                  wrapped).key == between
    sent = [call for call in vault.calls() if call.body]  # before, they ask for the public key
    for one, other in zip(ours, sent, strict=True):
        assert (one.path, one.json) == (other.path, other.json)
        for name in ("Authorization", "Content-Type"):
            assert one.headers[name] == other.headers[name]


def test_every_part_is_authenticated(vault):
    kms = client(vault)
    vault.rotate("footer")
    one, other = (kms.wrap_key(KEY, "footer").split(":") for _ in range(2))
    vault.rotate("footer")
    newer = kms.wrap_key(KEY, "footer").split(":")
    for changed in ([*one[:2], newer[2], *one[3:]], [*one[:3], other[3], one[4]],
                    [*one[:4], other[4]], [*one[:3], "AAAA", one[4]], [*one[:4], "AAAA"],
                    [*one[:4], one[4][:-8]]):
        text = ":".join(changed)
        refused(KeyUnwrapError, lambda text=text: kms.unwrap_key(text, "footer"), "changed")


# --- refusals, faults ----------------------------------------------------------------------------

def failing(status: int, **headers):
    return answer(status, {"error": {"code": "Code", "message": "SECRET"}}, **headers)


def after_login(vault) -> AzureKms:
    """A client whose next call is a single request."""
    kms = client(vault)
    kms.wrap_key(KEY, "footer")
    vault.requests.clear()
    return kms


@pytest.mark.parametrize(("status", "kind", "word"), [
    (400, KeyUnwrapError, "changed"), (401, KeyAccessError, "credentials"),
    (403, KeyAccessError, "keys/unwrap/action"), (404, KeyNotFoundError, "no such version"),
    (409, KeyAccessError, "deleted"), (405, KeyRetrievalError, "405"),
    (204, KeyRetrievalError, "204"), (307, KeyRetrievalError, "307")])
def test_refusals_are_not_repeated(vault, pauses, status, kind, word):
    kms = after_login(vault)
    vault.always = failing(status, Location="https://127.0.0.1:1/elsewhere", Retry_After="3600")
    refused(kind, lambda: kms.unwrap_key("azurekeyvault:v1:0:AAAA:AAAA", "footer"), word,
            "'footer'", vault.url, secrets=[TOKEN])
    assert len(vault.requests) == 1
    assert pauses == []


def test_a_key_that_cannot_wrap(vault):
    kms = after_login(vault)
    vault.always = failing(400)
    refused(KeyRetrievalError, lambda: kms.wrap_key(KEY, "footer"), "RSA key")


def test_access_revoked_midway(vault):
    kms = client(vault)
    wrapped = kms.wrap_key(KEY, "footer")
    vault.denied = {"unwrapkey"}
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "footer"), "keys/unwrap/action")
    vault.denied = {"wrapkey"}
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "footer"), "keys/wrap/action")
    assert kms.unwrap_key(wrapped, "footer") == KEY
    vault.disabled.add("footer")
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "footer"), "enabled")
    vault.deleted.add("footer")
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "footer"), "deleted")
    vault.denied.clear()
    refused(KeyNotFoundError, lambda: kms.wrap_key(KEY, "none"), "'none'", "no such key")


@pytest.mark.parametrize("size", [1, 16, 32])
def test_a_vault_that_unwraps_another_key(vault, size):
    kms = client(vault)
    wrapped = kms.wrap_key(KEY, "footer")
    value = base64.urlsafe_b64encode(b"x" * size).decode().rstrip("=")
    vault.always = answer(200, {"kid": vault.url + "/keys/footer/0", "value": value})
    refused(KeyUnwrapError, lambda: kms.unwrap_key(wrapped, "footer"))


# --- credentials, TLS ----------------------------------------------------------------------------

def test_without_credentials(vault, identity, pauses):
    identity.always = answer(400, {"message": "SECRET"})
    refused(KeyAccessError, lambda: client(vault).wrap_key(KEY, "footer"), "DefaultAzureCredential")
    assert vault.calls() == []


@pytest.mark.parametrize(("name", "error"), [("AZURE_TOKEN_CREDENTIALS", "ValueError"),
                                             ("REQUESTS_CA_BUNDLE", "OSError")])
def test_settings_of_the_environment_that_are_unusable(vault, pauses, monkeypatch, name, error):
    monkeypatch.setenv(name, "/none")
    refused(KeyRetrievalError, lambda: client(vault).wrap_key(KEY, "footer"), "settings", error,
            name.partition("_")[0])
    assert pauses == []


def test_expired_and_renewed_credentials(vault):
    kms = client(vault)
    kms.wrap_key(KEY, "footer")
    vault.tokens = {"other"}
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "footer"), "expired", secrets=[TOKEN])
    vault.tokens = {TOKEN}
    assert kms.wrap_key(KEY, "footer")


def test_a_credential_given_as_an_object(vault, identity):
    credential = Credential()
    kms = client(vault, credential=credential)
    assert kms.unwrap_key(kms.wrap_key(KEY, "footer"), "footer") == KEY
    assert credential.requested == [(RESOURCE + "/.default",)]
    assert identity.requests == []
    refused(TypeError, lambda: pickle.dumps(kms), "DefaultAzureCredential", secrets=[TOKEN])


def test_a_vault_that_requests_a_token_for_something_else(vault, monkeypatch):
    """Its name is not one of the domain for which it requests the token."""
    from secure_bloom.keys import azure
    monkeypatch.setattr(azure, "is_loopback", lambda host: False)
    credential = Credential()
    refused(KeyRetrievalError, lambda: client(vault, credential=credential).wrap_key(KEY, "footer"),
            "not an Azure Key Vault")
    assert credential.requested == []


def test_a_certificate_that_is_not_trusted(vault, pauses, monkeypatch):
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    refused(KmsUnavailableError, lambda: client(vault).wrap_key(KEY, "footer"))
    assert vault.requests == []


@pytest.mark.parametrize("url", ["", "bloom", "http://127.0.0.1", "http://bloom.vault.azure.net",
                                 URL + "/keys/footer", URL + "?a=SECRET",
                                 "https://u:SECRET@bloom.vault.azure.net"])
def test_addresses_that_are_refused(url):
    refused(ValueError, lambda: AzureKms(url))


def test_a_version_that_mixes_up_threads(vault, monkeypatch):
    monkeypatch.setattr("azure.keyvault.keys.__version__", "4.11.2")
    refused(MissingExtraError, lambda: client(vault).wrap_key(KEY, "footer"), "4.11.2",
            "pip install 'azure-keyvault-keys>=4.11.3'")
    assert vault.requests == []
    monkeypatch.setattr("azure.keyvault.keys.__version__", "4.12.0b1")
    assert client(vault).wrap_key(KEY, "footer")


# --- processes, threads, secrets -----------------------------------------------------------------

def test_no_secret_is_logged(vault, pauses, caplog):
    caplog.set_level(logging.DEBUG)
    kms = client(vault)
    vault.faults = [hang_up]
    wrapped = kms.wrap_key(KEY, "footer")
    assert kms.unwrap_key(wrapped, "footer") == KEY
    refused(KeyUnwrapError, lambda: kms.unwrap_key("azurekeyvault:v1:0:AAAA:AAAA", "footer"))
    assert "/keys/footer/" in caplog.text
    without_secrets(caplog.text, TOKEN, *(
        call.json["value"] for call in vault.calls() if call.path.startswith("/keys/footer/wrap")))


def test_what_shows(vault):
    kms = client(vault, credential=Credential())
    assert repr(kms) == f"<AzureKms vault_url={vault.url!r}>"
