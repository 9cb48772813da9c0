"""The indexes in ``vectors/index``: an independent reader and ours answer as they say."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from secure_bloom.errors import SecureBloomError
from secure_bloom.index import opened_indexes
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.folder import IndexFolder, folder_name
from secure_bloom.index.lookup import look_up
from secure_bloom.index.stamps import Stamp
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.row_ranges import ALL_PARTS
from tests.index import format_reader
from tests.index.helpers import LOCAL
from tests.index.test_format import unwrap
from vectors.builder import indexes

CASES = {path.parent.name: json.loads(path.read_text())
         for path in sorted(indexes.FOLDER.glob("*/case.json"))}


def test_there_is_a_folder_for_each_vector():
    assert {name for name in CASES if not name.startswith(indexes.SBX2)} \
        == indexes.GOOD.keys() | indexes.BAD.keys()
    assert all(case["name"] == f"index-{name}" for name, case in CASES.items())


def listing(case):
    return {path: (int(size), int(time), tag) for path, size, time, tag in
            (one.rsplit(":", 3) for one in case["input"]["files"])}


def keys_of(case):
    return {name: bytes.fromhex(key) for name, key in case["input"].get("master_keys", {}).items()}


def expected(case, position):
    """Return the row groups of a value, by path."""
    found = {}
    for one in case["output"]["found"]:
        number, path, group, *parts = one.split(":")
        if int(number) == position:
            found.setdefault(path, {})[int(group)] = int(parts[0], 16) if parts else ALL_PARTS
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_independent_reader(name):
    case = CASES[name]

    def answers(plain):
        index = format_reader.Index(indexes.FOLDER / name, case["input"]["column"],
                                    partial(unwrap, keys=keys_of(case)))
        return index.lookup(listing(case), bytes.fromhex(plain))

    values = case["input"]["values"]
    if case["outcome"] == "refused":
        with pytest.raises((format_reader.Refused, FileNotFoundError)):
            for value in values:
                answers(value)
        return
    for position, value in enumerate(values):
        found, uncovered = answers(value)
        assert found == expected(case, position)
        assert sorted(uncovered) == case["output"]["uncovered"]


@pytest.mark.parametrize("name", CASES)
def test_our_reader(name, tmp_path):
    case = CASES[name]
    column = case["input"]["column"]
    folder = tmp_path / "_index" / folder_name(column)
    shutil.copytree(indexes.FOLDER / name, folder)
    opened_indexes._opened.clear()
    keys = keys_of(case)

    def opened() -> ColumnIndex:
        return opened_indexes.open_column(IndexFolder(LOCAL, str(tmp_path), column),
                                          CachedKms(InMemoryKms(keys)) if keys else None)

    def answers(values):
        index = opened()
        stamps = {path: Stamp(*stamp) for path, stamp in listing(case).items()}
        return look_up(index, index.coverage(stamps), values)

    values = [int.from_bytes(bytes.fromhex(plain), "little") for plain in case["input"]["values"]]
    if case["outcome"] == "refused":
        with pytest.raises(SecureBloomError) as raised:
            answers(values)
        assert Path(raised.value.file).parent == folder
        return
    found = answers(values)
    assert found.row_groups == [
        {path: list(groups) for path, groups in expected(case, position).items()}
        for position in range(len(values))]
    assert found.uncovered == case["output"]["uncovered"]


def test_the_builder_makes_the_same_bytes_again(tmp_path):
    indexes.build(tmp_path / "index")
    for path in sorted((tmp_path / "index").rglob("*.*")):
        stored = indexes.FOLDER / path.relative_to(tmp_path / "index")
        assert stored.read_bytes() == path.read_bytes(), stored
    old = list(indexes.FOLDER.glob(f"{indexes.SBX2}*"))
    assert len(list(indexes.FOLDER.rglob("*"))) - len(list((tmp_path / "index").rglob("*"))) \
        == len(old) + sum(len(list(path.iterdir())) for path in old)
