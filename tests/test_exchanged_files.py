"""A file that is exchanged in place, with its size and time, after its footer was verified.

Nothing tells that the file has changed. So pyarrow must not read the footer once more: what is
planted would be read as a plaintext file.
"""

import io
import os

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom.errors import SecureBloomError
from secure_bloom.keys import InMemoryKms

KMS = InMemoryKms({name: name.encode().ljust(16) for name in ("footer", "pii")})
ROWS = 600


def table(name):
    return pa.table({"ssn": [f"{name}-{number:03}" for number in range(ROWS)],
                     "city": ["Rome", "Oslo"] * (ROWS // 2)})


@pytest.fixture(params=[ROWS, ROWS // 10], ids=["a row group", "many row groups"])
def path(request, tmp_path):
    path = tmp_path / "t" / "a.parquet"
    path.parent.mkdir()
    secure_bloom.write_table(
        table("own"), path, keys=KMS, row_group_size=request.param,
        encryption=secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]}))
    return path


def exchange(path):
    """Write a plaintext file over it, padded before its footer."""
    found = path.stat()
    own = path.read_bytes()
    with secure_bloom.ParquetFile(own, KMS) as file:
        row_group_size = ROWS // file.num_row_groups
    buffer = io.BytesIO()
    pq.write_table(table("bad"), buffer, row_group_size=row_group_size)
    planted = buffer.getvalue()
    start = len(planted) - 8 - int.from_bytes(planted[-8:-4], "little")
    padding = bytes(len(own) - len(planted))
    with open(path, "r+b") as file:
        file.write(planted[:start] + padding + planted[start:])
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert pq.read_table(path)["ssn"][0].as_py() == "bad-000"


def readers(path, folder):
    data, own = secure_bloom.dataset(folder, KMS, require_encryption={"ssn": "pii"}), \
        secure_bloom.ParquetFile(path, KMS, require_encryption={"ssn": "pii"})
    frame = secure_bloom.scan(folder, KMS, require_encryption={"ssn": "pii"})
    condition = pa.compute.field("ssn") == "own-007"
    yield lambda: own.read(["ssn"])
    yield lambda: own.read(["ssn"], [("ssn", "=", "own-007")])
    yield lambda: pa.Table.from_batches(own.iter_batches(columns=["ssn"]))
    yield lambda: data.to_table()
    yield lambda: data.to_table(filter=condition)
    yield lambda: frame.filter(pl.col("ssn") == "own-007").collect()


def test_no_reader_takes_the_footer_of_another_file(path):
    reads = list(readers(path, path.parent))
    exchange(path)
    for number, read in enumerate(reads):
        with pytest.raises((SecureBloomError, pl.exceptions.PolarsError)):
            print(number, read())
