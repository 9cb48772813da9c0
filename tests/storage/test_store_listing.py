"""Listings of tables in stores, whose folders are listed at the same time."""

import boto3
import pyarrow.fs as pa_fs
import pytest

from secure_bloom.storage import store_listing
from secure_bloom.storage.hive_partitioning import partition_values
from secure_bloom.storage.visibility import files_below, visible_files
from tests.servers import chosen
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET, CREDENTIALS


class Watched(Objects):
    """Counts listings; fails for one folder."""

    def __init__(self, objects, fails_at=None):
        super().__init__(objects)
        self.recursive, self.flat, self._fails_at = [], [], fails_at

    def get_file_info(self, paths_or_selector):
        if isinstance(paths_or_selector, pa_fs.FileSelector):
            folder = paths_or_selector.base_dir
            (self.recursive if paths_or_selector.recursive else self.flat).append(folder)
            if folder == self._fails_at:
                raise OSError("AWS Error ACCESS_DENIED")
        return super().get_file_info(paths_or_selector)


def put(objects, *names):
    for name in names:
        objects.put(f"{BUCKET}/t/{name}", b"1")
    return objects


def days(number, files):
    return [f"day={day}/{file}.parquet" for day in range(number) for file in range(files)]


@pytest.mark.parametrize(("number", "files"), [(3, 1), (20, 1), (20, 70)])
def test_the_files_are_those_of_one_listing(number, files):
    names = [*days(number, files), "a.parquet", "day=1/hour=2/x.parquet", "_delta_log/1.json",
             "day=0/_staging/x", ".hidden/x", "empty/"]
    store = Watched(put(new_objects(), *names, "_staging/generation", "_index/x/1.manifest"))
    found = files_below(store, f"{BUCKET}/t", is_complete=False)
    assert len(store.recursive) in (number + 3, 17)
    whole = files_below(store, f"{BUCKET}/t")
    assert set(names) <= {*found, "empty/"} and found.keys() <= whole.keys()
    assert all(info.path == whole[name].path for name, info in found.items())


def test_large_folders_are_listed_by_themselves_and_small_ones_as_a_whole():
    """A request lists 1,000 files: folders of 70 take fewer rounds by 16, of 1 many more."""
    for files, expected in ((70, 20), (1, 17)):
        store = Watched(put(new_objects(), *days(20, files)))
        assert len(files_below(store, f"{BUCKET}/t", is_complete=False)) == 20 * files
        assert (len(store.flat), len(store.recursive)) == (1, expected)
        assert (f"{BUCKET}/t" in store.recursive) == (files == 1)


def test_a_table_without_partitions_takes_no_more_requests():
    store = Watched(put(new_objects(), "a.parquet", "_staging/generation", "_index/x/1.manifest"))
    assert [*visible_files(store, f"{BUCKET}/t")] == ["a.parquet"]
    assert store.flat == [f"{BUCKET}/t"]
    assert store.recursive == [f"{BUCKET}/t/_staging"] * 2  # the markers, before and after


def test_no_folder_is_left_out_if_it_cannot_be_listed():
    for number in (3, 20):
        store = Watched(put(new_objects(), *days(number, 70)), f"{BUCKET}/t/day={number - 1}")
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            files_below(store, f"{BUCKET}/t", is_complete=False)


def test_a_missing_folder_is_missing_or_empty():
    store = Objects(put(new_objects(), "x"))
    with pytest.raises(FileNotFoundError):
        files_below(store, f"{BUCKET}/none", is_complete=False)
    assert files_below(store, f"{BUCKET}/none", is_complete=False, allow_not_found=True) == {}


@pytest.mark.parametrize("kind", ["gcs", "py::fsspec+gs", "py::unknown"])
def test_stores_that_may_show_no_folders_are_listed_as_a_whole(kind):
    store = Watched(put(new_objects(), *days(3, 1)))
    store.type_name = kind
    assert len(files_below(store, f"{BUCKET}/t", is_complete=False)) == 3
    assert store.recursive == [f"{BUCKET}/t"] and not store.flat


class Only:
    """Enters the partitions in which columns have these values, as far as a path tells."""

    def __init__(self, *also, **values):
        self.columns, self._values = {*values, *also}, values

    def enters(self, folders):
        return [all(value in self._values.get(name, value)
                    for name, value in partition_values(f"{folder}/").items())
                for folder in folders]


@pytest.fixture
def months():
    """Four days in each of three months of two years; and files elsewhere."""
    names = [f"y={year}/m={month}/d={day}/1.parquet" for year in range(2)
             for month in range(3) for day in range(4)]
    objects = put(new_objects(), *names, "a.parquet", "y=1/b.parquet", "y=1/x/c.parquet",
                  "y=1/m=2/d=3/e=4/d.parquet", "_staging/generation", "_delta_log/1.json")
    return Watched(objects)


@pytest.mark.parametrize(("only", "requests"), [
    (Only(y="1"), 1 + 2),  # the root; then y=1 and the log
    (Only(y="1", m="2"), 1 + 1 + 3),
    (Only(y="1", m="2", d="3"), 1 + 1 + 1 + 3),
    (Only(d="3"), 1 + 3 + 7 + 6), (Only("ssn"), 1 + 3 + 3),
    (Only("ssn", m="2"), 1 + 3 + 2 + 3), (Only(y="9"), 1 + 1), (Only(y="1", d="x"), 1 + 2 + 4)])
def test_only_partitions_that_are_entered_are_listed(months, only, requests):
    """Level by level, as far down as the condition tells folders apart."""
    found = files_below(months, f"{BUCKET}/t", is_complete=False, partitions=only)
    whole = files_below(months, f"{BUCKET}/t")
    left = {name: info for name, info in whole.items()
            if only.enters([name.rpartition("/")[0]])[0] and not name.startswith("_staging")}
    assert found.keys() == left.keys()
    listed = [*months.flat, *months.recursive[:-1]]
    assert len(listed) == requests and len({*months.flat}) == len(months.flat)
    assert all(only.enters([folder.removeprefix(f"{BUCKET}/t/") for folder in listed]))


def test_partitions_of_few_files_are_listed_as_a_whole_where_that_takes_fewer_rounds():
    names = [f"y={year}/d={day}/1.parquet" for year in range(3) for day in range(200)]
    names.append("y=1/a.parquet")
    for most, expected in ((200, [f"{BUCKET}/t/y=1"]), (5, [])):
        store = Watched(put(new_objects(), *names))
        only = Only("d", y="1", d=[str(day) for day in range(most)])
        found = store_listing.by_folders(store, f"{BUCKET}/t", False, partitions=only)
        assert len(found) == len({info.path for info in found}) == most + 1
        assert [one for one in store.recursive if "d=" not in one] == expected
        assert store.flat[:2] == [f"{BUCKET}/t", f"{BUCKET}/t/y=1"]


def test_partitions_are_left_out_of_local_folders_and_links_to_them_are_not_followed(tmp_path):
    for name in ("y=1/a", "y=2/b", "y=1/m=2/c", "y=1/m=3/d", "x/y=2/e", "x/f"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).touch()
    (tmp_path / "t/y=3").symlink_to(tmp_path)  # a circle
    (tmp_path / "t/y=1/m=4").symlink_to(tmp_path / "t/x")
    only = Only(y="1", m="24")
    local = pa_fs.LocalFileSystem()
    for filesystem, path in ((local, str(tmp_path / "t")),
                             (pa_fs.SubTreeFileSystem(str(tmp_path), local), "t")):
        assert {*visible_files(filesystem, path, partitions=only)} == {
            "y=1/a", "y=1/m=2/c", "x/f", "y=1/m=4/f", "y=1/m=4/y=2/e"}


@pytest.mark.slow
def test_files_in_a_folder_without_a_name_are_found(s3, tmp_path):
    """Of a key such as t//file, a server shows no folder that could be listed."""
    if chosen.is_store():
        pytest.skip("needs a server with these credentials")
    client = boto3.client("s3", endpoint_url=f"http://{s3.address}", region_name="us-east-1",
                          aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
                          aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
    table = tmp_path.name
    for name in ("day=1/a", "b", "/c", "day=1//d", "day=1", *days(20, 1)):
        client.put_object(Bucket=BUCKET, Key=f"{table}/{name}", Body=b"1")
    filesystem = s3.filesystem_of()
    found = store_listing.by_folders(filesystem, f"{BUCKET}/{table}", False)
    assert {info.path for info in found if info.is_file} == {
        info.path for info in store_listing.recursively(filesystem, f"{BUCKET}/{table}", False)
        if info.is_file}
    assert len([info for info in found if info.is_file]) == 25
