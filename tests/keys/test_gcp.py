"""Google Cloud KMS: against a loopback server that follows its REST API, not Google Cloud itself.

Tokens are signed with the key of a service account, by google-auth, and verified by the server.
"""

import base64
import json
import logging
import pickle
import time
from functools import partial

import pytest
from google.api_core.universe import UniverseMismatchError
from google.cloud.kms_v1 import KeyManagementServiceClient
from google.oauth2.credentials import Credentials

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
)
from secure_bloom.keys import GcpKms
from tests.keys.checks import (
    KEY,
    compressed,
    no_proxy_sees_keys,
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
from tests.peers.cloud_kms import KEY_RING, UNIVERSE, CloudKms, ServiceAccount, refusal
from tests.peers.loopback import Loopback, answer, hang_up


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    return ServiceAccount(tmp_path_factory.mktemp("account"))


@pytest.fixture(autouse=True)
def environment(monkeypatch, account):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account.file))
    monkeypatch.setenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", UNIVERSE)
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_API_USE_MTLS_ENDPOINT", "HTTP_PROXY",
                 "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cloud(account):
    with CloudKms("footer", "column", "a_b-C1", account=account) as server:
        yield server


def client(server, **options) -> GcpKms:
    return GcpKms(KEY_RING, endpoint_url=server.url, **{"timeout": 60, "attempts": 3, **options})


@pytest.fixture
def service(cloud, account) -> Service:
    return Service(
        cloud, partial(client, cloud), ("footer", "a_b-C1"), "gcpkms:v1:AAAA",
        dict.fromkeys(["google.cloud.kms_v1", "google_crc32c"], "google-cloud-kms"),
        [*(("", refusal(status, reason)) for status, reason in [
            (429, "RESOURCE_EXHAUSTED"), (500, "INTERNAL"), (503, "UNAVAILABLE"),
            (504, "DEADLINE_EXCEEDED")]), ("", hang_up),
         ("", answer(503, b"<html>SECRET</html>", Retry_After="3600")),
         ("", refusal(400, "INVALID_ARGUMENT",
                      "The checksum in field x did not match the data"))],
        [account.secret],
        foreign=["", "gcpkms:v1:", "gcpkms:v1:no base64!", "AAAA", "gcpkms:v2:AAAA",
                 "vault:v1:AAAA", b"\xff"],
        impossible=["", ".", "..", "a/b", "../x", "a:decrypt", "a b", "ä", "a\n", "k" * 64,
                    "projects/p/locations/l/keyRings/r/cryptoKeys/k"],
        too_long=[padded(cloud), compressed(padded(cloud)),
                  refusal(403, "PERMISSION_DENIED", "SECRET" * 2**18)],
        odd=compressed(cloud._respond))


# --- what it is for ------------------------------------------------------------------------------

def test_what_a_call_sends(cloud):
    kms = client(cloud)
    wrapped = kms.wrap_key(KEY, "footer")
    kms.unwrap_key(wrapped, "footer")
    aad = base64.b64encode(b"footer").decode()
    sent = [(request.method, request.path.partition("?")[0], sorted(request.json))
            for request in cloud.requests]
    aads = ["additionalAuthenticatedData", "additionalAuthenticatedDataCrc32c"]
    assert sent == [
        ("POST", f"/v1/{KEY_RING}/cryptoKeys/footer:encrypt",
         [*aads, "plaintext", "plaintextCrc32c"]),
        ("POST", f"/v1/{KEY_RING}/cryptoKeys/footer:decrypt",
         [*aads, "ciphertext", "ciphertextCrc32c"])]
    assert cloud.requests[0].json["plaintext"] == base64.b64encode(KEY).decode()
    assert cloud.requests[1].json["ciphertext"] == wrapped.removeprefix("gcpkms:v1:")
    assert {request.json["additionalAuthenticatedData"] for request in cloud.requests} == {aad}


def test_requests_and_responses_have_the_shape_that_google_publishes(cloud):
    """Fields that the published messages do not have, or values of another type, are errors."""
    from google.cloud import kms_v1
    kms = client(cloud)
    kms.unwrap_key(kms.wrap_key(KEY, "footer"), "footer")
    for request, name in zip(cloud.requests, ("Encrypt", "Decrypt"), strict=True):
        sent = getattr(kms_v1, f"{name}Request").from_json(request.body)
        assert sent.additional_authenticated_data == b"footer"
        answer = cloud._respond(request)[2]
        assert getattr(kms_v1, f"{name}Response").from_json(answer)


def test_changed_ciphertext(cloud):
    kms = client(cloud)
    raw = bytearray(base64.b64decode(kms.wrap_key(KEY, "footer").removeprefix("gcpkms:v1:")))
    raw[-1] ^= 1
    for bad in (raw, raw[:20], b"\xff"):
        text = "gcpkms:v1:" + base64.b64encode(bad).decode()
        refused(KeyUnwrapError, lambda text=text: kms.unwrap_key(text, "footer"), "changed")


# --- refusals, damage, faults --------------------------------------------------------------------

@pytest.mark.parametrize(("status", "reason", "kind", "word"), [
    (400, "INVALID_ARGUMENT", KeyUnwrapError, "changed"),
    (400, "FAILED_PRECONDITION", KeyAccessError, "disabled or destroyed"),
    (401, "UNAUTHENTICATED", KeyAccessError, "credentials"),
    (403, "PERMISSION_DENIED", KeyAccessError, "cloudkms.cryptoKeyVersions.useToDecrypt"),
    (404, "NOT_FOUND", KeyNotFoundError, "no such key"),
    (409, "ABORTED", KeyRetrievalError, "ABORTED"),
    (418, "SECRET of a proxy", KeyRetrievalError, "HTTP 418")])
def test_refusals_are_not_repeated(cloud, pauses, status, reason, kind, word):
    cloud.always = refusal(status, reason)
    refused(kind, lambda: client(cloud).unwrap_key("gcpkms:v1:AAAA", "footer"), word, "'footer'")
    assert pauses == []


def test_a_key_that_cannot_wrap(cloud):
    cloud.always = refusal(400, "INVALID_ARGUMENT")
    refused(KeyRetrievalError, lambda: client(cloud).wrap_key(KEY, "footer"), "INVALID_ARGUMENT")


def test_access_revoked_midway(cloud):
    kms = client(cloud)
    wrapped = kms.wrap_key(KEY, "footer")
    cloud.denied = {"decrypt"}
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "footer"), "useToDecrypt")
    assert kms.wrap_key(KEY, "footer")
    cloud.denied = {"encrypt"}
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "footer"), "useToEncrypt")
    assert kms.unwrap_key(wrapped, "footer") == KEY
    cloud.disabled.add("footer")
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "footer"), "disabled")
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "none"), "no such key")


def test_pauses_become_longer(cloud, pauses):
    cloud.always = hang_up
    refused(KmsUnavailableError, lambda: client(cloud, attempts=7).wrap_key(KEY, "footer"))
    assert all(most / 2 <= pause <= most
               for pause, most in zip(pauses, (1, 2, 4, 8, 10, 10), strict=True))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(cloud, pauses, status):
    with Loopback(lambda request: None) as other:
        cloud.always = answer(status, b"", Location=other.url)
        refused(KeyRetrievalError, lambda: client(cloud).wrap_key(KEY, "footer"), "redirects")
    assert other.requests == []
    assert pauses == []


def test_a_proxy_does_not_see_keys(cloud, monkeypatch):
    no_proxy_sees_keys(lambda: client(cloud), "footer", monkeypatch)


@pytest.mark.parametrize("field", ["ciphertextCrc32c", "verifiedPlaintextCrc32c",
                                   "verifiedAdditionalAuthenticatedDataCrc32c", "ciphertext"])
@pytest.mark.parametrize("change", ["missing", "other"])
def test_a_response_that_was_damaged_is_requested_again(cloud, pauses, field, change):
    """The same holds for a service that did not see our checksums."""
    def damaged(request):
        status, headers, body = cloud._respond(request)
        document = json.loads(body)
        value = document.pop(field)
        if change == "other":
            document[field] = {"ciphertext": base64.b64encode(b"another").decode(),
                               "ciphertextCrc32c": "7"}.get(field, not value)
        return status, headers, json.dumps(document).encode()

    cloud.faults = [damaged]
    kms = client(cloud)
    assert kms.unwrap_key(kms.wrap_key(KEY, "footer"), "footer") == KEY
    assert len(pauses) == 1
    cloud.always = damaged
    refused(KmsUnavailableError, lambda: kms.wrap_key(KEY, "footer"), "checksum")


@pytest.mark.parametrize("document", [
    {"plaintext": base64.b64encode(KEY).decode()},
    {"plaintext": base64.b64encode(KEY).decode(), "plaintextCrc32c": "7"},
    {"plaintext": "", "plaintextCrc32c": "0"}])
def test_a_plaintext_that_was_damaged_is_not_used(cloud, pauses, document):
    kms = client(cloud)
    wrapped = kms.wrap_key(KEY, "footer")
    cloud.always = answer(200, document)
    refused(KmsUnavailableError, lambda: kms.unwrap_key(wrapped, "footer"), "checksum")


# --- credentials, configuration ------------------------------------------------------------------

def test_without_credentials(cloud, monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none"))
    refused(KeyAccessError, lambda: client(cloud).wrap_key(KEY, "footer"),
            "Application Default Credentials")


@pytest.mark.parametrize(("name", "value", "error"), [
    ("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "", "EmptyUniverseError"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "list.json", "AttributeError"),
    ("REQUESTS_CA_BUNDLE", "none.pem", "OSError")])
def test_settings_of_the_environment_that_are_unusable(pauses, monkeypatch, tmp_path, name, value,
                                                       error):
    (tmp_path / "list.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    refused(KeyRetrievalError, lambda: GcpKms(KEY_RING, endpoint_url="https://127.0.0.1:1").wrap_key(
        KEY, "footer"), "settings", error, name if name.startswith("REQ") else "GOOGLE_")
    assert pauses == []


def test_credentials_of_another_universe(cloud, pauses, monkeypatch):
    """Some versions of the library check this themselves, before each call."""
    def check(self):
        raise UniverseMismatchError("googleapis.com", UNIVERSE)

    monkeypatch.setattr(KeyManagementServiceClient, "_validate_universe_domain", check)
    refused(KeyRetrievalError, lambda: client(cloud).wrap_key(KEY, "footer"), "settings",
            "UniverseMismatchError")
    assert pauses == []


def test_another_account(cloud, monkeypatch, tmp_path):
    other = ServiceAccount(tmp_path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(other.file))
    refused(KeyAccessError, lambda: client(cloud).wrap_key(KEY, "footer"), "credentials",
            secrets=[other.secret])


@pytest.mark.parametrize(("response", "kind"), [
    (answer(400, {"error": "invalid_grant", "error_description": "SECRET"}), KeyAccessError),
    (answer(503, {"error": "unavailable"}), KmsUnavailableError), (hang_up, KmsUnavailableError)])
def test_credentials_that_cannot_be_renewed(cloud, pauses, monkeypatch, response, kind):
    monkeypatch.setattr(time, "sleep", pauses.append)  # google-auth repeats it too
    monkeypatch.delenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN")
    with Loopback(lambda request: (404, {}, b"")) as issuer:
        issuer.always = response
        credentials = Credentials(None, refresh_token="SECRET refresh", client_id="c",
                                  client_secret="SECRET client", token_uri=issuer.url)
        refused(kind, lambda: client(cloud, credentials=credentials).wrap_key(KEY, "footer"))
    assert cloud.requests == []


@pytest.mark.parametrize("key_ring", [
    "", "ring", "projects/p/locations/l/keyRings/", "projects/p/locations/l/keyRings/r/",
    "projects/p/locations/l/keyRings/r/cryptoKeys/k", "projects/../locations/l/keyRings/r?x",
    "/projects/p/locations/l/keyRings/r"])
def test_key_rings_that_are_refused(key_ring):
    refused(ValueError, lambda: GcpKms(key_ring), "keyRings/RING")


@pytest.mark.parametrize("options", [
    {"endpoint_url": "http://example.com"}, {"endpoint_url": "https://u:SECRET@h"}])
def test_settings_that_are_refused(options):
    refused(ValueError, lambda: GcpKms(KEY_RING, **options))


# --- processes, threads, secrets -----------------------------------------------------------------

def test_credentials_given_as_an_object_are_not_pickled(cloud):
    kms = client(cloud, credentials=Credentials("SECRET token"))
    refused(TypeError, lambda: pickle.dumps(kms), "Application Default Credentials")


def test_no_secret_is_logged(cloud, account, pauses, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("google").addHandler(caplog.handler)  # it does not propagate
    try:
        kms = client(cloud)
        cloud.faults = [hang_up]
        wrapped = kms.wrap_key(KEY, "footer")
        assert kms.unwrap_key(wrapped, "footer") == KEY
        refused(KeyUnwrapError, lambda: kms.unwrap_key("gcpkms:v1:AAAA", "footer"))
    finally:
        logging.getLogger("google").removeHandler(caplog.handler)
    assert "cryptoKeys/footer:decrypt" in caplog.text
    without_secrets(caplog.text, account.secret)
    attached = [str(record.httpRequest) for record in caplog.records
                if hasattr(record, "httpRequest")]
    assert base64.b64encode(KEY).decode() in "".join(attached)  # as docs/kms.md warns


def test_what_shows(cloud):
    kms = client(cloud, credentials=Credentials("SECRET token"))
    assert repr(kms) == f"<GcpKms key_ring={KEY_RING!r} endpoint_url={cloud.url!r}>"
