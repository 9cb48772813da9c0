"""KMS clients by URI."""

import os
import subprocess
import sys

import pytest

from secure_bloom import keys
from secure_bloom.errors import KeyringNotFoundError
from secure_bloom.keys import (
    AwsKms,
    AzureKms,
    GcpKms,
    Keyring,
    Pkcs11Kms,
    VaultKms,
    open_kms,
)
from tests.cases import for_each
from tests.keys.checks import refused
from tests.support import run_python


def settings(client) -> dict:
    return {name: value for name, value in vars(client).items()
            if name not in ("_connection", "_own_account", "_pin_refused") and value is not None}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("VAULT_ADDR", "VAULT_NAMESPACE", "VAULT_CACERT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["ring.json", "a ring", "ring?", "rïng", "a%b", "a=b&c"])
def test_keyring(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Keyring.create(name).add("k")
    quoted = name.replace("%", "%25").replace("?", "%3F")
    for uri in (f"keyring:{quoted}", f"KEYRING:{tmp_path}/{quoted}"):
        assert open_kms(uri).names() == ["k"]
    refused(KeyringNotFoundError, lambda: open_kms("keyring:none"), "none")


@pytest.mark.parametrize(("cls", "uri", "expected"), [
    (AwsKms, "awskms:", {"timeout": 5, "attempts": 4}),
    (AwsKms,
     "awskms:?region=eu-west-1&profile=a%26b&endpoint=http://localhost:4566&timeout=1.5&attempts=2"
     "&accounts=111122223333,444455556666",
     {"region": "eu-west-1", "profile": "a&b", "endpoint_url": "http://localhost:4566",
      "accounts": ["111122223333", "444455556666"], "timeout": 1.5, "attempts": 2}),
    (AzureKms, "azurekeyvault:https://bloom.vault.azure.net",
     {"vault_url": "https://bloom.vault.azure.net", "timeout": 5, "attempts": 4}),
    (AzureKms, "AzureKeyVault:https://bloom.managedhsm.azure.net/?timeout=1.5&attempts=2",
     {"vault_url": "https://bloom.managedhsm.azure.net", "timeout": 1.5, "attempts": 2}),
    (GcpKms, "gcpkms:projects/p/locations/global/keyRings/r",
     {"key_ring": "projects/p/locations/global/keyRings/r", "timeout": 5, "attempts": 4}),
    (GcpKms,
     "gcpkms:projects/a.org%3Ap/locations/l/keyRings/r?endpoint=https://kms&timeout=1&attempts=1",
     {"key_ring": "projects/a.org:p/locations/l/keyRings/r", "endpoint_url": "https://kms",
      "timeout": 1, "attempts": 1}),
    (VaultKms, "vault:https://vault:8200", {"address": "https://vault:8200", "mount": "transit",
                                           "timeout": 5, "attempts": 4}),
    (VaultKms,
     "vault:https://vault/team/my%20transit/?namespace=a/b&ca-file=/x/ca.pem&timeout=1&attempts=1",
     {"address": "https://vault", "mount": "team/my transit", "namespace": "a/b",
      "ca_file": "/x/ca.pem", "timeout": 1, "attempts": 1}),
    (Pkcs11Kms,
     "pkcs11:token=bloom?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:/etc/pin",
     {"library": "/usr/lib/softhsm/libsofthsm2.so", "token": "bloom", "_pin_file": "/etc/pin"}),
    (Pkcs11Kms, "pkcs11:serial=a1;token=my%20token?pin-env=PIN&module-path=/x+y.so",
     {"library": "/x+y.so", "token": "my token", "serial": "a1", "_pin_env": "PIN"}),
    (Pkcs11Kms, "pkcs11:token=t?module-path=/x.so&pin-source=file:///etc/a%3Fpin",
     {"library": "/x.so", "token": "t", "_pin_file": "/etc/a?pin"})])
def test_clients_and_their_settings(cls, uri, expected):
    client = open_kms(uri)
    assert type(client) is cls
    assert settings(client) == expected


def test_vault_of_the_environment(monkeypatch):
    refused(ValueError, lambda: open_kms("vault:"), "VAULT_ADDR")
    monkeypatch.setenv("VAULT_ADDR", "https://vault:8200")
    assert open_kms("vault:?namespace=n").address == "https://vault:8200"


@for_each(("uri", "word"), [
    ("", "awskms, azurekeyvault, gcpkms, keyring, pkcs11, vault"), ("ring.json", "keyring:PATH"),
    ("SECRET", "schemes"), ("/a/SECRET:x", "schemes"), (":SECRET", "schemes"),
    ("kmip:SECRET", "'kmip'; known schemes: awskms, azurekeyvault, gcpkms, keyring, pkcs11, vault"),
    ("keyring:", "keyring:PATH"), ("keyring:a?SECRET=1", "unknown parameter"),
    ("awskms:eu-west-1", "only parameters"), ("awskms:?SECRET=SECRET", "region, timeout"),
    ("awskms:?region", "region"), ("awskms:?region=", "region"),
    ("awskms:?region=SECRET&region=SECRET", "one value"), ("awskms:?timeout=SECRET", "malformed"),
    ("awskms:?attempts=1.SECRET", "malformed"), ("awskms:?region=%ff", "malformed"),
    ("awskms:?endpoint=http://u:SECRET@localhost", "user name"),
    ("azurekeyvault:", "URL"), ("azurekeyvault:SECRET", "URL"),
    ("azurekeyvault:https://u:SECRET@h", "user name"), ("azurekeyvault:http://localhost", "https"),
    ("azurekeyvault:https://h/keys/SECRET", "https://NAME"),
    ("azurekeyvault:https://h?client-secret=SECRET", "unknown parameter"),
    ("gcpkms:", "keyRings/RING"), ("gcpkms:SECRET", "keyRings/RING"),
    ("gcpkms:projects/p/locations/l/keyRings/r/cryptoKeys/SECRET", "keyRings/RING"),
    ("gcpkms:projects/p/locations/l/keyRings/r?credentials=SECRET", "unknown parameter"),
    ("vault:https://u:SECRET@vault:8200", "user name"), ("vault:http://vault", "unencrypted"),
    ("vault:https://vault#SECRET", "address"),
    ("vault:https://v?token=SECRET", "unknown parameter"),
    ("vault:vault:8200/SECRET", "address"), ("vault:https://[SECRET", "address"),
    ("vault:https://v/a//SECRET/..", "mount"),
    ("pkcs11:token=t?module-path=/x&pin-value=SECRET", "pin-value"),
    ("pkcs11:token=t;pin-value=SECRET?module-path=/x", "pin-value"),
    ("pkcs11:token=t;object=SECRET?module-path=/x&pin-env=A", "unknown parameter"),
    ("pkcs11:?module-path=/x&pin-env=A", "token"), ("pkcs11:token=t?pin-env=A", "module-path"),
    ("pkcs11:token=t?module-path=/x", "pin-source or pin-env"),
    ("pkcs11:token=t?module-path=/x&pin-env=A&pin-source=file:/b", "pin-source or pin-env"),
    ("pkcs11:token=t?module-path=/x&pin-source=SECRET", "file:/path"),
    ("pkcs11:token=t?module-path=/x&pin-source=|SECRET", "file:/path")])
def test_what_is_refused(uri, word):
    refused(ValueError, lambda: open_kms(uri), word)


def test_schemes_of_other_packages(tmp_path):
    """A real distribution on the path of a new interpreter."""
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[secure_bloom.kms]\nother = other:client\n")
    (tmp_path / "other.py").write_text("def client(uri): return 'client of ' + uri\n")
    code = ("from secure_bloom.keys import open_kms\n"
            "print(open_kms('OTHER:a?b=c'))\n"
            "try: open_kms('kmip:')\nexcept ValueError as error: print(error)")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    shown = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path},
                           check=True, capture_output=True, text=True).stdout
    assert shown.splitlines() == [
        "client of OTHER:a?b=c",
        "unknown KMS URI scheme 'kmip'; known schemes: awskms, azurekeyvault, gcpkms, keyring, "
        "other, pkcs11, vault"]


def test_the_sdks_are_imported_when_they_are_used():
    code = ("import sys; from secure_bloom import keys\n"
            "keys.open_kms('awskms:'); keys.open_kms('vault:https://h'); keys.Pkcs11Kms('a', 'b', "
            "pin_env='c'); keys.open_kms('azurekeyvault:https://h')\n"
            "keys.open_kms('gcpkms:projects/p/locations/l/keyRings/r')\n"
            "print({'azure', 'boto3', 'botocore', 'google', 'google_crc32c', 'grpc', 'requests', "
            "'urllib3', 'pkcs11'} & set(sys.modules))\n")
    assert run_python(code) == "set()\n"


def test_the_clients_are_found_where_they_are_looked_for():
    for name in keys.__all__:
        assert getattr(keys, name).__module__.startswith("secure_bloom.keys.")
    with pytest.raises(AttributeError, match="GoogleKms"):
        _ = keys.GoogleKms
