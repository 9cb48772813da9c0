"""Folders and files of somebody who lies about pages, or who ends a run at the worst moment."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, decrypt, encrypt
from secure_bloom.errors import UnsupportedError
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.index import build
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet import thrift
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reencryption import folder as reencryption_folder
from tests.index.helpers import age, folder_of
from tests.index.test_crashes import dies
from tests.modes import MASTER_KEYS

KMS = InMemoryKms(MASTER_KEYS)
COLUMN = EncryptionConfiguration("kf", {"kc1": ["a"]})
SIGNED = EncryptionConfiguration("kf", {"kc1": ["a"]}, plaintext_footer=True)
TABLE = pa.table({"a": [f"secret{number:05}" for number in range(100)],
                  "b": [f"public{number:05}" for number in range(100)]})
_META, _PATH, _NUM_VALUES, _SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 3, 3, 5, 7, 9, 11


def forged(path, change) -> bytes:
    """Write a plaintext file whose footer says something else; ``change`` gets both columns."""
    pq.write_table(TABLE, path, compression="none", use_dictionary=False)
    data = path.read_bytes()
    content = data[-8 - int.from_bytes(data[-8:-4], "little"):-8]
    meta, _ = thrift.decode(content, {4: [{1: [{3: {}}]}]})
    change(*meta.get(4)[0].get(1))
    footer = thrift.encode(meta)
    path.write_bytes(data[:-8 - len(content)] + footer + len(footer).to_bytes(4, "little")
                     + b"PAR1")
    return path.read_bytes()


def _set(struct, field, value, type_=thrift.I64):
    struct.set_int(field, type_, value)


def _pages_of_a(a, b):
    for field in (_SIZE, _DATA_PAGE):
        _set(b.get(_META), field, a.get(_META).get_int(field))


def _pages_as_filter(a, b):
    _set(b.get(_META), 14, a.get(_META).get_int(_DATA_PAGE))
    _set(b.get(_META), 15, a.get(_META).get_int(_SIZE), thrift.I32)


def _pages_as_index(fields):
    def change(a, b):
        _set(b, fields[0], a.get(_META).get_int(_DATA_PAGE))
        _set(b, fields[1], a.get(_META).get_int(_SIZE), thrift.I32)
    return change


def _other_path(a, b):
    a.get(_META).set(_PATH, thrift.LIST, b.get(_META).get(_PATH))


LIES = {
    "pages of another column": (_pages_of_a, "overlap"),
    "pages as a filter": (_pages_as_filter, "overlap"),
    "pages as an offset index": (_pages_as_index((4, 5)), "overlap"),
    "pages as a column index": (_pages_as_index((6, 7)), "overlap"),
    "a dictionary before": (lambda a, b: _set(b.get(_META), _DICTIONARY_PAGE, 4), "overlap"),
    "no pages": (lambda a, b: _set(b.get(_META), _SIZE, 0), "does not say where its pages"),
    "other values": (lambda a, b: _set(a.get(_META), _NUM_VALUES, 101), "have 100 values, but"),
    "path of another column": (_other_path, "metadata of another column"),
    "no path": (lambda a, b: a.get(_META).remove(_PATH), "metadata of another column"),
}


@pytest.mark.parametrize("lie", LIES)
def test_files_that_lie_stay_as_they_are(tmp_path, lie):
    """Else rows would be lost, or bytes of the encrypted column stay within an open one."""
    change, message = LIES[lie]
    path = tmp_path / "a.parquet"
    before = forged(path, change)
    pq.write_table(TABLE, tmp_path / "b.parquet")
    result = encrypt(tmp_path, KMS, encryption=COLUMN)
    assert message in result.failed[str(path)] and path.read_bytes() == before
    assert len(result.changed) == 1 and len(list(tmp_path.iterdir())) == 2


def test_what_old_readers_overlook_does_not_reach_new_ones(tmp_path):
    """A dictionary that is not there; fields that the format does not have yet."""
    path = tmp_path / "a.parquet"

    def change(a, b):
        _set(a.get(_META), _DICTIONARY_PAGE, a.get(_META).get_int(_DATA_PAGE))
        a.get(_META).set_binary(99, b"secret00007")
        a.set_binary(98, b"secret00007")

    forged(path, change)
    assert encrypt(path, KMS, encryption=SIGNED).ok
    assert b"secret" not in path.read_bytes()
    assert secure_bloom.read_table(path, KMS) == TABLE
    assert decrypt(path, KMS, plaintext=True).ok
    assert pq.read_table(path) == TABLE


def test_a_second_dictionary_is_refused(tmp_path):
    """All dictionaries of a column chunk have the same AAD: one could be taken for the other."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ["x", "x"]}), path, compression="none", write_statistics=False)
    with OpenFile(str(path)) as file:
        [chunk] = file.footer.column_chunks()
        meta = chunk.metadata()
        first, data = meta.get_int(_DICTIONARY_PAGE), meta.get_int(_DATA_PAGE)
        dictionary = file.read_at(data - first, first)
        body = file.read_at(file.footer.start, 0)
        for changed in chunk.metadata_to_change():
            _set(changed, _DATA_PAGE, data + len(dictionary))
            _set(changed, _SIZE, changed.get_int(_SIZE) + len(dictionary))
        before = body[:data] + dictionary + body[data:] + file.footer.to_bytes()
    path.write_bytes(before)
    result = encrypt(path, KMS, encryption=COLUMN)
    assert "a dictionary page follows other pages" in result.failed[str(path)]
    assert path.read_bytes() == before


def test_what_shows_values_is_not_taken_for_finished(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(leaking_file(TABLE, ["a"], KMS, encryption=SIGNED))
    assert "seal" in encrypt(path, KMS, encryption=SIGNED).failed[str(path)]
    assert secure_bloom.seal(path, KMS).ok
    assert encrypt(path, KMS, encryption=SIGNED).unchanged == 1


@pytest.fixture
def lake(tmp_path, settled):
    """A plaintext table with an index, in which values can be looked up without a key."""
    for number in range(2):
        pq.write_table(TABLE, tmp_path / f"{number}.parquet")
    age(tmp_path, 100)
    build(tmp_path, "a", encryption=None)
    return tmp_path


def test_a_killed_run_leaves_no_open_index(lake, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(reencryption_folder, "update_derived", killed)
        with pytest.raises(KeyboardInterrupt):
            encrypt(lake, KMS, encryption=COLUMN)
    assert not folder_of(lake, "a").newest().is_encrypted
    result = encrypt(lake, KMS, encryption=COLUMN)
    assert (result.unchanged, result.indexes) == (2, ["a"])
    assert folder_of(lake, "a").newest().is_encrypted


def test_a_master_key_of_an_index_is_not_unused(lake, monkeypatch):
    encrypt(lake, KMS, encryption=COLUMN)
    other = EncryptionConfiguration("kf", {"kc2": ["a"]})
    result = encrypt(lake, KMS, encryption=other)
    assert result.unused_master_keys == ["kc1"] and result.indexes == ["a"]
    assert folder_of(lake, "a").newest().material.master_key_id == "kc2"


@pytest.mark.slow
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.sweep)])
def test_death_at_any_step(lake, tmp_path_factory, every):
    """Each file is old or new. The next run does the rest, also if all files are done."""
    base, steps, is_dead = tmp_path_factory.mktemp("base"), 0, True
    old = secure_bloom.read_table(lake, KMS)
    while is_dead:
        folder = shutil.copytree(lake, base / str(steps))
        is_dead = dies(lambda filesystem, folder=folder: encrypt(
            str(folder), KMS, encryption=COLUMN, filesystem=filesystem, files_at_once=1), steps)
        assert secure_bloom.read_table(folder, KMS) == old
        assert encrypt(folder, KMS, encryption=COLUMN).ok
        assert secure_bloom.read_table(folder, KMS) == old
        assert secure_bloom.audit(folder, KMS, scan=True).ok
        index = folder_of(folder, "a")
        assert index.newest().is_encrypted and not index.has_replaced(index.newest())
        assert index.open_newest(KMS).body.segments
        assert {path.name for path in folder.iterdir()} == {path.name for path in lake.iterdir()}
        shutil.rmtree(folder)
        steps += every
    assert steps > 60


def test_links_out_of_the_output_are_not_followed(lake, tmp_path_factory):
    """Who may write there could have decrypted files written, or others overwritten, elsewhere."""
    output, other = tmp_path_factory.mktemp("output"), tmp_path_factory.mktemp("other")
    encrypt(lake, KMS, encryption=COLUMN)
    (lake / "part=1").mkdir()
    shutil.copy(lake / "0.parquet", lake / "part=1")
    (other / "file").write_bytes(b"of another user")
    (output / "0.parquet").symlink_to(other / "file")
    (output / "part=1").symlink_to(other)
    for link in ("0.parquet", "part=1"):
        with pytest.raises(UnsupportedError, match="a link leads from here"):
            decrypt(lake, KMS, plaintext=True, output=output)
        assert {path.name: path.read_bytes() for path in other.iterdir()} == \
            {"file": b"of another user"}
        (output / link).unlink()
    assert decrypt(lake, KMS, plaintext=True, output=output).ok
