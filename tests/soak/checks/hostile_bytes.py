"""Hostile files give typed errors: no crash, no hang, no memory that they claim."""

from __future__ import annotations

import io
import time
import tracemalloc

import pyarrow as pa

import secure_bloom
from secure_bloom.errors import SecureBloomError
from secure_bloom.keys import InMemoryKms, Keyring
from secure_bloom.lance import index as _lance  # noqa: F401  # imported before memory is measured
from secure_bloom.parquet.footer import Footer, split_tail
from secure_bloom.parquet.header import decode_header
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check
from tests.soak.generators import damaged, small_file

_SECONDS = 20.0  # a bound against hangs, not a measurement: machines are busy
_MEMORY = 64 * 2**20


def _try(case: Case) -> None:
    data, mode, _ = small_file(case)
    ring = case.folder / "keyring.json"
    Keyring.create(ring).add("k")
    _, content, magic = split_tail(data)
    inputs = {"file": (data, lambda hostile: _read(hostile, mode.keys)),
              "footer": (content, lambda hostile: _footer(hostile, magic)),
              "footer of a file": (content, lambda hostile: _read(
                  data[:len(data) - 8 - len(content)] + hostile
                  + len(hostile).to_bytes(4, "little") + magic, mode.keys)),
              "header": (b"\x15\x80\x01\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00",
                         decode_header),
              "keyring": (ring.read_bytes(), lambda hostile: _keyring(ring, hostile))}
    for _ in range(10):
        what = case.random.choice(list(inputs))
        original, consume = inputs[what]
        hostile = damaged(case, original)
        tracemalloc.start()
        start = time.monotonic()
        try:
            consume(hostile)
            outcome = "accepted"
        except SecureBloomError as error:
            outcome = type(error).__name__
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert time.monotonic() - start < _SECONDS, f"{what} took too long"
        assert peak < _MEMORY + 4 * len(hostile), f"{what} took {peak} bytes"
        case.counts[f"{what}: {outcome}"] += 1
        case.tried += 1


def _read(data: bytes, keys: object) -> None:
    with secure_bloom.ParquetFile(io.BytesIO(data), keys) as file:
        file.prune([("secret", "==", 7)])
        _ = file.bloom_filters
        file.might_contain("secret", pa.array([1, 2, 3]))


def _footer(content: bytes, magic: bytes) -> None:
    footer = Footer(content, magic)
    for chunk in footer.column_chunks():
        _ = chunk.encryption, chunk.statistics


def _keyring(path, data: bytes) -> None:
    path.write_bytes(data)
    ring = Keyring(path)
    InMemoryKms(MASTER_KEYS)
    ring.wrap_key(b"0123456789012345", "k")


CHECK = Check("hostile_bytes", "hostile bytes give a typed error, and take neither time nor memory",
              "inputs", 10**7, _try)
