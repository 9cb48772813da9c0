"""Azurite, a server of Azure's blobs, in an account without a hierarchical namespace."""

from __future__ import annotations

import pyarrow.fs as pa_fs

from tests.servers.building import from_npm
from tests.servers.processes import ServerProcess, answers
from tests.storage.s3 import BUCKET

_VERSION = "3.37.0"
#: few, as some deletions take pyarrow seven seconds here; those with faults would take hours
_COMMITS = tuple(f"tests/storage/{name}" for name in (
    "test_commit.py::test_nothing_is_visible_before_the_commit",
    "test_commit.py::test_append_keeps_and_overwrite_replaces",
    "test_commit.py::test_files_of_other_programs_are_replaced",
    "test_commit.py::test_attempts_that_lost_are_not_published",
    "test_commit.py::test_hive_folders",
    "test_commit.py::test_a_file_on_s3_appears_whole_or_not_at_all",
    "test_replacing.py::test_files_are_replaced",
    "test_replacing.py::test_a_partition_that_is_named_is_replaced_by_few_rows_or_none"))
_ACCOUNT = "devstoreaccount1"
_KEY = "QSBrZXkgb2YgdGVzdHMgdGhhdCBwcm90ZWN0cyBub3RoaW5n"


class Azurite(ServerProcess):
    """A server with one container. pyarrow is its client."""

    version = f"Azurite {_VERSION}"
    tests = ("tests/servers/test_table.py", *_COMMITS,
             "tests/erasing/test_stores.py::test_a_folder")
    filesystem_class = pa_fs.AzureFileSystem

    def __init__(self) -> None:
        super().__init__()
        self.filesystem_of().create_dir(BUCKET)

    @classmethod
    def build(cls) -> list[str]:
        return from_npm("azurite", _VERSION, "dist/src/blob/main.js")

    def command(self) -> list[str]:
        host, _, port = self.address.partition(":")
        return [*self.program, "--blobHost", host, "--blobPort", port, "--silent",
                "--location", str(self.folder / "data"), "--skipApiVersionCheck",
                "--disableTelemetry"]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"}

    def is_ready(self) -> bool:
        return answers(f"http://{self.address}/{_ACCOUNT}")

    def filesystem_of(self, cls=filesystem_class, **options):
        return cls(_ACCOUNT, account_key=_KEY, blob_storage_authority=self.address,
                   dfs_storage_authority=self.address, blob_storage_scheme="http",
                   dfs_storage_scheme="http", **options)

    def connection_string(self) -> str:
        return (f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
                f"BlobEndpoint=http://{self.address}/{_ACCOUNT};")
