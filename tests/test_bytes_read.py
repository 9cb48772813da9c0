"""A lookup reads footers and the filters that it asks, and nothing else."""

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom.keys import InMemoryKms
from tests.counting import CountingHandler

ENCRYPTION = secure_bloom.EncryptionConfiguration("footer", column_keys={"pii": ["ssn"]})
KMS = InMemoryKms({"footer": b"f" * 16, "pii": b"p" * 16})
GROUP = 5000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for number in range(4):
        ids = range(number * 3 * GROUP, (number + 1) * 3 * GROUP)
        table = pa.table({"id": ids, "ssn": list(map(ssn, ids))})
        secure_bloom.write_table(table, folder / f"{number}.parquet", row_group_size=GROUP,
                                 bloom_filters={"id": True, "ssn": True},
                                 encryption=ENCRYPTION, keys=KMS)
    return folder


def ssn(number: int) -> str:
    """Without order, so that statistics rule nothing out."""
    return f"{number * 618_033_989 % 10**9:09}"


def needed(path, column: str) -> int:
    """Bytes of the footer with its tail, and of one column's filters."""
    with secure_bloom.ParquetFile(path, KMS) as file:
        footer = path.stat().st_size - file.footer.start
        return footer + sum(info.length for info in file.bloom_filters if info.column == column)


def read(folder, type_name: str, value: str):
    handler = CountingHandler(type_name)
    table = secure_bloom.read_table(str(folder), keys=KMS, filters=[("ssn", "=", value)],
                                    filesystem=pa_fs.PyFileSystem(handler))
    return table, handler


def test_footer_and_asked_filters_and_no_more(folder):
    table, handler = read(folder, "counting", "444444444")
    assert table.num_rows == 0 and table.column_names == ["id", "ssn"]
    paths = list(folder.iterdir())
    assert all(handler.opened[str(path)] == 1 for path in paths)  # pyarrow opened none
    wanted = sum(needed(path, "ssn") for path in paths)
    assert set(handler.bytes_read) == set(map(str, paths))
    assert wanted <= handler.bytes_read.total() <= 1.05 * wanted


def test_only_the_file_that_may_hold_the_value_is_read_by_pyarrow(folder):
    table, handler = read(folder, "counting", ssn(20_000))
    assert table["id"].to_pylist() == [20_000]
    more = [path for path in folder.iterdir()
            if handler.bytes_read[str(path)] > 1.05 * needed(path, "ssn")]
    assert more == [folder / "1.parquet"]
    # Opened once: a second time it could be another version.
    assert all(handler.opened[str(path)] == 1 for path in folder.iterdir())


def test_a_store_far_away_is_asked_once_for_what_stands_at_the_end(folder):
    _, handler = read(folder, "fsspec+far", "444444444")
    for path in folder.iterdir():
        assert handler.bytes_read[str(path)] == max(64 * 1024, needed(path, "ssn"))


@pytest.mark.parametrize("filters", [None, [("ssn", "=", "v7")]])
@pytest.mark.parametrize("opening", ["table", "file"])
def test_a_small_file_in_a_store_far_away_is_read_once(tmp_path, filters, opening):
    path = tmp_path / "t" / "small.parquet"
    path.parent.mkdir()
    secure_bloom.write_table(pa.table({"ssn": [f"v{number}" for number in range(100)]}), path,
                             encryption=ENCRYPTION, keys=KMS, bloom_filters=["ssn"])
    handler = CountingHandler("fsspec+far")
    where = str(path.parent if opening == "table" else path)
    table = secure_bloom.read_table(where, keys=KMS, filters=filters,
                                    filesystem=pa_fs.PyFileSystem(handler))
    assert table.num_rows == (100 if filters is None else 1)
    assert handler.bytes_read == {str(path): path.stat().st_size}
