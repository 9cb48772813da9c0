"""The seeded parquet-java: the same name of a file gives the same bytes, another name others."""

from itertools import combinations
from pathlib import Path

import pytest

from tests.peers import examples
from tests.peers.parquet_java import ParquetJava

ENCRYPTED = [name for name, keys in examples.MODES.items() if keys is not None]
FIRST_NONCE = slice(8, 20)  # of the first page header, after "PARE" or "PAR1" and a length


@pytest.fixture
def write_all(parquet_java):  # asked for, so that the test is skipped without Java
    def write_all(folder: Path, modes) -> dict[str, dict[str, bytes]]:
        """For each mode the files that come from writing it: with external material two."""
        written = {}
        with ParquetJava(seeded=True) as java:
            for mode in modes:
                place = folder / mode
                place.mkdir(parents=True)
                examples.write(java, place / f"{mode}.parquet", examples.MODES[mode])
                written[mode] = {path.name: path.read_bytes() for path in place.iterdir()}
        return written

    return write_all


def test_the_same_name_gives_the_same_bytes(tmp_path, write_all):
    first = write_all(tmp_path / "first", ENCRYPTED)
    again = write_all(tmp_path / "again", reversed(ENCRYPTED))
    for mode in ENCRYPTED:
        assert again[mode] == first[mode], mode
    nonces = {first[mode][f"{mode}.parquet"][FIRST_NONCE] for mode in ENCRYPTED}
    assert len(nonces) == len(ENCRYPTED)


def test_another_name_gives_other_keys_and_bytes(tmp_path, parquet_java):
    keys = examples.MODES["tools"]
    with ParquetJava(seeded=True) as java:
        paths = [examples.write(java, tmp_path / f"{name}.parquet", keys) for name in "abc"]
    files = [path.read_bytes() for path in paths]
    data_keys = [set(parquet_java.data_keys(path, keys).by_metadata.values()) for path in paths]
    for i, k in combinations(range(len(paths)), 2):
        assert files[i][FIRST_NONCE] != files[k][FIRST_NONCE]
        assert not data_keys[i] & data_keys[k]
