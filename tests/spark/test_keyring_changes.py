"""A keyring that is replaced or removed while Spark reads or writes with it."""

import base64
import glob
import os
import time

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from secure_bloom import EncryptionConfiguration, read_table, write_table
from secure_bloom.errors import MasterKeyChangedError
from secure_bloom.keys import InMemoryKms, Keyring
from secure_bloom.spark.options.options import Options
from secure_bloom.spark.writing import writer as writer_module
from secure_bloom.spark.writing.writer import SecureParquetWriter
from tests.spark.helpers import people, read, staged, uses_spark, visible, write

pytestmark = uses_spark

SINGLE = {"parquet.encryption.double.wrapping": "false"}
CHANGED = "is not the one that the job started with"


@pytest.fixture
def replacement(keyring, tmp_path):
    """Another keyring with the same names."""
    other = Keyring.create(tmp_path / "replacement.json")
    for name in keyring.names():
        other.add(name)
    return other


def master_keys(path) -> dict[str, bytes]:
    return dict(Keyring(path)._master_keys())


# --- reading -------------------------------------------------------------------------------------

def error_of(frame) -> str:
    with pytest.raises(Exception) as caught:  # Spark's, with our message
        frame.collect()
    return str(caught.value)


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_workers_that_are_reused_do_not_read_on_after_the_keyring_has_changed(
        spark, tmp_path, keyring, replacement, change):
    folder = tmp_path / "people"
    folder.mkdir()
    write_table(pa.table({"ssn": ["1", "2"]}), folder / "a.parquet", bloom_filters={}, keys=keyring,
                encryption=EncryptionConfiguration("footer", {"pii": ["ssn"]}))
    frame = read(spark, folder, keys=f"keyring:{keyring.path}?check-interval=0")
    for _ in range(5):  # every worker that is kept knows the keys
        assert frame.count() == 2
    if change == "removed":
        keyring.path.unlink()
        assert "there is no such keyring file" in error_of(frame)
    else:
        os.replace(replacement.path, keyring.path)
        assert "cannot be unwrapped" in error_of(frame)


# --- writing -------------------------------------------------------------------------------------

def replacing(frame, folder, keyring, replacement):
    """Replace the keyring when the first file of another task is in the folder."""
    folder, old, new = str(folder), str(keyring.path), str(replacement.path)

    def work(batches):
        from pyspark import TaskContext
        if TaskContext.get().partitionId() == 1:
            for _ in range(600):
                if glob.glob(f"{folder}/**/*.parquet", recursive=True, include_hidden=True):
                    break
                time.sleep(0.1)
            os.replace(new, old)
        yield from batches

    return frame.mapInArrow(work, frame.schema)


def test_a_keyring_that_is_replaced_during_a_write_fails_the_job(spark, tmp_path, keyring,
                                                                 replacement, encrypted):
    folder = tmp_path / "people"
    keys = [*master_keys(keyring.path).values(), *master_keys(replacement.path).values()]
    frame = replacing(people(spark), folder, keyring, replacement)
    with pytest.raises(Exception, match=CHANGED) as caught:
        write(frame, folder, **encrypted, **SINGLE)
    assert not replacement.path.exists() and visible(folder) == staged(folder) == []
    left = [str(caught.value).encode(), *(path.read_bytes() for path in folder.rglob("*")
                                          if path.is_file())]
    assert not [key for key in keys for text in left
                if key in text or key.hex().encode() in text or base64.b64encode(key) in text]


@pytest.mark.sweep
def test_with_double_wrapping_all_files_have_the_master_keys_of_the_start(
        spark, tmp_path, keyring, replacement, encrypted):
    folder, old = tmp_path / "people", InMemoryKms(master_keys(keyring.path))
    write(replacing(people(spark), folder, keyring, replacement), folder, **encrypted)
    assert not replacement.path.exists() and len(visible(folder)) == 2
    assert read_table(folder, keys=old).num_rows == 100


@pytest.fixture
def writer(monkeypatch, tmp_path, encrypted):
    """The writer of a job, as a task has it."""
    class Task:
        def partitionId(self):
            return 0

    monkeypatch.setattr(writer_module, "task_context", Task)
    options = Options({"path": str(tmp_path / "people"), "max_rows_per_file": "1",
                       **encrypted, **SINGLE})
    schema = StructType().add("ssn", "string").add("city", "string")
    return SecureParquetWriter(options, schema, False)


ROWS = pa.record_batch({"ssn": ["1", "2"], "city": ["Rome", "Oslo"]})


def test_a_task_notices_another_master_key_at_its_next_file(writer, tmp_path, keyring, replacement):
    writer.write(iter([ROWS]))
    before = staged(tmp_path / "people")

    def batches():
        yield ROWS
        os.replace(replacement.path, keyring.path)
        yield ROWS

    with pytest.raises(MasterKeyChangedError, match=r"'footer' .* run the job again"):
        writer.write(batches())
    writer.abort([])
    assert before and visible(tmp_path / "people") == staged(tmp_path / "people") == []


def test_a_task_on_a_machine_with_another_keyring_is_noticed(writer, tmp_path, keyring,
                                                             replacement):
    os.replace(replacement.path, keyring.path)
    with pytest.raises(MasterKeyChangedError):
        writer.write(iter([ROWS]))
    assert not [name for name in staged(tmp_path / "people") if name.endswith(".parquet")]


def test_a_key_that_is_added_to_the_keyring_during_a_write_changes_nothing(writer, tmp_path,
                                                                           keyring):
    first = writer.write(iter([ROWS]))
    Keyring(keyring.path).add("new")
    writer.commit([first, writer.write(iter([ROWS]))])
    assert read_table(tmp_path / "people", keys=keyring).num_rows == 4


def test_the_same_key_under_a_new_file_is_no_change(writer, tmp_path, keyring):
    copy = Keyring.create(tmp_path / "copy.json")
    for name, key in master_keys(keyring.path).items():
        copy.add(name, key)
    os.replace(copy.path, keyring.path)
    writer.commit([writer.write(iter([ROWS]))])
    assert read_table(tmp_path / "people", keys=keyring).num_rows == 2
