"""The keyring file."""

import base64
import json
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from secure_bloom.errors import KeyNotFoundError, KeyringError, KeyUnwrapError
from secure_bloom.keys import InMemoryKms, Keyring

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
    with pytest.raises(KeyringError, match="exists already") as caught:
        Keyring.create(path)
    assert caught.value.file == str(path)
    assert path.read_bytes() == before
    path.with_name("link").symlink_to("nowhere")
    with pytest.raises(KeyringError):
        Keyring.create(path.with_name("link"))


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


def test_keys_added_elsewhere_are_kept(ring, path):
    Keyring(path).add("a")
    ring.add("b")
    assert ring.names() == Keyring(path).names() == ["a", "b"]


def test_a_name_is_taken_once(ring, path):
    ring.add("a", KEY)
    before = path.read_bytes()
    for other in (ring, Keyring(path)):
        with pytest.raises(KeyringError, match="'a' exists already"):
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


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777])
def test_a_keyring_open_to_others_is_refused(ring, path, mode):
    path.chmod(mode)
    with pytest.raises(KeyringError, match="chmod 600"):
        Keyring(path)
    with pytest.raises(KeyringError, match="chmod 600"):
        ring.add("a")
    path.chmod(0o600)
    assert Keyring(path).names() == []


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
    with pytest.raises(KeyringError, match="no keyring") as caught:
        Keyring(path)
    assert caught.value.file == str(path)
    with pytest.raises(KeyringError):
        ring.add("a")
    assert path.read_bytes() == content


def test_another_version_is_refused(ring, path):
    path.write_text(json.dumps({"version": 2, "keys": {}}))
    with pytest.raises(KeyringError, match="version 2"):
        Keyring(path)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(KeyringError, match="keyring create"):
            Keyring(path)


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_failure_in_the_middle_leaves_the_old_file(ring, path, monkeypatch, broken):
    ring.add("a", KEY)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="no space left"):
        ring.add("b")
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    assert ring.names() == ["a"]
    ring.add("b")
    assert Keyring(path).names() == ["a", "b"]


def test_processes_that_add_at_the_same_time_lose_nothing(ring, path):
    code = ("import sys; from secure_bloom.keys import Keyring; ring = Keyring(sys.argv[1])\n"
            "print('ready', flush=True); sys.stdin.read()\n"
            "for i in range(20): ring.add(f'{sys.argv[2]}-{i}')")
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
    assert Keyring(path).names() == sorted(f"{n}-{i}" for n in range(3) for i in range(20))
    assert os.listdir(path.parent) == [path.name]


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
