"""Replacement of local files: their modes and links, and names of the maximum length."""

import errno
import json
import os
import stat
import struct
import threading

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    ParquetWriter,
    attach,
    read_table,
    strip,
    write_table,
)
from secure_bloom.cli import main
from secure_bloom.cli.shared import write_report
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys import Keyring
from secure_bloom.keys.operations.rotation import rotate_master_keys
from secure_bloom.storage.files import open_output, write_file
from secure_bloom.storage.leftovers import remove_leftovers
from secure_bloom.storage.local_files import create, remove_checksum, temporary_name
from tests.support import kms

TABLE = pa.table({"a": range(1000)})
BESIDE = EncryptionConfiguration("mf", {"mc": ["a"]}, internal_key_material=False)


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def by_filesystem(path):
    folder = pa_fs.SubTreeFileSystem(str(path.parent), pa_fs.LocalFileSystem())
    write_table(TABLE, path.name, filesystem=folder)


def by_cli(path):
    pq.write_table(TABLE, path.parent.parent / "source")
    done = CliRunner().invoke(main, ["write", "--plaintext", "--overwrite",
                                     str(path.parent.parent / "source"), str(path)])
    assert done.exit_code == 0, done.output


#: ways to write a file, with any content
WAYS = {
    "write_table": lambda path: write_table(TABLE, path, bloom_filters=["a"]),
    "file system": by_filesystem,
    "command line": by_cli,
    "report": lambda path: write_report(str(path), "text"),
    "bytes": lambda path: write_file(pa_fs.LocalFileSystem(), str(path), b"bytes"),
}
ways = pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)


@pytest.fixture
def path(tmp_path):
    """A path in a folder of its own."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "x"


# --- modes ---------------------------------------------------------------------------------------

@ways
@pytest.mark.parametrize("kept", [0o600, 0o640, 0o444, 0o666, 0o2755])
def test_a_file_that_is_written_again_keeps_its_mode(path, write, kept):
    path.write_bytes(b"old")
    path.chmod(kept)
    write(path)
    assert path.read_bytes() != b"old" and mode(path) == kept


def test_nobody_else_may_read_a_file_that_is_to_replace_a_private_one(path):
    path.touch()
    for before, writing in ((0o600, 0o600), (0o644, 0o600), (None, 0o644)):
        if before is None:
            path.unlink()
        else:
            path.chmod(before)
        umask = os.umask(0o022)
        try:
            with ParquetWriter(path, TABLE.schema) as writer:
                [temporary] = set(os.listdir(path.parent)) - {path.name}
                assert mode(path.parent / temporary) == writing
                writer.write_table(TABLE)
        finally:
            os.umask(umask)
        assert mode(path) == (before or 0o644)


def test_the_mode_is_that_of_the_moment(path):
    with ParquetWriter(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
        path.touch(0o600)  # another process was faster
    assert mode(path) == 0o600
    with ParquetWriter(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
        path.unlink()
    assert mode(path) == 0o600  # the mode of a new file could allow more than was ever allowed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@ways
def test_a_file_that_is_written_again_keeps_its_owner(path, write):
    path.touch(0o640)
    os.chown(path, 12345, 23456)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (12345, 23456, 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(("refused", "kept", "owner"), [
    ("uid", 0o664, (0, 23456)), ("gid", 0o604, (12345, 0)), ("both", 0o604, (0, 0))])
def test_another_group_gets_no_rights(path, monkeypatch, refused, kept, owner):
    path.touch()
    path.chmod(0o664)
    os.chown(path, 12345, 23456)
    fchown = os.fchown

    def restricted(descriptor, uid, gid):
        if (uid != -1 and refused != "gid") or (gid != -1 and refused != "uid"):
            raise PermissionError
        fchown(descriptor, uid, gid)

    monkeypatch.setattr(os, "fchown", restricted)
    write_table(TABLE, path)
    assert (mode(path), (path.stat().st_uid, path.stat().st_gid)) == (kept, owner)


def test_access_control_lists_are_kept(path):
    """Where a file has one, the mode's bits for the group are not the rights of the group."""
    def acl(user):  # the group has no right, though the mask, which the mode shows, has
        entries = [(1, 6, -1), (2, 6, user), (4, 0, -1), (16, 6, -1), (32, 0, -1)]
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)

    name, without = "system.posix_acl_access", path.with_name("without")
    path.touch()
    without.touch()
    try:
        os.setxattr(path, name, acl(12345))
        os.setxattr(path.parent, "system.posix_acl_default", acl(54321))
    except OSError:
        pytest.skip("this filesystem has no access control lists")
    for one in (path, without):
        write_table(TABLE, one)
    assert os.getxattr(path, name) == acl(12345) and mode(path) == 0o660
    assert name not in os.listxattr(without)


def test_a_file_of_a_table_does_not_run_with_the_rights_of_the_one_it_replaces(path):
    path.touch()
    path.chmod(0o6755)
    write_file(pa_fs.LocalFileSystem(), str(path), b"program", follow=False)
    assert mode(path) == 0o755


def test_a_failure_leaves_file_and_mode(path):
    path.write_bytes(b"old")
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), ParquetWriter(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
        raise ZeroDivisionError
    assert path.read_bytes() == b"old" and mode(path) == 0o640
    assert os.listdir(path.parent) == ["x"]


# --- links and special files ---------------------------------------------------------------------

@ways
@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed(tmp_path, path, write, exists):
    target = tmp_path / "elsewhere" / "target"
    target.parent.mkdir()
    if exists:
        target.write_bytes(b"old")
        target.chmod(0o600)
    (path.parent / "next").symlink_to("../elsewhere/target")
    path.symlink_to(path.parent / "next")
    write(path)
    assert path.is_symlink() and (path.parent / "next").is_symlink()
    assert not target.is_symlink() and target.read_bytes() not in (b"old", b"")
    assert not exists or mode(target) == 0o600
    assert os.listdir(target.parent) == ["target"]
    assert set(os.listdir(path.parent)) == {"x", "next"}


def test_a_file_of_a_table_replaces_a_link_that_somebody_puts_there_meanwhile(path):
    """What it leads to is not changed, and its mode is not that of the new file."""
    target = path.with_name("target")
    target.write_bytes(b"data")
    target.chmod(0o666)
    for _ in range(2):  # at first there is nothing, then a link
        with open_output(str(path), follow=False, mode=0o600) as output:
            output.write(b"marker")
            path.unlink(missing_ok=True)
            path.symlink_to(target)
            output.commit()
        assert (target.read_bytes(), path.read_bytes()) == (b"data", b"marker")
        assert not path.is_symlink() and mode(path) == 0o600
        path.unlink()
        path.symlink_to(target)


@ways
def test_links_that_lead_nowhere(tmp_path, path, write):
    path.symlink_to("x")
    folder = path.parent / "folder"
    (path.parent / "into").symlink_to(tmp_path / "none" / "x")
    folder.mkdir()
    (path.parent / "to_folder").symlink_to(folder)
    for name in ("x", "into", "folder", "to_folder"):
        if write is by_cli and name != "into":
            continue  # click refuses them
        with pytest.raises((OSError, AssertionError)):
            write(path.parent / name)
    assert set(os.listdir(path.parent)) == {"x", "into", "folder", "to_folder"}
    assert os.listdir(folder) == []


def test_a_folder_is_refused_before_anything_is_written(path):
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        ParquetWriter(path, TABLE.schema)


@pytest.mark.parametrize("linked", [False, True])
def test_pipes_are_written_to_as_they_are(path, linked):
    os.mkfifo(path)
    if linked:
        (path.parent / "link").symlink_to(path)
    read = []
    thread = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    thread.start()
    write_table(TABLE, path.parent / "link" if linked else path, bloom_filters=["a"])
    thread.join(30)
    assert ParquetFile(read[0]).read().equals(TABLE)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_an_open_pipe_may_be_named_by_its_number():
    read, write = os.pipe()
    with os.fdopen(read, "rb") as source:
        with os.fdopen(write, "wb"):
            write_table(pa.table({"a": [1]}), f"/dev/fd/{write}")
            with pytest.raises(ZeroDivisionError), \
                    ParquetWriter(f"/dev/fd/{write}", TABLE.schema):
                raise ZeroDivisionError
        assert source.read(4) == b"PAR1"


def test_key_material_does_not_go_beside_a_link(tmp_path, path):
    path.symlink_to(tmp_path / "target")
    for _ in range(2):
        with pytest.raises(FileExistsError, match="use another name"):
            write_table(TABLE, path, encryption=BESIDE, keys=kms())
        assert os.listdir(path.parent) == ["x"]
        (tmp_path / "target").touch()


# --- long names ----------------------------------------------------------------------------------

LONG = ["x" * 255, "é" * 127, "日" * 84 + "x", "y" * 229, "y" * 101, "y" * 100, ".".ljust(255, "z")]


@ways
@pytest.mark.parametrize("name", LONG, ids=lambda name: f"{name[1]}{len(os.fsencode(name))}")
def test_names_may_be_as_long_as_the_file_system_lets_them(path, write, name):
    for _ in range(2):
        write(path.parent / name)
        assert os.listdir(path.parent) == [name]


def test_names_that_are_too_long(path):
    for name in ("x" * 256, "é" * 128):
        with pytest.raises(OSError) as caught:
            write_table(TABLE, path.parent / name)
        assert caught.value.errno == errno.ENAMETOOLONG
    assert os.listdir(path.parent) == []


def test_files_with_long_names_are_changed(path):
    path = path.parent / ("x" * 255)
    write_table(TABLE, path, encryption=EncryptionConfiguration("mf", {"mc": ["a"]}), keys=kms())
    assert len(attach(path, ["a"], kms()).changed) == 1
    assert len(rotate_master_keys(path, kms(), old="mc", new="md").rotated) == 1
    assert len(strip(path, keys=kms()).changed) == 1
    assert read_table(path, keys=kms()).equals(TABLE)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("name", ["x", *LONG], ids=len)
def test_leftovers_are_known_by_the_name_of_their_file(path, name):
    folder = path.parent
    mine, others = temporary_name(name), temporary_name(f"{name[:-1]}?")
    assert len(os.fsencode(mine)) <= 255
    for one in (mine, others):
        (folder / one).touch()
    remove_leftovers(folder, {"other", name})
    assert os.listdir(folder) == [others]


def test_leftovers_of_a_long_name_are_removed_when_the_file_is_changed(path):
    path = path.parent / ("x" * 255)
    write_table(TABLE, path)
    (path.parent / temporary_name(path.name)).write_bytes(b"of a process that was killed")
    attach(path, ["a"])
    assert os.listdir(path.parent) == [path.name]


def test_names_of_files_with_key_material_beside_them(path):
    folder = path.parent
    good, bad = folder / ("x" * 232), folder / ("y" * 233)
    with pytest.raises(UnsupportedError, match="name of its key material file") as caught:
        write_table(TABLE, bad, encryption=BESIDE, keys=kms())
    assert caught.value.file == str(bad) and os.listdir(folder) == []
    write_table(TABLE, good, encryption=BESIDE, keys=kms())
    assert read_table(good, keys=kms()).equals(TABLE)
    assert len(rotate_master_keys(good, kms(), old="mc", new="md").rotated) == 1
    [material] = set(os.listdir(folder)) - {good.name}
    assert len(material) == 255 and "md" in (folder / material).read_text()


def test_keyrings_with_long_names(path):
    path = path.parent / ("é" * 127)
    ring = Keyring.create(path)
    ring.add("a")
    left = path.with_name(temporary_name(path.name, "keyring.tmp"))
    left.write_text("master keys")
    ring.add("b")
    assert Keyring(path).names() == ["a", "b"]
    assert os.listdir(path.parent) == [path.name]
    assert set(json.loads(path.read_bytes())["keys"]) == {"a", "b"}


# --- files that are created, and files beside them -----------------------------------------------

@pytest.fixture
def without_links(monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", refuse)


def test_a_file_is_created_without_hard_links(tmp_path, without_links):
    path = tmp_path / "created"
    create(str(path), lambda file: file.write(b"data"))
    assert path.read_bytes() == b"data" and os.listdir(tmp_path) == ["created"]
    with pytest.raises(FileExistsError):
        create(str(path), lambda file: file.write(b"other"))
    assert path.read_bytes() == b"data" and os.listdir(tmp_path) == ["created"]


def test_a_file_that_cannot_be_created_without_hard_links_leaves_nothing(tmp_path, without_links):
    attempts = []

    def write(file):
        attempts.append(file.name)
        file.write(b"part")
        if len(attempts) == 2:  # the first one is the temporary file
            raise OSError(errno.ENOSPC, "the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        create(str(tmp_path / "created"), write)
    assert os.listdir(tmp_path) == []


def test_a_checksum_that_cannot_be_removed_is_an_error(tmp_path):
    """Else Spark would consider the new file corrupt."""
    remove_checksum(str(tmp_path / "a.parquet"))  # there is none
    checksum = tmp_path / ".a.parquet.crc"
    checksum.write_bytes(b"crc")
    remove_checksum(str(tmp_path / "a.parquet"))
    assert not checksum.exists()
    checksum.mkdir()
    with pytest.raises(OSError) as caught:
        remove_checksum(str(tmp_path / "a.parquet"))
    assert caught.value.errno in (errno.EISDIR, errno.EPERM)


def test_a_new_file_whose_temporary_name_was_deleted(tmp_path, monkeypatch):
    """As by a process that deletes all files of an index, to build it anew."""
    link = os.link

    def link_and_lose(source, target):
        link(source, target)
        os.unlink(source)

    monkeypatch.setattr(os, "link", link_and_lose)
    create(str(tmp_path / "a"), lambda file: file.write(b"content"))
    assert (tmp_path / "a").read_bytes() == b"content" and os.listdir(tmp_path) == ["a"]
