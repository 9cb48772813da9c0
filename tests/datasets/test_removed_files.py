"""A file that is removed after its folder was listed: the folder is listed again."""

import pytest

import secure_bloom
from secure_bloom.datasets import search, sources
from secure_bloom.errors import ChangedMeanwhileError
from secure_bloom.index import build
from tests.index.helpers import KMS, age, write

READS = {
    "find": lambda path: secure_bloom.find(path, "ssn", "v1", KMS),
    "dataset": lambda path: secure_bloom.dataset(path, KMS).to_table(filter=[("ssn", "==", "v1")]),
    "index": lambda path: secure_bloom.read_table(path, KMS, filters=[("ssn", "==", "v1")]),
}


@pytest.fixture
def table(tmp_path):
    for number in range(3):
        write(tmp_path / f"{number}.parquet", [f"v{number}", "other"])
    return tmp_path


@pytest.fixture
def removing(table, monkeypatch):
    """After each listing, remove the first of the files that were found, so many times."""
    def start(times):
        def wrap(function):
            def found(*args, **kwargs):
                files = function(*args, **kwargs)
                if removed := files.paths[:1] if len(done) < times else []:
                    done.append(removed)
                    (table / removed[0].rpartition("/")[2]).unlink()
                return files
            return found
        done = []
        monkeypatch.setattr(sources, "_of_folder", wrap(sources._of_folder))
        return done
    return start


@pytest.mark.parametrize("how", READS)
def test_the_folder_is_listed_again(table, removing, how):
    if how == "index":
        age(table)
        build(table, "ssn", KMS)
        for number in (0, 1, 2):  # the index does not know the new ones
            write(table / f"{number}.parquet", [f"v{number}", "other"])
    done = removing(1)
    assert READS[how](table)["ssn"].to_pylist() == ["v1"]
    assert len(done) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["find", "dataset"])
def test_files_that_are_removed_after_each_listing_are_a_typed_error(table, removing, how):
    for number in range(3, 20):
        write(table / f"{number}.parquet", ["x"])
    done = removing(100)
    with pytest.raises(ChangedMeanwhileError, match="removed while its folder was being read"):
        READS[how](table)
    assert len(done) == 10


@pytest.mark.parametrize("how", ["find", "dataset"])
def test_a_file_that_the_caller_names_is_not_found(table, how):
    for source in (table / "absent.parquet", [table / "0.parquet", table / "absent.parquet"]):
        with pytest.raises(FileNotFoundError):
            READS[how](source)


def test_a_file_that_is_removed_before_find_reads_its_rows(table, monkeypatch):
    original, done = search.Search.condition, []

    def condition(search, values):
        if not done:
            done.append(search.paths)
            (table / "0.parquet").unlink()
        return original(search, values)

    monkeypatch.setattr(search.Search, "condition", condition)
    assert secure_bloom.find(table, "ssn", ["v1", "v0"], KMS)["ssn"].to_pylist() == ["v1"]
