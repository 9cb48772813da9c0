"""Listings of tables in stores, whose folders are listed at the same time."""

import boto3
import pyarrow.fs as pa_fs
import pytest

from secure_bloom.storage import store_listing
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
