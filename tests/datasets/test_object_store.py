"""Data sets in an object store, and of a filesystem of fsspec."""

import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom.errors import ChangedMeanwhileError
from tests.datasets.people import ENCRYPTION, KMS, ROW_GROUP, rows_of
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET


def upload(filesystem, path: str, table: pa.Table) -> None:
    secure_bloom.write_table(table, path, filesystem=filesystem, row_group_size=ROW_GROUP,
                             bloom_filters=True, encryption=ENCRYPTION, keys=KMS)


def fill(filesystem) -> str:
    """Write three files to a folder, and return it."""
    folder = f"{BUCKET}/{uuid.uuid4()}"
    for number in range(3):
        upload(filesystem, f"{folder}/day={number % 2}/{number}.parquet", rows_of(number))
    return folder


def test_folders_patterns_and_uris(s3):
    filesystem = s3.filesystem_of()
    folder = fill(filesystem)
    uri = s3.uri(folder.removeprefix(f"{BUCKET}/"))
    for dataset in (secure_bloom.dataset(folder, KMS, filesystem=filesystem),
                    secure_bloom.dataset(f"{folder}/*/*.parquet", KMS, filesystem=filesystem),
                    secure_bloom.dataset(uri, KMS)):
        assert dataset.count_rows() == 600
        found = dataset.to_table(["n", "day"], pc.field("ssn") == rows_of(1)["ssn"][7].as_py())
        assert found.to_pydict() == {"n": [207], "day": [1]}
        assert dataset.report.row_groups.read == 1


def test_a_replaced_object_is_read_in_its_new_version_or_not_at_all():
    filesystem = Objects(new_objects())
    folder = fill(filesystem)
    dataset = secure_bloom.dataset(folder, KMS, filesystem=filesystem)
    upload(filesystem, f"{folder}/day=0/0.parquet", rows_of(9))
    assert dataset.count_rows(pc.field("n") >= 1800) == 200
    batches = dataset.to_batches(batch_size=10)
    next(batches)
    upload(filesystem, f"{folder}/day=0/0.parquet", rows_of(5))
    with pytest.raises(ChangedMeanwhileError):
        list(batches)


def test_filesystems_of_fsspec():
    fsspec = pytest.importorskip("fsspec")
    memory = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(fsspec.filesystem("memory")))
    folder = f"/{uuid.uuid4()}"
    memory.create_dir(folder)
    for number in range(2):
        upload(memory, f"{folder}/{number}.parquet", rows_of(number))
    for source in (folder, f"{folder}/[01].parquet"):
        dataset = secure_bloom.dataset(source, KMS, filesystem=memory)
        assert dataset.to_table(["n"], [("n", "==", 250)]).to_pydict() == {"n": [250]}
