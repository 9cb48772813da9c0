"""The table and the keys that several benchmarks use: id, ssn, amt, city."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet.encryption as pe

from secure_bloom import EncryptionConfiguration
from secure_bloom.keys import Keyring

FILTERS = {"id": True, "ssn": True}
SENSITIVE = ["ssn", "amt"]
MASTER_KEYS = {"footer": bytes.fromhex("00112233445566778899aabbccddeeff"),
               "pii": bytes.fromhex("ffeeddccbbaa99887766554433221100")}


def people(rows: int, seed: int = 1) -> pa.Table:
    """Rows with ascending ids, random social security numbers, amounts, and 1,024 cities."""
    random = np.random.default_rng(seed)
    cities = pa.array([f"city {number}" for number in range(1024)])
    return pa.table({
        "id": np.arange(rows, dtype=np.int64) + seed * rows,
        "ssn": digits(random.integers(0, 10**9, rows)),
        "amt": random.integers(0, 2**20, rows) / 100.0,
        "city": cities.take(pa.array(random.integers(0, len(cities), rows)))})


def ten_columns(rows: int, random: np.random.Generator) -> pa.Table:
    """The four columns of people, and six more."""
    columns = people(rows, int(random.integers(1, 1000)))
    more = {"balance": random.normal(0, 1000, rows), "visits": random.integers(0, 50, rows),
            "opened": pa.array(random.integers(0, 20_000, rows).astype(np.int32)).view(pa.date32()),
            "token": random.integers(0, 2**62, rows), "score": random.random(rows),
            "note": columns["city"]}
    for name, values in more.items():
        columns = columns.append_column(name, values if isinstance(values, pa.ChunkedArray)
                                        else pa.array(values))
    return columns


def digits(numbers: np.ndarray) -> pa.StringArray:
    """Convert numbers to strings of nine digits."""
    text = np.empty((numbers.size, 9), np.uint8)
    for place in range(9):
        text[:, 8 - place] = ord("0") + numbers % 10
        numbers = numbers // 10
    offsets = np.arange(0, 9 * text.shape[0] + 1, 9, dtype=np.int32)
    return pa.StringArray.from_buffers(text.shape[0], pa.py_buffer(offsets),
                                       pa.py_buffer(text.tobytes()))


def keyring(path: Path) -> Keyring:
    """Create a keyring with the master keys."""
    ring = Keyring.create(path)
    for name, key in MASTER_KEYS.items():
        ring.add(name, key)
    return ring


def encryption() -> EncryptionConfiguration:
    """Configure encryption of the footer and the sensitive columns."""
    return EncryptionConfiguration("footer", column_keys={"pii": SENSITIVE})


class ArrowKms(pe.KmsClient):
    """A KMS client that lets pyarrow's own writer and reader use the keyring."""

    def __init__(self, ring: Keyring):
        super().__init__()
        self._ring = ring

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """See :class:`pyarrow.parquet.encryption.KmsClient`."""
        return self._ring.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """See :class:`pyarrow.parquet.encryption.KmsClient`."""
        return self._ring.unwrap_key(wrapped_key, master_key_identifier)


def arrow_properties(ring: Keyring) -> pe.FileEncryptionProperties:
    """Create the encryption properties for one file that pyarrow writes."""
    factory = pe.CryptoFactory(lambda _: ArrowKms(ring))
    configuration = pe.EncryptionConfiguration("footer", column_keys={"pii": SENSITIVE})
    return factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration)
