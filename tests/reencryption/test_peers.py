"""Files of other writers in every mode, encrypted in another way, and read by others."""

import duckdb
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.keys import InMemoryKms
from tests.modes import ENCRYPTED, MASTER_KEYS, PLAINTEXT
from tests.modes import mode as mode_of
from tests.peers.arrow_rs import ArrowRs
from tests.peers.examples import MODES as JAVA_MODES
from tests.peers.examples import explicit, write
from tests.peers.keys import KeyTools
from tests.peers.test_ours_read_by_peers import COLUMN_KEYS, GROUP_ROWS, TABLE
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


PAGES = pytest.mark.parametrize("version", ["1.0", "2.0"])
EVERY_MODE = pytest.mark.parametrize("mode", ENCRYPTED, ids=str)


def both(folder, mode, version):
    """Return the same rows in plaintext: as they were written, and decrypted from a mode."""
    paths = folder / "plain.parquet", folder / "decrypted.parquet"
    for path, how in zip(paths, (PLAINTEXT, mode), strict=True):
        how.write(TABLE, path, COLUMN_KEYS, row_group_size=GROUP_ROWS, compression="none",
                  data_page_version=version, bloom_filters=["id", "name"])
    done = secure_bloom.decrypt(paths[1], mode.keys, plaintext=True)
    assert done.ok and len(done.changed) == 1, done.failed
    return paths


@PAGES
@EVERY_MODE
def test_duckdb_reads_what_is_decrypted(tmp_path, mode, version):
    plain, decrypted = both(tmp_path, mode, version)
    query = "from read_parquet('{}')"
    expected = repr(duckdb.sql(query.format(plain)).fetchall())
    assert repr(duckdb.sql(query.format(decrypted)).fetchall()) == expected
    found = duckdb.sql(f"select name from '{decrypted}' where id = {TABLE['id'][8]}").fetchall()
    assert found == [(TABLE["name"][8].as_py(),)]


@PAGES
@EVERY_MODE
def test_arrow_rs_reads_what_is_decrypted_and_encrypted_again(
        arrow_rs: ArrowRs, tmp_path, mode, version):
    plain, path = both(tmp_path, mode, version)
    expected, copy = pq.read_table(plain).to_pylist(), tmp_path / "copy.parquet"
    arrow_rs.copy(path, copy)
    assert pq.read_table(copy).to_pylist() == expected
    done = secure_bloom.encrypt(path, KMS, encryption=EncryptionConfiguration(
        "kf", COLUMN_KEYS, other_columns="footer key"))
    assert done.ok and len(done.changed) == 1, done.failed
    arrow_rs.copy(path, copy, keys=mode_of("columns double gcm 128").explicit_keys(path))
    assert pq.read_table(copy).to_pylist() == expected


@pytest.mark.parametrize("mode", JAVA_MODES)
def test_arrow_rs_reads_files_of_parquet_java_that_are_decrypted(
        parquet_java, arrow_rs: ArrowRs, tmp_path, mode):
    path, copy = write(parquet_java, tmp_path / "a.parquet", JAVA_MODES[mode]), tmp_path / "copy"
    done = secure_bloom.decrypt(path, our_keys(JAVA_MODES[mode]), plaintext=True)
    assert done.ok, done.failed
    arrow_rs.copy(path, copy)
    assert pq.read_table(copy).to_pylist() == pq.read_table(path).to_pylist()
