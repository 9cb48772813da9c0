"""arrow-rs and secure_bloom read each other's files; what arrow-rs does to Bloom filters."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import ExplicitKeys, ParquetFile, SplitBlockBloomFilter, attach, audit, seal
from secure_bloom.auditing.evidence import find_plain_filters
from secure_bloom.errors import AuthenticationError
from secure_bloom.parquet.header import decode_header
from tests.modes import MODES, Mode
from tests.peers.arrow_rs import ArrowRs
from tests.peers.keys import Keys
from tests.peers.process import PeerError
from tests.peers.test_ours_read_by_peers import COLUMN_KEYS, GROUP_ROWS, LEAVES, TABLE

pytestmark = pytest.mark.fetched

FOOTER_KEY, COLUMN_KEY = b"0123456789012345", b"12345678901234501234567890123450"
ROWS = pa.table({"ssn": [f"078-05-{i:04}" for i in range(12)], "city": ["Rome", "Oslo"] * 6})
WRITTEN = {
    "columns": Keys(FOOTER_KEY, {"ssn": COLUMN_KEY}),
    "signed columns": Keys(FOOTER_KEY, {"ssn": COLUMN_KEY}, plaintext_footer=True),
    "uniform": Keys(COLUMN_KEY),
    "stored prefix": Keys(FOOTER_KEY, aad_prefix=b"tester"),
    "signed supplied prefix": Keys(FOOTER_KEY, aad_prefix=b"tester", store_aad_prefix=False,
                                   plaintext_footer=True),
}
every_way = pytest.mark.parametrize("way", WRITTEN)


def our_keys(keys: Keys) -> ExplicitKeys:
    return ExplicitKeys(keys.footer_key, dict(keys.column_keys), aad_prefix=keys.aad_prefix)


def by_arrow_rs(arrow_rs: ArrowRs, folder: Path, keys: Keys, bloom=("ssn",)) -> Path:
    """A file of two row groups, with a filter on ssn."""
    pq.write_table(ROWS, folder / "plain.parquet", compression="none")
    arrow_rs.copy(folder / "plain.parquet", folder / "a.parquet", to_keys=keys, bloom=bloom,
                  row_group_rows=6)
    return folder / "a.parquet"


def plain_filters(path: Path) -> list[SplitBlockBloomFilter]:
    """What anyone finds in the file, without a key, even under an encrypted footer."""
    data = path.read_bytes()
    found = []
    for offset, length in find_plain_filters(pa.BufferReader(data), len(data)):
        stored = data[offset:offset + length]
        bitset = stored[decode_header(stored)[1]:]
        found.append(SplitBlockBloomFilter.from_bitset(bitset, column_type=pa.string()))
    return found


# --- arrow-rs reads ------------------------------------------------------------------------------

def refusal(mode: Mode) -> str | None:
    """What arrow-rs says where it does not support a mode."""
    if "ctr" in mode.name:
        return "AES_GCM_CTR_V1 encryption algorithm is not yet supported"
    return "unsupported key length: 24" if "192" in mode.name else None


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_arrow_rs_reads_the_rows_of_secure_bloom(arrow_rs: ArrowRs, tmp_path: Path, mode: Mode):
    path, copy = tmp_path / "a.parquet", tmp_path / "copy.parquet"
    mode.write(TABLE, path, COLUMN_KEYS, row_group_size=GROUP_ROWS, compression="none",
               bloom_filters=dict.fromkeys(LEAVES.values(), True))
    keys = mode.explicit_keys(path)
    if refusal(mode):
        with pytest.raises(PeerError, match=refusal(mode)):
            arrow_rs.copy(path, copy, keys=keys)
    else:
        assert arrow_rs.copy(path, copy, keys=keys) == TABLE.num_rows
        assert pq.read_table(copy).to_pylist() == TABLE.to_pylist()


def test_arrow_rs_takes_encrypted_filters_for_damaged_ones(arrow_rs: ArrowRs, tmp_path: Path):
    """The length of the header's module, 43 bytes, is read as a union without a member."""
    path = tmp_path / "a.parquet"
    secure_bloom.write_table(ROWS, path, encryption=secure_bloom.UniformKey(FOOTER_KEY),
                             bloom_filters={"ssn": True})
    reply = arrow_rs.ask("files read", path=path, footer_key=FOOTER_KEY.hex(), probes="")
    assert reply.startswith("skip\treason=arrow-rs does not decrypt Bloom filters: ")
    assert reply.endswith("Could not read bloom filter header: Parquet error: Received empty "
                          "union from remote BloomFilterAlgorithm")


def test_arrow_rs_notices_other_keys_and_prefixes(arrow_rs: ArrowRs, tmp_path: Path):
    path, copy = tmp_path / "a.parquet", tmp_path / "copy.parquet"
    right = secure_bloom.UniformKey(FOOTER_KEY, aad_prefix=b"tester", store_aad_prefix=False)
    secure_bloom.write_table(ROWS, path, encryption=right, compression="none")
    for wrong in (Keys(FOOTER_KEY, aad_prefix=b"other"), Keys(COLUMN_KEY, aad_prefix=b"tester")):
        with pytest.raises(PeerError, match="unable to decrypt parquet footer"):
            arrow_rs.copy(path, copy, keys=wrong)
    assert arrow_rs.copy(path, copy, keys=Keys(FOOTER_KEY, aad_prefix=b"tester")) == ROWS.num_rows


# --- arrow-rs writes -----------------------------------------------------------------------------

@every_way
def test_filters_of_encrypted_columns_are_plaintext(arrow_rs: ArrowRs, tmp_path: Path, way: str):
    path = by_arrow_rs(arrow_rs, tmp_path, WRITTEN[way])
    with pytest.raises(secure_bloom.errors.SecureBloomError):
        ParquetFile(path).read()  # without a key
    first, second = plain_filters(path)
    ssns = ROWS["ssn"].combine_chunks()
    assert first.check(ssns[:6]).all() and second.check(ssns[6:]).all()
    assert not first.check(ssns[6:]).all() and not second.check(ssns[:6]).all()


def test_filters_of_secure_bloom_are_not(tmp_path: Path):
    path = tmp_path / "a.parquet"
    secure_bloom.write_table(ROWS, path, encryption=secure_bloom.UniformKey(FOOTER_KEY),
                             bloom_filters={"ssn": True})
    assert plain_filters(path) == []


@every_way
def test_secure_bloom_reads_the_rows_and_refuses_the_filters(arrow_rs: ArrowRs, tmp_path: Path,
                                                            way: str):
    path, keys = by_arrow_rs(arrow_rs, tmp_path, WRITTEN[way]), our_keys(WRITTEN[way])
    assert secure_bloom.read_table(path, keys).equals(ROWS)
    with pytest.raises(AuthenticationError, match="column ssn"):
        secure_bloom.read_table(path, keys, filters=[("ssn", "==", "078-05-0003")])


@every_way
def test_audit_finds_the_leak_and_seal_repairs_it(arrow_rs: ArrowRs, tmp_path: Path, way: str):
    path, keys = by_arrow_rs(arrow_rs, tmp_path, WRITTEN[way]), our_keys(WRITTEN[way])
    before = plain_filters(path)
    assert [(found.kind, found.column) for found in audit(path, keys).findings] == [("leak", "ssn")]

    assert seal(path, keys).changed[0].built == 2
    assert audit(path, keys, scan=True).ok and plain_filters(path) == []
    for i in range(12):
        found = secure_bloom.read_table(path, keys, filters=[("ssn", "==", f"078-05-{i:04}")])
        assert found.equals(ROWS[i:i + 1])
    with ParquetFile(path, keys) as file:
        assert [bytes(file.read_bloom_filter(group, "ssn").bitset) for group in range(2)] \
            == [bytes(bits.bitset) for bits in before]

    arrow_rs.copy(path, tmp_path / "back.parquet", keys=WRITTEN[way])
    assert pq.read_table(tmp_path / "back.parquet").equals(ROWS)


@every_way
def test_filters_are_attached_to_files_without_any(arrow_rs: ArrowRs, tmp_path: Path, way: str):
    path, keys = by_arrow_rs(arrow_rs, tmp_path, WRITTEN[way], bloom=()), our_keys(WRITTEN[way])
    assert plain_filters(path) == []
    assert attach(path, {"ssn": True}, keys).changed[0].built == 2
    assert audit(path, keys, scan=True).ok and plain_filters(path) == []
    found = secure_bloom.read_table(path, keys, filters=[("ssn", "==", "078-05-0008")])
    assert found.equals(ROWS[8:9])
    arrow_rs.copy(path, tmp_path / "back.parquet", keys=WRITTEN[way])
    assert pq.read_table(tmp_path / "back.parquet").equals(ROWS)
