"""No AES-GCM nonce is used twice: by no process, by no fork, in no module of a file.

Forks of one process write files with one key. The modules of a file follow each other, so all their
nonces can be read from it, also those of the pages, which pyarrow encrypts. Nonces that are not
under that key, such as those of wrapped keys and of indexes, are collected where they are made.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom import ExplicitKeys, UniformKey
from secure_bloom.crypto.aes_gcm import NONCE_SIZE
from secure_bloom.crypto.modules import LENGTH_SIZE, ModuleCipher
from secure_bloom.keys import InMemoryKms, Keyring, rotate_master_keys
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check

_FORKS = 3
_MODULES = 500_000  # that each process encrypts with one key, beside those of files
_TAIL = 8  # bytes after the footer: its length, and the magic number
_ENCRYPTION = EncryptionConfiguration("kf", column_keys={"kc1": ["ssn"]})


def _try(case: Case) -> None:
    key = UniformKey(case.random.randbytes(16), algorithm=case.random.choice(
        ["AES_GCM_V1", "AES_GCM_CTR_V1"]))
    rows = case.random.choice([100, 20_000, 100_000])
    _work(case.folder / "before", key, 10)  # all generators have begun when the process is forked
    cipher = ModuleCipher(key.footer_key)
    children = [_fork(lambda number=number: _all_work(case.folder / str(number), key, rows, cipher))
                for number in range(_FORKS)]
    _all_work(case.folder / "parent", key, rows, cipher)
    assert all(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child in children)
    in_files = b"".join(nonce for path in case.folder.glob("*/*.parquet")
                        for nonce in _nonces(path))
    for what, nonces in {"in files": in_files, "of wrapped keys and indexes": _all(case, "made"),
                         "of modules": _all(case, "modules")}.items():
        assert nonces
        _check_distinct(nonces)
        case.counts[what] += len(nonces) // NONCE_SIZE
        case.tried += len(nonces) // NONCE_SIZE


def _all(case: Case, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in case.folder.glob(f"*/{name}"))


def _check_distinct(nonces: bytes) -> None:
    found = np.frombuffer(nonces, f"V{NONCE_SIZE}")
    starts = np.frombuffer(nonces, np.uint8).reshape(-1, NONCE_SIZE)[:, :8].copy()
    if len(np.unique(starts.view(np.uint64))) < len(found):  # probably all 12 bytes are equal
        assert len(set(found.tolist())) == len(found), "a nonce was used twice"


# --- what makes nonces ---------------------------------------------------------------------------

def _work(folder: Path, key: UniformKey, rows: int) -> None:
    """Write with one key, one page for a row, and do all else that encrypts."""
    folder.mkdir()
    random, made = os.urandom, bytearray()

    def noted(size: int) -> bytes:
        found = random(size)
        if size == NONCE_SIZE:
            made.extend(found)
        return found

    os.urandom = noted
    try:
        path = folder / "a.parquet"
        secure_bloom.write_table(
            pa.table({"a": range(rows)}), path, encryption=key, bloom_filters=["a"],
            data_page_size=1, write_batch_size=1, use_dictionary=False, compression="none",
            row_group_size=20_000)  # Arrow encrypts at most 32,767 pages of a column chunk
        secure_bloom.attach(path, {"a": {"fpp": 0.1}}, ExplicitKeys(key.footer_key), replace=True)
        _with_a_kms(folder / "lake", folder / "keys.json")
    finally:
        os.urandom = random
    (folder / "made").write_bytes(made)


def _all_work(folder: Path, key: UniformKey, rows: int, cipher: ModuleCipher) -> None:
    """Write, and encrypt many modules with a cipher that was made before this process."""
    _work(folder, key, rows)
    with open(folder / "modules", "wb") as file:
        for _ in range(_MODULES):
            file.write(cipher.encrypt(b"", b"")[LENGTH_SIZE:LENGTH_SIZE + NONCE_SIZE])


def _with_a_kms(lake: Path, ring: Path) -> None:
    kms = InMemoryKms(MASTER_KEYS)
    for part in range(2):
        secure_bloom.write_dataset(
            pa.table({"id": [part, part + 10], "ssn": [f"s{part}", "x"]}), lake, mode="append",
            encryption=_ENCRYPTION, keys=kms, bloom_filters=["ssn"])
    secure_bloom.index.build(lake, "ssn", kms)
    secure_bloom.erase(lake, "ssn", "s1", kms, max_share=1)
    rotate_master_keys(lake, kms, old="kc1", new="kc2")
    Keyring.create(ring).add("k")
    Keyring(ring).wrap_key(b"0" * 16, "k")


def _nonces(path: Path) -> list[bytes]:
    """Return the nonces of all modules of a file."""
    data = path.read_bytes()
    footer = len(data) - _TAIL - int.from_bytes(data[-_TAIL:-4], "little")
    found, place = [], LENGTH_SIZE
    while place < footer:
        found.append(data[place + LENGTH_SIZE:place + LENGTH_SIZE + NONCE_SIZE])
        place += LENGTH_SIZE + int.from_bytes(data[place:place + LENGTH_SIZE], "little")
    assert place == footer, f"{path.name}: its modules do not follow each other"
    while int.from_bytes(data[place:place + LENGTH_SIZE], "little") \
            != len(data) - _TAIL - place - LENGTH_SIZE:
        place += 1  # over what is before the module of the footer
    return [*found, data[place + LENGTH_SIZE:place + LENGTH_SIZE + NONCE_SIZE]]


def _fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


CHECK = Check("nonces", "no nonce is used twice, by no process and by no fork", "nonces", 10**8,
              _try)
