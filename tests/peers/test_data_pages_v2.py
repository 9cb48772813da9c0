"""Encrypted data pages V2: parquet-java and Arrow C++ cannot read each other's rows.

parquet-java stores the levels of such a page before its ciphertext, Arrow C++ inside it. The
documentation warns of it; if these tests fail, one of them has changed, and it must say so.
"""

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.errors import FormatError
from tests.modes import mode
from tests.peers.examples import MODES
from tests.peers.parquet_java import Bloom, ParquetJava
from tests.peers.process import PeerError

_MODE = mode("columns double gcm 128")


def test_parquet_java_reads_the_filters_but_not_the_rows(parquet_java: ParquetJava, tmp_path):
    path = tmp_path / "ours.parquet"
    _MODE.write(pa.table({"id": [1, None, 3] * 10}), path, {"kc1": ["id"]}, bloom_filters=True,
                data_page_version="2.0")
    assert parquet_java.probe(path, _MODE.java_keys, "id", [1, 3]) == [[True, True]]
    with pytest.raises(PeerError):
        parquet_java.read(path, _MODE.java_keys)
    assert secure_bloom.read_table(path, _MODE.keys)["id"].to_pylist() == [1, None, 3] * 10


def test_ours_says_why_it_cannot_read_those_of_parquet_java(parquet_java: ParquetJava, tmp_path):
    path = tmp_path / "java.parquet"
    parquet_java.write(path, "message m { optional int64 id; }", [{"id": 1}, {"id": None}],
                       keys=MODES["uniform"], bloom={"id": Bloom(2)}, page_version=2)
    keys = secure_bloom.ExplicitKeys(MODES["uniform"].footer_key)
    with secure_bloom.ParquetFile(path, keys) as file:
        assert file.might_contain("id", [1]).all()
    with pytest.raises(FormatError, match="data pages V2, which pyarrow cannot decrypt"):
        secure_bloom.read_table(path, keys)
