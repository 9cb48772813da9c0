"""Encrypted people for the tests of engines."""

from typing import NamedTuple

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.datasets.dataset import Dataset
from secure_bloom.keys import KmsClient
from tests.support import kms

ROW_GROUPS, ROWS_OF_GROUP = 12, 50  # of all files together


class People(NamedTuple):
    """Three files of four row groups; the column ``ssn`` has its own key and a Bloom filter."""

    folder: str
    kms: KmsClient
    rows: pa.Table

    def open(self, **options) -> Dataset:
        """Return the files as a data set."""
        return secure_bloom.dataset(self.folder, self.kms, **options)


def ssn(number: int) -> str:
    """Return the number of a person; the numbers are not in order."""
    return f"{number * 7919 % 600:03}-00"


@pytest.fixture
def people(tmp_path) -> People:
    count = ROW_GROUPS * ROWS_OF_GROUP
    rows = pa.table({"id": range(count), "ssn": [ssn(number) for number in range(count)],
                     "city": ["Rome", "Oslo", None, "Lima"] * (count // 4),
                     "score": [number / 4 for number in range(count)]})
    folder = tmp_path / "people"
    folder.mkdir()
    for name in range(3):
        part = rows.slice(name * count // 3, count // 3)
        with secure_bloom.ParquetWriter(
                folder / f"{name}.parquet", rows.schema, bloom_filters={"ssn": True}, keys=kms(),
                encryption=EncryptionConfiguration("mf", {"mc": ["ssn"]})) as writer:
            for start in range(0, part.num_rows, ROWS_OF_GROUP):
                writer.write_table(part.slice(start, ROWS_OF_GROUP))
    return People(str(folder), kms(), rows)
