"""Files of other writers in every mode, encrypted in another way, and read by others."""

import duckdb
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.keys import InMemoryKms
from tests.modes import MASTER_KEYS
from tests.peers.examples import MODES as JAVA_MODES
from tests.peers.examples import explicit, write
from tests.peers.keys import KeyTools
from tests.peers.test_peers_read_by_ours import our_keys

KMS, TOOLS = InMemoryKms(MASTER_KEYS), KeyTools(MASTER_KEYS)
TARGETS = {
    "columns": EncryptionConfiguration("kf", {"kc1": ["id", "name"], "kc2": ["code"]},
                                       other_columns="footer key", data_key_length_bits=256),
    "uniform ctr": EncryptionConfiguration("kf", uniform_encryption=True,
                                           encryption_algorithm="AES_GCM_CTR_V1"),
    "signed single": EncryptionConfiguration("kf", {"kc1": ["id"]}, plaintext_footer=True,
                                             other_columns="footer key", double_wrapping=False),
}


def bits(filters):
    return [(one.row_group, one.column, one.bitset) for one in filters]


@pytest.mark.parametrize("mode", JAVA_MODES)
def test_files_of_parquet_java(parquet_java, arrow_cpp, tmp_path, mode):
    keys = JAVA_MODES[mode]
    path = write(parquet_java, tmp_path / "a.parquet", keys)
    rows, groups = parquet_java.read(path, keys)
    filters = bits(parquet_java.filters(path, keys))
    old = our_keys(keys)
    for target in TARGETS.values():
        done = secure_bloom.encrypt(path, old, encryption=target, new_keys=KMS)
        assert done.ok and len(done.changed) == 1, done.failed
        assert parquet_java.read(path, TOOLS) == (rows, groups)
        assert bits(parquet_java.filters(path, TOOLS)) == filters
        assert bits(arrow_cpp.filters(path, explicit(parquet_java, path, TOOLS))) == filters
        old = KMS
    assert secure_bloom.reencrypt(path, KMS, master_keys={"kc1": "kc2"}).unused_master_keys \
        == ["kc1"]
    assert parquet_java.read(path, TOOLS) == (rows, groups)
    assert secure_bloom.decrypt(path, KMS, plaintext=True).ok
    assert parquet_java.read(path) == (rows, groups)
    assert bits(parquet_java.filters(path)) == filters == bits(arrow_cpp.filters(path))
    assert len(duckdb.sql(f"from '{path}'").fetchall()) == len(rows)
    assert pq.read_table(path).num_rows == len(rows)
