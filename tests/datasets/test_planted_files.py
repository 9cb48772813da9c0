"""Pipes and huge files in ``_index`` and ``_staging`` bring errors and warnings, no hangs."""

import os

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.errors import FormatError, IndexWarning, SecureBloomError
from secure_bloom.index import opened_indexes
from secure_bloom.index.manifest import Body, StoredManifest
from secure_bloom.keys import InMemoryKms
from tests.memory import Peak

KMS = InMemoryKms({name: name.encode().ljust(16) for name in ("footer", "pii")})
SSN = "00000003"


@pytest.fixture
def people(tmp_path, settled):
    folder = tmp_path / "people"
    folder.mkdir()
    secure_bloom.write_table(
        pa.table({"ssn": [SSN]}), folder / "a.parquet", keys=KMS,
        encryption=secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]}))
    secure_bloom.index.build(folder, "ssn", KMS)
    opened_indexes._opened.clear()
    return folder


def found(folder, index):
    return secure_bloom.read_table(folder, KMS, filters=[("ssn", "=", SSN)], index=index).num_rows


def sparse(path, size):
    with open(path, "wb") as file:
        file.truncate(size)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: sparse(path, 7 * 2**30)])
def test_a_generation_that_is_no_small_file_is_a_typed_error(people, make):
    (people / "_staging").mkdir(exist_ok=True)
    path = people / "_staging" / "generation"
    make(path)
    peak = Peak()
    for index in ("off", "auto"):
        with pytest.raises(SecureBloomError) as error:
            found(people, index)
        assert error.value.file == str(path)
    assert peak.bytes() < 100 << 20


def fifo_in_place_of(pattern):
    def plant(folder):
        for path in folder.glob(pattern):
            path.unlink()
            os.mkfifo(path)
    return plant


def manifest_of_lists(folder):
    (folder / "000000000099.manifest").write_bytes(b"[" + b"[]," * 10_000_000 + b"[]]")


def many_sparse_manifests(folder):
    for number in range(100, 400):
        sparse(folder / f"{number:012}.manifest", 2**22)


def huge_manifest(folder):
    sparse(folder / "000000000099.manifest", 7 * 2**30)


@pytest.mark.parametrize("plant", [fifo_in_place_of("*.seg"), manifest_of_lists,
                                   many_sparse_manifests, huge_manifest])
def test_files_of_an_index_that_are_no_small_files_do_not_disturb_readers(people, plant):
    plant(people / "_index" / "ssn")
    peak = Peak()
    assert found(people, "off") == 1
    with pytest.warns(IndexWarning):
        assert found(people, "auto") == 1
    with pytest.raises(SecureBloomError):
        found(people, "require")
    assert peak.bytes() < 200 << 20


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.write_bytes(b"")])
def test_something_else_is_named_like_the_folder_of_indexes(people, make):
    (people / "_index").rename(people.parent / "away")
    make(people / "_index")
    assert found(people, "off") == found(people, "auto") == 1
    with pytest.raises(FileNotFoundError):
        found(people, "require")
    with pytest.raises(FormatError, match="where a folder belongs"):
        secure_bloom.index.build(people, "ssn", KMS)


@pytest.mark.slow
def test_content_of_a_manifest_does_not_grow_when_it_is_parsed():
    hostile = b'{"segments": [' + b"[]," * 1_000_000 + b"[]]}"
    for parse in (Body.from_json, lambda data: StoredManifest.parse(data, 1)):
        with pytest.raises(FormatError):
            parse(hostile)
