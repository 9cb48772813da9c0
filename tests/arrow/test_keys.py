"""Keys that are passed to pyarrow live no longer than what uses them."""

import gc
import os
import time

import pyarrow as pa
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, write_table
from secure_bloom.arrow.keys import PlaceholderKeys, _PyarrowKms
from secure_bloom.keys import InMemoryKms
from secure_bloom.reading.open_file import OpenFile
from tests.modes import MASTER_KEYS

KMS = InMemoryKms(MASTER_KEYS)


def living(kind):
    gc.collect()
    return sum(isinstance(one, kind) for one in gc.get_objects())


def settles(condition):
    """Whether a condition becomes true: threads of Arrow hold what they read for a moment."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("internal", [True, False], ids=["internal", "external"])
def test_no_data_key_outlives_its_file(tmp_path, internal):
    def write_and_read(name):
        path = tmp_path / name
        write_table(pa.table({"ssn": [1, 2]}), path, keys=KMS, encryption=EncryptionConfiguration(
            "kf", column_keys={"kc1": ["ssn"]}, internal_key_material=internal))
        file = OpenFile(path, KMS)
        in_pyarrow = file.open_in_pyarrow()
        gc.collect()  # whatever pyarrow needs to read is still there
        assert in_pyarrow.read()["ssn"].to_pylist() == [1, 2]

    write_and_read("first.parquet")
    keys, clients = living(PlaceholderKeys), living(_PyarrowKms)
    for number in range(8):
        write_and_read(f"{number}.parquet")
    assert settles(lambda: living(PlaceholderKeys) <= keys)
    assert settles(lambda: living(_PyarrowKms) <= clients + 2)  # as many as are in use at a time


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_file_with_external_key_material_that_nobody_closes_is_closed(tmp_path):
    path = tmp_path / "people.parquet"
    write_table(pa.table({"ssn": [1, 2]}), path, keys=KMS, encryption=EncryptionConfiguration(
        "kf", column_keys={"kc1": ["ssn"]}, internal_key_material=False))
    ParquetFile(path, KMS).read()
    gc.collect()
    assert settles(lambda: str(path) not in {os.path.realpath(f"/proc/self/fd/{number}")
                                             for number in os.listdir("/proc/self/fd")})
