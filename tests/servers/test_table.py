"""A table in a store that is not S3: all that is done with it.

It is one test, because with Azurite, some deletions take pyarrow seven seconds.
"""

import uuid

import pytest

import secure_bloom
from secure_bloom.index import Index, build
from tests.erasing.helpers import ENCRYPTION, KMS, people, ssn
from tests.servers import chosen
from tests.storage.s3 import BUCKET
from tests.storage.stores import later_jobs, server_store


def test_a_table_is_written_found_indexed_erased_and_overwritten(s3, monkeypatch):
    if not chosen.is_store():
        pytest.skip("it runs with --server and the name of an object store")
    store = server_store(s3, uuid.uuid4().hex)
    options = {"filesystem": store.filesystem}
    for first in (0, 10):
        secure_bloom.write_dataset(people(*range(first, first + 10)), store.folder, mode="append",
                                   encryption=ENCRYPTION, keys=KMS, bloom_filters=["ssn"],
                                   **options)

    def numbers(**filters):
        return sorted(secure_bloom.read_table(store.folder, KMS, **filters, **options)["number"]
                      .to_pylist())

    assert numbers() == list(range(20)) and numbers(filters=[("ssn", "==", ssn(13))]) == [13]
    build(store.folder, "ssn", KMS, **options)
    [found] = Index.open(store.folder, KMS, **options).lookup("ssn", ssn(3)).row_groups
    assert len(found) == 1
    assert secure_bloom.erase(store.folder, "ssn", [ssn(3)], KMS, max_share=1, **options).ok
    assert numbers() == [number for number in range(20) if number != 3]
    dead = store.job()  # its files are never seen
    store.stage(dead, 99)
    secure_bloom.write_dataset(people(7), store.folder, mode="overwrite", encryption=ENCRYPTION,
                               keys=KMS, **options)
    assert numbers() == [7]
    later_jobs(store, monkeypatch)
    assert numbers() == [7] and store.staged() == []
    assert not [name for name in store.names() if name.endswith(".tmp")]
    path = f"{BUCKET}/{uuid.uuid4().hex}.parquet"
    for number in (1, 2):  # a file is replaced as a whole
        secure_bloom.write_table(people(number), path, encryption=ENCRYPTION, keys=KMS, **options)
        assert secure_bloom.read_table(path, KMS, **options)["number"].to_pylist() == [number]
