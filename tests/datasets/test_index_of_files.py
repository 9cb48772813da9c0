"""Lists of files and patterns use the index of the table that has the files."""

import os
import posixpath
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom.storage.source import Source
from tests.datasets.people import KMS, rows_of, write_file, write_people
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET

FILES = 6


pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def people(tmp_path):
    write_people(tmp_path / "people", FILES)
    secure_bloom.index.build(tmp_path / "people", "ssn", KMS)
    return tmp_path / "people"


def ssn(file, row=77):
    return rows_of(file)["ssn"][row].as_py()


def files_of(people):
    return sorted(str(path) for path in people.rglob("*.parquet"))


def sources(people):
    yield files_of(people)
    yield [Path(path) for path in files_of(people)[:4]]
    yield [str(people / "day=0"), *files_of(people)[3:]]
    yield files_of(people)[:1]
    yield f"{people}/*/*.parquet"
    yield f"{people}/day=1/[135].parquet"


def opened(monkeypatch, source):
    """Return a list that gets the names of the files that are opened from now on.

    The index has been compared with some of them before.
    """
    secure_bloom.find(source, "ssn", "absent", KMS, index="require")
    found, original = [], Source.__init__

    def init(self, path, *args, **options):
        found.append(posixpath.basename(str(path)))
        original(self, path, *args, **options)

    monkeypatch.setattr(Source, "__init__", init)
    return found


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("value", [ssn(0), ssn(3), "absent"])
def test_the_same_rows_are_found_in_fewer_files(people, monkeypatch, number, value):
    source = list(sources(people))[number]
    wanted = secure_bloom.find(source, "ssn", value, KMS, index="off")
    names = opened(monkeypatch, source)
    found = secure_bloom.find(source, "ssn", value, KMS, index="require")
    assert found.equals(wanted)
    assert len(set(names)) == len(set(wanted["file"].to_pylist())) <= 1
    data = secure_bloom.dataset(source, KMS, index="require")
    assert data.to_table(filter=pc.field("ssn") == value).num_rows == wanted.num_rows
    assert data.report.files.index == len(data.files) - wanted.num_rows


def test_a_pattern_above_the_table_does_not_use_its_index(people):
    source = f"{people.parent}/**/*.parquet"
    shutil.copytree(people, people.parent / "other")
    assert secure_bloom.find(source, "ssn", ssn(3), KMS).num_rows == 2
    with pytest.raises(FileNotFoundError, match="has no index"):
        secure_bloom.find(source, "ssn", ssn(3), KMS, index="require")


def test_files_of_two_tables_are_searched_without_an_index(people, tmp_path):
    write_file(tmp_path / "more" / "x.parquet", rows_of(3))
    source = [*files_of(people), str(tmp_path / "more" / "x.parquet")]
    assert secure_bloom.find(source, "ssn", ssn(3), KMS).num_rows == 2


@pytest.mark.parametrize("change", ["overwritten", "added", "in another form"])
def test_files_that_are_not_covered_are_searched(people, monkeypatch, change):
    source = files_of(people)
    if change == "overwritten":
        write_file(people / "day=0" / "0.parquet", rows_of(9))
    elif change == "added":
        write_file(people / "day=0" / "new.parquet", rows_of(9))
        source.append(str(people / "day=0" / "new.parquet"))
    else:
        write_file(people.parent / "elsewhere.parquet", rows_of(9))
        os.symlink(people.parent / "elsewhere.parquet", people / "day=1" / "link.parquet")
        source.append(f"{people}/day=1/../day=1/link.parquet")
    names = opened(monkeypatch, source)
    found = secure_bloom.find(source, "ssn", ssn(9), KMS, index="require")
    assert found.num_rows == 1 and len(set(names)) == 1
    assert secure_bloom.find(source, "ssn", ssn(3), KMS, index="require").num_rows == 1


def test_a_data_set_looks_at_its_files_again_for_each_scan(people):
    data = secure_bloom.dataset(files_of(people), KMS, index="require")
    assert data.to_table(filter=pc.field("ssn") == ssn(9)).num_rows == 0
    write_file(people / "day=0" / "0.parquet", rows_of(9))
    assert data.to_table(filter=pc.field("ssn") == ssn(9)).num_rows == 1


def test_a_file_that_a_job_has_not_committed_is_read_if_it_is_named(people):
    """Only listings hide such files."""
    shutil.copy(people / "day=0" / "0.parquet", people / "day=0" / "_hidden.parquet")
    source = [*files_of(people), str(people / "day=0" / "_hidden.parquet")]
    found = secure_bloom.find(list(dict.fromkeys(source)), "ssn", ssn(0), KMS, index="require")
    assert found.num_rows == 2


def test_missing_files_are_errors(people):
    with pytest.raises(FileNotFoundError):
        secure_bloom.dataset([*files_of(people), str(people / "none.parquet")], KMS)


def test_an_object_store():
    folder, filesystem = f"{BUCKET}/t", Objects(new_objects())
    for file in range(3):
        secure_bloom.write_dataset(rows_of(file).select(["ssn", "n"]), folder, mode="append",
                                   index_columns="ssn", keys=KMS, filesystem=filesystem,
                                   encryption=secure_bloom.EncryptionConfiguration(
                                       "footer", {"pii": ["ssn"]}))
    paths = secure_bloom.dataset(folder, KMS, filesystem=filesystem).files
    for source in (paths, f"{folder}/*.parquet"):
        data = secure_bloom.dataset(source, KMS, filesystem=filesystem, index="require")
        assert data.to_table(filter=pc.field("ssn") == ssn(1)).num_rows == 1
        assert data.report.files.index == 2


def test_the_current_files_of_a_delta_table(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "t")
    for mode in ("overwrite", "append", "overwrite"):
        for number in range(3):
            deltalake.write_deltalake(path, pa.table({"n": [number, 10 + number]}),
                                      mode=mode if number == 0 else "append")
    secure_bloom.index.build(path, "n", encryption=None)
    table = deltalake.DeltaTable(path)
    data = secure_bloom.dataset(table, index="require")
    assert data.to_table(filter=pc.field("n") == 11).num_rows == 1
    assert (data.report.files.total, data.report.files.index) == (3, 2)
    assert secure_bloom.dataset(deltalake.DeltaTable(path, version=4), index="require").to_table(
        filter=pc.field("n") == 11).num_rows == 2
