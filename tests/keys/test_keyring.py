"""The keyring file."""

import base64
import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
import traceback
import warnings
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_bloom.errors import (
    KeyNotFoundError,
    KeyringError,
    KeyUnwrapError,
    SecureBloomError,
    WeakPassphraseWarning,
)
from secure_bloom.keys import InMemoryKms, Keyring, keyring_file, open_kms
from secure_bloom.keys.passphrase import weakness
from tests.keys.checks import variables_of
from tests.support import named_pipe

KEY = b"SECRET SECRET 16"


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "ring.json"


@pytest.fixture
def ring(path) -> Keyring:
    return Keyring.create(path)


def test_a_new_keyring_is_empty_and_private(path):
    ring = Keyring.create(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ring.names() == Keyring(path).names() == []
    assert json.loads(path.read_bytes()) == {"version": 1, "keys": {}}


def test_create_is_private_whatever_the_umask(path):
    before = os.umask(0)
    try:
        Keyring.create(path).add("a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_create_never_overwrites(ring, path):
    ring.add("a", KEY)
    before = path.read_bytes()
    with pytest.raises(KeyringError, match="already exists") as caught:
        Keyring.create(path)
    assert caught.value.file == str(path)
    assert path.read_bytes() == before
    path.with_name("link").symlink_to("nowhere")
    with pytest.raises(KeyringError):
        Keyring.create(path.with_name("link"))


def test_create_leaves_nothing_where_all_users_can_replace_it(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(KeyringError, match="all users can replace it"):
        Keyring.create(tmp_path / "keys.json")
    assert not list(tmp_path.iterdir())


def test_create_where_nothing_can_be(tmp_path):
    with pytest.raises(KeyringError, match="cannot be created"):
        Keyring.create(tmp_path / "no folder" / "ring")


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_new_keys_are_random_and_of_the_size_asked_for(ring, path, bits):
    for name in ("a", "b"):
        ring.add(name, bits=bits)
    stored = {name: base64.b64decode(key)
              for name, key in json.loads(path.read_bytes())["keys"].items()}
    assert [len(key) * 8 for key in stored.values()] == [bits, bits]
    assert stored["a"] != stored["b"]


def test_added_keys_serve_at_once_and_for_others(ring, path):
    ring.add("näme / 1", KEY)
    wrapped = ring.wrap_key(b"data", "näme / 1")
    assert Keyring(path).unwrap_key(wrapped, "näme / 1") == b"data"
    assert InMemoryKms({"näme / 1": KEY}).unwrap_key(wrapped, "näme / 1") == b"data"
    assert ring.names() == ["näme / 1"]
    with pytest.raises(KeyNotFoundError):
        ring.wrap_key(b"data", "b")
    ring.add("b")
    with pytest.raises(KeyUnwrapError):
        ring.unwrap_key(wrapped, "b")


def test_a_name_is_taken_once(ring, path):
    ring.add("a", KEY)
    before = path.read_bytes()
    for other in (ring, Keyring(path)):
        with pytest.raises(KeyringError, match="'a' already exists"):
            other.add("a")
    assert path.read_bytes() == before


@pytest.mark.parametrize(("name", "options"), [
    ("", {}), ("a\n", {}), ("\0", {}), ("a", {"bits": 64}), ("a", {"bits": 0}), ("a", {"key": b""}),
    ("a", {"key": b"x" * 17}), ("a", {"key": "text of 16 chars"})])
def test_what_cannot_be_added(ring, path, name, options):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="key"):
        ring.add(name, **options)
    assert path.read_bytes() == before
    assert ring.names() == []


def test_the_name_of_a_key_is_text(ring, tmp_path):
    for action in (lambda: ring.add(b"pii"), lambda: Keyring.create(tmp_path / "new", keys=b"pii")):
        with pytest.raises(TypeError, match="the name of a key must be text, not"):
            action()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777])
def test_a_keyring_open_to_others_is_refused(ring, path, mode):
    path.chmod(mode)
    with pytest.raises(KeyringError, match="chmod 600"):
        Keyring(path)
    with pytest.raises(KeyringError, match="chmod 600"):
        ring.add("a")
    path.chmod(0o600)
    assert Keyring(path).names() == []


def test_nobody_is_told_to_change_the_mode_of_another_file(path):
    path.write_bytes(b"PAR1 and so on")
    path.chmod(0o644)
    with pytest.raises(KeyringError, match="not a keyring"):
        Keyring(path)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_modes_that_are_private(ring, path, mode):
    path.chmod(mode)
    assert Keyring(path).names() == []


GOOD = base64.b64encode(KEY).decode()


@pytest.mark.parametrize("content", [
    b"", b"{", b"\xff\xfe", b"[]", b"null", b"5", b"{}", b'{"version": 1}', b"[" * 200_000,
    b'{"version": 1, "keys": []}', b'{"version": 1, "keys": {"a": 5}}',
    b'{"version": 1, "keys": {"a": "no base64!"}}', b'{"version": 1, "keys": {"a": "AAAA"}}',
    b'{"keys": {"a": "%s"}}' % GOOD.encode()], ids=range(14))
def test_malformed_files_are_refused(ring, path, content):
    path.write_bytes(content)
    with pytest.raises(KeyringError, match="not a keyring") as caught:
        Keyring(path)
    assert caught.value.file == str(path)
    with pytest.raises(KeyringError):
        ring.add("a")
    assert path.read_bytes() == content


def test_another_version_is_refused(ring, path):
    path.write_text(json.dumps({"version": 3, "keys": {}}))
    with pytest.raises(KeyringError, match="version 3"):
        Keyring(path)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(KeyringError, match="keyring create"):
            Keyring(path)


def run_three_at_once(code, path):
    """Run code in three processes, which begin together; it is given the path and a number."""
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), str(number)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                 for number in range(3)]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    for process in processes:
        process.stdout.close()


def test_it_is_pickled_as_its_path(ring, path):
    ring.add("a", KEY)
    pickled = pickle.dumps(ring)
    assert KEY not in pickled
    wrapped = ring.wrap_key(b"data", "a")
    assert pickle.loads(pickled).unwrap_key(wrapped, "a") == b"data"
    path.unlink()
    with pytest.raises(KeyringError):
        pickle.loads(pickled)


def test_no_key_shows(ring, path):
    ring.add("a", KEY)
    assert repr(ring) == str(ring) == f"<Keyring {path} with keys ['a']>"
    for content in (path.read_bytes() + b"x", path.read_bytes().replace(b'"version": 1', b"")):
        path.write_bytes(content)
        with pytest.raises(KeyringError) as caught:
            Keyring(path)
        shown = f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
        assert "SECRET" not in shown
        assert GOOD not in shown


def test_keys_added_elsewhere_serve_at_once(ring, path):
    Keyring(path).add("a", KEY)
    assert ring.names() == ["a"]
    Keyring(path).add("b", KEY)
    assert ring.unwrap_key(ring.wrap_key(b"data", "b"), "b") == b"data"
    path.unlink()
    with pytest.raises(KeyringError):
        ring.wrap_key(b"data", "a")


@pytest.mark.parametrize("passphrase", [None, "SECRET pass phräse"])
def test_who_reads_the_file_undoes_nothing(path, monkeypatch, passphrase):
    """A thread that has read the old file, and goes on when others have changed it."""
    ring, real, is_first = Keyring.create(path, passphrase), keyring_file.read, [True]
    Keyring(path, passphrase).add("a")

    def overtaken(*arguments):
        content = real(*arguments)
        if is_first:
            is_first.clear()
            Keyring(path, passphrase).add("precious")
            ring.add("b")
        return content

    monkeypatch.setattr(keyring_file, "read", overtaken)
    ring.names()
    assert ring.names() == Keyring(path, passphrase).names() == ["a", "b", "precious"]
    ring.add("c")
    assert Keyring(path, passphrase).names() == ["a", "b", "c", "precious"]


def test_a_link_stays_one(ring, path):
    link = path.with_name("link.json")
    link.symlink_to(path)
    Keyring(link).add("a")
    assert link.is_symlink() and Keyring(path).names() == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_does_not_take_a_keyring_away(ring, path):
    os.chown(path, 12345, 23456)
    Keyring(path, owner=12345).add("a")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_keyring_of_another_user_is_refused(path, passphrase_file, monkeypatch):
    ring = Keyring.create(path, PASSPHRASE)
    ring.add("a", KEY)
    me = os.geteuid()
    owners = {"keyring": path, "passphrase file": passphrase_file}
    fstat = os.fstat

    def owned_by_another(descriptor):
        status = fstat(descriptor)
        is_it = status.st_ino == owners["foreign"].stat().st_ino
        return os.stat_result((*status[:4], 12345 if is_it else me, *status[5:10]))

    monkeypatch.setattr(keyring_file.os, "fstat", owned_by_another)
    for name in ("keyring", "passphrase file"):
        owners["foreign"] = owners[name]
        with pytest.raises(KeyringError, match=r"belongs to user 12345.*owner=12345") as caught:
            Keyring(path, passphrase_file=passphrase_file)
        assert caught.value.file == str(owners[name])
        uri = f"keyring:{path}?passphrase-file={passphrase_file}&owner="
        with pytest.raises(KeyringError, match="belongs to user"):
            open_kms(f"{uri}12346")
        trusting = open_kms(f"{uri}12345")
        assert pickle.loads(pickle.dumps(trusting)).names() == ["a"]


def test_a_keyring_that_all_users_can_replace_is_refused(ring, path, tmp_path):
    """With a link to a file of the user's, such as an upload, which the owner does not show."""
    tmp_path.chmod(0o777)
    linked = tmp_path / "private"
    linked.mkdir()
    (linked / "link.json").symlink_to(path)
    for name in (path, linked / "link.json"):
        with pytest.raises(KeyringError, match="chmod o-w"):
            Keyring(name)
    with pytest.raises(KeyringError, match="chmod o-w"):
        ring.add("a")
    for mode in (0o1777, 0o775, 0o700):  # only the owner of a file may replace it in the first
        tmp_path.chmod(mode)
        assert Keyring(path).names() == []


def test_what_a_killed_process_left_is_removed(ring, path):
    left = path.with_name(f".{path.name}.abcdefgh.keyring.tmp")
    left.write_text("master keys")
    others = path.with_name(f".{path.name}.backup")
    others.write_text("not ours")
    ring.add("a")
    assert not left.exists() and others.exists()


# --- changing what is in it ----------------------------------------------------------------------

OTHER = b"OTHER OTHER OTHER OTHER OTHER 32"


def test_a_removed_key_is_gone_and_others_stay(ring, path):
    ring.add("a", KEY)
    ring.add("b", OTHER)
    wrapped = ring.wrap_key(b"data", "a")
    Keyring(path).remove("a")
    assert ring.names() == Keyring(path).names() == ["b"]
    with pytest.raises(KeyNotFoundError, match="no master key named 'a'; available: b"):
        ring.unwrap_key(wrapped, "a")
    before = path.read_bytes()
    with pytest.raises(KeyNotFoundError) as caught:
        ring.remove("a")
    assert caught.value.file == str(path) and path.read_bytes() == before
    ring.add("a", KEY)
    assert ring.unwrap_key(wrapped, "a") == b"data"


def test_a_renamed_key_opens_what_was_wrapped_under_its_name_only(ring, path):
    ring.add("a", KEY)
    ring.add("b", OTHER)
    wrapped = ring.wrap_key(b"data", "a")
    Keyring(path).rename("a", "c")
    assert ring.names() == ["b", "c"] and ring.export("c") == KEY
    with pytest.raises(KeyUnwrapError):
        ring.unwrap_key(wrapped, "c")
    before = path.read_bytes()
    for old, new, error in (("a", "d", KeyNotFoundError), ("b", "c", KeyringError),
                            ("b", "b", KeyringError), ("b", "", ValueError),
                            ("b", "x\n", ValueError)):
        with pytest.raises(error):
            ring.rename(old, new)
    assert path.read_bytes() == before
    ring.rename("c", "a")
    assert ring.unwrap_key(wrapped, "a") == b"data"


def test_a_subset_is_a_private_keyring_of_its_own(ring, path, tmp_path):
    for name, key in (("a", KEY), ("b", OTHER), ("c", KEY)):
        ring.add(name, key)
    before, new = path.read_bytes(), tmp_path / "reader.json"
    subset = ring.subset(new, ["c", "a"], passphrase=None)
    assert subset.names() == Keyring(new).names() == ["a", "c"]
    assert stat.S_IMODE(new.stat().st_mode) == 0o600 and path.read_bytes() == before
    assert base64.b64encode(OTHER) not in new.read_bytes()
    assert Keyring(new).unwrap_key(ring.wrap_key(b"data", "a"), "a") == b"data"
    with pytest.raises(KeyringError, match="already exists"):
        ring.subset(new, ["b"], passphrase=None)
    for names, error in ((["a", "x"], KeyNotFoundError), ([], ValueError)):
        with pytest.raises(error):
            ring.subset(tmp_path / "none.json", names, passphrase=None)
    assert sorted(os.listdir(tmp_path)) == ["reader.json", "ring.json"]
    assert Keyring(new).names() == ["a", "c"]


def test_a_subset_says_whether_it_has_a_passphrase(ring, path):
    ring.add("a", KEY)
    with pytest.raises(TypeError, match="passphrase"):
        ring.subset(path.with_name("new"), ["a"])
    new = ring.subset(path.with_name("new"), ["a"], passphrase=lambda: PASSPHRASE)
    assert new.has_passphrase and not ring.has_passphrase
    assert Keyring(path.with_name("new"), PASSPHRASE).export("a") == KEY
    assert base64.b64encode(KEY) not in path.with_name("new").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize("change", [
    lambda ring: ring.add("b"), lambda ring: ring.remove("a"), lambda ring: ring.rename("a", "b"),
    lambda ring: ring.set_passphrase(PASSPHRASE)], ids=["add", "remove", "rename", "passphrase"])
def test_a_failure_in_the_middle_of_a_change_leaves_the_old_file(ring, path, monkeypatch, change,
                                                                 broken):
    ring.add("a", KEY)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="no space left"):
        change(ring)
    monkeypatch.undo()
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]
    assert ring.names() == ["a"] and not ring.has_passphrase
    change(ring)


def test_a_file_that_cannot_be_written_is_not_left_half(ring, path, monkeypatch):
    ring.add("a", KEY)

    def fail(_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyringError, match="no space left"):
        ring.subset(path.with_name("new"), ["a"], passphrase=None)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.slow
def test_changes_wait_for_each_other(ring, path):
    code = ("import sys; from secure_bloom.keys import Keyring; ring = Keyring(sys.argv[1])\n"
            "print('ready', flush=True); sys.stdin.read(); me = sys.argv[2]\n"
            "for i in range(15):\n"
            "    ring.add(f'{me}-{i}'); ring.rename(f'{me}-{i}', f'{me}:{i}')\n"
            "    if i % 2: ring.remove(f'{me}:{i}')")
    run_three_at_once(code, path)
    assert Keyring(path).names() == sorted(f"{n}:{i}" for n in range(3) for i in range(0, 15, 2))


# --- with a passphrase ---------------------------------------------------------------------------

PASSPHRASE = "SECRET pass phräse"


@pytest.fixture
def sealed(path) -> Keyring:
    ring = Keyring.create(path, PASSPHRASE)
    ring.add("a", KEY)
    return ring


@pytest.fixture
def passphrase_file(tmp_path) -> Path:
    path = tmp_path / "passphrase"
    path.write_text(PASSPHRASE + "\r\n")
    path.chmod(0o600)
    return path


def test_a_passphrase_seals_keys_and_names(sealed, path):
    content = path.read_bytes()
    assert KEY not in content and base64.b64encode(KEY) not in content and b'"a"' not in content
    wrapped = sealed.wrap_key(b"data", "a")
    assert Keyring(path, PASSPHRASE).unwrap_key(wrapped, "a") == b"data"
    assert Keyring(path, lambda: PASSPHRASE).names() == ["a"]
    sealed.add("b")
    assert Keyring(path, PASSPHRASE).names() == ["a", "b"]


@pytest.mark.slow
def test_the_passphrase_is_made_into_a_key_by_scrypt(path, monkeypatch, make_at_full_cost):
    """RFC 7914 and AES-256-GCM, with 128 MiB of memory."""
    monkeypatch.setattr(keyring_file.SealingKey, "make", make_at_full_cost)
    Keyring.create(path, PASSPHRASE).add("a", KEY)
    document = json.loads(path.read_bytes())
    made = document["scrypt"]
    assert (made["n"], made["r"], made["p"], document["version"]) == (2**17, 8, 1, 2)
    key = hashlib.scrypt(PASSPHRASE.encode(), salt=base64.b64decode(made["salt"]), n=made["n"],
                         r=8, p=1, maxmem=2**28, dklen=32)
    raw = base64.b64decode(document["sealed"])
    assert json.loads(AESGCM(key).decrypt(raw[:12], raw[12:], b"secure_bloom keyring 2")) \
        == {"a": base64.b64encode(KEY).decode()}


def test_a_passphrase_from_a_file(sealed, path, passphrase_file):
    ring = Keyring(path, passphrase_file=passphrase_file)
    again = pickle.loads(pickle.dumps(ring))
    assert again.unwrap_key(ring.wrap_key(b"data", "a"), "a") == b"data"
    assert b"SECRET" not in pickle.dumps(ring)
    passphrase_file.chmod(0o640)
    with pytest.raises(KeyringError, match="chmod 600"):
        Keyring(path, passphrase_file=passphrase_file)
    for content in (b"", b"\nsecond line", b"\xff"):
        passphrase_file.write_bytes(content)
        passphrase_file.chmod(0o600)
        with pytest.raises(KeyringError, match="passphrase"):
            Keyring(path, passphrase_file=passphrase_file)
    with pytest.raises(KeyringError, match="No such file"):
        Keyring(path, passphrase_file=path.with_name("none"))


def test_no_named_pipe_is_waited_for(sealed, path, tmp_path):
    with named_pipe(tmp_path / "pipe") as pipe:
        for options in ({"path": pipe}, {"path": path, "passphrase_file": pipe}):
            with pytest.raises(KeyringError, match=r"named pipe.*put a file in its place"):
                Keyring(**options)


def test_a_passphrase_from_a_pipe_of_the_shell(sealed, path):
    reads, writes = os.pipe()
    timer = threading.Timer(0.2, lambda: os.write(writes, f"{PASSPHRASE}\n".encode()))
    timer.start()  # nothing is there yet when it is opened
    try:
        assert Keyring(path, passphrase_file=f"/dev/fd/{reads}").names() == ["a"]
    finally:
        timer.join()
        os.close(reads)
        os.close(writes)


def test_a_given_passphrase_is_never_pickled(sealed, path):
    with pytest.raises(TypeError, match="passphrase_file="):
        pickle.dumps(sealed)


def test_a_wrong_or_missing_passphrase(sealed, path):
    with pytest.raises(KeyringError, match="the passphrase is wrong"):
        Keyring(path, "wrong")
    with pytest.raises(KeyringError, match="it needs a passphrase"):
        Keyring(path)
    with pytest.raises(ValueError, match="empty"):
        Keyring.create(path.with_name("b"), "")


def test_a_passphrase_is_asked_for_only_where_there_is_one(sealed, path):
    asked = []

    def ask(name):
        asked.append(name)
        return PASSPHRASE

    assert Keyring(path, ask=ask).names() == ["a"]
    sealed.set_passphrase(None)
    assert Keyring(path, ask=ask).names() == ["a"]
    assert asked == [str(path)]


@pytest.mark.parametrize("way", ["passphrase", "callable", "file", "URI", "asked for"])
def test_a_keyring_without_the_expected_passphrase_is_refused(sealed, path, passphrase_file, way):
    """Whoever puts it there without knowing the passphrase would choose the keys."""
    uri = f"keyring:{path}?passphrase-file={passphrase_file}&check-interval=0"
    open_it = {"passphrase": lambda: Keyring(path, PASSPHRASE),
               "callable": lambda: Keyring(path, lambda: PASSPHRASE),
               "file": lambda: Keyring(path, passphrase_file=passphrase_file),
               "URI": lambda: open_kms(uri),
               "asked for": lambda: Keyring(path, ask=lambda _: PASSPHRASE)}[way]
    running, content = open_it(), path.read_bytes()
    path.unlink()
    Keyring.create(path).add("a", OTHER)
    for _ in range(2):
        with pytest.raises(KeyringError, match="a passphrase was given, but the file has none"):
            running.wrap_key(b"data", "a")
        with pytest.raises(KeyringError, match="a passphrase was given, but the file has none"):
            running.add("b")
    if way != "asked for":
        with pytest.raises(KeyringError, match="restore the file from a backup"):
            open_it()
    path.write_bytes(content)
    assert running.export("a") == KEY


@pytest.mark.parametrize(("passphrase", "error"), [
    (lambda: None, TypeError), (lambda: b"bytes", TypeError), (lambda: "", ValueError)])
def test_what_is_no_passphrase(sealed, path, passphrase, error):
    for open_it in (Keyring, lambda _, given: Keyring.create(path.with_name("new"), given)):
        with pytest.raises(error, match="passphrase"):
            open_it(path, passphrase)
    assert not path.with_name("new").exists()


def test_an_error_about_bytes_that_are_not_text_does_not_hold_the_passphrase(sealed, path):
    """As Python reads them from a terminal."""
    for ask in (lambda: Keyring(path, "SECRET\udcff"), lambda: sealed.set_passphrase("S\udcff")):
        with pytest.raises(ValueError, match="not valid Unicode") as caught:
            ask()
        assert type(caught.value) is ValueError and caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_faults_of_asking_for_the_passphrase_are_not_those_of_the_file(sealed, path):
    def ask():
        raise KeyError("no such setting")

    with pytest.raises(KeyError, match="no such setting"):
        Keyring(path, ask)


def test_a_changed_passphrase(sealed, path):
    sealed.set_passphrase("SECRET and another")
    assert sealed.names() == Keyring(path, "SECRET and another").names() == ["a"]
    with pytest.raises(KeyringError):
        Keyring(path, PASSPHRASE)
    sealed.set_passphrase(None)
    assert Keyring(path).names() == ["a"]
    sealed.set_passphrase(PASSPHRASE)
    Keyring(path, PASSPHRASE).add("b")
    assert sealed.names() == ["a", "b"]


def test_the_passphrase_file_of_an_old_passphrase_is_not_pickled(sealed, path, passphrase_file):
    ring = Keyring(path, passphrase_file=passphrase_file)
    ring.set_passphrase("SECRET and another")
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(ring)


@pytest.mark.parametrize(("passphrase", "why"), [
    ("short 7fQ!x", "fewer than 12"), ("aaaaaaaaaaaaaaaa", "different"),
    ("abcabcabcabcabc", "different"),
    ("1234567890123", "no letters"), ("2024-12-31 23:59", "no letters"),
    ("Password1234!", "common"), ("passwordPASSWORD", "common"), ("!!Secret!!2024", "common"),
    ("change-me 12345", "common"), ("qwertyuiop123", "sequence"), ("zyxwvutsrqpon", "sequence"),
    ("asdfghjkl;'12", "sequence")])
def test_a_weak_passphrase_is_warned_about(path, passphrase, why):
    assert why in weakness(passphrase)
    with pytest.warns(WeakPassphraseWarning, match=why) as caught:
        ring = Keyring.create(path, passphrase)
        ring.add("a")
        ring.set_passphrase(None)
        ring.set_passphrase(passphrase)
        ring.subset(path.with_name("subset"), ["a"], passphrase=passphrase)
    ours = [one for one in caught if one.category is WeakPassphraseWarning]
    assert len(ours) == 3  # others may come from objects of other tests
    assert {warning.filename for warning in ours} == {__file__}
    assert not [warning for warning in caught if passphrase in str(warning.message)]


@pytest.mark.parametrize("passphrase", [
    "correct horse battery staple", "SECRET pass phräse", "kR7#vVq2Lm!z", "8402 1175 9936 0274 61",
    "пароль из нескольких слов", "passwords are not for sharing"])
def test_other_passphrases_are_not_warned_about(path, passphrase):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Keyring.create(path, passphrase)
        Keyring(path, passphrase).add("a")


def test_every_changed_byte_of_a_sealed_keyring_is_noticed(sealed, path):
    document = json.loads(path.read_bytes())
    raw = base64.b64decode(document["sealed"])
    for position in range(0, len(raw), 5):
        changed = bytearray(raw)
        changed[position] ^= 1
        path.write_text(json.dumps({**document, "sealed": base64.b64encode(changed).decode()}))
        with pytest.raises(KeyringError, match="the file was changed"):
            Keyring(path, PASSPHRASE)


@pytest.mark.parametrize(("name", "value"), [
    ("n", 2**40), ("n", 3), ("n", 0), ("n", -2), ("n", "many"), ("r", 2**20), ("r", 0),
    ("p", 2**20), ("p", 0), ("salt", "no base64!"), ("salt", None), ("n", float("inf")),
    ("n", 1024.0), ("n", True), ("r", 2**23)])
def test_hostile_parameters_are_refused_at_once(sealed, path, name, value, monkeypatch):
    monkeypatch.setattr(keyring_file.SealingKey, "derive", None)
    document = json.loads(path.read_bytes())
    document["scrypt"][name] = value
    path.write_text(json.dumps(document))
    with pytest.raises(KeyringError):
        Keyring(path, PASSPHRASE)


@pytest.mark.parametrize(("n", "r", "p"), [
    (2**16, 1, 1), (2**22, 1, 1), (2**19, 8, 5), (2**17, 8, 17), (2, 8, 2**21 + 1)])
def test_parameters_that_are_hostile_together_are_refused(sealed, path, monkeypatch, n, r, p):
    """OpenSSL does not know the first ones; the others take 17 times as long as ours, or more."""
    monkeypatch.setattr(keyring_file.SealingKey, "derive", None)
    document = json.loads(path.read_bytes())
    document["scrypt"].update(n=n, r=r, p=p)
    path.write_text(json.dumps(document))
    with pytest.raises(KeyringError, match="more memory or time"):
        Keyring(path, PASSPHRASE)


@pytest.mark.parametrize(("n", "r", "p"), [(2**15, 1, 1), (2, 1, 1), (2**10, 8, 16)])
def test_other_parameters_of_scrypt_serve(path, n, r, p):
    sealing = keyring_file.SealingKey.derive(PASSPHRASE, b"salt", n, r, p)
    keyring_file.create(path, keyring_file.Content({"a": KEY}, sealing))
    assert Keyring(path, PASSPHRASE).names() == ["a"]


def test_a_lack_of_memory_is_not_a_crash(sealed, path, monkeypatch):
    def exhausted(self, passphrase):
        raise MemoryError("SECRET")

    monkeypatch.setattr(keyring_file.Scrypt, "derive", exhausted)
    with pytest.raises(KeyringError, match="1 MiB of memory") as caught:
        Keyring(path, PASSPHRASE)
    assert caught.value.file == str(path)


def test_a_file_without_end_is_not_read_to_its_end(ring, path, monkeypatch):
    monkeypatch.setattr(keyring_file, "_MAX_SIZE", 100)
    ring.add("a")
    ring.add("b")
    with pytest.raises(KeyringError, match="not a keyring"):
        Keyring(path)


def test_no_variable_of_an_error_holds_a_master_key(sealed, path, tmp_path):
    sealed.add("b", OTHER)
    document = json.loads(path.read_bytes())
    wrapped = sealed.wrap_key(b"data", "a")

    def changed():
        path.write_text(json.dumps({**document, "sealed": f"AAAA{document['sealed'][4:]}"}))
        sealed.names()

    for mistake in (lambda: sealed.unwrap_key(wrapped, "none"), lambda: sealed.export("none"),
                    lambda: sealed.unwrap_key(wrapped, "b"), lambda: sealed.unwrap_key("", "a"),
                    lambda: sealed.remove("none"), lambda: sealed.rename("a", "b"),
                    lambda: sealed.rename("none", "c"), lambda: sealed.add("a"),
                    lambda: sealed.subset(tmp_path / "c", ["a", "none"], passphrase=None),
                    lambda: sealed.subset(path, ["a", "b"], passphrase=None), changed):
        with pytest.raises(SecureBloomError) as caught:
            mistake()
        shown = variables_of(caught.value)
        assert "<Keyring" in shown  # the search sees variables
        for key in (KEY, OTHER):
            assert key.decode() not in shown and base64.b64encode(key).decode() not in shown


def test_neither_key_nor_passphrase_shows(sealed, path, passphrase_file):
    shown = [repr(sealed), repr(keyring_file.read(path, lambda: PASSPHRASE))]
    for attempt in (lambda: Keyring(path, "SECRET wrong"),
                    lambda: Keyring.create(path, "SECRET wrong"),
                    lambda: Keyring(path, passphrase_file=path.with_name("none"))):
        with pytest.raises(KeyringError) as caught:
            attempt()
        shown += traceback.format_exception(caught.value)[1:]
    assert not [text for text in shown if "SECRET" in text.replace('"SECRET wrong"', "")]
