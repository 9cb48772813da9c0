"""What parquet-cli says about files of secure_bloom."""

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile
from secure_bloom.keys import InMemoryKms
from tests.modes import MASTER_KEYS
from tests.peers import parquet_cli
from tests.peers.fixtures import available
from tests.peers.process import PeerError

pytestmark = pytest.mark.fetched

ROWS = pa.table({
    "id": pa.array([2**62, -1, 7, 0], pa.int64()),
    "small": pa.array([-(2**31), 5, 6, 2**31 - 1], pa.int32()),
    "real": [0.5, -1.25, 1e300, 3.0],
    "name": ["Ada", "Zoë", "", "a b"],
    "city": ["Rome", "Oslo", "Rome", "Lima"],
})
ABSENT = {"id": "8", "small": "9", "real": "2.5", "name": "Bob", "city": "Bern"}
KMS = InMemoryKms(MASTER_KEYS)
ENCRYPTED = EncryptionConfiguration("kf", {"kc1": ["name"]})
SIGNED = EncryptionConfiguration("kf", {"kc1": ["name"]}, plaintext_footer=True)


def write(path: Path, encryption: EncryptionConfiguration | None = None) -> Path:
    secure_bloom.write_table(ROWS, path, bloom_filters=dict.fromkeys(ROWS.column_names, True),
                             encryption=encryption, keys=KMS if encryption else None,
                             row_group_size=2, compression="none")
    return path


@pytest.fixture(scope="module", autouse=True)
def is_available() -> None:
    """Fetch parquet-cli once for all tests, or skip them all at once."""
    available(parquet_cli.java_command, is_fetched=True)


def answers(path: Path, column: str, values: Sequence[str], **options: object) -> list[list[bool]]:
    """For each row group whether the filter may have each value."""
    lines = parquet_cli.run("bloom-filter", path, "-c", column, "-v", ",".join(values), **options)
    groups: list[list[bool]] = []
    for line in lines:
        if re.match(r"Row group \d+:", line):
            groups.append([])
        elif found := re.fullmatch(r"value .* (maybe|NOT) exists\.", line):
            groups[-1].append(found[1] == "maybe")
    return groups


@pytest.mark.parametrize("column", ROWS.column_names)
def test_filters_of_plaintext_files(tmp_path: Path, column: str):
    path = write(tmp_path / "a.parquet")
    values = [str(value) for value in ROWS[column].to_pylist() if value != ""] + [ABSENT[column]]
    with ParquetFile(path) as file:
        filters = [file.read_bloom_filter(group, column) for group in range(2)]
    typed = pa.array([*(v for v in ROWS[column].to_pylist() if v != ""),
                      type(ROWS[column][0].as_py())(ABSENT[column])], ROWS[column].type)
    expected = [bits.check(typed).tolist() for bits in filters]
    assert answers(path, column, values) == expected
    assert [any(group) for group in zip(*expected, strict=True)][:-1] == [True] * (len(values) - 1)
    assert not any(group[-1] for group in expected)


def test_filters_of_plaintext_columns_under_a_plaintext_footer(tmp_path: Path):
    path = write(tmp_path / "a.parquet", SIGNED)
    assert answers(path, "city", ["Oslo", "Lima", "Bern"]) == [[True, False, False],
                                                               [False, True, False]]


@pytest.mark.parametrize(("encryption", "refusal"), [
    (ENCRYPTED, "Trying to read file with encrypted footer. No keys available"),
    (SIGNED, r"\[name\]. Null File Decryptor")])
def test_encrypted_filters_are_refused_even_with_keys(tmp_path: Path, encryption, refusal):
    path = write(tmp_path / "a.parquet", encryption)
    with pytest.raises(PeerError, match=refusal):
        answers(path, "name", ["Ada"], master_keys=MASTER_KEYS)


@pytest.mark.parametrize("encryption", [None, ENCRYPTED, SIGNED])
def test_metadata_and_rows_are_read_with_keys(tmp_path: Path, encryption):
    path = write(tmp_path / "a.parquet", encryption)
    keys = {"master_keys": MASTER_KEYS} if encryption else {}
    metadata = parquet_cli.run("meta", path, **keys)
    assert sum(line.startswith("Row group") for line in metadata) == 2
    rows = parquet_cli.run("cat", path, **keys)
    assert sum('"name": "Zoë"' in line for line in rows) == 1
    if encryption:
        with pytest.raises(PeerError):
            parquet_cli.run("cat", path)
