"""Vault's Transit engine: against a loopback server that follows its HTTP API.

With ``--server vault``, it passes requests on to a real Vault.
"""

import base64
import logging
import os
import pickle
from functools import partial

import pytest

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
    UnsupportedError,
)
from secure_bloom.keys import VaultKms
from tests.keys.checks import (
    KEY,
    compressed,
    padded,
    paused,
    refused,
    stalled,
    through_a_child,
    without_secrets,
)
from tests.keys.remote import *  # noqa: F403
from tests.keys.remote import (  # noqa: F401
    Service,
    test_keys_of_older_versions_open,
    test_no_other_name_opens_it,
)
from tests.peers.certificates import self_signed
from tests.peers.loopback import answer, hang_up
from tests.peers.transit import TOKEN, Transit
from tests.servers import chosen
from tests.servers.vault import RealTransit
from tests.support import named_pipe


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("VAULT_ADDR", "VAULT_NAMESPACE", "VAULT_CACERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def transit(request):
    names = "footer", "column", "a.b-c_1"
    with RealTransit(request.getfixturevalue("vault"), *names) if chosen.name == "vault" \
            else Transit(*names) as server:
        yield server


def client(server, **options) -> VaultKms:
    return VaultKms(server.url, **{"timeout": 60, "attempts": 3, **options})


@pytest.fixture
def service(transit) -> Service:
    return Service(
        transit, partial(client, transit), ("footer", "a.b-c_1"), "vault:v1:AAAA",
        {"urllib3": "urllib3"},
        [*((f"HTTP {status}", failing(status)) for status in (412, 429, 500, 501, 502, 503, 504)),
         ("ProtocolError", hang_up)], [TOKEN],
        impossible=["", ".", "..", "../footer", "a/../../sys/seal", "a/b", "a?b", "a%2fb", "a b",
                    ".a", "a.", "-a", "ä", "a\n", "a\r\nX: y", "a#b"],
        too_long=[padded(transit), compressed(padded(transit)),
                  answer(403, {"errors": ["SECRET" * 2**18]})], odd=compressed(transit._respond))


def token_of_the_tests() -> str:
    return TOKEN


# --- what it is for ------------------------------------------------------------------------------

def test_what_a_call_sends(transit):
    kms = client(transit)
    wrapped = kms.wrap_key(KEY, "footer")
    kms.unwrap_key(wrapped, "footer")
    aad = base64.b64encode(b"footer").decode()
    assert [(request.method, request.path, request.json) for request in transit.requests] == [
        ("POST", "/v1/transit/encrypt/footer",
         {"plaintext": base64.b64encode(KEY).decode(), "associated_data": aad}),
        ("POST", "/v1/transit/decrypt/footer", {"ciphertext": wrapped, "associated_data": aad})]
    for request in transit.requests:
        assert request.headers["X-Vault-Token"] == TOKEN
        assert request.headers["X-Vault-Request"] == "true"
        assert "X-Vault-Namespace" not in request.headers


def test_keys_of_versions_that_are_retired_do_not_open(transit):
    kms = client(transit)
    first = kms.wrap_key(KEY, "footer")
    transit.rotate("footer")
    second = kms.wrap_key(KEY, "footer")
    assert second.startswith("vault:v2:")
    transit.minimum["footer"] = 2
    refused(KeyAccessError, lambda: kms.unwrap_key(first, "footer"), "min_decryption_version")
    assert kms.unwrap_key(second, "footer") == KEY


def test_mount_and_namespace(monkeypatch):
    with Transit("k", mount="team/a transit", namespace="ns1/ns2") as server:
        kms = client(server, mount="/team/a transit/", namespace="ns1/ns2")
        assert kms.unwrap_key(kms.wrap_key(KEY, "k"), "k") == KEY
        refused(KeyNotFoundError, lambda: client(server).wrap_key(KEY, "k"), "mounted")
        monkeypatch.setenv("VAULT_NAMESPACE", "ns1/ns2")
        monkeypatch.setenv("VAULT_ADDR", server.url + "/")
        kms = VaultKms(mount="team/a transit")
        assert kms.unwrap_key(kms.wrap_key(KEY, "k"), "k") == KEY


@pytest.mark.slow
def test_wrong_ciphertext(transit):
    kms = client(transit)
    wrapped = kms.wrap_key(KEY, "footer")
    changed = wrapped[:12] + ("A" if wrapped[12] != "A" else "B") + wrapped[13:]
    for bad in (changed, wrapped[:30], wrapped.replace("v1", "v7"), "vault:v1:", "vault:v1:!",
                "AAAA", "", b"\xff", wrapped[9:]):
        refused(KeyUnwrapError, lambda bad=bad: kms.unwrap_key(bad, "footer"),
                "cannot be unwrapped", secrets=[TOKEN])


def test_unknown_keys(transit):
    kms = client(transit)
    wrapped = kms.wrap_key(KEY, "footer")
    refused(KeyNotFoundError, lambda: kms.unwrap_key(wrapped, "none"), "'none'", "no such key")
    # Where the policy has update alone, Vault hides whether the key exists.
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "none"), "does not exist")


def test_a_vault_without_associated_data_is_refused(transit):
    transit.knows_associated_data = False
    refused(UnsupportedError, lambda: client(transit).wrap_key(KEY, "footer"), "1.13")


def test_a_key_without_associated_data(transit):
    transit.always = answer(400, {"errors": [
        "'[0].associated_data' provided for non-AEAD cipher suite rsa-2048"]})
    for call in (lambda: client(transit).wrap_key(KEY, "footer"),
                 lambda: client(transit).unwrap_key("vault:v1:AAAA", "footer")):
        refused(KeyRetrievalError, call, "aes256-gcm96")


# --- faults --------------------------------------------------------------------------------------

def failing(status: int, **headers):
    return answer(status, {"errors": ["SECRET of Vault"]}, **headers)


@pytest.mark.slow
def test_down_for_good(transit):
    with Transit() as other:
        pass
    with paused(1.5):  # 0.5 and 1 second at least
        refused(KmsUnavailableError, lambda: client(other).wrap_key(KEY, "footer"), "no response",
                "NewConnectionError", secrets=[TOKEN])


@pytest.mark.parametrize(("status", "kind", "word"), [
    (400, KeyUnwrapError, "cannot be unwrapped"), (403, KeyAccessError, "update"),
    (404, KeyNotFoundError, "mounted"), (405, KeyRetrievalError, "405"),
    (307, KeyRetrievalError, "active node"), (204, KeyRetrievalError, "204")])
def test_refusals_are_not_repeated(transit, status, kind, word):
    transit.always = failing(status, Location="http://127.0.0.1:1/elsewhere")
    refused(kind, lambda: client(transit).unwrap_key("vault:v1:AAAA", "footer"), word,
            "'footer'", transit.url, secrets=[TOKEN])
    assert len(transit.requests) == 1


@pytest.mark.slow
def test_a_response_that_stalls_is_requested_again(transit, pauses):
    wrapped = client(transit).wrap_key(KEY, "footer")
    transit.faults = [stalled(transit)]
    kms = client(transit, timeout=1, attempts=60)  # a busy machine needs several
    assert kms.unwrap_key(wrapped, "footer") == KEY
    assert len(transit.requests) > 2


def test_access_revoked_midway(transit):
    kms = client(transit)
    wrapped = kms.wrap_key(KEY, "footer")
    assert kms.unwrap_key(wrapped, "footer") == KEY
    transit.tokens.clear()
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "footer"), "update on .../decrypt/",
            secrets=[TOKEN])
    transit.tokens.add(TOKEN)
    transit.deleted.add("footer")
    for call in (lambda: kms.unwrap_key(wrapped, "footer"),
                 lambda: kms.wrap_key(KEY, "footer")):
        refused(KeyAccessError, call, "deleted")


# --- tokens --------------------------------------------------------------------------------------

def test_where_the_token_comes_from(transit, monkeypatch, tmp_path):
    def works(**options):
        return client(transit, **options).wrap_key(KEY, "footer")

    monkeypatch.setenv("VAULT_TOKEN", "wrong")
    refused(KeyAccessError, works)
    assert works(token=TOKEN)
    assert works(token=token_of_the_tests)
    monkeypatch.delenv("VAULT_TOKEN")
    refused(KeyAccessError, works, "VAULT_TOKEN", ".vault-token")
    with named_pipe(tmp_path / ".vault-token"):
        refused(KeyAccessError, works, "VAULT_TOKEN", ".vault-token")
    (tmp_path / ".vault-token").unlink()
    (tmp_path / ".vault-token").write_text(TOKEN + "\n")
    assert works()


def test_a_renewed_token_is_seen(transit, monkeypatch):
    kms = client(transit)
    kms.wrap_key(KEY, "footer")
    transit.tokens = {"new"}
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "footer"))
    monkeypatch.setenv("VAULT_TOKEN", "new")
    assert kms.wrap_key(KEY, "footer")


@pytest.mark.parametrize("token", ["SECRET\r\nX-Evil: 1", "SECRET\x00", "SECRETä"])
def test_tokens_that_are_none(transit, token):
    refused(KeyAccessError, lambda: client(transit, token=token).wrap_key(KEY, "footer"),
            "characters")
    assert transit.requests == []


# --- configuration, TLS --------------------------------------------------------------------------

@pytest.mark.parametrize("address", [
    "", "vault:8200", "http://vault:8200", "http://10.0.0.1", "https://user:SECRET@vault",
    "https://vault:SECRET", "https://[SECRET", "https://vault/?token=SECRET", "unix:///x"])
def test_addresses_that_are_refused(address):
    refused(ValueError, lambda: VaultKms(address))


@pytest.mark.parametrize("mount", ["", "/", "a//b", "..", "../sys", "a/./b"])
def test_mounts_that_are_refused(mount):
    refused(ValueError, lambda: VaultKms("https://h", mount=mount), "mount")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.mark.slow
def test_tls(certificate, monkeypatch, pauses, tmp_path):
    with Transit("footer", tls=certificate) as server:
        for call in (lambda: client(server).wrap_key(KEY, "footer"),
                     lambda: client(server, ca_file=tmp_path / "none").wrap_key(KEY, "footer")):
            refused(KmsUnavailableError, call, "certificates", secrets=[TOKEN])
        assert server.requests == []
        for kms in (client(server, ca_file=certificate[0]),
                    pickle.loads(pickle.dumps(client(server, ca_file=certificate[0])))):
            assert kms.unwrap_key(kms.wrap_key(KEY, "footer"), "footer") == KEY
        monkeypatch.setenv("VAULT_CACERT", str(certificate[0]))
        assert client(server).wrap_key(KEY, "footer")


# --- processes, threads, secrets -----------------------------------------------------------------

@pytest.mark.slow
def test_another_process_calls_the_function_that_returns_the_token(transit, monkeypatch):
    wrapped = client(transit).wrap_key(KEY, "footer")
    monkeypatch.delenv("VAULT_TOKEN")
    kms = client(transit, token=token_of_the_tests)
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    assert through_a_child(kms, wrapped, "footer", {"PYTHONPATH": path}) == KEY


def test_a_token_given_as_text_is_not_pickled(transit):
    refused(TypeError, lambda: pickle.dumps(client(transit, token=TOKEN)), "VAULT_TOKEN",
            secrets=[TOKEN])


def test_no_secret_is_logged(transit, pauses, caplog):
    caplog.set_level(logging.DEBUG)
    kms = client(transit)
    transit.faults = [hang_up]
    wrapped = kms.wrap_key(KEY, "footer")
    transit.faults = [failing(503)]
    assert kms.unwrap_key(wrapped, "footer") == KEY
    refused(KeyUnwrapError, lambda: kms.unwrap_key("vault:v1:AAAA", "footer"))
    assert "/v1/transit/decrypt/footer" in caplog.text
    without_secrets(caplog.text, TOKEN, wrapped)


def test_what_shows(transit):
    kms = client(transit, token=TOKEN)
    assert repr(kms) == f"<VaultKms address={transit.url!r} mount='transit' namespace=None>"
