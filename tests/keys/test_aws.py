"""AWS KMS: against moto's server over HTTP, and recorded answers of AWS where moto differs."""

import base64
import logging
import re
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import boto3
import botocore.endpoint
import botocore.session
import pytest
import urllib3

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
)
from secure_bloom.keys import AwsKms
from tests.doc_examples import run_examples
from tests.keys.checks import (
    KEY,
    no_proxy_sees_keys,
    padded,
    refused,
    round_trip,
    stalled,
    without_secrets,
)
from tests.keys.remote import *  # noqa: F403
from tests.keys.remote import Service
from tests.peers.loopback import Loopback, answer, hang_up

REGION = "eu-west-1"
ACCOUNT = "123456789012"  # of moto
ALIASES = ("alias/footer", "alias/pii")
SECRET = "SECRETaccesskey"
LOADER = cache(botocore.session.create_loader)  # to parse what AWS can do only once


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
                 "AWS_ENDPOINT_URL_KMS", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setattr(botocore.session, "create_loader", LOADER)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses of botocore between attempts, which are not made."""
    made = []
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=made.append))
    return made


@pytest.fixture(scope="module")
def moto():
    from moto.server import ThreadedMotoServer  # takes a second

    server = ThreadedMotoServer("127.0.0.1", 0)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def keys(moto) -> dict:
    """alias -> key id and ARN."""
    admin = boto3.client("kms", region_name=REGION, endpoint_url=moto, aws_access_key_id="test",
                         aws_secret_access_key="test")
    made = {}
    for alias in ALIASES:
        key = admin.create_key()["KeyMetadata"]
        admin.create_alias(AliasName=alias, TargetKeyId=key["KeyId"])
        made[alias] = {"id": key["KeyId"], "arn": key["Arn"]}
    return made


@pytest.fixture
def proxy(moto, keys):
    """moto behind a server which can fail."""
    pool = urllib3.PoolManager(retries=False)

    def forward(request):
        response = pool.request(request.method, moto + request.path, body=request.body,
                                headers=request.headers)
        return response.status, {"Content-Type": "application/x-amz-json-1.1"}, response.data

    with Loopback(forward) as server:
        yield server


def client(endpoint, **options) -> AwsKms:
    return AwsKms(REGION, endpoint_url=getattr(endpoint, "url", endpoint),
                  **{"timeout": 60, "attempts": 3, "accounts": [ACCOUNT], **options})


def error(status: int, code: str):
    """An error as AWS words it."""
    return answer(status, {"__type": code, "message": f"message of {code}"})


# --- what it is for ------------------------------------------------------------------------------

@pytest.fixture
def service(proxy) -> Service:
    return Service(proxy, partial(client, proxy), ALIASES, "AAAA", {"boto3": "boto3"},
                   [*((code, error(status, code)) for status, code in [
                       (503, "ServiceUnavailableException"), (500, "KMSInternalException"),
                       (503, "DependencyTimeoutException"), (500, "KeyUnavailableException"),
                       (400, "ThrottlingException"), (503, "anything")]),
                    ("ConnectionClosedError", hang_up)], [SECRET],
                   foreign=["", "no base64!", "vault:v1:AAAA", b"\xff"],
                   too_long=[padded(proxy), error(403, "SECRET" * 2**18)])


@pytest.mark.parametrize("form", ["id", "arn"])
def test_a_key_may_be_named_by_its_id_or_arn(moto, keys, form):
    round_trip(lambda: client(moto), KEY, keys[ALIASES[0]][form])


@pytest.mark.sweep
def test_the_first_example_of_the_page(moto, keys, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "kms.md").read_text()
    [done] = run_examples(page.partition("\n## ")[0], tmp_path, AWS_ENDPOINT_URL_KMS=moto)
    assert done.stdout == "[{'ssn': '078-05-1120', 'city': 'Rome'}]\n"


def test_what_a_call_sends(proxy):
    kms = client(proxy)
    wrapped = kms.wrap_key(KEY, "alias/footer")
    kms.unwrap_key(wrapped, "alias/footer")
    context = {"secure_bloom:purpose": "key-wrapping",
               "secure_bloom:master-key": "alias/footer"}
    assert [(request.method, request.headers["X-Amz-Target"], request.json)
            for request in proxy.requests] == [
        ("POST", "TrentService.Encrypt",
         {"KeyId": "alias/footer", "EncryptionContext": context,
          "Plaintext": base64.b64encode(KEY).decode()}),
        ("POST", "TrentService.Decrypt",
         {"KeyId": "alias/footer", "EncryptionContext": context, "CiphertextBlob": wrapped})]


def test_requests_have_the_shape_and_the_limits_that_aws_publishes(proxy, keys):
    """Neither boto3 nor moto checks maximum lengths and patterns."""
    kms = client(proxy)
    for name in (ALIASES[0], keys[ALIASES[0]]["arn"]):
        kms.unwrap_key(kms.wrap_key(bytes(32), name), name)
    model = boto3.client("kms", region_name=REGION).meta.service_model
    asked = [request for request in proxy.requests
             if request.headers.get("X-Amz-Target", "").startswith("TrentService.")]
    assert len(asked) == 4
    for request in asked:
        action = request.headers["X-Amz-Target"].partition(".")[2]
        _check_shape(model.operation_model(action).input_shape, request.json)


def _check_shape(shape, value):
    if shape.type_name == "structure":
        assert set(shape.required_members) <= value.keys() <= shape.members.keys()
        for name, member in value.items():
            _check_shape(shape.members[name], member)
    elif shape.type_name == "map":
        for name, member in value.items():
            _check_shape(shape.key, name)
            _check_shape(shape.value, member)
    else:
        assert shape.type_name in ("string", "blob")
        size = len(base64.b64decode(value) if shape.type_name == "blob" else value)
        assert shape.metadata.get("min", 0) <= size <= shape.metadata.get("max", size)
        assert re.fullmatch(shape.metadata.get("pattern", ".*"), value)


def test_the_name_is_bound(moto, keys):
    wrapped = client(moto).wrap_key(KEY, "alias/footer")
    for form in ("id", "arn"):
        refused(KeyUnwrapError, lambda form=form: client(moto).unwrap_key(
            wrapped, keys["alias/footer"][form]), "another name")


def test_changed_ciphertext(moto, keys):
    kms = client(moto)
    wrapped = bytearray(base64.b64decode(kms.wrap_key(KEY, "alias/footer")))
    wrapped[-1] ^= 1
    changed = base64.b64encode(wrapped).decode()
    for bad in (changed, changed[:40], "AAAA"):
        refused(KeyUnwrapError, lambda bad=bad: kms.unwrap_key(bad, "alias/footer"))


@pytest.mark.parametrize("name", ["alias/none", "00000000-0000-0000-0000-000000000000", "x", ""])
def test_unknown_keys(moto, keys, name):
    kms = client(moto)
    wrapped = kms.wrap_key(KEY, "alias/footer")
    refused(KeyNotFoundError, lambda: kms.wrap_key(KEY, name), repr(name))
    refused(KeyNotFoundError, lambda: kms.unwrap_key(wrapped, name), repr(name))


def test_an_alias_is_resolved_in_the_region(moto, keys):
    refused(KeyNotFoundError, lambda: AwsKms("us-east-1", endpoint_url=moto).wrap_key(
        KEY, "alias/footer"), "region")


# --- answers of AWS, as recorded in its documentation --------------------------------------------

@pytest.mark.parametrize(("status", "code", "kind", "word"), [
    (400, "AccessDeniedException", KeyAccessError, "kms:Decrypt"),
    (400, "DisabledException", KeyAccessError, "disabled"),
    (400, "KMSInvalidStateException", KeyAccessError, "pending deletion"),
    (400, "InvalidKeyUsageException", KeyAccessError, "symmetric"),
    (400, "UnrecognizedClientException", KeyAccessError, "credentials"),
    (400, "ExpiredTokenException", KeyAccessError, "credentials"),
    (403, "InvalidSignatureException", KeyAccessError, "credentials"),
    (400, "NotFoundException", KeyNotFoundError, "no such key"),
    (400, "InvalidArnException", KeyNotFoundError, "no such key"),
    (400, "IncorrectKeyException", KeyUnwrapError, "another KMS key"),
    (400, "InvalidCiphertextException", KeyUnwrapError, "changed"),
    (400, "ValidationException", KeyRetrievalError, "ValidationException"),
    (400, "SomethingNew", KeyRetrievalError, "SomethingNew"),
    (307, "SomethingNew", KeyRetrievalError, "SomethingNew"),
])
def test_refusals(proxy, status, code, kind, word):
    proxy.always = error(status, code)
    caught = refused(kind, lambda: client(proxy).unwrap_key("AAAA", "alias/pii"),
                     word, code, "'alias/pii'", secrets=[SECRET])
    assert caught.__cause__.response["Error"]["Code"] == code
    assert len(proxy.requests) == 1


def test_a_botocore_without_private_names_works(moto, keys, monkeypatch):
    connect = boto3.session.Session.client

    class Client:
        def __init__(self, client):
            self.client = client

        def __getattr__(self, name):
            if name == "_endpoint":
                raise AttributeError(name)
            return getattr(self.client, name)

    monkeypatch.setattr(boto3.session.Session, "client",
                        lambda *args, **options: Client(connect(*args, **options)))
    kms = AwsKms(REGION, endpoint_url=moto)
    assert kms.unwrap_key(kms.wrap_key(KEY, "alias/pii"), "alias/pii") == KEY


def test_a_response_that_stalls_is_requested_again(proxy, pauses):
    wrapped = client(proxy).wrap_key(KEY, "alias/footer")
    proxy.faults = [stalled(proxy)]
    kms = client(proxy, timeout=1, attempts=60)  # a busy machine needs several
    assert kms.unwrap_key(wrapped, "alias/footer") == KEY
    assert len(proxy.requests) > 2


# --- faults --------------------------------------------------------------------------------------

def test_down_for_good(moto, keys, pauses):
    with Loopback(None) as server:
        url = server.url
    refused(KmsUnavailableError, lambda: client(url).wrap_key(KEY, "alias/footer"), "no response",
            "EndpointConnectionError", secrets=[SECRET])


def test_hanging_up_for_good(proxy, pauses):
    proxy.always = hang_up
    caught = refused(KmsUnavailableError, lambda: client(proxy).wrap_key(KEY, "alias/footer"),
                     "ConnectionClosedError")
    assert caught.__cause__ is None  # it holds the request
    assert len(proxy.requests) == 3


def test_access_revoked_midway(proxy):
    kms = client(proxy)
    wrapped = kms.wrap_key(KEY, "alias/footer")
    assert kms.unwrap_key(wrapped, "alias/footer") == KEY
    proxy.faults = [error(400, "AccessDeniedException"), error(400, "DisabledException")]
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "alias/footer"), "kms:Decrypt")
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "alias/footer"), "disabled")
    assert kms.unwrap_key(wrapped, "alias/footer") == KEY


# --- names that a file has chosen ----------------------------------------------------------------

FOREIGN = f"arn:aws:kms:{REGION}:999999999999:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def test_a_key_of_a_foreign_account_is_not_called(proxy, keys):
    """Its owner would see each read, and choose the key that it returns."""
    wrapped = base64.b64encode(b"blob").decode()
    for name in (FOREIGN, FOREIGN.replace("key/", "alias/")):
        refused(KeyAccessError, partial(client(proxy).unwrap_key, wrapped, name),
                "account 999999999999", "accounts=")
    for name in ("arn:aws:s3:::bucket", FOREIGN + ":x", "arn:", FOREIGN.upper(), "a:b"):
        refused(KeyNotFoundError, partial(client(proxy).unwrap_key, wrapped, name))
    assert not proxy.requests
    trusting = client(proxy, accounts=["999999999999", ACCOUNT])
    with pytest.raises(KeyRetrievalError):  # by moto, which has no such account
        trusting.unwrap_key(wrapped, FOREIGN)
    assert proxy.requests


def test_the_own_account_is_that_of_the_credentials(moto, keys, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto)
    kms, arn = client(moto, accounts=None), keys[ALIASES[0]]["arn"]
    wrapped = kms.wrap_key(KEY, arn)
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, FOREIGN), "account 999999999999")
    assert kms.unwrap_key(wrapped, arn) == KEY
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    assert kms.unwrap_key(wrapped, arn) == KEY  # it is asked for once
    assert client(moto).unwrap_key(wrapped, arn) == KEY
    other = client(moto, accounts=None, attempts=1)
    refused(KmsUnavailableError, lambda: other.unwrap_key(wrapped, arn), "STS", "accounts=")
    assert other.unwrap_key(other.wrap_key(KEY, ALIASES[0]), ALIASES[0]) == KEY


@pytest.mark.parametrize("accounts", [["1"], "arn:aws", [""], [111122223333]])
def test_what_is_no_account(accounts):
    refused(ValueError, lambda: AwsKms(REGION, accounts=accounts), "12 digits")


# --- configuration -------------------------------------------------------------------------------

def test_without_credentials(moto, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    refused(KeyAccessError, lambda: client(moto).wrap_key(KEY, "alias/footer"), "credentials")


def test_without_a_region():
    refused(KeyRetrievalError, lambda: AwsKms().wrap_key(KEY, "a"), "region")


def test_a_profile(moto, keys, tmp_path, monkeypatch):
    refused(KeyRetrievalError, lambda: AwsKms(profile="p").wrap_key(KEY, "a"), "profile")
    (tmp_path / "config").write_text(f"[profile p]\nregion = {REGION}\n")
    (tmp_path / "credentials").write_text("[p]\naws_access_key_id = a\naws_secret_access_key = b\n")
    kms = AwsKms(profile="p", endpoint_url=moto)
    assert kms.unwrap_key(kms.wrap_key(KEY, "alias/footer"), "alias/footer") == KEY


@pytest.mark.parametrize("url", ["http://example.com", "ftp://localhost", "localhost", "",
                                 "http://user:SECRET@localhost", "https://user:SECRET@host",
                                 "https://h:SECRET", "https://[SECRET", "https://h/?a=SECRET"])
def test_endpoints_that_are_refused(url, monkeypatch):
    refused(ValueError, lambda: AwsKms(REGION, endpoint_url=url))


@pytest.mark.slow
def test_an_endpoint_of_the_environment_is_checked_too(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", "http://example.com")
    refused(ValueError, lambda: AwsKms(REGION).wrap_key(KEY, "a"), "unencrypted")


@pytest.mark.parametrize("place", ["argument", "environment"])
def test_a_proxy_does_not_see_keys(moto, keys, monkeypatch, place):
    if place == "environment":
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", moto)
    endpoint = moto if place == "argument" else None
    no_proxy_sees_keys(lambda: client(endpoint), "alias/footer", monkeypatch)


# --- processes, threads, secrets -----------------------------------------------------------------

def test_no_secret_is_logged(proxy, caplog):
    """With all loggers at DEBUG, but botocore's at INFO: at DEBUG, it logs what it sends."""
    kms = client(proxy)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("botocore").setLevel(logging.INFO)
    try:
        wrapped = kms.wrap_key(KEY, "alias/footer")
        proxy.faults = [hang_up]
        assert kms.unwrap_key(wrapped, "alias/footer") == KEY
        refused(KeyUnwrapError, lambda: kms.unwrap_key("AAAA", "alias/footer"))
        without_secrets(caplog.text, SECRET)
        logging.getLogger("botocore").setLevel(logging.DEBUG)
        kms.unwrap_key(wrapped, "alias/footer")
        assert base64.b64encode(KEY).decode() in caplog.text  # as docs/kms.md warns
    finally:
        logging.getLogger("botocore").setLevel(logging.NOTSET)


def test_what_shows(moto, monkeypatch):
    kms = client(moto, profile="p")
    without_secrets(repr(kms) + str(kms.__getstate__()), SECRET)
    assert repr(kms) == f"<AwsKms region='eu-west-1' endpoint_url='{moto}' profile='p'>"
