"""The model of a disk: what may be left after a power cut, and what may not."""

import os
import random

import pytest

from tests.soak.disk import record, restore


def replaced(folder, *, sync_file, sync_folder):
    """Replace ``a`` by a new file, with or without syncing; return the contents that may be left.
    """
    def work(_):
        with open(folder / "new", "wb", buffering=0) as file:
            file.write(b"new content")
            if sync_file:
                os.fsync(file.fileno())
        os.replace(folder / "new", folder / "a")
        if sync_folder:
            descriptor = os.open(folder, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    return work


@pytest.fixture
def base(tmp_path):
    for name in ("base", "run"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(b"old")
        (tmp_path / name / "b").write_bytes(b"b")
    return tmp_path / "base"


def left(base, tmp_path, work, what, disks=60):
    events = record(work, tmp_path / "run", tmp_path / "notes")
    found = set()
    for seed in range(disks):
        folder = tmp_path / f"disk {seed}"
        restore(base, events, folder, random.Random(seed))
        found.add(what(folder))
    return found


def content(folder):
    return (folder / "a").read_bytes()


@pytest.mark.parametrize(("sync_file", "sync_folder", "outcomes"), [
    (True, True, {b"new content"}), (True, False, {b"old", b"new content"})])
def test_what_was_synced_is_there(base, tmp_path, sync_file, sync_folder, outcomes):
    work = replaced(tmp_path / "run", sync_file=sync_file, sync_folder=sync_folder)
    assert left(base, tmp_path, work, content) == outcomes


def test_what_was_not_synced_may_be_missing(base, tmp_path):
    work = replaced(tmp_path / "run", sync_file=False, sync_folder=True)
    found = left(base, tmp_path, work, content)
    assert {b"new content", b"", bytes(11)} <= found and b"old" not in found


def test_removals_may_be_there_in_any_combination(base, tmp_path):
    def work(_):
        os.unlink(tmp_path / "run" / "a")
        os.unlink(tmp_path / "run" / "b")

    found = left(base, tmp_path, work, lambda folder: tuple(sorted(os.listdir(folder))))
    assert found == {(), ("a",), ("b",), ("a", "b")}


def test_folders_and_links(base, tmp_path):
    def work(filesystem):
        filesystem.create_dir(str(tmp_path / "run" / "d"))
        os.link(tmp_path / "run" / "a", tmp_path / "run" / "d" / "x")
        os.unlink(tmp_path / "run" / "a")

    found = left(base, tmp_path, work, lambda folder: tuple(
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())))
    assert found >= {("a", "b"), ("b", "d/x"), ("a", "b", "d/x")} and ("b",) not in found
