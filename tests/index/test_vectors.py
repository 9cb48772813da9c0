"""The indexes in ``vectors/index``: an independent reader and ours answer as they say."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from secure_bloom.errors import SecureBloomError
from secure_bloom.index import column_index
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.file_table import Stamp
from secure_bloom.index.folder import folder_name
from secure_bloom.index.lookup import look_up
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.cache import CachedKms
from tests.index import format_reader
from tests.index.helpers import LOCAL
from tests.index.test_format import unwrap
from vectors.builder import indexes

CASES = {path.parent.name: json.loads(path.read_text())
         for path in sorted(indexes.FOLDER.glob("*/case.json"))}


def test_there_is_a_folder_for_each_vector():
    assert CASES.keys() == indexes.GOOD.keys() | indexes.BAD.keys()
    assert all(case["name"] == name for name, case in CASES.items())


def listing(case):
    return {path: tuple(stamp) for path, stamp in case["listing"].items()}


def keys_of(case):
    return {name: bytes.fromhex(key) for name, key in case.get("master_keys", {}).items()}


@pytest.mark.parametrize("name", CASES)
def test_an_independent_reader(name):
    case = CASES[name]

    def answers(plain):
        index = format_reader.Index(indexes.FOLDER / name, case["column"],
                                    partial(unwrap, keys=keys_of(case)))
        return index.lookup(listing(case), plain)

    if case["outcome"] == "refused":
        with pytest.raises((format_reader.Refused, FileNotFoundError)):
            for value in case["values"]:
                answers(value.to_bytes(8, "little"))
        return
    for one in case["lookups"]:
        found, uncovered = answers(bytes.fromhex(one["plain"]))
        assert {path: sorted(groups) for path, groups in found.items()} == one["row_groups"]
        assert sorted(uncovered) == case["uncovered"]


@pytest.mark.parametrize("name", CASES)
def test_our_reader(name, tmp_path):
    case = CASES[name]
    folder = tmp_path / "_index" / folder_name(case["column"])
    shutil.copytree(indexes.FOLDER / name, folder)
    column_index._opened.clear()
    keys = keys_of(case)

    def opened() -> ColumnIndex:
        return column_index.open_column(LOCAL, str(tmp_path), case["column"],
                                        CachedKms(InMemoryKms(keys)) if keys else None)

    def answers(values):
        index = opened()
        stamps = {path: Stamp(*stamp) for path, stamp in listing(case).items()}
        return look_up(index, index.coverage(stamps), values)

    if case["outcome"] == "refused":
        with pytest.raises(SecureBloomError) as raised:
            answers(case["values"])
        assert Path(raised.value.file).parent == folder
        return
    found = answers([one["value"] for one in case["lookups"]])
    assert found.row_groups == [one["row_groups"] for one in case["lookups"]]
    assert found.uncovered == case["uncovered"]


def test_the_builder_makes_the_same_bytes_again(tmp_path):
    indexes.build(tmp_path / "index")
    for path in sorted((tmp_path / "index").rglob("*.*")):
        stored = indexes.FOLDER / path.relative_to(tmp_path / "index")
        assert stored.read_bytes() == path.read_bytes(), stored
    assert len(list(indexes.FOLDER.rglob("*"))) == len(list((tmp_path / "index").rglob("*")))
