"""Rotation of master keys, and the list of those that a data set needs."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import (
    EncryptionConfiguration,
    ExplicitKeys,
    ParquetFile,
    UniformKey,
    read_table,
    write_table,
)
from secure_bloom.cli import main
from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyringError,
    KmsUnavailableError,
)
from secure_bloom.keys import InMemoryKms, Keyring, list_master_keys, rotate_master_keys
from secure_bloom.storage.leftovers import remove_leftovers
from secure_bloom.storage.rewrite import ChangedMeanwhileError, Rewrite
from secure_bloom.storage.visibility import parquet_files
from tests.peers.keys import KeyTools
from tests.support import ArrowKms, WatchedKms

KEYS = {"footer": b"f" * 16, "old": b"o" * 16, "new": b"n" * 32, "other": b"x" * 16}
TABLE = pa.table({"ssn": [f"{i:09d}" for i in range(100)], "name": [f"n {i}" for i in range(100)],
                  "city": ["Rome", "Oslo"] * 50})
FILTERS = dict.fromkeys(["ssn", "name", "city"], True)
COLUMNS = {"old": ["ssn"], "other": ["name"]}


def without(*names) -> InMemoryKms:
    return InMemoryKms({name: key for name, key in KEYS.items() if name not in names})


def written(path, keys=None, footer="footer", columns=COLUMNS, **options) -> Path:
    write_table(TABLE, path, bloom_filters=FILTERS, row_group_size=40,
                keys=keys or InMemoryKms(KEYS),
                encryption=EncryptionConfiguration(footer, columns, **options))
    return Path(path)


def body(path: Path, keys=None) -> bytes:
    """Everything before the footer."""
    return path.read_bytes()[:ParquetFile(path, keys or InMemoryKms(KEYS)).footer.start]


KINDS = {
    "internal": {}, "external": {"internal_key_material": False},
    "single": {"double_wrapping": False}, "plaintext footer": {"plaintext_footer": True},
    "external, single": {"internal_key_material": False, "double_wrapping": False},
    "ctr": {"encryption_algorithm": "AES_GCM_CTR_V1", "data_key_length_bits": 256},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("footer", ["footer", "old"])
def test_a_rotated_file_opens_with_the_new_key_only(tmp_path, parquet_java, kind, footer):
    path = written(tmp_path / "a.parquet", footer=footer, **KINDS[kind])
    before, filters = body(path), ParquetFile(path, InMemoryKms(KEYS)).bloom_filters
    result = rotate_master_keys(path, InMemoryKms(KEYS), old="old", new="new")
    assert (result.rotated, result.unchanged, result.failed) == ([str(path)], 0, {})
    file = ParquetFile(path, without("old"))
    assert file.read().equals(TABLE)
    assert file.bloom_filters == filters
    assert file.read(filters=[("ssn", "==", "000000050")]).num_rows == 1
    assert body(path) == before
    with pytest.raises(KeyNotFoundError, match="'new'"):
        ParquetFile(path, without("new")).read()
    factory = pe.CryptoFactory(lambda _: ArrowKms(without("old")))
    properties = factory.file_decryption_properties(
        pe.KmsConnectionConfig(), pe.DecryptionConfiguration(), path, pa_fs.LocalFileSystem())
    assert pq.read_table(path, decryption_properties=properties).equals(TABLE)
    tools = KeyTools({name: key for name, key in KEYS.items() if name != "old"})
    assert len(parquet_java.filters(path, tools)) == 9
    assert len(parquet_java.read(path, tools)[0]) == 100


@pytest.mark.slow
@pytest.mark.parametrize("internal", [True, False])
def test_a_folder_needs_few_calls_and_can_be_rotated_again(tmp_path, internal):
    kms = InMemoryKms(KEYS)
    for number in range(20):
        written(tmp_path / f"{number}.parquet", kms, internal_key_material=internal)
    kms, fractions = WatchedKms(KEYS), []
    result = rotate_master_keys(tmp_path, kms, old="old", new="new", advance=fractions.append)
    assert len(result.rotated) == 20 and fractions[-1] == 1 and len(fractions) == 20
    assert sorted(kms.calls) == [("unwrap", "footer"), ("unwrap", "new"), ("unwrap", "new"),
                                 ("unwrap", "old"), ("wrap", "new"), ("wrap", "new")]
    again = rotate_master_keys(tmp_path, WatchedKms(KEYS), old="old", new="new")
    assert (again.rotated, again.unchanged) == ([], 20)
    assert read_table(tmp_path, keys=without("old")).num_rows == 2000


def test_with_external_key_material_the_file_is_not_touched(tmp_path):
    path = written(tmp_path / "a.parquet", internal_key_material=False)
    before, inode = path.read_bytes(), path.stat().st_ino
    rotate_master_keys(path, InMemoryKms(KEYS), old="old", new="new")
    assert (path.read_bytes(), path.stat().st_ino) == (before, inode)


def test_a_dry_run_changes_nothing_and_tries_both_master_keys_once(tmp_path):
    path = written(tmp_path / "a.parquet")
    written(tmp_path / "b.parquet", columns={"other": ["ssn"]})
    for number in range(3):
        written(tmp_path / f"c{number}.parquet", double_wrapping=False)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()}
    kms = WatchedKms(KEYS)
    result = rotate_master_keys(tmp_path, kms, old="old", new="new", dry_run=True)
    assert result.rotated == [str(path), *(str(tmp_path / f"c{n}.parquet") for n in range(3))]
    assert (result.unchanged, result.dry_run) == (1, True)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()} == before
    assert kms.calls[:2] == [("wrap", "new"), ("unwrap", "new")]
    assert kms.calls.count(("unwrap", "old")) == 1
    assert {call for call in kms.calls[2:]} == {("unwrap", "footer"), ("unwrap", "old")}


def test_a_new_version_of_the_same_key(tmp_path):
    path = written(tmp_path / "a.parquet", plaintext_footer=True)
    before = path.read_bytes()
    assert rotate_master_keys(path, InMemoryKms(KEYS), old="old", new="old").rotated
    assert path.read_bytes() != before
    assert ParquetFile(path, InMemoryKms(KEYS)).read().equals(TABLE)


def test_files_that_cannot_be_rotated_do_not_keep_others_from_it(tmp_path):
    good = written(tmp_path / "good.parquet")
    pq.write_table(TABLE, tmp_path / "plain.parquet")
    write_table(TABLE, tmp_path / "explicit.parquet", bloom_filters={},
                encryption=UniformKey(b"k" * 16))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is none")
    changed = written(tmp_path / "changed.parquet")
    data = bytearray(changed.read_bytes())
    data[-20] ^= 1
    changed.write_bytes(data)
    before = {p: p.read_bytes() for p in tmp_path.iterdir() if p != good}
    result = rotate_master_keys(tmp_path, InMemoryKms(KEYS), old="old", new="new")
    assert result.rotated == [str(good)] and result.unchanged == 1
    assert {Path(p).stem for p in result.failed} == {"explicit", "broken", "changed"}
    assert "explicit keys" in result.failed[str(tmp_path / "explicit.parquet")]
    assert {p: p.read_bytes() for p in tmp_path.iterdir() if p != good} == before
    assert ParquetFile(tmp_path / "explicit.parquet", ExplicitKeys(b"k" * 16)).num_rows == 100


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("missing", ["old", "new"])
@pytest.mark.parametrize("footer", ["footer", "old", "new"])
def test_without_a_key_nothing_changes(tmp_path, missing, footer, dry_run):
    path = written(tmp_path / "a.parquet", footer=footer)
    before = path.read_bytes()
    with pytest.raises(KeyNotFoundError, match=missing) as caught:
        rotate_master_keys(path, without(missing), old="old", new="new", dry_run=dry_run)
    assert caught.value.result.rotated == []
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [before]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_missing_new_key_is_found_out_though_no_file_needs_it(tmp_path, monkeypatch, dry_run):
    path = written(tmp_path / "a.parquet", columns={"other": ["ssn"]})
    leftover = tmp_path / ".a.parquet.0123456789abcdef.tmp"
    leftover.write_bytes(b"half a file")
    for old in ("old", "footer"):
        with pytest.raises(KeyNotFoundError, match="no master key named 'new'"):
            rotate_master_keys(path, without("new"), old=old, new="new", dry_run=dry_run)
    assert leftover.exists()


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("internal", [False, True])
def test_a_rotation_of_files_that_have_neither_key_is_an_error(tmp_path, dry_run, internal):
    written(tmp_path / "a.parquet", internal_key_material=internal)
    pq.write_table(TABLE, tmp_path / "plain.parquet")
    kms = InMemoryKms({**KEYS, "odl": b"?" * 16})
    with pytest.raises(KeyNotFoundError) as caught:
        rotate_master_keys(tmp_path, kms, old="odl", new="new", dry_run=dry_run)
    assert str(caught.value) == (f"no file below {tmp_path} uses master key 'odl'; the files use: "
                                 "footer, old, other")
    assert caught.value.result.unchanged == 2
    with pytest.raises(KeyNotFoundError, match="'odl'; the files use"):
        rotate_master_keys(tmp_path, kms, old="odl", new="odl")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is none")
    result = rotate_master_keys(tmp_path, kms, old="odl", new="new", dry_run=dry_run)
    assert list(result.failed) == [str(tmp_path / "broken.parquet")]


def test_a_rotation_of_plaintext_files_is_an_error(tmp_path):
    pq.write_table(TABLE, tmp_path / "plain.parquet")
    for path in (tmp_path, tmp_path / "plain.parquet"):
        with pytest.raises(KeyNotFoundError, match="no file is encrypted under a master key"):
            rotate_master_keys(path, InMemoryKms(KEYS), old="old", new="new")


def test_a_wrong_old_key_is_noticed(tmp_path):
    path = written(tmp_path / "a.parquet")
    before = path.read_bytes()
    result = rotate_master_keys(path, InMemoryKms({**KEYS, "old": b"w" * 16}), old="old",
                                new="new")
    assert "'old'" in result.failed[str(path)] and path.read_bytes() == before


class WrongKms(InMemoryKms):
    """Wraps what it does not open again."""

    def __init__(self, wrap):
        super().__init__(KEYS)
        self.wrap = wrap

    def wrap_key(self, key_bytes, master_key_identifier):
        return self.wrap(key_bytes, master_key_identifier)


@pytest.mark.parametrize("wrap", [
    lambda *_: None, lambda *_: "", lambda key, name: InMemoryKms({name: b"?" * 16}).wrap_key(
        key, name), lambda key, name: InMemoryKms(KEYS).wrap_key(b"?" * 16, name)], ids=range(4))
@pytest.mark.parametrize("internal", [True, False])
def test_a_wrapping_that_does_not_open_replaces_none(tmp_path, wrap, internal):
    written(tmp_path / "a.parquet", internal_key_material=internal)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(KeyRetrievalError, match="'new'"):
        rotate_master_keys(tmp_path, WrongKms(wrap), old="old", new="new")
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def damage_wrapped_key(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.rfind(b'"wrappedDEK":"') + 20] ^= 1
    path.write_bytes(data)


def deleted_meanwhile(monkeypatch, path: Path, module: str) -> None:
    """Have a file be listed that is not there any more."""
    monkeypatch.setattr(f"secure_bloom.keys.operations.{module}.parquet_files",
                        lambda *where: sorted([*parquet_files(*where), str(path)]))


def test_a_bad_file_does_not_keep_others_from_it(tmp_path, monkeypatch):
    good = [written(tmp_path / f"{name}.parquet") for name in ("a", "z")]
    external = {name: written(tmp_path / f"{name}.parquet", internal_key_material=False)
                for name in ("lost", "folder")}
    material_of(external["lost"]).unlink()
    material_of(external["folder"]).unlink()
    material_of(external["folder"]).mkdir()
    for footer in ("other", "old"):  # damaged: the footer key's material is the last one
        damage_wrapped_key(written(tmp_path / f"damaged {footer}.parquet", footer=footer,
                                   columns={"old": ["ssn"]}, double_wrapping=False,
                                   plaintext_footer=True))
    written(tmp_path / "foreign.parquet", footer="foreign",
            keys=InMemoryKms({**KEYS, "foreign": b"?" * 16}))
    deleted_meanwhile(monkeypatch, tmp_path / "gone.parquet", "rotation")
    result = rotate_master_keys(tmp_path, InMemoryKms(KEYS), old="old", new="new")
    assert result.rotated == [str(path) for path in good]
    assert {Path(path).stem for path in result.failed} == {
        "lost", "folder", "damaged other", "damaged old", "foreign", "gone"}


class Stopping(InMemoryKms):
    """Answers a number of times."""

    def __init__(self, error, calls):
        super().__init__(KEYS)
        self.error, self.calls = error, calls

    def unwrap_key(self, wrapped_key, master_key_identifier):
        self.calls -= 1
        if self.calls < 0:
            raise self.error("the KMS has stopped")
        return super().unwrap_key(wrapped_key, master_key_identifier)


@pytest.mark.parametrize("error", [KmsUnavailableError, KeyAccessError, KeyboardInterrupt])
def test_what_was_done_before_a_rotation_stopped_is_known(tmp_path, monkeypatch, error):
    monkeypatch.setattr("secure_bloom.keys.operations.rotation._FILES_AT_ONCE", 1)
    paths = [written(tmp_path / f"{n}.parquet") for n in range(5)]
    with pytest.raises(error) as caught:  # three calls for each file, one before
        rotate_master_keys(tmp_path, Stopping(error, 8), old="old", new="new")
    result = caught.value.result
    assert result.rotated == [str(path) for path in paths[:2]] and not result.failed
    assert error is KeyboardInterrupt or str(caught.value) == "the KMS has stopped"
    assert read_table(tmp_path, keys=InMemoryKms(KEYS)).num_rows == 500


def test_other_keys_need_not_be_at_hand(tmp_path):
    path = written(tmp_path / "a.parquet")
    assert rotate_master_keys(path, without("other"), old="old", new="new").rotated
    assert ParquetFile(path, without("old")).read().equals(TABLE)


# --- what rewriting a file does to it ------------------------------------------------------------

def material_of(path: Path) -> Path:
    return path.parent / f"_KEY_MATERIAL_FOR_{path.name}.json"


def rewritten(tmp_path, internal: bool) -> Path:
    """What a rotation of tmp_path / "a.parquet" replaces."""
    path = written(tmp_path / "a.parquet", internal_key_material=internal)
    return path if internal else material_of(path)


internal_or_not = pytest.mark.parametrize("internal", [True, False])


@internal_or_not
def test_the_file_behind_a_symbolic_link_is_rotated_if_the_link_is_named(tmp_path, internal):
    """A link in a folder may have been put there by somebody else, so it must not lead out."""
    data, kms = tmp_path / "data", InMemoryKms(KEYS)
    (data / "day=1").mkdir(parents=True)
    real = written(tmp_path / "a.parquet", internal_key_material=internal)
    files = [real] if internal else [real, material_of(real)]
    for file in files:
        (data / "day=1" / file.name).symlink_to(file)
    before = [file.read_bytes() for file in files]
    result = rotate_master_keys(data, kms, old="old", new="new")
    assert not result.rotated and [file.read_bytes() for file in files] == before
    assert "out of the table" in result.failed[str(data / "day=1" / real.name)]
    (data / "day=1" / real.name).unlink()  # with external key material, only that is elsewhere now
    real.rename(data / "day=1" / real.name)
    result = rotate_master_keys(data, kms, old="old", new="new")
    assert bool(result.rotated) == internal != bool(result.failed)
    (data / "day=1" / real.name).rename(real)
    (data / "day=1" / real.name).symlink_to(real)
    assert [file.read_bytes() for file in files][1:] == before[1:]
    assert not rotate_master_keys(data / "day=1" / real.name, kms, old="old", new="new").failed
    assert all(p.is_symlink() for p in (data / "day=1").iterdir())
    assert ParquetFile(real, without("old")).read().equals(TABLE)


def test_links_inside_of_a_table_are_rotated(tmp_path):
    for day in ("day=1", "day=2"):
        (tmp_path / "data" / day).mkdir(parents=True)
    real = written(tmp_path / "data" / "day=2" / "a.parquet")
    (tmp_path / "data" / "day=1" / "a.parquet").symlink_to(real)
    rotate_master_keys(tmp_path / "data" / "day=1", InMemoryKms(KEYS), old="old", new="new")
    assert ParquetFile(real, without("old")).read().equals(TABLE)


def during_fsync(monkeypatch, action) -> None:
    """Have something happen, once, while a temporary file is synced."""
    fsync = os.fsync

    def watched(descriptor):
        if ".tmp" in os.readlink(f"/proc/self/fd/{descriptor}"):
            monkeypatch.setattr(os, "fsync", fsync)
            action()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)


@internal_or_not
@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_a_file_that_changes_while_its_copy_is_synced_stays(tmp_path, monkeypatch, internal, how):
    data = tmp_path / "data"
    data.mkdir()
    path = rewritten(data, internal)
    others = rewritten(tmp_path, internal)
    content = others.read_bytes()
    during_fsync(monkeypatch, path.unlink if how == "deleted" else lambda: others.rename(path))
    result = rotate_master_keys(data, InMemoryKms(KEYS), old="old", new="new")
    assert "changed in the meantime" in result.failed[str(data / "a.parquet")]
    assert not path.exists() if how == "deleted" else path.read_bytes() == content
    assert not list(data.glob(".*"))


@pytest.mark.slow
@internal_or_not
def test_of_two_rotations_at_once_no_work_is_lost(tmp_path, monkeypatch, internal):
    path = written(tmp_path / "a.parquet", internal_key_material=internal)
    barrier, fsync = threading.Barrier(2), os.fsync

    def together(descriptor):
        fsync(descriptor)
        if ".tmp" in os.readlink(f"/proc/self/fd/{descriptor}"):
            barrier.wait()

    def slow(rewrite):
        check(rewrite)
        time.sleep(0.2)

    check = Rewrite._check_unchanged
    monkeypatch.setattr(Rewrite, "_check_unchanged", slow)
    monkeypatch.setattr(os, "fsync", together)
    kms = InMemoryKms({**KEYS, "newer": b"2" * 16})
    pairs = {"old": "new", "other": "newer"}
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda pair: rotate_master_keys(path, kms, old=pair[0],
                                                                new=pair[1]), pairs.items()))
    assert sorted(len(result.failed) for result in results) == [0, 1]
    monkeypatch.setattr(os, "fsync", fsync)
    for old, new in pairs.items():
        rotate_master_keys(path, kms, old=old, new=new)
    assert [use.name for use in list_master_keys(path, kms).master_keys] \
        == ["footer", "new", "newer"]
    assert ParquetFile(path, kms).read().equals(TABLE)


@internal_or_not
def test_a_rotation_tidies_each_folder_once(tmp_path, monkeypatch, internal):
    path = rewritten(tmp_path, internal)
    written(tmp_path / "b.parquet")
    (tmp_path / f".{path.name}.0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / ".a.parquet.backup.tmp").write_bytes(b"somebody else's")
    names, folders = set(os.listdir(tmp_path)), []
    monkeypatch.setattr("secure_bloom.storage.leftovers.remove_leftovers",
                        lambda folder, names, **_:
                        folders.append(folder) or remove_leftovers(folder, names))
    rotate_master_keys(tmp_path, InMemoryKms(KEYS), old="old", new="new", dry_run=True)
    assert set(os.listdir(tmp_path)) == names and not folders
    rotate_master_keys(tmp_path, InMemoryKms(KEYS), old="old", new="new")
    assert names - set(os.listdir(tmp_path)) == {f".{path.name}.0123456789abcdef.tmp"}
    assert folders == [str(tmp_path)]


@pytest.mark.parametrize("kernel_copies", [True, False])
@pytest.mark.parametrize("filesystem", ["local", "other"])
def test_the_tail_is_replaced(tmp_path, monkeypatch, kernel_copies, filesystem):
    if not kernel_copies:
        monkeypatch.setattr("secure_bloom.storage.copying._AT_ONCE", 1000)

        def refuse(*_):
            raise OSError("not on this filesystem")
        monkeypatch.setattr(os, "copy_file_range", refuse)
    path, data = tmp_path / "x", os.urandom(100_000)
    path.write_bytes(data)
    place = (pa_fs.LocalFileSystem(), str(path)) if filesystem == "local" else \
        (pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem()), "x")
    with Rewrite(*place) as rewrite:
        rewrite.replace_tail(99_999, [b"the ", b"end"])
    assert path.read_bytes() == data[:-1] + b"the end"
    with Rewrite(*place) as rewrite, pytest.raises(ChangedMeanwhileError):
        path.write_bytes(b"")
        rewrite.replace_tail(99_999, [b"end"])
    assert path.read_bytes() == b"" and os.listdir(tmp_path) == ["x"]


def test_a_temporary_file_of_a_living_process_is_left_alone(tmp_path):
    path = written(tmp_path / "a.parquet")
    writer = secure_bloom.ParquetWriter(path, TABLE.schema, bloom_filters={})
    writer.write_table(TABLE)
    rotate_master_keys(path, InMemoryKms(KEYS), old="old", new="new")
    writer.close()
    assert ParquetFile(path).read().equals(TABLE)


# --- which master keys ---------------------------------------------------------------------------

def uses(inventory) -> dict:
    return {use.name: (use.files, use.used_for, use.wrapping) for use in inventory.master_keys}


def test_what_a_data_set_needs(tmp_path):
    written(tmp_path / "1.parquet")
    written(tmp_path / "2.parquet", plaintext_footer=True, double_wrapping=False)
    written(tmp_path / "3.parquet", footer="old", internal_key_material=False)
    pq.write_table(TABLE, tmp_path / "plain.parquet")
    write_table(TABLE, tmp_path / "explicit.parquet", bloom_filters={},
                encryption=UniformKey(b"k" * 16))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is none")
    inventory = list_master_keys(tmp_path)
    assert uses(inventory) == {
        "footer": (2, ["footer"], "both"),
        "old": (2, ["ssn", "footerKey", "columnKey0"], "both"),
        "other": (2, ["name", "columnKey1"], "both")}
    assert (inventory.files, inventory.plaintext, inventory.explicit, inventory.hidden) \
        == (6, 1, 1, 1)
    assert list(inventory.failed) == [str(tmp_path / "broken.parquet")]
    assert inventory.master_keys[0].kms_instance_id == "DEFAULT"
    seen = list_master_keys(tmp_path, InMemoryKms({"footer": KEYS["footer"], "old": KEYS["old"]}))
    assert seen.hidden == 0
    assert uses(seen)["other"] == (3, ["name"], "both")


def test_with_keys_as_much_is_known_as_without(tmp_path):
    written(tmp_path / "1.parquet")
    written(tmp_path / "2.parquet", footer="other")
    written(tmp_path / "3.parquet", internal_key_material=False)
    write_table(TABLE, tmp_path / "explicit.parquet", bloom_filters={},
                encryption=UniformKey(b"k" * 16))
    inventory = list_master_keys(tmp_path, without("other"))
    assert uses(inventory) == {
        "footer": (2, ["footer"], "double"), "old": (2, ["ssn"], "double"),
        "other": (3, ["name", "footer"], "double")}
    assert (inventory.explicit, inventory.hidden, inventory.failed) == (1, 1, {})
    inventory = list_master_keys(tmp_path, ExplicitKeys(b"k" * 16))
    assert (inventory.hidden, len(inventory.failed)) == (0, 3)


def test_files_that_cannot_be_listed_do_not_keep_others_from_it(tmp_path, monkeypatch):
    written(tmp_path / "1.parquet", footer="old")
    deleted_meanwhile(monkeypatch, tmp_path / "gone.parquet", "inventory")
    material = material_of(written(tmp_path / "folder.parquet", internal_key_material=False))
    material.unlink()
    material.mkdir()
    inventory = list_master_keys(tmp_path)
    assert list(uses(inventory)) == ["old"]
    assert {Path(path).stem for path in inventory.failed} == {"folder", "gone"}


# --- the commands --------------------------------------------------------------------------------

def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def data(tmp_path):
    keyring = Keyring.create(tmp_path / "keys.json")
    for name, key in KEYS.items():
        keyring.add(name, key)
    (tmp_path / "data").mkdir()
    for number in range(2):
        written(tmp_path / "data" / f"{number}.parquet", keyring)
    return tmp_path


def test_the_commands(data):
    keyring = ["--keyring", data / "keys.json"]
    listed = run("keys", "list", data / "data")
    assert listed.exit_code == 0
    assert "footer" in listed.stdout and "2 files with an encrypted footer" in listed.stdout
    assert "old" in run("keys", "list", data / "data", *keyring).stdout
    rotate = ["keys", "rotate", data / "data", "--from", "old", "--to", "new", *keyring]
    assert run(*rotate, "--dry-run").stdout.startswith("2 files would be rotated")
    assert run(*rotate).stdout.startswith("2 files rotated, 0 without the old master key")
    again = json.loads(run(*rotate, "--json").stdout)
    assert (again["rotated"], again["unchanged"]) == ([], 2)
    names = [use["name"] for use in json.loads(
        run("keys", "list", data / "data", *keyring, "--json").stdout)["master_keys"]]
    assert names == ["footer", "new", "other"]


def test_exit_codes_of_the_commands(data):
    (data / "data" / "broken.parquet").write_bytes(b"PAR1 this is none")
    keyring = ["--keyring", data / "keys.json"]
    rotate = ["keys", "rotate", data / "data", "--from", "old", "--to"]
    assert run("keys", "list", data / "none").exit_code == 3
    assert run("keys", "list", data / "data").exit_code == 3
    assert run(*rotate, "new").exit_code == 2
    assert run(*rotate, "nobody", *keyring).exit_code == 4
    result = run(*rotate, "new", *keyring)
    assert result.exit_code == 3 and "1 failed" in result.stdout


def test_a_rotation_that_finds_nothing_says_what_there_is(data):
    result = run("keys", "rotate", data / "data", "--from", "odl", "--to", "new", "--keyring",
                 data / "keys.json")
    assert result.exit_code == 4
    assert "master keys found: footer, old, other" in result.stdout
    assert "the files use: footer, old, other" in result.stderr


@pytest.mark.parametrize(("stop", "code", "words"), [
    (KmsUnavailableError, 4, "the KMS has stopped"),
    (KeyboardInterrupt, 130, "secure-bloom: aborted\n")])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_command_says_what_was_done_before_it_stopped(data, monkeypatch, form, stop, code,
                                                          words):
    monkeypatch.setattr("secure_bloom.keys.operations.rotation._FILES_AT_ONCE", 1)
    for number in range(2):
        written(data / "data" / f"{number}.parquet")
    monkeypatch.setattr("secure_bloom.cli.shared.open_keyring", lambda _: Stopping(stop, 5))
    result = run("keys", "rotate", data / "data", "--from", "old", "--to", "new", "--keyring",
                 data / "keys.json", *form)
    assert result.exit_code == code and words in result.stderr
    if form:
        assert json.loads(result.stdout)["rotated"] == [str(data / "data" / "0.parquet")]
    else:
        assert result.stdout.startswith("1 file rotated")


@pytest.mark.parametrize("error", [KmsUnavailableError, KeyringError])
def test_a_kms_that_fails_ends_the_list_of_keys(data, error):
    """It says nothing about the files, so they are not listed as failed."""
    with pytest.raises(error, match="has stopped"):
        list_master_keys(data / "data", Stopping(error, 0))
