"""The same on an object store, where a file appears when its upload is complete."""

import pyarrow.fs as pa_fs
import pytest

from secure_bloom import ParquetFile, attach, audit, seal, strip, verify_file
from secure_bloom.errors import UnsupportedError
from secure_bloom.parquet.footer import Footer
from secure_bloom.storage.files import write_file
from tests.maintain.helpers import ENCRYPTED, KMS, TABLE, leaking
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET


@pytest.fixture
def store() -> pa_fs.FileSystem:
    return Objects(new_objects())


def test_a_folder(s3, tmp_path):
    store = s3.filesystem_of()
    content = leaking(tmp_path / "a.parquet", ENCRYPTED).read_bytes()
    for name in ("a", "b"):
        write_file(store, f"{BUCKET}/people/{name}.parquet", content)
    folder = f"{BUCKET}/people"
    found = audit(folder, KMS, filesystem=store)
    # Two copies of one file share their id, and harm nobody.
    assert [(finding.kind, finding.column) for finding in found.findings] \
        == [("leak", "ssn"), ("leak", "name")] * 2
    result = seal(folder, KMS, filesystem=store)
    assert len(result.changed) == 2 and not result.failed
    assert len(attach(s3.uri("people"), {"number": True}, KMS).changed) == 2
    assert len(strip(folder, KMS, columns=["city"], filesystem=store).changed) == 2
    for name in ("a", "b"):
        with ParquetFile(f"{folder}/{name}.parquet", KMS, filesystem=store) as file:
            assert {info.column for info in file.bloom_filters} == {"ssn", "name", "number"}
            assert file.read().equals(TABLE)
        assert verify_file(f"{folder}/{name}.parquet", KMS, filesystem=store).ok
    assert len(store.get_file_info(pa_fs.FileSelector(folder))) == 2


def test_an_upload_that_fails_leaves_the_old_file(store, tmp_path, monkeypatch):
    path = f"{BUCKET}/people/a.parquet"
    write_file(store, path, leaking(tmp_path / "a.parquet").read_bytes())

    def fail(footer):
        raise OSError("the network is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Footer, "to_bytes", fail)
        result = seal(path, KMS, filesystem=store)
    assert result.failed == {path: "the network is gone"}
    with store.open_input_file(path) as file:
        assert file.read() == (tmp_path / "a.parquet").read_bytes()


def test_tables_are_refused_there_too(store, tmp_path):
    write_file(store, f"{BUCKET}/t/part=1/a.parquet", leaking(tmp_path / "a").read_bytes())
    write_file(store, f"{BUCKET}/t/_delta_log/0.json", b"{}")
    with pytest.raises(UnsupportedError, match="Delta"):
        seal(f"{BUCKET}/t/part=1", KMS, filesystem=store)
