"""One column that cannot be understood does not make the others unreadable."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import ParquetFile, attach, audit, seal, strip, verify_file, write_table
from secure_bloom.errors import UnknownEncryptionError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.schema import SCHEMA_ELEMENT_LAYOUT
from secure_bloom.parquet.thrift import Struct
from tests.maintain.helpers import ENCRYPTED, KMS, SIGNED, TABLE

OTHERS = ["name", "city", "number"]
MEMBERS = {"unknown member": [[3, thrift.STRUCT, Struct()]], "no member": [],
           "not a struct": [[1, thrift.BINARY, b"\0"]]}


@pytest.mark.parametrize("encryption", [ENCRYPTED, SIGNED], ids=["encrypted", "signed"])
@pytest.mark.parametrize("members", MEMBERS)
def test_a_column_that_is_encrypted_in_an_unknown_way(tmp_path, members, encryption):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, bloom_filters=["ssn", "name", "city"], keys=KMS, encryption=encryption,
                row_group_size=50)
    file = ParquetFile(path, KMS)
    for chunks in file.footer.row_groups:
        chunks[0].to_change().set(8, thrift.STRUCT, Struct(MEMBERS[members]))
    path.write_bytes(path.read_bytes()[:file.footer.start] + file.footer.to_bytes())

    file = ParquetFile(path, KMS)
    assert file.read(columns=OTHERS).equals(TABLE.select(OTHERS))
    assert file.read(columns=OTHERS, filters=[("name", "==", "n 7")]).num_rows == 1
    assert file.might_contain("name", ["n 70"])[:, 0].tolist() == [False, True]
    assert {info.column for info in file.bloom_filters} >= {"name", "city"}
    with pytest.raises(UnknownEncryptionError) as error:
        file.read_bloom_filter(0, "ssn")
    assert (error.value.row_group, error.value.column) == (0, "ssn")
    with pytest.raises(UnknownEncryptionError, match="column ssn"):
        file.read()
    states = {column.column: column.state for column in audit(path, KMS).files[0].columns}
    assert states["name"] == "protected" and states["ssn"] in ("unknown", "protected")
    assert not [one for one in verify_file(path, KMS).findings if one.column != "ssn"]
    assert attach(path, ["number"], KMS).changed and strip(path, KMS, columns=["city"]).changed
    assert not seal(path, KMS).changed
    assert ParquetFile(path, KMS).read(columns=OTHERS).equals(TABLE.select(OTHERS))


def with_schema(path, change) -> None:
    """Change the elements of the schema of a file."""
    file = ParquetFile(path)
    meta = file.footer._file_meta
    elements = list(thrift.each(meta, 2, SCHEMA_ELEMENT_LAYOUT))
    change(elements)
    encoded = b"".join(map(thrift.encode, elements))
    meta.set(2, thrift.LIST, bytes([len(elements) << 4 | thrift.STRUCT]) + encoded)
    path.write_bytes(path.read_bytes()[:file.footer.start] + file.footer.to_bytes())


def test_a_column_of_an_unknown_physical_type(tmp_path):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, bloom_filters=["name", "city"], row_group_size=50)
    file = ParquetFile(path)
    for chunks in file.footer.row_groups:
        [meta] = chunks[0].metadata_to_change()
        meta.set_int(1, thrift.I32, 9)
    path.write_bytes(path.read_bytes()[:file.footer.start] + file.footer.to_bytes())
    with_schema(path, lambda elements: elements[1].set_int(1, thrift.I32, 9))

    file = ParquetFile(path)
    assert file.columns[0].type.physical_type == "UNKNOWN_TYPE_9"
    assert file.might_contain("name", ["n 70"])[:, 0].tolist() == [False, True]
    assert len(file.bloom_filters) == 4
    assert "UNKNOWN_TYPE_9 cannot have a Bloom filter" in attach(path, ["ssn"]).mistake.message
    assert audit(path).ok and strip(path, columns=["city"]).changed


@pytest.mark.parametrize("length", [0, -1, None])
def test_fixed_size_values_without_a_size(tmp_path, length):
    """Arrow C++ refuses the file; its filters of other columns can be used."""
    table = pa.table({"code": pa.array([b"abc"] * 4, pa.binary(3)), "name": ["a", "b", "c", "d"]})
    path = tmp_path / "a.parquet"
    write_table(table, path, bloom_filters=["name"])
    with_schema(path, lambda elements: elements[1].remove(2) if length is None
                else elements[1].set_int(2, thrift.I32, length))
    assert ParquetFile(path).might_contain("name", ["a", "x"])[0].tolist() == [True, False]


def test_groups_without_children_are_no_columns(tmp_path):
    """pyarrow writes empty structs in no file, but reads other files around them."""
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, bloom_filters=True, row_group_size=50)

    def add(elements):
        empty = Struct()
        empty.set_int(3, thrift.I32, 1)
        empty.set_binary(4, b"nothing")
        empty.set_int(5, thrift.I32, 0)
        elements.insert(2, empty)
        elements[0].set_int(5, thrift.I32, 5)

    with_schema(path, add)
    file = ParquetFile(path)
    assert [column.path for column in file.columns] == TABLE.column_names
    assert file.might_contain("name", ["n 70"])[:, 0].tolist() == [False, True]
    assert pq.ParquetFile(path).metadata.num_columns == 4
    assert file.read(columns=["ssn", *OTHERS]).equals(TABLE)
    assert verify_file(path).ok
