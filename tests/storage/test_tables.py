"""Folders of tables with their own log are not read by their files unless this is requested."""

import os
import uuid
from collections import Counter

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from secure_bloom import read_table
from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import write_file
from tests.counting import CountingHandler
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET

#: a log file, by kind of table
LOGS = {"Delta Lake": "_delta_log/00000000000000000000.json",
        "Hudi": ".hoodie/hoodie.properties",
        "Iceberg": f"metadata/00000-{uuid.uuid4()}.metadata.json",
        "Spark Structured Streaming": "_spark_metadata/0"}


def put(path, value=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [value]}), path)
    return path


def mark(folder, log):
    (folder / log).parent.mkdir(parents=True, exist_ok=True)
    (folder / log).write_text("{}")


def test_a_deleted_row_of_a_delta_table_does_not_come_back(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    folder = str(tmp_path / "people")
    deltalake.write_deltalake(folder, pa.table({"id": [1, 2, 3], "day": [1, 1, 2]}),
                              partition_by=["day"])
    table = deltalake.DeltaTable(folder)
    table.delete("id > 1")
    [path] = table.file_uris()
    for place in (folder, f"{folder}/day=1", tmp_path):
        with pytest.raises(UnsupportedError, match=r"people: this is a Delta Lake table.*"
                                                   r"deltalake\.DeltaTable.*all_files=True"):
            read_table(place)
    assert read_table(folder, all_files=True).num_rows == 4  # old and current rows of the table
    assert read_table(path)["id"].to_pylist() == [1]


@pytest.mark.parametrize("kind", LOGS)
def test_tables_are_refused_from_above_from_below_and_behind_links(tmp_path, kind):
    table = tmp_path / "lake" / "people"
    data = table / ("data" if kind == "Iceberg" else "")
    file = put(data / "day=1" / "a.parquet")
    mark(table, LOGS[kind])
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "folder").symlink_to(data)
    (tmp_path / "link").symlink_to(file.parent)
    for place in (table, data, file.parent, tmp_path, tmp_path / "links", tmp_path / "link"):
        with pytest.raises(UnsupportedError, match=f"(people|folder): this is an? {kind} table"):
            read_table(place)
    for place in (data, file.parent):
        assert read_table(place, all_files=True)["id"].to_pylist() == [1]
    assert read_table(file)["id"].to_pylist() == [1]


def test_a_partition_of_a_hudi_table_says_so_itself(tmp_path):
    put(tmp_path / "2024" / "01" / "a.parquet")
    (tmp_path / "2024" / "01" / ".hoodie_partition_metadata").touch()
    with pytest.raises(UnsupportedError, match="2024/01: this is a Hudi table"):
        read_table(tmp_path / "2024")


@pytest.mark.parametrize("file", ["metadata/people.metadata.json", "metadata/v1.json",
                                  "my_delta_log/0.json"])
def test_folders_beside_that_only_look_like_a_log_do_not_matter(tmp_path, file):
    put(tmp_path / "people" / "a.parquet")
    mark(tmp_path, file)
    assert read_table(tmp_path / "people").num_rows == 1


@pytest.mark.parametrize("file", ["_backup/t/_delta_log/0.json", ".old/.hoodie/hoodie.properties",
                                  "_delta_logs/0.json"])
def test_hidden_tables_do_not_matter_as_their_rows_are_not_read(tmp_path, file):
    put(tmp_path / "a.parquet")
    mark(tmp_path, file)
    assert read_table(tmp_path).num_rows == 1


# --- what it costs -------------------------------------------------------------------------------

class Requests(CountingHandler):
    """Counts the paths that are asked for, and listings, as an object store would."""

    def __init__(self):
        super().__init__("store")
        self.asked = Counter()

    def get_file_info(self, paths):
        self.asked.update(paths)
        return super().get_file_info(paths)

    def get_file_info_selector(self, selector):
        self.asked[selector.base_dir] += 1
        return super().get_file_info_selector(selector)


def requests(folder, **options) -> Counter:
    handler = Requests()
    read_table(str(folder), filesystem=pa_fs.PyFileSystem(handler), **options)
    return handler.asked + handler.opened


def test_the_look_for_tables_costs_no_request_for_a_plain_folder(tmp_path):
    for number in range(3):
        put(tmp_path / "people" / f"day={number}" / "a.parquet")
    folder = tmp_path / "people"
    assert requests(folder) == requests(folder, all_files=True)
    more = requests(folder / "day=1") - requests(folder / "day=1", all_files=True)
    assert more == Counter([f"{folder}/{name}" for name in
                            ("_delta_log", ".hoodie", "_spark_metadata", "metadata")])


def test_folders_above_a_local_one_are_looked_at_once(tmp_path, monkeypatch):
    for number in range(50):
        put(tmp_path / "people" / f"day={number}" / "a.parquet")
    asked = []
    monkeypatch.setattr("secure_bloom.storage.table_formats._kind_at",
                        lambda filesystem, folder: asked.append(folder))
    read_table(tmp_path / "people")
    assert len(set(asked)) == len(asked) == len((tmp_path / "people").parts)


# --- object stores -------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", LOGS)
def test_tables_in_an_object_store(tmp_path, kind):
    store, data = Objects(new_objects()), "t/data" if kind == "Iceberg" else "t"
    file = put(tmp_path / "a.parquet").read_bytes()
    write_file(store, f"{BUCKET}/{data}/day=1/a.parquet", file)
    write_file(store, f"{BUCKET}/t/{LOGS[kind]}", b"{}")
    for place in ("t", data, f"{data}/day=1"):
        with pytest.raises(UnsupportedError, match=f"/t: this is an? {kind} table"):
            read_table(f"{BUCKET}/{place}", filesystem=store)
    assert read_table(f"{BUCKET}/{data}", filesystem=store, all_files=True).num_rows == 1


# --- writing -------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("place", ["", "day=1", "day=2"])
def test_a_job_does_not_write_into_a_table(tmp_path, kind, overwrite, place):
    file = put(tmp_path / "day=1" / "a.parquet")
    mark(tmp_path, LOGS[kind])
    job = Job(pa_fs.LocalFileSystem(), os.path.join(tmp_path, place), overwrite)
    with pytest.raises(UnsupportedError, match=f"this is an? {kind} table.*write through"):
        job.visible_files()
    assert file.exists()
