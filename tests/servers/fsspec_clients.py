"""Stores whose client is a filesystem of fsspec, passed as a user would pass it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.storage.fsspec_files import UncachedHandler
from tests.servers.azurite import Azurite
from tests.servers.building import from_pip
from tests.servers.gcs import Gcs
from tests.servers.minio import Minio
from tests.servers.processes import ServerProcess
from tests.servers.stores import TESTS
from tests.storage.s3 import CREDENTIALS


class _Client(ServerProcess):
    """Each filesystem is one of its own, as in another process: caches are not shared."""

    package = ""  #: which is installed beside the environment, as some need other versions
    package_version = ""
    filesystem_class = pa_fs.PyFileSystem
    tests = (*TESTS, "tests/servers/test_table.py", "tests/servers/test_fsspec.py")

    @classmethod
    def build(cls) -> list[str]:
        program = super().build()
        folder = str(from_pip(cls.package, cls.package_version))
        if folder not in sys.path:
            sys.path.insert(0, folder)
        return program

    def fsspec(self, **options: Any) -> Any:
        """Return the filesystem of fsspec."""
        return self.make(import_module(self.package), skip_instance_cache=True, **options)

    def make(self, package: Any, **options: Any) -> Any:
        raise NotImplementedError

    def filesystem_of(self, cls=filesystem_class, **options):
        return cls(UncachedHandler(self.fsspec()))


class MinioS3fs(_Client, Minio):
    """See :class:`Minio`."""

    package, package_version = "s3fs", "2026.9.0"
    version = f"{Minio.version}, s3fs {package_version}"

    def make(self, package, **options):
        return package.S3FileSystem(
            key=CREDENTIALS["AWS_ACCESS_KEY_ID"], secret=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            endpoint_url=f"http://{self.address}", **options)


class AzuriteAdlfs(_Client, Azurite):
    """See :class:`Azurite`."""

    package, package_version = "adlfs", "2026.8.0"
    # It passes a URI, of which pyarrow ignores the account's key.
    tests = (*_Client.tests, "--deselect=tests/erasing/test_stores.py::test_a_single_object")
    version = f"{Azurite.version}, adlfs {package_version}"

    def make(self, package, **options):
        return package.AzureBlobFileSystem(connection_string=self.connection_string(), **options)


class GcsGcsfs(_Client, Gcs):
    """See :class:`Gcs`."""

    package, package_version = "gcsfs", "2026.10.1"
    version = f"{Gcs.version}, gcsfs {package_version}"

    def make(self, package, **options):
        # Not its subclass, the default, which asks for kinds of buckets by gRPC.
        return package.core.GCSFileSystem(project="p", token="anon",
                                          endpoint_url=f"http://{self.address}", **options)
