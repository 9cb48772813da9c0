"""Values from an iterator, which has them only once, are compared in each attempt of a read."""

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.datasets import folder, lookup
from secure_bloom.datasets import table as read_at_once
from secure_bloom.errors import ChangedMeanwhileError
from secure_bloom.index import Index, build, index
from tests.index.helpers import KMS, age, write

VALUES = ["v0", "v2"]


@pytest.fixture
def table(tmp_path):
    for number in range(3):
        write(tmp_path / f"{number}.parquet", [f"v{number}", "other"])
    age(tmp_path)
    build(tmp_path, "ssn", KMS)
    return tmp_path


def failing_once(function, done):
    """A function that is called, but whose first result is lost."""
    def called(*args, **kwargs):
        result = function(*args, **kwargs)
        if not done:
            done.append(result)
            raise ChangedMeanwhileError("changed")
        return result
    return called


def filters():
    return [("ssn", "in", iter(VALUES))]


@pytest.mark.parametrize("use_of_index", ["auto", "off"])
def test_a_folder_is_read(table, use_of_index):
    rows = secure_bloom.read_table(table, KMS, filters=filters(), index=use_of_index)
    assert rows["ssn"].to_pylist() == VALUES


@pytest.mark.parametrize(("owner", "name", "path", "use_of_index"), [
    (read_at_once, "read_rows", "2.parquet", "off"),
    (folder.FilesReader, "_read", "", "off"), (folder.FilesReader, "_read", "", "auto")])
def test_a_read_is_tried_again(table, monkeypatch, owner, name, path, use_of_index):
    done = []
    attempt = failing_once(getattr(owner, name), done)
    monkeypatch.setattr(owner, name, attempt)
    monkeypatch.setattr(folder, "OutdatedError", ChangedMeanwhileError)
    rows = secure_bloom.read_table(table / path, KMS, filters=filters(), index=use_of_index)
    assert rows["ssn"].to_pylist() == (["v2"] if path else VALUES) and len(done) == 1


def test_rows_are_found_again(table, monkeypatch):
    done = []
    monkeypatch.setattr(lookup.Search, "condition", failing_once(lookup.Search.condition, done))
    rows = secure_bloom.find(table, "ssn", iter(VALUES), KMS)
    assert rows["ssn"].to_pylist() == VALUES and len(done) == 1


def test_an_index_is_asked_again(table, monkeypatch):
    done = []
    monkeypatch.setattr(index, "look_up", failing_once(index.look_up, done))
    found = Index.open(table, KMS).lookup("ssn", iter(VALUES)).row_groups
    assert found == [{"0.parquet": [0]}, {"2.parquet": [0]}] and len(done) == 1


def test_a_filtered_data_set_is_read_twice(table):
    people = secure_bloom.dataset(table, KMS).filter(filters())
    for _ in range(2):
        assert people.to_table()["ssn"].to_pylist() == VALUES


def test_a_checked_filter_is_checked_again_without_copies_of_its_values():
    from secure_bloom.pruning.predicates import condition_of
    condition = condition_of([("a", "in", pa.array([1, 2])), ("b", "<", 3)])
    again = condition_of(condition)
    assert again == condition and again[0][0].value is condition[0][0].value
