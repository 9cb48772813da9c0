"""Erasing in object stores: the same steps, where a file appears when its upload is complete."""

import uuid

import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile, erase, verify_file, write_table
from secure_bloom.errors import ChangedMeanwhileError, CommitError
from secure_bloom.index import Index, build
from secure_bloom.keys.external import read_material
from secure_bloom.storage.commit import Job
from secure_bloom.storage.table_names import material_path
from secure_bloom.storage.visibility import data_files
from tests.erasing.helpers import ENCRYPTION, KMS, people, ssn
from tests.storage.s3 import BUCKET
from tests.storage.stores import Faults, later_jobs, objects_store
from tests.tiers import sweep_where

EXTERNAL = EncryptionConfiguration("footer", {"pii": ["ssn"]}, internal_key_material=False)
OLD = list(range(1, 25))
ERASED = [1, 10, 11]
NEW = [number for number in OLD if number not in ERASED]


def fill(store):
    """A file of ours and two foreign ones, one with key material beside it."""
    secure_bloom.write_dataset(people(*range(1, 9)), store.folder, encryption=ENCRYPTION, keys=KMS,
                               mode="append", filesystem=store.filesystem)
    for name, numbers, encryption in (("a", range(9, 17), EXTERNAL),
                                      ("d=1/b", range(17, 25), ENCRYPTION)):
        folder = f"{store.folder}/{name}".rpartition("/")[0]
        store.filesystem.create_dir(folder, recursive=True)
        write_table(people(*numbers), f"{store.folder}/{name}.parquet", encryption=encryption,
                    keys=KMS, row_group_size=3, bloom_filters=["ssn"],
                    filesystem=store.filesystem)


def numbers(store) -> list[int]:
    found = []
    for path in data_files(store.filesystem, store.folder):
        with ParquetFile(path, KMS, filesystem=store.filesystem) as file:
            found += file.read(["number"])["number"].to_pylist()
    return sorted(found)


def segment_ids(store) -> list[str]:
    index = Index.open(store.folder, KMS, filesystem=store.filesystem).column("ssn")
    return [info.id for info in index.manifest.body.segments]


def run(store, filesystem=None, **options):
    return erase(store.folder, "ssn", list(map(ssn, ERASED)), KMS, max_share=1, files_at_once=1,
                 filesystem=filesystem or store.filesystem, **options)


def check_clean(store, *, after_fault=False):
    """Only the new files, and the key material of one of them.

    If a temporary file could not be deleted, it stays, except on local filesystems.
    """
    data = [path.removeprefix(f"{store.folder}/")
            for path in data_files(store.filesystem, store.folder)]
    materials = [material_path(name) for name in data if material_path(name) in store.names()]
    assert len(data) == 3 and len(materials) == 1 and "d=1/b.parquet" in data
    others = set(store.names()) - {*data, *materials}
    if after_fault:
        others = {name for name in others if not name.endswith(".tmp")}
    assert {name for name in others if not name.startswith("_index/")} \
        == {"_SUCCESS", "_staging/generation"}


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, True])
def test_a_folder(store, settled, indexed):
    fill(store)
    if indexed:
        build(store.folder, "ssn", KMS, filesystem=store.filesystem)
    before = segment_ids(store) if indexed else []
    result = run(store)
    assert result.ok and result.rows_removed == 3 and len(result.files) == 2
    assert result.indexes == (["ssn"] if indexed else [])
    assert not indexed or segment_ids(store) == before  # only pages were written again
    assert numbers(store) == NEW
    check_clean(store)
    for one in result.files:
        assert verify_file(one.new_file, KMS, filesystem=store.filesystem).ok
    again = run(store)
    assert again.ok and again.files == []


def test_a_single_object(s3):
    store, path = s3.filesystem_of(), f"{BUCKET}/{uuid.uuid4().hex}/a.parquet"
    write_table(people(*range(20)), path, encryption=ENCRYPTION, keys=KMS, row_group_size=6,
                filesystem=store)
    assert erase(path, "ssn", ssn(7), KMS, max_share=1, filesystem=store).ok
    with ParquetFile(path, KMS, filesystem=store) as file:
        assert file.read(["number"])["number"].to_pylist() == [n for n in range(20) if n != 7]
    uri = s3.uri(path.removeprefix(f"{BUCKET}/"))
    assert erase(uri, "ssn", ssn(8), KMS, max_share=1).rows_removed == 1
    found = store.get_file_info(pa_fs.FileSelector(path.rpartition("/")[0]))
    assert [info.base_name for info in found] == ["a.parquet"]


@pytest.mark.slow
def test_material_goes_with_its_file(monkeypatch):
    store = objects_store()
    fill(store)
    run(store)
    [new] = [name for name in store.names() if "KEY_MATERIAL" in name]
    path = next(path for path in data_files(store.filesystem, store.folder)
                if material_path(path).endswith(new))
    assert read_material(store.filesystem, path)
    original = Job.commit

    def fail(job, *args, **kwargs):
        monkeypatch.setattr(job, "_check_replaced", lambda replaced: changed())
        return original(job, *args, **kwargs)

    def changed():
        raise ChangedMeanwhileError("always")

    monkeypatch.setattr(Job, "commit", fail)
    before = store.names()
    with pytest.raises(ChangedMeanwhileError):
        erase(store.folder, "ssn", ssn(12), KMS, max_share=1, filesystem=store.filesystem)
    assert store.names() == before


@sweep_where(lambda store, **_: store == "coarse")
@pytest.mark.slow
@pytest.mark.parametrize("every", [53, pytest.param(3, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("after", [False, True])
def test_a_fault_at_any_operation(store, monkeypatch, every, after):
    """The erasure has happened or not, and happens when it is run again."""
    for at in range(1, 2000, every):
        folder = store.below(f"{at}")
        fill(folder)
        faults = Faults(at, after)
        with monkeypatch.context() as patch:
            filesystem = folder.with_faults(faults, patch)
            try:
                is_complete = run(folder, filesystem).ok
            except (OSError, CommitError, ChangedMeanwhileError):
                is_complete = False
        found = numbers(folder)
        assert found in (OLD, NEW) and (found == NEW or not is_complete)
        assert run(folder).ok and numbers(folder) == NEW
        later_jobs(folder, monkeypatch)
        assert run(folder).ok and numbers(folder) == NEW
        check_clean(folder, after_fault=True)
        if faults.count < at:
            break
    assert at > 50
