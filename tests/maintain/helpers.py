"""Files and keys of these tests."""

from pathlib import Path

import pyarrow as pa

from secure_bloom import EncryptionConfiguration
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.keys import InMemoryKms
from secure_bloom.reading.open_file import OpenFile

KEYS = {"footer": b"f" * 16, "pii": b"p" * 16, "other": b"o" * 16}
KMS = InMemoryKms(KEYS)
TABLE = pa.table({"ssn": [f"{i:09d}" for i in range(100)], "name": [f"n {i}" for i in range(100)],
                  "city": ["Rome", "Oslo"] * 50, "number": range(100)})
COLUMNS = {"pii": ["ssn"], "other": ["name"]}
ENCRYPTED = EncryptionConfiguration("footer", COLUMNS)
SIGNED = EncryptionConfiguration("footer", COLUMNS, plaintext_footer=True)
UNIFORM = EncryptionConfiguration("footer", uniform_encryption=True)
WAYS = {"encrypted footer": ENCRYPTED, "signed footer": SIGNED, "uniform": UNIFORM,
        "ctr": EncryptionConfiguration("footer", COLUMNS, encryption_algorithm="AES_GCM_CTR_V1")}


def without(*names) -> InMemoryKms:
    return InMemoryKms({name: key for name, key in KEYS.items() if name not in names})


def leaking(path: Path, encryption=SIGNED, columns=("ssn", "name", "city")) -> Path:
    """A file with 3 row groups and plaintext filters."""
    path.write_bytes(leaking_file(TABLE, columns, KMS, encryption=encryption,
                                  row_group_size=40))
    return path


def bitsets(path: Path, column: str) -> list[bytes]:
    """The plaintext bitsets that stand in the file where the footer says."""
    file = OpenFile(path, KMS)
    places = [chunks[[c.path for c in file.columns].index(column)].bloom_filter
              for chunks in file.footer.row_groups]
    return [file.read_at(length, offset)[-32:] for offset, length in places]
