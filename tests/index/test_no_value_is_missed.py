"""Of millions of values in thousands of files, none is missed while the index is updated."""

import threading

import numpy as np
import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.index import Index, build
from tests.index.helpers import ENCRYPTION, KMS

ROWS, ROW_GROUP = 1000, 400
STEPS = 20
CHUNK = 200_000


def values_of(files) -> np.ndarray:
    """Return the values of files by number; each value occurs once, and neighbours are apart."""
    numbers = np.asarray(files, np.int64)[:, None] * ROWS + np.arange(ROWS)
    return numbers.ravel() * 0x9E3779B97F4A7C1 % (1 << 61)


def write_files(folder, files) -> None:
    folder.mkdir(exist_ok=True)
    for number in files:
        secure_bloom.write_table(
            pa.table({"ssn": values_of([number])}), folder / f"{number}.parquet",
            row_group_size=ROW_GROUP, encryption=ENCRYPTION, keys=KMS)


def missed(index: Index, files) -> int:
    """Return how many values a lookup misses in files that the index covers, by its own word."""
    column = index.column("ssn")
    coverage = column.coverage(index._table.listing())
    assert len(coverage.places) + len(coverage.uncovered) >= len(files)
    files = np.asarray([number for number in files if f"{number}.parquet" in coverage.places])
    found = 0
    for start in range(0, files.size, CHUNK // ROWS):
        some = files[start:start + CHUNK // ROWS]
        values, rows = values_of(some), np.arange(some.size * ROWS)
        is_found = np.zeros(values.size, bool)
        for hits in column.find(values):
            assert not hits.unanswered.size
            paths = column.segments[hits.segment].files.rows.paths
            numbers = np.array([int(path.removesuffix(".parquet")) for path in paths])
            is_found[hits.values[
                (numbers[hits.files] == some[rows[hits.values] // ROWS])
                & (hits.row_groups == rows[hits.values] % ROWS // ROW_GROUP)]] = True
        found += int(is_found.sum())
    return files.size * ROWS - found


class Updates(threading.Thread):
    """Adds the files of one step after the other to the index."""

    def __init__(self, folder, steps):
        super().__init__()
        self._folder, self._steps, self.written = folder, steps, 0
        self.error = None

    def run(self):
        try:
            for files in self._steps:
                write_files(self._folder, files)
                self.written = files[-1] + 1
                Index.open(self._folder, KMS).update()
        except BaseException as error:
            self.error = error
            raise


@pytest.mark.slow
@pytest.mark.parametrize("files", [100, pytest.param(10_000, marks=pytest.mark.soak)])
def test_no_value_is_missed_before_during_and_after_updates_and_merges(tmp_path, files):
    folder = tmp_path / "t"
    write_files(folder, range(files // 2))
    build(folder, "ssn", KMS)
    index = Index.open(folder, KMS)
    assert missed(index, range(files // 2)) == 0
    rest = np.array_split(np.arange(files // 2, files), STEPS)
    updates, lookups = Updates(folder, [some.tolist() for some in rest]), 0
    updates.start()
    source = np.random.default_rng(1)
    while updates.is_alive():
        some = source.integers(0, max(updates.written, files // 2), 50)
        assert missed(index, np.unique(some).tolist()) == 0
        lookups += 1
    updates.join()
    assert updates.error is None and lookups
    assert missed(index, range(files)) == 0
    assert len(index.column("ssn").segments) < STEPS  # some were merged
    assert index.lookup("ssn", 1).uncovered == []
    index.compact()
    assert missed(index, range(files)) == 0 and len(index.column("ssn").segments) == 1
    index.vacuum(0)
    assert missed(index, range(files)) == 0
