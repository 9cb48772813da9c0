"""The times of files, if they are to be kept: nothing may take the new version for the old one."""

import os

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.errors import UnsupportedError
from secure_bloom.index import build
from secure_bloom.index.stamps import stamp
from secure_bloom.keys import InMemoryKms, list_master_keys
from secure_bloom.storage.commit import Job
from tests.modes import MASTER_KEYS

KMS = InMemoryKms(MASTER_KEYS)
CONFIG = EncryptionConfiguration("kf", {"kc1": ["ssn"]})
TABLE = pa.table({"ssn": ["a", "b"], "city": ["Rome", "Oslo"]})
LOCAL, MILLISECOND = pa_fs.LocalFileSystem(), 1_000_000
OLD = 1_600_000_000 * 10**9, 1_500_000_000 * 10**9  # of access and modification
OPERATIONS = {
    "encrypt": lambda path, **how: secure_bloom.encrypt(path, KMS, encryption=CONFIG, **how),
    "reencrypt": lambda path, **how: secure_bloom.reencrypt(path, KMS, **how),
    "decrypt": lambda path, **how: secure_bloom.decrypt(path, KMS, plaintext=True, **how)}


def file_for(operation, path):
    """Write a file that the operation changes, with an old time and a mode of its own."""
    is_encrypted = operation != "encrypt"
    secure_bloom.write_table(TABLE, path, encryption=CONFIG if is_encrypted else None,
                             keys=KMS if is_encrypted else None, plaintext=not is_encrypted)
    path.chmod(0o640)
    os.utime(path, ns=OLD)
    return path


@pytest.mark.parametrize("operation", OPERATIONS)
def test_times_are_those_of_the_old_file_to_the_millisecond(tmp_path, operation):
    change, found = OPERATIONS[operation], []
    for name, how in {"a.parquet": {}, "b.parquet": {"keep_times": True},
                      "c.parquet": {"keep_times": True, "output": tmp_path / "new"}}.items():
        path = file_for(operation, tmp_path / name)
        assert change(path, **how).changed
        found.append(os.stat(tmp_path / "new" / name if "output" in how else path))
    assert [one.st_mode & 0o777 for one in found] == [0o640] * 3
    new, *kept = found
    assert new.st_mtime_ns > OLD[1]
    for one in kept:
        assert (one.st_atime_ns, one.st_mtime_ns // MILLISECOND) == (OLD[0], OLD[1] // MILLISECOND)
        assert one.st_mtime_ns != OLD[1]


def test_an_index_without_inodes_does_not_know_the_new_version(tmp_path):
    """The size is the same, and a copy of the folder has neither inode nor ctime of the listing."""
    path = file_for("reencrypt", tmp_path / "a.parquet")
    build(tmp_path, "ssn", KMS)
    listed = stamp(LOCAL, LOCAL.get_file_info(str(path)))._replace(tag="")
    assert secure_bloom.reencrypt(path, KMS, keep_times=True).changed
    now = stamp(LOCAL, LOCAL.get_file_info(str(path)))._replace(tag="")
    assert now.size == listed.size and now != listed


def test_the_index_of_the_table_knows_the_new_version(tmp_path):
    path = file_for("reencrypt", tmp_path / "a.parquet")
    build(tmp_path, "ssn", KMS)
    done = secure_bloom.reencrypt(tmp_path, KMS, keep_times=True)
    assert done.ok and done.indexes == ["ssn"]
    found = secure_bloom.read_table(tmp_path, KMS, filters=[("ssn", "==", "a")], index="require")
    assert found.num_rows == 1 and path.stat().st_mtime_ns // 10**9 == OLD[1] // 10**9


def test_an_erasure_does_not_replace_the_new_version_by_what_it_made_of_the_old_one(
        tmp_path, monkeypatch):
    """The rows would be under the old key again."""
    path, commit = file_for("reencrypt", tmp_path / "a.parquet"), Job.commit

    def commit_late(job, *args, **how):
        monkeypatch.setattr(Job, "commit", commit)  # the erasure starts again
        size = path.stat().st_size
        secure_bloom.reencrypt(path, KMS, master_keys={"kc1": "kc2"}, keep_times=True)
        assert path.stat().st_size == size
        return job.commit(*args, **how)

    monkeypatch.setattr(Job, "commit", commit_late)
    assert secure_bloom.erase(tmp_path, "ssn", "b", KMS, max_share=1).rows_removed == 1
    assert [one.name for one in list_master_keys(tmp_path, KMS).master_keys] == ["kc2", "kf"]


def test_a_filesystem_that_rounds_times_to_seconds_keeps_the_old_version(tmp_path, monkeypatch):
    path, utime = file_for("reencrypt", tmp_path / "a.parquet"), os.utime
    before = path.read_bytes()
    monkeypatch.setattr(os, "utime", lambda file, ns: utime(
        file, ns=tuple(one // 10**9 * 10**9 for one in ns)))
    [message] = secure_bloom.reencrypt(tmp_path, KMS, keep_times=True).failed.values()
    assert "--keep-times" in message
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a.parquet"]
    assert secure_bloom.reencrypt(tmp_path, KMS).ok


def test_only_local_files_keep_their_times():
    memory = MemoryFileSystem()
    with memory.open("/lake/a.parquet", "wb") as file:
        pq.write_table(TABLE, file)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedError, match="keep_times"):
            secure_bloom.encrypt("/lake", KMS, encryption=CONFIG, filesystem=memory,
                                 keep_times=True, dry_run=dry_run)
