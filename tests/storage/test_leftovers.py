import os

from secure_bloom import attach, write_table
from secure_bloom.storage.leftovers import remove_leftovers
from secure_bloom.storage.local_files import temporary_name
from tests.storage.test_local_files import TABLE


def test_files_that_are_changed_one_by_one_do_not_list_their_folder_each_time(
        tmp_path, monkeypatch):
    write_table(TABLE, tmp_path / "0")
    for number in range(1, 100):
        (tmp_path / str(number)).touch()
    for number in range(100):
        (tmp_path / temporary_name(str(number))).touch()
    lists, listdir, scandir = [], os.listdir, os.scandir
    monkeypatch.setattr(os, "listdir", lambda path: lists.append(path) or listdir(path))
    monkeypatch.setattr(os, "scandir", lambda path: lists.append(path) or scandir(path))
    attach(tmp_path / "0", ["a"])
    for number in range(1, 100):
        remove_leftovers(str(tmp_path), [str(number)], all_of_them=False)
    assert lists.count(str(tmp_path)) <= 10
    assert set(listdir(tmp_path)) == {str(number) for number in range(100)}


def test_a_new_leftover_is_found_soon_or_at_once_if_all_are_wanted(tmp_path):
    folder = str(tmp_path)
    for number in range(30):
        (tmp_path / str(number)).touch()
    remove_leftovers(folder, ["0"], all_of_them=False)
    left = tmp_path / temporary_name("0")
    left.touch()
    remove_leftovers(folder, ["1"])  # of another file
    remove_leftovers(folder, ["0"], all_of_them=False)
    assert not left.exists()
    left.touch()
    for _ in range(5):
        remove_leftovers(folder, ["0"], all_of_them=False)
    assert not left.exists()
