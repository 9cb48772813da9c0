"""The newest parquet-java and secure_bloom read each other's files.

The test vectors ask it more: tests/validator/test_vectors.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from secure_bloom import ParquetFile
from tests.modes import MODES as OUR_MODES
from tests.modes import Mode
from tests.peers import examples
from tests.peers.fixtures import available
from tests.peers.parquet_java import NEWEST, ParquetJava
from tests.peers.test_ours_read_by_peers import java_rows, our_filters, write
from tests.peers.test_peers_read_by_ours import our_keys

pytestmark = pytest.mark.fetched


@pytest.fixture(scope="module")
def newest() -> Iterator[ParquetJava]:
    with available(lambda: ParquetJava(newest=True), is_fetched=True) as peer:
        yield peer


def test_it_is_the_release_that_was_fetched(newest: ParquetJava, tmp_path: Path):
    path = examples.write(newest, tmp_path / "a.parquet", None)
    assert newest.footer(path)["created_by"].startswith(f"parquet-mr version {NEWEST} ")


@pytest.mark.parametrize("mode", OUR_MODES, ids=str)
def test_it_reads_what_secure_bloom_writes(newest: ParquetJava, tmp_path: Path, mode: Mode):
    path = write(mode, tmp_path)
    assert newest.read(path, mode.java_keys)[0] == java_rows()
    assert newest.filters(path, mode.java_keys) == our_filters(path, mode)


@pytest.mark.parametrize("mode", examples.MODES)
def test_secure_bloom_reads_what_it_writes(newest: ParquetJava, tmp_path: Path, mode: str):
    keys = examples.MODES[mode]
    path = examples.write(newest, tmp_path / "a.parquet", keys)
    with ParquetFile(path, our_keys(keys)) as file:
        ours = [(info.row_group, info.column,
                 bytes(file.read_bloom_filter(info.row_group, info.column).bitset))
                for info in file.bloom_filters]
        assert file.read()["id"].to_pylist() == [row["id"] for row in examples.ROWS]
    assert ours == [(found.row_group, found.column, found.bitset)
                    for found in newest.filters(path, keys)]
