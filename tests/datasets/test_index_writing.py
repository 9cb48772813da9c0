"""``write_dataset`` keeps indexes current: files are covered as soon as they are visible."""

import json
import logging
import os

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom.errors import ColumnError
from secure_bloom.index import Index, build, column_segments, update, written_hashes
from secure_bloom.index import table as index_table
from secure_bloom.index import writing as indexing
from secure_bloom.keys import InMemoryKms, KeyEncryptionKeys
from secure_bloom.storage import source, versions
from secure_bloom.storage.commit import Job
from tests.datasets.people import ENCRYPTION, KMS, rows_of
from tests.index.helpers import files_with
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET

SSN = "000000", "007919"  # in the first file


def write(folder, file=0, *, mode="append", index="ssn", **options):
    return secure_bloom.write_dataset(rows_of(file), folder, mode=mode, index_columns=index, **{
        "encryption": ENCRYPTION, "keys": KMS, "row_group_size": 60} | options)


def known(folder, value=SSN[1], column="ssn", keys=KMS):
    """Return the number of files that may have a value, and of those that are not covered."""
    return tuple(map(len, files_with(folder, keys, value, column)))


def rows(folder, value=SSN[1], **options):
    return secure_bloom.read_table(folder, KMS, filters=[("ssn", "=", value)], **options).num_rows


def test_written_files_are_covered(tmp_path):
    for file in range(3):
        write(tmp_path / "t", file)
        assert known(tmp_path / "t", "absent") == (0, 0)
    assert known(tmp_path / "t") == (1, 0)
    assert rows(tmp_path / "t", index="require") == 1
    assert Index.open(tmp_path / "t", KMS).verify(None).ok
    assert build(tmp_path / "t", "ssn", KMS).unchanged == 3


def test_row_groups_are_those_of_the_files(tmp_path):
    write(tmp_path / "t")
    values = rows_of(0)["ssn"].to_pylist()
    found = Index.open(tmp_path / "t", KMS).lookup("ssn", values).row_groups
    assert [list(one.values()) for one in found] == [[[row // 60]] for row in range(200)]


def test_an_index_has_the_key_of_the_group_of_its_column(tmp_path):
    encryption = secure_bloom.EncryptionConfiguration("footer", {"pii": ["part"]})
    write(tmp_path / "t", index="part.y", encryption=encryption)
    assert known(tmp_path / "t", "y1", "part.y")[1] == 0
    assert Index.open(tmp_path / "t", KMS).verify(None).ok


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"partition_by": "n", "max_rows_per_file": 7}, {"max_rows_per_file": 30},
    {"bloom_filters": ["ssn"]}, {"bloom_filters": True, "index_columns": ["ssn", "part.y"]}])
def test_other_ways_to_write(tmp_path, options, monkeypatch):
    def reads(*args):
        raise AssertionError("the values were read from the file")

    monkeypatch.setattr(column_segments, "column_hashes", reads)
    data = rows_of(0).set_column(1, "n", pa.array([row // 20 for row in range(200)]))
    encryption = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn", "part.y"]})
    secure_bloom.write_dataset(data, tmp_path / "t", **{
        "index_columns": "ssn", "encryption": encryption, "keys": KMS,
        "row_group_size": 6} | options)
    monkeypatch.undo()
    assert known(tmp_path / "t") == (1, 0)
    for column in ["ssn", "part.y"] if "part.y" in options.get("index_columns", ()) else ["ssn"]:
        assert known(tmp_path / "t", "y1", column)[1] == 0
    assert Index.open(tmp_path / "t", KMS).verify(None).ok


def test_files_that_an_overwrite_replaces_are_not_found(tmp_path):
    write(tmp_path / "t")
    write(tmp_path / "t", 1, mode="overwrite")
    assert known(tmp_path / "t") == (0, 0)
    assert known(tmp_path / "t", rows_of(1)["ssn"][7].as_py()) == (1, 0)


def make_exclusive(folder):
    write(folder, index=())
    build(folder, "ssn", KMS, exclusive=True)


def test_after_jobs_that_keep_an_exclusive_index_current_nothing_is_listed(tmp_path, listings,
                                                                           monkeypatch, caplog):
    folder = tmp_path / "t"
    make_exclusive(folder)
    monkeypatch.setattr(update, "merge_tiers", None)  # segments are merged before
    for file, mode in (1, "append"), (2, "append"), (3, "overwrite"), (4, "append"):
        write(folder, file, mode=mode)
        listings.clear()
        for known_file in range(5):
            value = rows_of(known_file)["ssn"][7].as_py()
            is_there = known_file == file or (mode == "append" and (
                known_file < file if file < 3 else known_file == 3))
            assert rows(folder, value, index="require") == is_there
        assert listings == []
    assert Index.open(folder, KMS).verify(None).ok and caplog.text == ""


@pytest.mark.parametrize("reason", ["another job", "a job without the index", "many files"])
def test_after_other_jobs_it_is(tmp_path, listings, monkeypatch, reason):
    folder = tmp_path / "t"
    make_exclusive(folder)
    if reason == "another job":
        Job(pa_fs.LocalFileSystem(), str(folder), False).start()
    elif reason == "a job without the index":
        write(folder, 1, index=())
    else:
        monkeypatch.setattr(indexing, "_FEW_FILES", 0)
    write(folder, 2)
    listings.clear()
    for file in range(3):
        expected = reason == "a job without the index" or file != 1
        assert rows(folder, rows_of(file)["ssn"][7].as_py()) == expected
    assert len(listings) == 3


def test_a_job_that_ends_while_another_one_lists_the_table_is_not_missed(tmp_path, monkeypatch):
    folder, others = tmp_path / "t", [2, 3]
    make_exclusive(folder)
    original = index_table.visible_files

    def visible_files(*arguments, **options):
        found = original(*arguments, **options)
        if others:
            write(folder, others.pop(), index=())
        return found

    monkeypatch.setattr(index_table, "visible_files", visible_files)
    write(folder, 1)
    assert len(others) == 1  # this one wrote while the index was completed
    assert rows(folder, rows_of(3)["ssn"][7].as_py()) == 1


@pytest.mark.slow
def test_the_files_of_a_task_share_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "_BUDGET", 24 * 500)
    most, original = [], written_hashes.WrittenHashes.spill

    def spill(self):
        most.append(self.num_in_memory)
        original(self)

    monkeypatch.setattr(written_hashes.WrittenHashes, "spill", spill)
    data = pa.concat_tables(map(rows_of, range(8)))
    data = data.set_column(1, "n", pa.array([row % 5 for row in range(1600)]))
    secure_bloom.write_dataset(data, tmp_path / "t", index_columns="ssn",
                               encryption=ENCRYPTION, keys=KMS, partition_by="n", row_group_size=20)
    assert most and max(most) <= 500
    assert Index.open(tmp_path / "t", KMS).verify(None).values == 1600
    assert Index.open(tmp_path / "t", KMS).verify(None).ok


def test_values_that_could_not_be_collected_are_read_from_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(written_hashes.WrittenHashes, "pairs", lambda *args: None)
    write(tmp_path / "t")
    assert known(tmp_path / "t") == (1, 0)


def test_files_are_not_opened_after_they_were_written(tmp_path, monkeypatch):
    """It would wait until the clock has moved on; in a store, for two requests."""
    opened = []

    def open_file(filesystem, path):
        opened.append(path)
        return versions.open_file(filesystem, path)

    monkeypatch.setattr(source, "open_file", open_file)
    write(tmp_path / "t", mode="error", max_rows_per_file=100)
    assert [path for path in opened if path.endswith(".parquet")] == []
    monkeypatch.undo()
    assert Index.open(tmp_path / "t", KMS).verify(None).ok
    assert build(tmp_path / "t", "ssn", KMS).unchanged == 2


def test_an_object_store():
    path, filesystem = f"{BUCKET}/t", Objects(new_objects())
    for file in range(2):
        write(path, file, filesystem=filesystem)
    index = Index.open(path, KMS, filesystem=filesystem)
    found = index.lookup("ssn", SSN[1])
    assert (len(found.row_groups[0]), found.uncovered) == (1, [])


def test_one_key_for_everything_and_single_wrapping(tmp_path):
    write(tmp_path / "t", encryption=secure_bloom.EncryptionConfiguration(
        "pii", uniform_encryption=True, double_wrapping=False))
    assert known(tmp_path / "t") == (1, 0)


def test_an_index_without_encryption_is_kept_but_not_created(tmp_path):
    plain = {"encryption": None, "keys": None, "index": "n"}
    with pytest.raises(ColumnError, match="build the index first"):
        write(tmp_path / "t", **plain)
    assert not list((tmp_path).rglob("*.parquet"))
    write(tmp_path / "t", **plain | {"index": ()})
    for path in (tmp_path / "t").glob("*.parquet"):
        os.utime(path, (0, 0))
    build(tmp_path / "t", "n", encryption=None)
    write(tmp_path / "t", 1, **plain)
    assert known(tmp_path / "t", 250, "n", None) == (1, 0)
    with pytest.raises(ColumnError, match="delete the index"):
        write(tmp_path / "t", 2, index="n", encryption=secure_bloom.EncryptionConfiguration(
            "footer", {"pii": ["ssn", "n"]}))


@pytest.mark.parametrize(("column", "message"), [("none", "none"), ("part", "part")])
def test_columns_that_cannot_be_indexed(tmp_path, column, message):
    with pytest.raises(ColumnError, match=message):
        write(tmp_path / "t", index=column)
    assert not (tmp_path / "t" / "_index").exists()


def test_an_index_needs_a_kms(tmp_path):
    with pytest.raises(TypeError, match="must be a KMS"):
        write(tmp_path / "t", keys=KeyEncryptionKeys(KMS, ["footer", "pii"]))


@pytest.mark.parametrize(("where", "name"), [
    (indexing.SegmentMaker, "add"), (indexing.SegmentMaker, "write"),
    (indexing, "publish_segments"), (indexing, "WrittenFile"), (indexing, "merge_tiers")])
def test_whatever_fails_the_files_are_visible_and_uncovered(tmp_path, monkeypatch, caplog, where,
                                                            name):
    def fails(*args, **options):
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(where, name, fails)
        planted.setattr(indexing, "FAN_OUT", 1)
        write(tmp_path / "t")
    assert ("could not be merged" if name == "merge_tiers" else "searched without it: planted") \
        in caplog.text
    assert rows(tmp_path / "t") == 1
    assert known(tmp_path / "t") == ((1, 0) if name == "merge_tiers" else (0, 1))
    assert build(tmp_path / "t", "ssn", KMS).failed == {}
    assert known(tmp_path / "t") == (1, 0)


def test_a_write_that_fails_publishes_nothing(tmp_path):
    def batches():
        yield rows_of(0).to_batches()[0]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        secure_bloom.write_dataset(batches(), tmp_path / "t", index_columns="ssn",
                                   encryption=ENCRYPTION, keys=KMS, max_rows_per_file=10)
    assert Index.open(tmp_path / "t", KMS).column("ssn").segments == []
    assert not list((tmp_path / "t" / "_index").rglob("*.seg"))


def test_values_of_a_file_that_was_not_finished_are_discarded(tmp_path, monkeypatch):
    """They may have been spilled to a temporary file."""
    opened, closed = [], []

    class Written(written_hashes.WrittenHashes):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            opened.append(self)

        def close(self):
            closed.append(self)
            super().close()

    def batches():
        yield rows_of(0).to_batches()[0]
        raise ZeroDivisionError

    monkeypatch.setattr(indexing, "WrittenHashes", Written)
    with pytest.raises(ZeroDivisionError):
        secure_bloom.write_dataset(batches(), tmp_path / "t", index_columns="ssn",
                                   encryption=ENCRYPTION, keys=KMS, row_group_size=10)
    assert len(opened) == 1 and set(opened) == set(closed)


def test_an_index_that_cannot_be_opened_does_not_stop_a_write(tmp_path, caplog):
    write(tmp_path / "t")
    for path in (tmp_path / "t" / "_index").rglob("*.manifest"):
        stored = json.loads(path.read_bytes())
        path.write_text(json.dumps(stored | {"format": "of another program"}))
    write(tmp_path / "t", 1)
    assert "searched without it" in caplog.text and caplog.text.count("'ssn'") == 1
    assert secure_bloom.read_table(tmp_path / "t", KMS, index="off").num_rows == 400


def test_files_under_another_master_key_than_the_index_are_uncovered(tmp_path, caplog):
    keys = InMemoryKms({"footer": b"f" * 16, "pii": b"p" * 16, "other": b"o" * 16})
    write(tmp_path / "t")
    write(tmp_path / "t", 1, keys=keys,
          encryption=secure_bloom.EncryptionConfiguration("footer", {"other": ["ssn"]}))
    assert "under another master key, 'other'" in caplog.text
    assert known(tmp_path / "t", keys=keys) == (1, 1)


@pytest.mark.slow
def test_many_small_writes_leave_few_segments(tmp_path):
    for file in range(10):
        write(tmp_path / "t", file)
    assert len(Index.open(tmp_path / "t", KMS).column("ssn").segments) < 8
    assert known(tmp_path / "t") == (1, 0)


def test_no_key_or_value_is_logged(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    write(tmp_path / "t")
    secret = Index.open(tmp_path / "t", KMS).column("ssn").manifest.key.secret
    assert secret.hex() not in caplog.text and SSN[1] not in caplog.text
