"""Indexes of tables whose encryption changes: nothing of the old index stays or comes back."""

import itertools
import shutil
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import EncryptionConfiguration, decrypt, encrypt, reencrypt
from secure_bloom.errors import ChangedMeanwhileError, KeyNotFoundError
from secure_bloom.index import Index, build, update
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.table import Table
from secure_bloom.keys import InMemoryKms
from tests.index.helpers import LOCAL, age, folder_of
from tests.modes import MASTER_KEYS
from tests.storage.stores import Acts, local_store

KMS = InMemoryKms(MASTER_KEYS)
COLUMN = EncryptionConfiguration("kf", {"kc1": ["a"]})


def write(path, number):
    pq.write_table(pa.table({"a": [f"secret{number}-{place}" for place in range(3)]}), path)


@pytest.fixture
def make_lake(tmp_path, settled):
    """A plaintext table of which the index covers one file and lacks another."""
    def make():
        lake = tmp_path / f"lake{next(numbers)}"
        lake.mkdir()
        write(lake / "0.parquet", 0)
        age(lake, 100)
        build(lake, "a", encryption=None)
        write(lake / "1.parquet", 1)
        age(lake, 100)
        return lake

    numbers = itertools.count()
    return make


def check_only_new(lake, key, *, covered):
    """Nothing in the folder of the index is of an older one; and it covers these files."""
    folder = folder_of(lake, "a")
    manifest = folder.open_newest(KMS)
    assert manifest.material.master_key_id == key and not folder.has_replaced(folder.newest())
    assert {info.base_name for info in folder.infos() if folder.is_of_segment(info)} == \
        manifest.body.file_names
    assert Index.open(lake, KMS).inspect()[0].covered == covered


class Beside(Acts):
    """The act may use threads; steps of these are not counted."""

    def call(self, operation, *args, **kwargs):
        if threading.current_thread() is not threading.main_thread():
            return operation(*args, **kwargs)
        return super().call(operation, *args, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.sweep)])
def test_an_update_does_not_bring_an_open_index_back(make_lake, tmp_path, monkeypatch, every):
    """It has read the old manifest when the table is encrypted, between any two of its steps."""
    outcomes = set()
    for at in range(1, 1000, every):
        lake = make_lake()

        def other(lake=lake):
            assert encrypt(lake, KMS, encryption=COLUMN).ok

        faults = Beside(at, other)
        with monkeypatch.context() as patch:
            filesystem = local_store(tmp_path, patch).with_faults(faults, patch)
            try:
                update.update_indexes(Table(filesystem, str(lake)), ["a"], None)
                outcomes.add("done")
            except (ChangedMeanwhileError, KeyNotFoundError, FileNotFoundError) as error:
                outcomes.add(type(error).__name__)
        if not faults.done:
            break
        check_only_new(lake, "kc1", covered=2)
        shutil.rmtree(lake)
    assert at > 20 and {"done", "KeyNotFoundError"} <= outcomes


def test_an_index_that_cannot_be_replaced_is_a_failure(make_lake, monkeypatch):
    lake = make_lake()
    encrypt(lake, KMS, encryption=COLUMN)

    def full(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(IndexFolder, "publish", full)
        result = reencrypt(lake, KMS, master_keys={"kc1": "kc2"})
    assert not result.ok and result.unused_master_keys == [] and len(result.changed) == 2
    assert "no space" in result.failed[folder_of(lake, "a").path]
    check_only_new(lake, "kc1", covered=2 - 2)
    assert reencrypt(lake, KMS, master_keys={"kc1": "kc2"}).ok
    check_only_new(lake, "kc2", covered=2)


def test_a_version_that_has_no_successor(make_lake):
    """Somebody has put it there: else the new index would seem to be there, and be hidden."""
    lake = make_lake()
    before = {path.name for path in (lake / "_index" / "a").iterdir()} | {"999999999999.manifest"}
    manifest = folder_of(lake, "a").open_newest(None)
    (lake / "_index" / "a" / "999999999999.manifest").write_bytes(
        manifest.next(manifest.body, 10**12 - 1).to_bytes())
    [message] = encrypt(lake, KMS, encryption=COLUMN).failed.values()
    assert "delete the index" in message
    assert {path.name for path in (lake / "_index" / "a").iterdir()} == before


def test_one_file_of_a_table_may_be_opened(make_lake):
    """The others are still encrypted, and so is the index."""
    lake = make_lake()
    encrypt(lake, KMS, encryption=COLUMN)
    result = decrypt(lake / "0.parquet", KMS, plaintext=True)
    assert result.ok and pq.read_table(lake / "0.parquet").num_rows == 3
    assert folder_of(lake, "a").newest().is_encrypted
    assert decrypt(lake, KMS, plaintext=True).ok
    assert not folder_of(lake, "a").newest().is_encrypted
    assert Index.open(lake).lookup("a", ["secret0-1", "absent"]).row_groups[0] == \
        {"0.parquet": [0]}


def test_the_journal_is_full(tmp_path):
    """The files are changed nevertheless: that is no failure, and said."""
    lake, away = tmp_path / "lake", tmp_path / "away"
    lake.mkdir()
    away.mkdir()
    write(lake / "0.parquet", 0)
    encrypt(lake, KMS, encryption=COLUMN)
    before = (lake / "0.parquet").read_bytes()

    def advance(_):
        shutil.rmtree(away, ignore_errors=True)  # so the journal cannot be written

    result = reencrypt(lake, KMS, journal=away / "journal", advance=advance)
    [change] = result.changed
    assert result.ok and (lake / "0.parquet").read_bytes() != before
    assert "not noted in the journal" in change.notes[-1]
    assert LOCAL.get_file_info(str(away)).type == 0
