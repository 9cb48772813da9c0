"""``Index.inspect`` says what is wrong with an index, and fails only if the KMS does."""

import json
import shutil

import pytest

from secure_bloom.errors import KmsUnavailableError
from secure_bloom.index import Index, build
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.inspection import inspect_index
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.cache import cached
from tests.index.helpers import KEYS, KMS, folder_of, manifests_of, segments_of, write


@pytest.fixture
def table(tmp_path):
    write(tmp_path / "a.parquet", ["v1", "v2"])
    build(tmp_path, "ssn", KMS)
    return tmp_path


def inspect(table, keys=KMS):
    return inspect_index(folder_of(table), cached(keys), {})


def test_an_index_without_a_complete_manifest(table):
    for path in manifests_of(table):
        path.write_bytes(b'{"format"')
    info = inspect(table)
    assert info.version is None and info.stored_bytes > 0
    assert "no complete manifest; build it again" in info.error.message
    assert "no complete manifest" in repr(info)
    shown = json.loads(json.dumps(info.to_dict()))
    assert shown["column"] == "ssn" and "build it again" in shown["error"]


def test_a_damaged_segment_is_the_error_of_its_index(table):
    [segment] = segments_of(table)
    segment.write_bytes(segment.read_bytes()[:-1])
    info = inspect(table)
    assert info.version == 2 and info.pairs is None
    assert info.error is not None and info.error.file == str(segment)


def test_a_kms_that_does_not_respond_is_an_error(table):
    class Failing(InMemoryKms):
        def unwrap_key(self, wrapped_key, master_key_identifier):
            raise KmsUnavailableError("it does not respond")

    with pytest.raises(KmsUnavailableError, match="does not respond"):
        Index.open(table, Failing(KEYS)).inspect()


def test_an_index_without_encryption(tmp_path):
    write(tmp_path / "a.parquet", ["v1"], encryption=None)
    build(tmp_path, "ssn", encryption=None)
    [info] = Index.open(tmp_path).inspect()
    assert (info.is_encrypted, info.master_key, info.covered) == (False, None, 1)
    assert "version 2, not encrypted, 1 file covered" in repr(info)
    assert info.to_dict()["error"] is None


def test_an_index_that_is_deleted_meanwhile(table, monkeypatch):
    original = IndexFolder.newest

    def newest(self):
        found = original(self)
        shutil.rmtree(table / "_index", ignore_errors=True)
        return found

    monkeypatch.setattr(IndexFolder, "newest", newest)
    info = inspect(table)
    assert info.error is not None and "deleted" in info.error.message
