"""Metadata of fields that has values of rows: Polars stores all categories of an Enum there."""

import base64
import io
import re

import polars as pl
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    UniformKey,
    audit,
    read_table,
    write_dataset,
    write_table,
)
from secure_bloom.keys import NO_KEYS, ExplicitKeys, InMemoryKms
from tests.support import encrypted_arrow_file

KMS = InMemoryKms({"footer": b"f" * 16, "pii": b"p" * 16})
WARD = pl.Enum(["ward-1", "ward-2"])
DOCTOR = pl.Enum(["secret-1", "secret-2", "secret-3"])
FRAME = pl.DataFrame(
    {"ward": ["ward-1"], "doctor": ["secret-1"], "visit": [{"doctor": "secret-1", "day": 1}],
     "doctors": [["secret-1"]]},
    schema={"ward": WARD, "doctor": DOCTOR,
            "visit": pl.Struct({"doctor": DOCTOR, "day": pl.Int64}), "doctors": pl.List(DOCTOR)})
UNIFORM = ExplicitKeys(b"k" * 16)
COLUMNS = ["doctor", "visit.doctor", "doctors"]


def all_bytes(data: bytes) -> bytes:
    """The bytes of a file, and what they have in base64, such as an Arrow schema."""
    texts = re.findall(rb"[A-Za-z0-9+/]{40,}", data)
    return data + b"".join(base64.b64decode(text[:len(text) // 4 * 4]) for text in texts)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_categories_of_encrypted_columns_are_not_in_the_footer(tmp_path, plaintext_footer):
    encryption = EncryptionConfiguration("footer", {"pii": COLUMNS},
                                         plaintext_footer=plaintext_footer)
    write_table(FRAME, tmp_path / "a.parquet", encryption=encryption, keys=KMS)
    write_dataset(FRAME, tmp_path / "folder", encryption=encryption, keys=KMS)
    for path in (tmp_path / "a.parquet", *tmp_path.glob("folder/*.parquet")):
        assert b"secret" not in all_bytes(path.read_bytes())
        schema = ParquetFile(path, KMS).schema
        assert schema.field("ward").metadata and "secret" not in str(schema)
        assert pl.from_arrow(read_table(path, KMS)).cast(FRAME.schema).equals(FRAME)
        assert audit(path, KMS).ok


def test_categories_stay_where_the_key_of_the_column_is_that_of_the_footer():
    for plaintext_footer in (True, False):
        sink = io.BytesIO()
        encryption = UniformKey(b"k" * 16, plaintext_footer=plaintext_footer)
        write_table(FRAME, sink, encryption=encryption)
        assert b"secret" not in all_bytes(sink.getvalue())
        metadata = ParquetFile(sink.getvalue(), UNIFORM).schema.field("doctor").metadata
        assert (metadata is None) == plaintext_footer


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_an_audit_finds_categories_that_other_writers_store(tmp_path, plaintext_footer):
    path = tmp_path / "a.parquet"
    plain = io.BytesIO()
    FRAME.write_parquet(plain)
    stored = pq.read_table(plain)
    columns = ["doctor", "visit.doctor", "doctors.list.element"]
    encryption = pe.EncryptionConfiguration("footer", column_keys={"pii": columns},
                                            plaintext_footer=plaintext_footer)
    path.write_bytes(encrypted_arrow_file(stored, encryption, KMS)[0])
    found = [(finding.kind, finding.column) for finding in audit(path, KMS).findings
             if finding.kind != "statistics"]
    assert found == [("metadata", column) for column in columns]
    who = "anyone with the footer key" if not plaintext_footer else "but anyone can"
    assert all(who in finding.message and "secret" not in finding.message
               for finding in audit(path, KMS).findings if finding.kind == "metadata")
    if plaintext_footer:
        assert "metadata" in {one.kind for one in audit(path, NO_KEYS).findings}
