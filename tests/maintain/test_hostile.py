"""Files with changed bytes: typed errors, and what pyarrow reads of them stays what it was."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom import ParquetFile, attach, audit, seal, strip, write_table
from secure_bloom.errors import FormatError
from secure_bloom.examples.leaking_file import leaking_file
from tests.maintain.helpers import KMS, SIGNED, TABLE
from tests.support import examples


def _plain() -> bytes:
    sink = pa.BufferOutputStream()
    write_table(TABLE, sink, bloom_filters={"ssn": True, "city": True}, row_group_size=40,
                write_page_index=True, compression="none")
    return sink.getvalue().to_pybytes()


PLAIN = _plain()
LEAKING = leaking_file(TABLE, ["ssn", "city"], KMS, encryption=SIGNED, row_group_size=40)
changes = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4)


def changed(data: bytes, changes, *, only_footer: bool) -> bytes:
    """The file with other bytes here and there, counted from the end."""
    footer = int.from_bytes(data[-8:-4], "little")
    out = bytearray(data)
    for place, value in changes:
        out[-9 - place % (footer if only_footer else len(data) - 9)] = value
    return bytes(out)


def as_pyarrow_reads(data: bytes):
    """The rows, or None where pyarrow refuses."""
    try:
        table = pq.read_table(io.BytesIO(data))
        return table.num_rows, [str(column.to_pylist()) for column in table.columns]
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        return None


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["attach", "strip"])
@given(changes=changes)
@examples(150)
def test_footers_that_say_something_else(tmp_path_factory, operation, changes):
    path = tmp_path_factory.mktemp("hostile") / "a.parquet"
    before = changed(PLAIN, changes, only_footer=True)
    path.write_bytes(before)
    rows = as_pyarrow_reads(before)
    if operation == "attach":
        result = attach(path, {"ssn": True, "number": True}, replace=True)
    else:
        result = strip(path)
    after = path.read_bytes()
    assert len(result.changed) + result.unchanged + len(result.failed) == 1
    if not result.changed:
        assert after == before
    if rows is not None:
        assert as_pyarrow_reads(after) == rows
    audit(path, scan=True)


@pytest.mark.slow
@given(changes=changes)
@examples(100)
def test_encrypted_files(tmp_path_factory, changes):
    path = tmp_path_factory.mktemp("hostile") / "a.parquet"
    before = changed(LEAKING, changes, only_footer=False)
    path.write_bytes(before)
    for keys in (None, KMS):
        audit(path, keys, scan=True, guesses=["1"])
    result = seal(path, KMS)
    if result.changed:
        assert audit(path, KMS).ok or before != LEAKING
        assert LEAKING[:4] == path.read_bytes()[:4] or before[:4] != LEAKING[:4]
    else:
        assert path.read_bytes() == before




def test_encrypted_metadata_of_a_plaintext_column(tmp_path):
    file, path = ParquetFile(PLAIN), tmp_path / "a.parquet"
    file.footer.row_groups[1][2].to_change().set_binary(9, bytes(100))
    path.write_bytes(PLAIN[:file.footer.start] + file.footer.to_bytes())
    with pytest.raises(FormatError, match="row group 1, column city"):
        _ = ParquetFile(path).bloom_filters
    before = path.read_bytes()
    assert "not encrypted" in strip(path).failed[str(path)] and path.read_bytes() == before


def test_names_that_are_no_text(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(PLAIN.replace(b"number", b"num\x80er"))
    failed = attach(path, {"ssn": True}, replace=True).failed
    assert "pyarrow cannot read the footer" in failed[str(path)]
