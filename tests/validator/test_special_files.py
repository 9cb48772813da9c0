"""Files in the vectors folder that must not be opened: each is refused by its name."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from secure_bloom.errors import FormatError
from secure_bloom.validator import cases, load_cases

VECTORS = Path(__file__).parents[2] / "vectors"
NAME = next((VECTORS / "files").glob("*.json")).stem
PLACES = ["aad.json", f"files/{NAME}.json", f"files/{NAME}.parquet"]


@pytest.fixture
def folder(tmp_path):
    """A folder with the vectors of two layers: one small, one with a single file."""
    folder = tmp_path / "vectors"
    (folder / "files").mkdir(parents=True)
    for place in PLACES:
        shutil.copy(VECTORS / place, folder / place)
    assert load_cases(folder)
    return folder


@pytest.fixture
def opened(monkeypatch):
    """The paths that are opened from here on; opening one that is not a regular file fails."""
    def read_text(path, **options):
        assert path.is_file(), f"{path} was opened"
        names.append(path.name)
        return original(path, **options)

    names, original = [], cases.Path.read_text
    monkeypatch.setattr(cases.Path, "read_text", read_text)
    return names


def pipe(path):
    os.mkfifo(path)


def link_to_a_device(path):
    path.symlink_to("/dev/zero")


def socket_file(path):
    os.chdir(path.parent)  # the path of a socket must be short
    socket.socket(socket.AF_UNIX).bind(path.name)


def link_out(path):
    outside = path.parents[2] / "outside"
    shutil.copy(VECTORS / "aad.json", outside)
    path.symlink_to(outside)


def link_nowhere(path):
    path.symlink_to(path.parent / "nothing")


def link_to_itself(path):
    path.symlink_to(path)


def subfolder(path):
    path.mkdir()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("make", "message"), [
    (pipe, "named pipe"), (link_to_a_device, "link out of the folder"), (socket_file, "socket"),
    (link_out, "link out of the folder"), (link_nowhere, "No such file"),
    (link_to_itself, "symbolic links"), (subfolder, "not a regular file, but a folder")])
def test_a_special_file_is_refused_by_its_name(folder, opened, monkeypatch, place, make, message):
    monkeypatch.chdir(folder)
    os.unlink(folder / place)
    make(folder / place)
    with pytest.raises(FormatError, match=message) as refused:
        load_cases(folder)
    assert refused.value.file == str(folder / place)
    assert Path(place).name not in opened


def test_a_device_is_refused(folder, monkeypatch):
    real = os.stat

    def as_device(path, **options):
        return real("/dev/null" if str(path).endswith("aad.json") else path, **options)

    monkeypatch.setattr(cases.os, "stat", as_device)
    with pytest.raises(FormatError, match="a device"):
        load_cases(folder)


def test_a_linked_subfolder_outside_is_refused(folder, tmp_path, opened):
    os.rename(folder / "files", tmp_path / "files")
    (folder / "files").symlink_to(tmp_path / "files")
    with pytest.raises(FormatError, match="link out of the folder"):
        load_cases(folder)
    assert opened == ["aad.json"]


def test_links_within_the_folder_and_to_the_folder_are_followed(folder, tmp_path):
    os.rename(folder / "aad.json", folder / "files" / "stored")
    (folder / "aad.json").symlink_to("files/stored")
    (tmp_path / "link").symlink_to(folder)
    assert len(load_cases(tmp_path / "link")) == len(load_cases(folder)) > 1


def test_deeply_nested_json_is_not_valid(folder):
    (folder / "aad.json").write_text("[" * 100_000)
    with pytest.raises(FormatError, match="not valid JSON"):
        load_cases(folder)
