"""A KMS that misbehaves gives typed errors; no row is lost, and nothing left behind holds a secret.

A fork of this process writes, reads and rotates with a KMS that is slow, lies, returns other keys,
denies, fails, or expires in the middle. It logs everything, prints all errors with the objects of
secure_bloom in their frames, and at the end looks at the files that it has mapped or open. Then
this process searches all that the fork has left for keys and values.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom import ParquetFile
from secure_bloom.crypto.aes_gcm import KEY_SIZES
from secure_bloom.errors import KeyAccessError, KmsUnavailableError, SecureBloomError
from secure_bloom.index import Index
from secure_bloom.keys import InMemoryKms, Keyring, kek, keyring_file, kms, rotate_master_keys
from tests.soak.check import Case, Check
from tests.test_secrets import forms

_ATTEMPTS = 25
_NAMES = "footer", "pii", "new"
_CODE = re.compile(r"\.(so[.\d]*|py|pyc|jar|ttf|gz|dat|mo)$|/(locale|gconv)/"
                   r"|^/usr/|^/dev/(?!shm/)")


def _try(case: Case) -> None:
    master = {name: case.random.randbytes(16) for name in _NAMES}
    values = [f"ssn-{case.random.randbytes(8).hex()}" for _ in range(40)]
    left, notes = case.folder / "left", case.folder / "notes"
    left.mkdir()
    child = os.fork()
    if child == 0:
        try:
            _leave_traces(left, notes, case.random, master, values)
            os._exit(0)
        except BaseException:
            (case.folder / "failure").write_text(traceback.format_exc())
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    failure = case.folder / "failure"
    assert code == 0, failure.read_text() if failure.exists() else f"exit code {code}"
    lines = notes.read_text().splitlines()
    secrets = {bytes.fromhex(line[1:]) for line in lines if line[0] == "k"}
    case.counts += Counter(line[1:] for line in lines if line[0] == "o")
    found = [path.name for path in left.rglob("*") if path.is_file()
             if _holds(path.read_bytes(), secrets, values)]
    assert not found, f"a secret is in {found}"
    assert len(secrets) > len(master)
    case.tried += sum(line[0] == "o" for line in lines)
    case.counts["files searched"] += sum(path.is_file() for path in left.rglob("*"))


def _holds(content: bytes, secrets: set[bytes], values: list[str]) -> bool:
    return any(form in content for key in secrets for form in forms(key)) \
        or any(value.encode() in content or value.encode().hex().encode() in content
               for value in values)


# --- a KMS that misbehaves -----------------------------------------------------------------------

class Planned(ConnectionError):
    """An error of the KMS client itself, which is passed on."""


class BadKms(InMemoryKms):
    """Does something wrong in some of its calls; from one on, it always denies."""

    def __init__(self, keys: dict[str, bytes], choose: random.Random, share: float):
        super().__init__(keys)
        self.choose, self._share = choose, share
        self._expires = choose.choice([3, 10, 1000]) if share else 1000
        self._seen = [choose.randbytes(16)]

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> Any:
        wrapped = super().wrap_key(key_bytes, master_key_identifier)
        return self._answer(wrapped, [None, "", b"\xff", 7, "no base64", wrapped[:-4], super()
                            .wrap_key(self._seen[0][:16], master_key_identifier)])

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> Any:
        key = super().unwrap_key(wrapped_key, master_key_identifier)
        self._seen.append(key)
        return self._answer(key, [None, "", b"", "text", key[:7], key + b"x",
                                  self.choose.randbytes(len(key)),
                                  self.choose.choice(self._seen)])

    def _answer(self, right: Any, lies: list[Any]) -> Any:
        self._expires -= 1
        if self._expires < 0:
            raise KeyAccessError("the token has expired")
        if self.choose.random() >= self._share:
            return right
        how = self.choose.choice(["slow", "lies", "denies", "is down", "fails"])
        if how == "lies":
            return self.choose.choice(lies)
        if how == "slow":
            time.sleep(0.02)
            return right
        raise {"denies": KeyAccessError("denied"), "fails": Planned("reset by peer"),
               "is down": KmsUnavailableError("overloaded")}[how]


# --- what the fork does --------------------------------------------------------------------------

def _leave_traces(left: Path, notes: Path, choose: random.Random, master: dict[str, bytes],
                  values: list[str]) -> None:
    with open(notes, "w", buffering=1) as told:
        def tell(*keys: bytes) -> None:
            for key in keys:
                if len(key) in KEY_SIZES:  # a lie of the KMS may be shorter
                    told.write(f"k{key.hex()}\n")

        _spy(tell)
        tell(*master.values())
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(left / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False)  # noqa: SIM115
                                  for number in (1, 2))
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, force=True)
        tempfile.tempdir = str(left)
        table = pa.table({"id": range(len(values)), "ssn": values})
        lake = left / "lake"
        for part in (table[:25], table[25:]):
            _append(lake, InMemoryKms(master), part, choose)
        for _ in range(_ATTEMPTS):
            client = BadKms(master, choose, choose.choice([0, 0.05, 0.3]))
            told.write(f"o{_attempt(lake, client, choose, table)}\n")
        rows = secure_bloom.read_table(lake, InMemoryKms(master)).sort_by("id").to_pylist()
        assert rows in (table.to_pylist(), table[:-1].to_pylist()), "rows were lost"
        _keyring(left / "keys.json", master, choose)
        assert not (where := _in_memory_files(set(master.values()), values, notes)), where


def _spy(tell: Callable[..., None]) -> None:
    """Learn all keys that are wrapped, or that wrap."""
    real = kms.wrap_locally

    def wrap_locally(key: bytes, plaintext: bytes, aad: bytes) -> str:
        tell(key, plaintext)
        return real(key, plaintext, aad)

    for module in (kms, kek, keyring_file):
        module.wrap_locally = wrap_locally  # type: ignore[attr-defined]


def _attempt(lake: Path, client: BadKms, choose: random.Random, table: pa.Table) -> str:
    """Do something; return the outcome. A result must be right, and an error typed."""
    name, action = choose.choice(list(_ACTIONS.items()))
    try:
        action(lake, client, table)
    except (SecureBloomError, Planned, FileNotFoundError) as error:
        traceback.print_exc()
        for frame, _ in traceback.walk_tb(sys.exc_info()[2]):
            for value in list(frame.f_locals.values()):  # as tools that report errors show them
                if type(value).__module__.startswith("secure_bloom"):
                    with contextlib.suppress(AttributeError):  # it was never finished
                        print(repr(value))
        return f"{name}: {type(error).__name__}"
    return f"{name}: done"


def _append(lake: Path, client: InMemoryKms, table: pa.Table, choose: random.Random) -> None:
    secure_bloom.write_dataset(
        table, lake, mode="append", keys=client, bloom_filters=["ssn"], row_group_size=10,
        encryption=EncryptionConfiguration("footer", column_keys={"pii": ["ssn", "id"]},
                                           double_wrapping=choose.random() < 0.7))


def _write(lake: Path, client: BadKms, table: pa.Table) -> None:
    """Write elsewhere: what is wrapped by a KMS that lies can perhaps never be read."""
    _append(lake.with_name("written"), client, table, client.choose)


def _read(lake: Path, client: BadKms, table: pa.Table) -> None:
    rows = secure_bloom.read_table(lake, client).to_pylist()
    assert all(row in table.to_pylist() for row in rows)


def _find(lake: Path, client: BadKms, table: pa.Table) -> None:
    secure_bloom.find(lake, "ssn", table["ssn"][:3], client)


def _prune(lake: Path, client: BadKms, table: pa.Table) -> None:
    for path in lake.glob("*.parquet"):
        with ParquetFile(path, client) as file:
            assert 0 in file.prune([("ssn", "in", table["ssn"])])


def _erase(lake: Path, client: BadKms, table: pa.Table) -> None:
    print(repr(secure_bloom.erase(lake, "ssn", table["ssn"][-1].as_py(), client, max_share=1)))


def _rotate(lake: Path, client: BadKms, table: pa.Table) -> None:
    print(repr(rotate_master_keys(lake, client, old="pii", new="new")))
    print(repr(rotate_master_keys(lake, client, old="new", new="pii")))


def _attach(lake: Path, client: BadKms, table: pa.Table) -> None:
    print(repr(secure_bloom.attach(lake, ["id"], client)))


def _index(lake: Path, client: BadKms, table: pa.Table) -> None:
    print(repr(secure_bloom.index.build(lake, "ssn", client)))
    Index.open(lake, client).lookup("ssn", table["ssn"][:3])


_ACTIONS: dict[str, Callable[[Path, BadKms, pa.Table], None]] = {
    "write": _write, "read": _read, "find": _find, "prune": _prune, "erase": _erase,
    "rotate": _rotate, "attach": _attach, "index": _index}


def _keyring(path: Path, master: dict[str, bytes], choose: random.Random) -> None:
    """A keyring without a passphrase holds keys by design; with one, it must not."""
    if choose.random() < 0.2:  # a derivation takes a third of a second
        ring = Keyring.create(path, "correct horse battery staple")
        for name, key in master.items():
            ring.add(name, key)
        print(repr(ring), repr(Keyring(path, "correct horse battery staple")))


def _in_memory_files(secrets: set[bytes], values: list[str], notes: Path) -> list[str]:
    """Return mapped and open files that hold secrets, also those without a name."""
    found = {f"/proc/self/fd/{number}": os.readlink(f"/proc/self/fd/{number}")
             for number in os.listdir("/proc/self/fd") if os.path.isfile(f"/proc/self/fd/{number}")}
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, *_, path = [*line.split(maxsplit=5), ""][:6]
        if path.startswith("/"):
            found[f"/proc/self/map_files/{area}"] = path
    holding = []
    for where, path in found.items():
        if path == str(notes) or _CODE.search(path):
            continue
        with contextlib.suppress(OSError):
            if _holds(Path(where).read_bytes(), secrets, values):
                holding.append(path)
    return holding


CHECK = Check("secrets", "a KMS that misbehaves gives typed errors and loses no row, and nothing "
              "that is left holds a key or a value", "operations", 1_000, _try)
