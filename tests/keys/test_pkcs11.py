"""PKCS#11: against SoftHSM 2, a real library in this process."""

import base64
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from types import SimpleNamespace

import pkcs11
import pytest
from pkcs11 import Attribute

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyUnwrapError,
    KmsUnavailableError,
    MissingExtraError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms, Pkcs11Kms
from secure_bloom.keys import pkcs11 as module
from tests.keys.checks import (
    KEY,
    files_round_trip,
    in_threads,
    refused,
    through_a_child,
    through_a_fork,
    without_secrets,
)
from tests.support import named_pipe

LIBRARY = next((os.path.realpath(path) for path in (
    "/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so", "/usr/local/lib/softhsm/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so") if Path(path).exists()), None)
pytestmark = pytest.mark.skipif(LIBRARY is None,
                                reason="SoftHSM is missing: apt-get install softhsm2")
PIN = "SECRET pin"
MASTER = b"SECRET master k."


def restart(*keep: tuple) -> None:
    """Initialize the library again. Clients keep these sessions, which it has ended; no others,
    since the handles of others may come to stand for new sessions."""
    for slot in set(module._sessions) - set(keep):
        del module._sessions[slot]
    if LIBRARY in pkcs11._loaded:
        pkcs11.lib(LIBRARY).reinitialize()


class Token:
    """A new token of SoftHSM with the keys that the tests need."""

    def __init__(self):
        self.label = f"bloom {uuid.uuid4().hex[:8]}"
        subprocess.run(["softhsm2-util", "--init-token", "--free", "--label", self.label,
                        "--so-pin", "12345678", "--pin", PIN], check=True, capture_output=True)
        restart()  # it sees new tokens when it starts
        self.add("footer")
        self.add("column")
        self.add("known", value=MASTER)

    def session(self):
        """A session which logs everybody out when it is closed."""
        token = pkcs11.lib(LIBRARY).get_token(token_label=self.label)
        try:
            return token.open(user_pin=PIN, rw=True)
        except pkcs11.UserAlreadyLoggedIn:
            return token.open(rw=True)

    def add(self, label: str, *, value: bytes | None = None, **attributes: bool) -> None:
        template = {Attribute.ENCRYPT: True, Attribute.DECRYPT: True, Attribute.SENSITIVE: True,
                    Attribute.EXTRACTABLE: False}
        template |= {Attribute[name]: value for name, value in attributes.items()}
        session = self.session()
        if value is None:
            session.generate_key(pkcs11.KeyType.AES, 256, label=label, store=True,
                                 template=template)
        else:
            session.create_object(template | {
                Attribute.CLASS: pkcs11.ObjectClass.SECRET_KEY, Attribute.VALUE: value,
                Attribute.KEY_TYPE: pkcs11.KeyType.AES, Attribute.TOKEN: True,
                Attribute.PRIVATE: True, Attribute.LABEL: label})
        session.close()

    def client(self, **options) -> Pkcs11Kms:
        options = options or {"pin_env": "TEST_PIN"}
        return Pkcs11Kms(LIBRARY, self.label, **options)


@pytest.fixture(scope="module", autouse=True)
def softhsm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(
        f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\n"
        "log.level = ERROR\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
        patch.setenv("TEST_PIN", PIN)
        yield folder


@pytest.fixture(scope="module")
def shared_token(softhsm) -> Token:
    return Token()


@pytest.fixture
def token(shared_token) -> Token:
    return shared_token


@pytest.fixture
def new_token(softhsm) -> Token:
    return Token()


# --- what it is for ------------------------------------------------------------------------------

@pytest.mark.parametrize("key", [b"k" * 16, b"k" * 24, b"k" * 32])
def test_what_is_wrapped_is_unwrapped(token, key):
    kms = token.client()
    wrapped = kms.wrap_key(key, "footer")
    assert token.client().unwrap_key(wrapped, "footer") == key
    assert kms.unwrap_key(wrapped.encode(), "footer") == key
    assert kms.wrap_key(key, "footer") != wrapped
    assert len(base64.b64decode(wrapped)) == 12 + len(key) + 16


def test_it_is_interchangeable_with_a_local_key(token):
    local, kms = InMemoryKms({"known": MASTER}), token.client()
    assert kms.unwrap_key(local.wrap_key(KEY, "known"), "known") == KEY
    assert local.unwrap_key(kms.wrap_key(KEY, "known"), "known") == KEY


def test_files(token, tmp_path):
    files_round_trip(token.client(), "footer", "column", tmp_path)


def test_the_name_is_bound(new_token):
    new_token.add("twin", value=MASTER)
    wrapped = new_token.client().wrap_key(KEY, "known")
    for name in ("twin", "footer"):
        refused(KeyUnwrapError, lambda name=name: new_token.client().unwrap_key(wrapped, name),
                repr(name))


def test_wrong_ciphertext(token):
    kms = token.client()
    raw = base64.b64decode(kms.wrap_key(KEY, "footer"))
    for place in range(len(raw)):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1:]
        refused(KeyUnwrapError, lambda changed=changed: kms.unwrap_key(
            base64.b64encode(changed).decode(), "footer"))
    for bad in ("", "AAAA", "no base64!", b"\xff", base64.b64encode(raw[:27]),
                base64.b64encode(raw[:-1]), base64.b64encode(raw + b"x")):
        refused(KeyUnwrapError, lambda bad=bad: kms.unwrap_key(bad, "footer"))
    assert kms.unwrap_key(base64.b64encode(raw), "footer") == KEY


# --- keys, tokens, PINs --------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["none", "", "ä", "footer\0"])
def test_unknown_keys(token, name):
    kms = token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    refused(KeyNotFoundError, lambda: kms.wrap_key(KEY, name), repr(name), token.label)
    refused(KeyNotFoundError, lambda: kms.unwrap_key(wrapped, name), repr(name))
    assert kms.unwrap_key(wrapped, "footer") == KEY


def test_two_keys_of_one_name(new_token):
    new_token.add("footer")
    refused(KeyNotFoundError, lambda: new_token.client().wrap_key(KEY, "footer"), "several")


def test_keys_that_are_disabled(new_token):
    new_token.add("no encrypt", ENCRYPT=False)
    new_token.add("no decrypt", DECRYPT=False)
    kms = new_token.client()
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "no encrypt"), "CKA_ENCRYPT")
    wrapped = kms.wrap_key(KEY, "no decrypt")
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "no decrypt"), "CKA_DECRYPT")


def test_a_key_disabled_midway(new_token):
    kms = new_token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    session = new_token.session()
    session.get_key(label="footer")[Attribute.DECRYPT] = False
    refused(KeyAccessError, lambda: kms.unwrap_key(wrapped, "footer"), "CKA_DECRYPT")
    session.get_key(label="footer").destroy()
    refused(KeyNotFoundError, lambda: kms.unwrap_key(wrapped, "footer"))


def test_a_token_without_gcm(token, monkeypatch):
    other = SimpleNamespace(AES_GCM=pkcs11.Mechanism.AES_OFB)  # SoftHSM has no such mechanism
    monkeypatch.setattr(pkcs11, "Mechanism", other)
    monkeypatch.setattr(pkcs11, "GCMParams", lambda *_: bytes(16))
    refused(UnsupportedError, lambda: token.client().wrap_key(KEY, "footer"), "CKM_AES_GCM")


def test_a_wrong_pin_is_tried_once(new_token):
    tried = []

    def wrong():
        tried.append(1)
        return "SECRET wrong"

    kms = new_token.client(pin=wrong)
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "footer"), "PIN", "PinIncorrect")
    refused(KeyAccessError, lambda: kms.wrap_key(KEY, "footer"), "not retried")
    refused(KeyAccessError, lambda: pickle.loads(pickle.dumps(
        new_token.client(pin_env="HOME"))).wrap_key(KEY, "footer"), "PIN")
    assert len(tried) == 1
    assert new_token.client().wrap_key(KEY, "footer")


@pytest.mark.slow
def test_where_the_pin_comes_from(softhsm, tmp_path, monkeypatch):
    (tmp_path / "pin").write_text(PIN + "\n")
    for options in ({"pin_file": tmp_path / "pin"}, {"pin": lambda: PIN}, {"pin_env": "TEST_PIN"}):
        assert Token().client(**options).wrap_key(KEY, "footer")
    monkeypatch.delenv("TEST_PIN")
    refused(KeyAccessError, lambda: Token().client().wrap_key(KEY, "footer"), "TEST_PIN")
    (tmp_path / "bad").write_bytes(b"\xff")
    with named_pipe(tmp_path / "pipe"):
        for name in ("none", "bad", "pipe"):
            refused(KeyAccessError, lambda name=name: Token().client(
                pin_file=tmp_path / name).wrap_key(KEY, "footer"), str(tmp_path / name))


@pytest.mark.parametrize("options", [
    {}, {"pin": "SECRET"}, {"pin_env": "A", "pin_file": "b"}, {"pin_file": "a", "pin": "SECRET"}])
def test_pins_that_are_refused(options):
    refused(TypeError, lambda: Pkcs11Kms(LIBRARY, "bloom", **options))


@pytest.mark.slow
def test_a_serial_number(token):
    serial = pkcs11.lib(LIBRARY).get_token(token_label=token.label).serial.decode()
    assert token.client(serial=serial, pin_env="TEST_PIN").wrap_key(KEY, "footer")
    refused(KmsUnavailableError, lambda: token.client(serial="0", pin_env="TEST_PIN").wrap_key(
        KEY, "footer"), "no such token")


@pytest.mark.slow
def test_unreachable_tokens(softhsm):
    refused(KmsUnavailableError, lambda: Pkcs11Kms(LIBRARY, "none", pin_env="TEST_PIN").wrap_key(
        KEY, "footer"), "no such token")
    for library in ("/no/library.so", __file__):
        refused(KmsUnavailableError, lambda library=library: Pkcs11Kms(
            library, "bloom", pin_env="TEST_PIN").wrap_key(KEY, "footer"), "library")


def test_without_python_pkcs11(monkeypatch, token):
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    refused(MissingExtraError, lambda: token.client().wrap_key(KEY, "footer"),
            "pip install 'python-pkcs11>=")


# --- lost sessions -------------------------------------------------------------------------------

def test_a_closed_session_is_opened_again(token):
    kms = token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    module._sessions[kms._slot].close()
    assert kms.unwrap_key(wrapped, "footer") == KEY


def test_a_library_that_was_started_anew(token):
    kms = token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    restart(kms._slot)
    assert kms.unwrap_key(wrapped, "footer") == KEY


def test_other_code_that_logs_out(token):
    kms = token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    restart()
    with token.session():
        assert kms.unwrap_key(wrapped, "footer") == KEY  # logged in by other code
    assert kms.unwrap_key(wrapped, "footer") == KEY


@pytest.mark.slow
def test_a_token_that_is_away_for_a_while(new_token, softhsm):
    kms = new_token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    (softhsm / "tokens").rename(softhsm / "away")
    (softhsm / "tokens").mkdir()
    restart(kms._slot)
    try:
        for _ in range(2):
            refused(KmsUnavailableError, lambda: kms.unwrap_key(wrapped, "footer"), "no such token")
    finally:
        (softhsm / "tokens").rmdir()
        (softhsm / "away").rename(softhsm / "tokens")
    assert kms.unwrap_key(wrapped, "footer") == KEY


def test_clients_share_a_session(new_token, tmp_path):
    (tmp_path / "link.so").symlink_to(LIBRARY)
    kms = Pkcs11Kms(tmp_path / "link.so", new_token.label, pin_env="TEST_PIN")
    new_token.client().wrap_key(KEY, "footer")
    wrapped = kms.wrap_key(KEY, "footer")
    sessions = dict(module._sessions)
    for _ in range(50):
        assert pickle.loads(pickle.dumps(kms)).unwrap_key(wrapped, "footer") == KEY
    assert module._sessions == sessions


# --- processes, threads, secrets -----------------------------------------------------------------

def test_other_processes(token, tmp_path):
    (tmp_path / "pin").write_text(PIN)
    kms = token.client(pin_file=tmp_path / "pin")
    wrapped = kms.wrap_key(KEY, "footer")
    assert PIN.encode() not in pickle.dumps(kms)
    assert through_a_child(kms, wrapped, "footer") == KEY


@pytest.mark.slow
def test_forked_children(token):
    asked = []
    kms = token.client(pin=lambda: asked.append(os.getpid()) or PIN)
    wrapped = kms.wrap_key(KEY, "footer")

    def child():
        asked.clear()
        keys = [kms.unwrap_key(wrapped, "footer") for _ in range(2)]
        return keys == [KEY, KEY] and asked == [os.getpid()]

    for _ in range(2):
        assert through_a_fork(child) == "True"
        assert kms.unwrap_key(wrapped, "footer") == KEY
    assert through_a_fork(lambda: through_a_fork(
        lambda: kms.unwrap_key(wrapped, "footer"))) == str(KEY)


def test_a_child_starts_the_library_anew(new_token):
    kms = new_token.client()
    kms.wrap_key(KEY, "footer")
    inherited = new_token.session()

    def child():
        kms.wrap_key(KEY, "footer")
        try:
            return list(inherited.get_objects({}))
        except pkcs11.SessionHandleInvalid:
            return "invalid"

    assert through_a_fork(child) == "invalid"
    assert list(inherited.get_objects({}))


def test_a_child_forked_while_a_thread_is_at_work(token):
    kms = token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    done = threading.Event()
    ready = threading.Event()

    def hold():
        with module._lock:
            ready.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    try:
        assert through_a_fork(lambda: kms.unwrap_key(wrapped, "footer")) == str(KEY)
    finally:
        done.set()
        thread.join()


@pytest.mark.sweep
@pytest.mark.slow
def test_many_forked_workers_at_once(token):
    """SoftHSM does not see a token that another process is just logging in to."""
    kms = token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    for _ in range(5):
        with multiprocessing.get_context("fork").Pool(6) as pool:
            keys = pool.starmap(kms.unwrap_key, [(wrapped, "footer")] * 6, chunksize=1)
        assert keys == [KEY] * 6


def test_a_child_that_has_stopped_the_library(token):
    kms = token.client()
    wrapped = kms.wrap_key(KEY, "footer")

    def child():
        pkcs11.lib(LIBRARY).finalize()
        return kms.unwrap_key(wrapped, "footer")

    assert through_a_fork(child) == str(KEY)


@pytest.mark.slow
def test_threads(token):
    in_threads(token.client(), "footer", calls=2000)


def test_no_secret_is_logged(token, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    kms = token.client()
    wrapped = kms.wrap_key(KEY, "footer")
    assert kms.unwrap_key(wrapped, "footer") == KEY
    refused(KeyUnwrapError, lambda: kms.unwrap_key(wrapped, "column"))
    without_secrets(caplog.text + "".join(capfd.readouterr()), PIN, MASTER)


def test_what_shows(token):
    assert repr(token.client()) == f"<Pkcs11Kms library={LIBRARY!r} token={token.label!r}>"
