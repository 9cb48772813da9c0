"""What the driver looks up while it plans a query, without Spark."""

import itertools
import logging
import shutil
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest

from secure_bloom import EncryptionConfiguration, write_table
from secure_bloom.errors import AuthenticationError, ChangedMeanwhileError
from secure_bloom.keys import Keyring
from secure_bloom.spark.options.row_filters import checked, to_json
from secure_bloom.spark.reading import planning, reader
from secure_bloom.spark.source import SecureParquet

pytestmark = pytest.mark.slow  # they write many files

FILES = 100
BY_COLUMN = EncryptionConfiguration("footer", {"pii": ["ssn"]})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder that each test copies, and its keyring."""
    root = tmp_path_factory.mktemp("planning")
    keyring = Keyring.create(root / "keyring.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    (root / "t").mkdir()
    for number in range(FILES):
        _write(root / "t", keyring, number)
    return root / "t", keyring


@pytest.fixture
def keyring(written):
    return written[1]


@pytest.fixture
def folder(tmp_path, written):
    return shutil.copytree(written[0], tmp_path / "t")


def _write(folder, keyring, number, **more):
    rows = pa.table({"id": [number, 1000 - number, number, 1000 - number],
                     "ssn": [f"{1000 + number}-{row}" for row in range(4)], "city": ["Rome"] * 4})
    write_table(rows, folder / f"{number:03}.parquet", bloom_filters=["ssn", "city", "id"],
                encryption=BY_COLUMN, keys=keyring, row_group_size=2, **more)


def plan(folder, keyring, *filters, **options):
    """Return a reader and its tasks."""
    source = SecureParquet({"path": str(folder), "keys": str(keyring.path),
                            "filters": to_json(checked(list(filters))), "index": "off", **options})
    found = source.reader(source.schema())
    return found, found.partitions()


def names(tasks):
    return sorted({part.file.path[-11:-8] for task in tasks for part in task.ranges})


def rows(found, tasks):
    batches = [batch for task in tasks for batch in found.read(task)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.fixture
def looked(monkeypatch):
    """The files at which the driver looks."""
    found = []
    look = reader.SecureParquetReader._look

    def counted(self, file, places):
        found.append(file.path[-11:-8])
        return look(self, file, places)

    monkeypatch.setattr(reader.SecureParquetReader, "_look", counted)
    return found


def test_files_in_which_nothing_can_match_take_no_task(folder, keyring, looked, caplog):
    caplog.set_level(logging.INFO, logger="secure_bloom.spark")
    found, tasks = plan(folder, keyring, ("ssn", "=", "1042-3"))
    assert names(tasks) == ["042"] and len(tasks) == 1 and len(looked) == FILES
    [record] = caplog.records
    numbers = {name: int(value) for name, value in record.context.items()}
    assert (numbers["tasks"], numbers["total_files"]) == (1, FILES)
    assert numbers["skipped_by_statistics_files"] + numbers["skipped_by_filters_files"] \
        == FILES - 1
    skipped = sum(numbers[f"skipped_by_{reason}_bytes"]
                  for reason in ("partition", "index", "statistics", "filters"))
    assert skipped == numbers["total_bytes"] - (folder / "042.parquet").stat().st_size
    caplog.clear()
    assert [row["id"] for row in rows(found, tasks)] == [42, 958]
    context = caplog.records[-1].context
    assert (context["total_row_groups"], context["skipped_by_index_row_groups"],
            context["skipped_by_statistics_row_groups"], context["rows_read"]) \
        == ("2", "0", "1", "2")


def test_a_value_that_no_file_holds_takes_no_task(folder, keyring):
    _, tasks = plan(folder, keyring, ("ssn", "=", "absent"))
    assert tasks == []


@pytest.mark.parametrize("filters", [[("city", "=", "Rome")], [("city", "is not null", None)],
                                     [("id", ">", -1)]])
def test_the_driver_stops_looking_where_most_files_match(folder, keyring, looked, filters):
    found, tasks = plan(folder, keyring, *filters)
    assert len(names(tasks)) == FILES and len(looked) < FILES // 2 + planning._AHEAD
    assert len(rows(found, tasks)) == 4 * FILES


def test_the_driver_leaves_what_would_take_it_long_to_the_tasks(folder, keyring, looked,
                                                                monkeypatch):
    monkeypatch.setattr(planning, "MAX_SECONDS", 0)
    found, tasks = plan(folder, keyring, ("ssn", "=", "1099-3"))
    assert names(tasks)[-1] == "099" and 30 < len(names(tasks)) < 70
    assert len(looked) < 64 + planning._AHEAD
    assert [row["id"] for row in rows(found, tasks)] == [99, 901]


def test_the_driver_looks_at_all_files_of_a_busy_machine(folder, keyring, looked, monkeypatch):
    times = itertools.count(step=60)
    monkeypatch.setattr(planning, "time", SimpleNamespace(
        monotonic=lambda: next(times), process_time=time.process_time))
    _, tasks = plan(folder, keyring, ("ssn", "=", "1042-3"))
    assert names(tasks) == ["042"] and len(looked) == FILES


def test_a_file_that_is_damaged_is_reported_by_its_task(folder, keyring):
    content = bytearray((folder / "007.parquet").read_bytes())
    content[-20] ^= 1
    (folder / "007.parquet").write_bytes(content)
    found, tasks = plan(folder, keyring, ("ssn", "=", "1003-3"))
    assert {"003", "007"} <= set(names(tasks))
    with pytest.raises(AuthenticationError, match=r"007\.parquet"):
        rows(found, tasks)


def test_a_file_that_changes_after_the_driver_looked_is_not_read(folder, keyring):
    found, tasks = plan(folder, keyring, ("ssn", "=", "1042-3"))
    _write(folder, keyring, 42, compression="none")
    with pytest.raises(ChangedMeanwhileError, match="run the query again"):
        rows(found, tasks)


def test_a_requirement_is_checked_by_the_driver_or_the_task(folder, keyring):
    write_table(pa.table({"id": [1], "ssn": ["1042-3"], "city": ["Rome"]}),
                folder / "050.parquet")
    found, tasks = plan(folder, keyring, ("ssn", "=", "1042-3"),
                        **{"require.encryption": "ssn"})
    with pytest.raises(AuthenticationError, match=r"050\.parquet"):
        rows(found, tasks)


def test_large_files_are_split_among_tasks_as_the_driver_found(folder, keyring):
    found, tasks = plan(folder, keyring, ("id", "in", [42, 958]), split_bytes="200",
                        open_cost_bytes="0")
    assert set(names(tasks)) == {"042"}
    assert [row["id"] for row in rows(found, tasks)] == [42, 958, 42, 958]
