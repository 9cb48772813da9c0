"""Valid filters that are too large, or have too long a header: read around, and removed whole."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from secure_bloom import ParquetFile, audit, erase, seal, strip, verify_file
from secure_bloom.errors import UnsupportedError
from secure_bloom.parquet.header import encode_header
from secure_bloom.sbbf.sizing import MAX_BYTES
from tests.maintain.helpers import KMS, SIGNED, TABLE, leaking

LONG = encode_header(64)[:-1] + b"\x48\x80\x10" + b"\xa5" * 2048 + b"\0"  # field 8: 2,048 bytes
MARK = b"\xa5" * 32


def with_filter(path, header: bytes, size: int, length: bool = True, keys=None):
    """Put another filter before the footer, as that of the first column in row group 0."""
    file = ParquetFile(path, keys)
    start, chunk = file.footer.start, file.footer.row_groups[0][0]
    chunk.set_bloom_filter(start, len(header) + size)
    for meta in chunk.metadata_to_change() if not length else ():
        meta.remove(15)
    with path.open("r+b") as out:
        out.seek(start)
        out.write(header)
        out.seek(start + len(header) + size - 32)  # a hole, but for the end
        out.write(MARK + file.footer.to_bytes())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("length", [True, False], ids=["with length", "without length"])
@pytest.mark.parametrize(("header", "size"), [
    (encode_header(MAX_BYTES + 32), MAX_BYTES + 32), (LONG, 64)], ids=["large", "long header"])
def test_reading_goes_on_and_strip_removes_the_filter(tmp_path, header, size, length):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, row_group_size=50)
    with_filter(path, header, size, length)
    file = ParquetFile(path)
    with pytest.raises(UnsupportedError, match="are read here"):
        file.read_bloom_filter(0, "ssn")
    assert file.bloom_filters[0].num_bytes is None
    assert np.all(file.might_contain("ssn", ["nobody"])[0])
    assert file.read(filters=[("ssn", "==", "000000007")]).num_rows == 1
    assert [finding.kind for finding in audit(path).findings] == ["refused"]
    assert not [finding for finding in verify_file(path).findings if finding.kind == "lost"]
    assert strip(path).changed[0].removed == 1
    assert MARK not in path.read_bytes() and ParquetFile(path).read().equals(TABLE)


def test_seal_replaces_such_a_filter(tmp_path):
    path = with_filter(leaking(tmp_path / "a.parquet", SIGNED), LONG, 64, keys=KMS)
    [change] = seal(path, KMS).changed
    assert change.built == change.removed == 6
    assert "the Bloom filter header has 2,067 bytes" in change.notes[0]
    assert MARK not in path.read_bytes() and audit(path, KMS).ok and verify_file(path, KMS).ok


def test_erase_leaves_such_a_filter_out(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, row_group_size=50)
    with_filter(path, LONG, 64)
    assert erase(path, "ssn", ["000000007"]).ok
    assert MARK not in path.read_bytes() and not ParquetFile(path).bloom_filters
