"""A plaintext footer says nothing about the values of encrypted columns, whoever signed it last."""

import pytest

from secure_bloom import ParquetFile, attach, audit, erase, seal, strip, write_table
from secure_bloom.keys import InMemoryKms, rotate_master_keys
from secure_bloom.parquet.redaction import revealed_fields
from tests.forging import with_exposed_metadata, with_open_metadata
from tests.maintain.helpers import KEYS, KMS, SIGNED, TABLE, without

REVEALING = [8, 12, 13, 16, 17]


def exposed(path, column: str = "ssn") -> set[int]:
    """The fields of ColumnMetaData that can be read without a key, and what we say of them."""
    file = ParquetFile(path)
    chunks = [chunk for chunk in file.footer.column_chunks() if chunk.column.path == column]
    return {field for chunk in chunks for field in revealed_fields(chunk)}


def exposing(path, **options):
    write_table(TABLE, path, bloom_filters=["ssn"], keys=KMS, encryption=SIGNED,
                row_group_size=40, **options)
    data = with_exposed_metadata(path.read_bytes(), KMS, "ssn", REVEALING)
    path.write_bytes(data)
    return path


def rotate(path):
    kms = InMemoryKms({**KEYS, "new": b"n" * 16})
    rotate_master_keys(path, kms, old="footer", new="new")
    return kms


CHANGES = {
    "attach": lambda path: attach(path, ["name"], KMS),
    "strip": lambda path: strip(path, KMS),
    "seal": lambda path: seal(path, KMS),
    "seal without the key of the column": lambda path: seal(path, without("pii")),
    "erase": lambda path: erase(path, "ssn", ["000000007"], KMS),
    "rotate": rotate,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_signs_a_plaintext_footer_redacts_it(tmp_path, change):
    path = exposing(tmp_path / "a.parquet")
    assert exposed(path) == set(REVEALING)
    statistics = [chunk.statistics for chunk in ParquetFile(path, KMS).footer.column_chunks()]
    keys = CHANGES[change](path)
    assert exposed(path) == set()
    file = ParquetFile(path, keys if change == "rotate" else KMS)
    if change != "erase":  # readers with the key still have everything
        assert [chunk.statistics for chunk in file.footer.column_chunks()] == statistics
        assert file.read().equals(TABLE)
    assert not [finding for finding in audit(path).findings if finding.kind == "statistics"]


def test_pyarrow_leaves_size_statistics_and_the_writer_does_not(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, bloom_filters=["ssn"], keys=KMS, encryption=SIGNED)
    assert exposed(path) == exposed(path, "name") == set()  # name has no filter
    assert ParquetFile(path, KMS).read().equals(TABLE)
    chunks = ParquetFile(path, KMS).footer.row_groups[0]
    assert all(chunk.metadata().get(16) is not None for chunk in chunks)


def test_metadata_without_a_module_is_not_sealed(tmp_path):
    """It may have been changed by whoever has the footer key: the file has to be written again."""
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, keys=KMS, encryption=SIGNED)
    path.write_bytes(with_open_metadata(path.read_bytes(), KMS, "ssn", (b"y", b"z")))
    assert "rewrite" in audit(path).findings[0].remedy
    assert seal(path, KMS).unchanged == 1 and exposed(path) == {12, 13, 16}
