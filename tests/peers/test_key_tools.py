"""Key material of every kind, written here and opened by pyarrow and parquet-java, and back."""

import itertools
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    ParquetWriter,
    read_table,
    write_table,
)
from secure_bloom.errors import (
    AuthenticationError,
    KeyNotFoundError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms, KeyEncryptionKeys, external
from secure_bloom.reading.open_file import OpenFile
from tests.peers.keys import KeyTools
from tests.peers.parquet_java import ParquetJava
from tests.support import ArrowKms

ARN = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
MASTER_KEYS = {"kf": b"master of footer", "key; a: b, c": b"m" * 32, ARN: b"a" * 24}
COLUMNS = {"key; a: b, c": ["id", "s.name"], ARN: ["real"]}
FILTERS = dict.fromkeys(["id", "s.name", "real", "open"], True)
TABLE = pa.table({
    "id": range(60), "real": [i / 7 for i in range(60)], "open": [f"open {i}" for i in range(60)],
    "s": [{"name": f"name {i}", "other": i} for i in range(60)]})

every_kind = pytest.mark.parametrize(
    ("double", "internal", "bits", "plaintext_footer"),
    [(*kind, footer) for *kind, footer in itertools.product(
        [True, False], [True, False], [128, 256], [True, False])])


class Kms(InMemoryKms):
    kms_instance_id, kms_instance_url = "region 1", "https://kms.example"


def written(path: Path, double=True, internal=True, bits=128, plaintext_footer=False,
            keys=None) -> Path:
    write_table(TABLE, path, bloom_filters=FILTERS, row_group_size=25,
                keys=keys or Kms(MASTER_KEYS),
                encryption=EncryptionConfiguration(
                    "kf", COLUMNS, double_wrapping=double, internal_key_material=internal,
                    data_key_length_bits=bits, plaintext_footer=plaintext_footer))
    return path


def read_by_pyarrow(path: Path) -> pa.Table:
    factory = pe.CryptoFactory(lambda _: ArrowKms(InMemoryKms(MASTER_KEYS)))
    properties = factory.file_decryption_properties(
        pe.KmsConnectionConfig(), pe.DecryptionConfiguration(), path, pa_fs.LocalFileSystem())
    return pq.read_table(path, decryption_properties=properties, partitioning=None)


def side_file(path: Path) -> Path:
    return path.parent / f"_KEY_MATERIAL_FOR_{path.name}.json"


@every_kind
def test_their_key_tools_open_ours(tmp_path, parquet_java: ParquetJava, double, internal, bits,
                                   plaintext_footer):
    path = written(tmp_path / "a.parquet", double, internal, bits, plaintext_footer)
    assert side_file(path).exists() is not internal
    assert read_by_pyarrow(path).equals(TABLE)
    tools = KeyTools(MASTER_KEYS)
    rows, groups = parquet_java.read(path, tools)
    assert groups == [25, 25, 10]
    assert [row["id"] for row in rows] == list(range(60))
    assert [row["s"]["name"] for row in rows] == [f"name {i}".encode() for i in range(60)]
    filters = {(f.row_group, f.column): f.bitset for f in parquet_java.filters(path, tools)}
    file = ParquetFile(path, InMemoryKms(MASTER_KEYS))
    assert len(filters) == len(file.bloom_filters) == 12
    for info in file.bloom_filters:
        assert info.encrypted is (info.column != "open")
        assert bytes(file.read_bloom_filter(info.row_group, info.column).bitset) \
            == filters[info.row_group, info.column]
    assert file.read().equals(TABLE)
    assert read_table(tmp_path, keys=InMemoryKms(MASTER_KEYS),
                      filters=[("real", "==", 30 / 7)])["id"].to_pylist() == [30]
    assert file.prune([("real", "==", 30 / 7)]) == [1]


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("internal", [True, False])
def test_ours_opens_those_of_pyarrow(tmp_path, double, internal):
    path, keys = tmp_path / "a.parquet", {"kf": b"f" * 16, "kc": b"c" * 32}
    factory = pe.CryptoFactory(lambda _: ArrowKms(InMemoryKms(keys)))
    pq.write_table(TABLE, path, encryption_properties=factory.file_encryption_properties(
        pe.KmsConnectionConfig(), pe.EncryptionConfiguration(
            "kf", column_keys={"kc": ["id", "real"]}, double_wrapping=double,
            internal_key_material=internal), path, pa_fs.LocalFileSystem()))
    assert side_file(path).exists() is not internal
    assert ParquetFile(path, InMemoryKms(keys)).read().equals(TABLE)


def materials(path: Path) -> list[dict]:
    """The key material of a file with a plaintext footer, footer key first."""
    footer = ParquetFile(path).footer
    metadata = [footer.footer_key_metadata]
    metadata += [chunk.key_metadata for chunk in footer.row_groups[0] if chunk.key_metadata]
    return [json.loads(text) for text in metadata]


def test_real_names_and_the_instance_stand_in_the_key_material(tmp_path):
    footer, *columns = materials(written(tmp_path / "a.parquet", plaintext_footer=True))
    assert (footer["masterKeyID"], footer["kmsInstanceID"], footer["kmsInstanceURL"]) \
        == ("kf", "region 1", "https://kms.example")
    assert [material["masterKeyID"] for material in columns] \
        == ["key; a: b, c", ARN, "key; a: b, c"]
    assert len({material["keyEncryptionKeyID"] for material in columns}) == 2
    assert len({material["wrappedDEK"] for material in columns}) == 3
    assert all("kmsInstanceID" not in material for material in columns)


def test_external_key_material_is_that_of_the_peers(tmp_path, parquet_java: ParquetJava):
    path = written(tmp_path / "a.parquet", internal=False, plaintext_footer=True)
    assert materials(path)[0] == {"keyMaterialType": "PKMT1", "internalStorage": False,
                                  "keyReference": "footerKey"}
    ours = {name: json.loads(text) for name, text in json.loads(
        side_file(path).read_text()).items()}
    theirs_path = tmp_path / "java.parquet"
    parquet_java.write(theirs_path, "message m { required int64 id; required int64 b; }",
                       [{"id": 1, "b": 2}], keys=KeyTools({"kf": b"f" * 16}, {
                           "footer.key": "kf", "column.keys": "kf:id,b",
                           "key.material.store.internally": "false"}))
    theirs = {name: json.loads(text) for name, text in json.loads(
        side_file(theirs_path).read_text()).items()}
    assert set(ours) == set(theirs) | {"columnKey2"}
    for name in theirs:
        assert set(ours[name]) == set(theirs[name])


def test_keks_made_elsewhere_open_everywhere(tmp_path, parquet_java: ParquetJava):
    keks = KeyEncryptionKeys(Kms(MASTER_KEYS), MASTER_KEYS)
    path = written(tmp_path / "a.parquet", plaintext_footer=True, keys=keks)
    assert read_by_pyarrow(path).equals(TABLE)
    assert len(parquet_java.filters(path, KeyTools(MASTER_KEYS))) == 12
    assert materials(path)[0]["kmsInstanceID"] == "region 1"


# --- files beside the file -----------------------------------------------------------------------

def test_a_file_with_external_key_material_is_never_replaced(tmp_path):
    path = written(tmp_path / "a.parquet", internal=False)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match="remove both"):
        written(path, internal=False)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    path.unlink()
    with pytest.raises(FileExistsError, match="_KEY_MATERIAL_FOR_a"):
        written(path, internal=False)


def test_external_key_material_needs_a_path():
    with pytest.raises(TypeError, match="needs a path"):
        written(pa.BufferOutputStream(), internal=False)


def test_pyarrows_configuration_does_not_say_where_external_key_material_goes(tmp_path):
    with pytest.raises(UnsupportedError, match="secure_bloom's EncryptionConfiguration"):
        write_table(TABLE, tmp_path / "a.parquet", bloom_filters={}, keys=Kms(MASTER_KEYS),
                    encryption=pe.EncryptionConfiguration(
                        "kf", uniform_encryption=True, internal_key_material=False))
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_a_file_that_fails(tmp_path, monkeypatch):
    steps = []

    def fail(*_):
        steps.extend(p.name for p in tmp_path.iterdir() if not p.name.startswith("."))
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        written(tmp_path / "a.parquet", internal=False)
    assert steps == [side_file(tmp_path / "a.parquet").name]
    assert not list(tmp_path.iterdir())


def writer(path: Path) -> ParquetWriter:
    result = ParquetWriter(path, TABLE.schema, bloom_filters={}, keys=Kms(MASTER_KEYS),
                           encryption=EncryptionConfiguration("kf", COLUMNS,
                                                              internal_key_material=False))
    result.write_table(TABLE)
    return result


def test_of_two_writers_of_a_file_the_first_one_wins(tmp_path):
    path = tmp_path / "a.parquet"
    first, second = writer(path), writer(path)
    first.close()
    with pytest.raises(FileExistsError, match="remove both"):
        second.close()
    assert ParquetFile(path, Kms(MASTER_KEYS)).read().equals(TABLE)
    assert set(os.listdir(tmp_path)) == {path.name, side_file(path).name}


def test_two_writers_that_close_at_the_same_time(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    first, second = writer(path), writer(path)
    create = external.create_material

    def with_another(*arguments):
        create(*arguments)
        monkeypatch.setattr(external, "create_material", create)
        with pytest.raises(FileExistsError, match="_KEY_MATERIAL_FOR_a"):
            second.close()

    monkeypatch.setattr(external, "create_material", with_another)
    first.close()
    assert ParquetFile(path, Kms(MASTER_KEYS)).read().equals(TABLE)
    assert set(os.listdir(tmp_path)) == {path.name, side_file(path).name}


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "a.parquet"
    late = writer(path)
    written(path, internal=True)
    with pytest.raises(FileExistsError, match="remove both"):
        late.close()
    assert ParquetFile(path, Kms(MASTER_KEYS)).read().equals(TABLE)
    assert os.listdir(tmp_path) == [path.name]


def test_a_visible_file_keeps_its_key_material(tmp_path, monkeypatch):
    """Where the last step fails, which makes the renaming last."""
    path, replace = tmp_path / "a.parquet", os.replace

    def fail(_):
        raise OSError("the disk is gone")

    def last_step_fails(*names):
        monkeypatch.setattr("secure_bloom.storage.local_files.sync_folder", fail)
        replace(*names)

    monkeypatch.setattr(os, "replace", last_step_fails)
    with pytest.raises(OSError, match="the disk is gone"):
        written(path, internal=False)
    assert ParquetFile(path, Kms(MASTER_KEYS)).read().equals(TABLE)


def test_half_of_the_key_material_is_removed(tmp_path, monkeypatch):
    def fail(_):
        raise OSError("no space")

    late = writer(tmp_path / "a.parquet")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        late.close()
    assert not list(tmp_path.iterdir())


def test_key_material_on_another_filesystem(tmp_path):
    place = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    external.create_material(place, "a.parquet", {"footerKey": "1"})
    with pytest.raises(FileExistsError, match="remove both"):
        external.create_material(place, "a.parquet", {"footerKey": "2"})
    assert external.read_material(place, "a.parquet") == {"footerKey": "1"}


def test_key_material_is_never_data(tmp_path):
    path = written(tmp_path / "day=1.parquet", internal=False)
    assert side_file(path).exists()
    assert read_table(tmp_path, keys=Kms(MASTER_KEYS)).num_rows == 60


@pytest.mark.parametrize(("content", "message"), [
    (b"", "not valid key material"), (b"[]", "not valid key material"),
    (b'{"footerKey": 5}', "not valid key material"),
    (b"{}", "no entry 'footerKey'"), (b'{"footerKey": "{}"}', "PKMT1"),
    (b"\xff", "not valid key material"), (b"[" * 100_000, "not valid key material")], ids=range(7))
def test_damaged_external_key_material(tmp_path, content, message):
    path = written(tmp_path / "a.parquet", internal=False)
    side_file(path).write_bytes(content)
    with pytest.raises(KeyRetrievalError, match=message) as caught:
        ParquetFile(path, Kms(MASTER_KEYS))
    assert "a.parquet" in caught.value.file


def test_entries_of_external_key_material_cannot_be_exchanged(tmp_path):
    path = written(tmp_path / "a.parquet", internal=False)
    entries = json.loads(side_file(path).read_text())
    entries["footerKey"], entries["columnKey0"] = entries["columnKey0"], entries["footerKey"]
    side_file(path).write_text(json.dumps(entries))
    with pytest.raises(AuthenticationError):
        ParquetFile(path, Kms(MASTER_KEYS))


def test_missing_external_key_material(tmp_path):
    path = written(tmp_path / "a.parquet", internal=False)
    side_file(path).unlink()
    with pytest.raises(KeyNotFoundError, match="it must be stored in"):
        ParquetFile(path, Kms(MASTER_KEYS))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("internal", [True, False])
@pytest.mark.parametrize("writer", ["java", "pyarrow", "secure_bloom"])
def test_pyarrow_opens_files_itself_whoever_wrote_them(tmp_path, parquet_java: ParquetJava, writer,
                                                       double, internal):
    """Through a Python file object, with keys from us, it would read more slowly."""
    path, keys = tmp_path / "a.parquet", {"kf": b"f" * 16, "kc": b"c" * 16}
    table, kms = pa.table({"id": [1], "b": [2]}), InMemoryKms(keys)
    if writer == "java":
        parquet_java.write(path, "message m { required int64 id; required int64 b; }",
                           table.to_pylist(), keys=KeyTools(keys, {
                               "footer.key": "kf", "column.keys": "kc:id",
                               "double.wrapping": str(double).lower(),
                               "key.material.store.internally": str(internal).lower()}))
    elif writer == "pyarrow":
        factory = pe.CryptoFactory(lambda _: ArrowKms(kms))
        pq.write_table(table, path, encryption_properties=factory.file_encryption_properties(
            pe.KmsConnectionConfig(), pe.EncryptionConfiguration(
                "kf", column_keys={"kc": ["id"]}, double_wrapping=double,
                internal_key_material=internal), path, pa_fs.LocalFileSystem()))
    else:
        write_table(table, path, bloom_filters={}, keys=kms, encryption=EncryptionConfiguration(
            "kf", {"kc": ["id"]}, double_wrapping=double, internal_key_material=internal))
    assert (OpenFile(path, kms).arrow_access().start is None) == internal
    assert ParquetFile(path, kms).read().to_pylist() == table.to_pylist()
