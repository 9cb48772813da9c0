"""Files encrypted, encrypted again and decrypted: what stays, and what does not."""

import os
import shutil
from unittest.mock import Mock, patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile
from secure_bloom.errors import ArgumentError, UnsupportedError
from secure_bloom.index import Index, build
from secure_bloom.keys import InMemoryKms
from secure_bloom.reencryption import folder, one_file
from secure_bloom.reencryption.target import names_material
from tests.modes import ENCRYPTED, MASTER_KEYS

KMS = InMemoryKms(MASTER_KEYS)
CONFIG = EncryptionConfiguration("kf", {"kc1": ["ssn", "tags"]})
TABLE = pa.table({
    "ssn": [f"078-05-{i:04}" for i in range(4000)],
    "city": pa.array(["Oslo", "Bergen", None, "Moss"] * 1000).dictionary_encode(),
    "real": np.random.default_rng(5).random(4000),
    "tags": [["red"] * (i % 3) if i % 7 else None for i in range(4000)]})
#: how pyarrow writes the files
WRITTEN = {
    "v1": {"compression": "zstd", "write_page_index": True, "write_page_checksum": True,
           "data_page_size": 4096},
    "v2": {"data_page_version": "2.0", "use_dictionary": False, "data_page_size": 4096,
           "write_page_checksum": True},
    "many groups": {"compression": "gzip", "row_group_size": 700, "store_decimal_as_integer": True},
}
pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture(params=WRITTEN)
def path(request, tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(TABLE, path, **{"row_group_size": 1500, **WRITTEN[request.param]})
    return path


def chunks(path):
    """What the footer says of each column chunk, without offsets, and the bytes of its pages."""
    file, data = pq.ParquetFile(path), path.read_bytes()
    for group in range(file.num_row_groups):
        for column in range(file.metadata.num_columns):
            one = file.metadata.row_group(group).column(column).to_dict()
            start = min(filter(None, (one.pop("dictionary_page_offset"),
                                      one.pop("data_page_offset"))))
            for name in ("file_offset", "bloom_filter_offset", "bloom_filter_length"):
                one.pop(name, None)
            yield one, data[start:start + one["total_compressed_size"]]


def of_whole_file(path):
    meta = pq.read_metadata(path)
    return meta.schema, meta.metadata, meta.created_by, meta.num_rows, meta.num_row_groups


def test_pages_are_the_same_bytes_in_between(path):
    before, described = list(chunks(path)), of_whole_file(path)
    encrypted = secure_bloom.encrypt(path, KMS, encryption=CONFIG)
    assert encrypted.ok and encrypted.changed[0].encrypted == {
        "ssn": "kc1", "tags.list.element": "kc1"}
    assert path.read_bytes().startswith(b"PARE") and b"078-05" not in path.read_bytes()
    file = ParquetFile(path, KMS)
    assert file.read().equals(TABLE) and secure_bloom.verify_file(path, KMS).ok
    assert secure_bloom.read_table(path, KMS, filters=[("ssn", "==", "078-05-3999")]).num_rows == 1
    assert secure_bloom.reencrypt(path, KMS).ok
    assert secure_bloom.decrypt(path, KMS, plaintext=True).ok
    assert list(chunks(path)) == before and of_whole_file(path) == described
    assert pq.read_table(path, page_checksum_verification=True).equals(TABLE)
    assert pq.read_table(path, filters=[("ssn", ">=", "078-05-3990")]).num_rows == 10


@pytest.mark.parametrize("mode", ENCRYPTED, ids=str)
def test_files_in_all_our_modes(tmp_path, mode):
    path, old = tmp_path / "a.parquet", tmp_path / "old.parquet"
    mode.write(TABLE, path, {"kc1": ["ssn"], "kc2": ["real"]}, bloom_filters=["ssn", "city"],
               row_group_size=1500)
    filters = [bytes(ParquetFile(path, mode.keys).read_bloom_filter(group, "ssn").bitset)
               for group in range(3)]
    shutil.copy(path, old)
    target = EncryptionConfiguration("kf", {"kc2": ["ssn"]}, other_columns="footer key")
    done = secure_bloom.reencrypt(path, mode.keys, encryption=target, new_keys=KMS)
    assert done.ok, done.failed
    file = ParquetFile(path, KMS)
    assert file.read().equals(TABLE)
    assert [bytes(file.read_bloom_filter(group, "ssn").bitset) for group in range(3)] == filters
    kept = ParquetFile(old, mode.keys).footer
    assert file.footer.algorithm.aad_file_unique != kept.algorithm.aad_file_unique
    assert secure_bloom.decrypt(path, KMS, plaintext=True).ok and pq.read_table(path).equals(TABLE)


def test_only_some_columns_are_opened(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    secure_bloom.encrypt(path, KMS, encryption=CONFIG, bloom_filters=["ssn"])
    result = secure_bloom.decrypt(path, KMS, plaintext=True, columns=["tags"])
    assert result.changed[0].encrypted == {"ssn": "kc1"}
    assert b"red" in path.read_bytes() and b"078-05" not in path.read_bytes()
    assert ParquetFile(path, KMS).read().equals(TABLE)


def test_no_operation_but_decrypt_opens_a_column(tmp_path):
    path = tmp_path / "a.parquet"
    secure_bloom.write_table(TABLE, path, encryption=CONFIG, keys=KMS)
    content = path.read_bytes()
    for operation in (secure_bloom.encrypt, secure_bloom.reencrypt):
        result = operation(path, KMS, encryption=EncryptionConfiguration("kf", {"kc2": ["real"]}))
        assert "would be in plaintext: ssn" in result.failed[str(path)]
    with pytest.raises(TypeError, match="plaintext=True"):
        secure_bloom.decrypt(path, KMS)
    assert path.read_bytes() == content


def test_a_policy_says_what_files_become_and_forbids_to_open_them(tmp_path, monkeypatch):
    rules = tmp_path / "policy.toml"
    rules.write_text('footer_key = "kf"\n[columns]\n'
                     'ssn = { key = "kc1", bloom_filter = true }\n')
    lake = tmp_path / "lake"
    (lake / "day=1").mkdir(parents=True)
    pq.write_table(TABLE, lake / "day=1" / "a.parquet")
    pq.write_table(TABLE.drop_columns("ssn"), lake / "b.parquet")
    assert "day=1" in secure_bloom.encrypt(lake, KMS, policy=rules, dry_run=True).changed[0].file
    assert b"078-05" in (lake / "day=1" / "a.parquet").read_bytes()
    done = secure_bloom.encrypt(lake, KMS, policy=rules)
    assert done.ok and [one.filters for one in done.changed] == [("ssn",)]
    assert secure_bloom.encrypt(lake, KMS, policy=rules).unchanged == 2
    assert secure_bloom.audit(lake, KMS, policy=rules).ok
    monkeypatch.setenv("SECURE_BLOOM_POLICY", str(rules))
    [message] = secure_bloom.decrypt(lake / "day=1", KMS, plaintext=True).failed.values()
    assert "must be encrypted by the policy" in message


def test_indexes_and_summaries_follow(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    meta = []
    pq.write_table(TABLE, lake / "a.parquet", metadata_collector=meta)
    meta[0].set_file_path("a.parquet")
    pq.write_metadata(TABLE.schema, lake / "_metadata", meta)
    os.utime(lake / "a.parquet", (1, 1))
    build(lake, "ssn", encryption=None)
    done = secure_bloom.encrypt(lake, KMS, encryption=CONFIG)
    assert done.summaries == [str(lake / "_metadata")] and done.indexes == ["ssn"]
    assert not (lake / "_metadata").exists()
    index = Index.open(lake, KMS)
    [info] = index.inspect()
    assert (info.master_key, info.covered) == ("kc1", 1)
    assert secure_bloom.find(lake, "ssn", "078-05-0007", KMS).num_rows == 1
    secure_bloom.reencrypt(lake, KMS, master_keys={"kc1": "kc2"})
    assert Index.open(lake, KMS).inspect()[0].master_key == "kc2"
    secure_bloom.decrypt(lake, KMS, plaintext=True)
    assert secure_bloom.find(lake, "ssn", "078-05-0007").num_rows == 1


def test_the_index_of_the_table_that_a_named_link_leads_into_is_replaced(tmp_path):
    """Else an index without encryption of a column with encryption would stay."""
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(TABLE, lake / "a.parquet")
    os.utime(lake / "a.parquet", (1, 1))
    build(lake, "ssn", encryption=None)
    (tmp_path / "other").mkdir()
    (link := tmp_path / "other" / "link.parquet").symlink_to(lake / "a.parquet")
    assert secure_bloom.encrypt(link, KMS, encryption=CONFIG).indexes == ["ssn"]
    assert [info.master_key for info in Index.open(lake, KMS).inspect()] == ["kc1"]


def test_a_run_that_died_before_the_index_leaves_it_to_the_next(tmp_path, monkeypatch):
    lake = tmp_path / "lake"
    secure_bloom.write_dataset(TABLE, lake, encryption=CONFIG, keys=KMS, index_columns=["ssn"])
    new = EncryptionConfiguration("kf", {"kc2": ["ssn", "tags"]})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(folder, "update_derived", Mock(side_effect=KeyboardInterrupt))
        secure_bloom.encrypt(lake, KMS, encryption=new)
    assert Index.open(lake, KMS).inspect()[0].master_key == "kc1"
    assert secure_bloom.encrypt(lake, KMS, encryption=new).indexes == ["ssn"]
    assert Index.open(lake, KMS).inspect()[0].master_key == "kc2"


def test_key_material_beside_the_file(tmp_path):
    path, output = tmp_path / "a.parquet", tmp_path / "new"
    external = EncryptionConfiguration("kf", {"kc1": ["ssn"]}, internal_key_material=False)
    secure_bloom.write_table(TABLE, path, encryption=external, keys=KMS)
    material = tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"
    assert secure_bloom.reencrypt(path, KMS, output=output).ok and material.exists()
    assert (output / material.name).exists()
    assert ParquetFile(output / "a.parquet", KMS).read().equals(TABLE)
    assert secure_bloom.reencrypt(path, KMS).ok and not material.exists()
    assert ParquetFile(path, KMS).read().equals(TABLE)
    [message] = secure_bloom.reencrypt(path, KMS, encryption=external).failed.values()
    assert "pass output" in message


def test_key_material_that_a_killed_run_has_left_is_removed(tmp_path):
    """It still has the old data keys. Where the file names it, it stays, whatever opens the file.
    """
    path, material = tmp_path / "a.parquet", tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"
    external = EncryptionConfiguration("kf", {"kc1": ["ssn"]}, internal_key_material=False)
    secure_bloom.write_table(TABLE, path, encryption=external, keys=KMS)
    old = material.read_bytes()

    def left_after(operation):
        material.write_bytes(old)
        assert operation().ok
        return material.exists()

    assert left_after(lambda: secure_bloom.reencrypt(path, KMS, dry_run=True))
    assert left_after(lambda: secure_bloom.encrypt(path, KMS, encryption=external))
    assert not left_after(lambda: secure_bloom.reencrypt(path, KMS))
    assert not left_after(lambda: secure_bloom.reencrypt(path, KMS))  # after the first one's end
    internal = EncryptionConfiguration("kf", {"kc1": ["ssn"]})
    assert not left_after(lambda: secure_bloom.encrypt(path, KMS, encryption=internal))
    assert not left_after(lambda: secure_bloom.decrypt(path, KMS, plaintext=True))
    assert not left_after(lambda: secure_bloom.decrypt(path, KMS, plaintext=True))
    assert ParquetFile(path).read().equals(TABLE)

    def replaced(footer):  # by another process, while the old version is looked at
        material.unlink(missing_ok=True)
        path.unlink()
        secure_bloom.write_table(TABLE, path, encryption=external, keys=KMS)
        return names_material(footer)

    with patch.object(one_file, "names_material", replaced):
        secure_bloom.decrypt(path, KMS, plaintext=True)
    assert ParquetFile(path, KMS).read().equals(TABLE)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    lake, journal = tmp_path / "lake", tmp_path / "journal"
    lake.mkdir()
    for name in "abc":
        secure_bloom.write_table(TABLE, lake / f"{name}.parquet", encryption=CONFIG, keys=KMS)
    old = (lake / "a.parquet").read_bytes()
    (tmp_path / "rows").write_bytes(old)

    def stop(fraction):
        if fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        secure_bloom.reencrypt(lake, KMS, journal=journal, files_at_once=1, advance=stop)
    left = secure_bloom.reencrypt(lake, KMS, journal=journal)
    assert 1 <= len(left.changed) < 3 and len(left.changed) + left.unchanged == 3
    assert secure_bloom.reencrypt(lake, KMS, journal=journal).unchanged == 3
    (lake / "a.parquet").write_bytes(old)  # put back
    [again] = secure_bloom.reencrypt(lake, KMS, journal=journal).changed
    assert again.file.endswith("a.parquet") and journal.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(lake)
    for other, message in (("/dev/null", "not a journal"), (tmp_path / "rows", "not a journal"),
                           (tmp_path / "link" / "new", "not be in the folder")):
        with pytest.raises(ArgumentError, match=message):
            secure_bloom.reencrypt(lake, KMS, journal=other)
    with pytest.raises(TypeError, match="a journal cannot"):  # the old files stay
        secure_bloom.reencrypt(lake, KMS, journal=journal, output=tmp_path / "new")


def test_a_run_that_was_killed_before_the_index_goes_on_with_it(tmp_path, monkeypatch):
    lake, journal = tmp_path / "lake", tmp_path / "journal"
    lake.mkdir()
    secure_bloom.write_table(TABLE, lake / "a.parquet", encryption=CONFIG, keys=KMS)
    build(lake, "ssn", KMS)
    old = Index.open(lake, KMS).column("ssn").manifest.key.secret

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(folder, "update_derived", killed)
        secure_bloom.reencrypt(lake, KMS, journal=journal)
    left = secure_bloom.reencrypt(lake, KMS, journal=journal)
    assert left.unchanged == 1 and left.indexes == ["ssn"]
    assert Index.open(lake, KMS).column("ssn").manifest.key.secret != old


def test_refusals(tmp_path):
    path = tmp_path / "lake" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(TABLE, path)
    with pytest.raises(TypeError, match="encryption= or policy="):
        secure_bloom.encrypt(path, KMS)
    with pytest.raises(ArgumentError, match="another folder"):
        secure_bloom.encrypt(path.parent, KMS, encryption=CONFIG, output=path.parent / "new")
    (path.parent / "_delta_log").mkdir()
    with pytest.raises(UnsupportedError, match="Delta Lake"):
        secure_bloom.encrypt(path.parent, KMS, encryption=CONFIG)
    assert pq.read_table(path).equals(TABLE)
