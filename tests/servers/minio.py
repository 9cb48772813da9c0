"""MinIO, a server of S3."""

from __future__ import annotations

from tests.servers.building import from_go
from tests.servers.processes import ServerProcess, answers
from tests.servers.stores import TESTS
from tests.storage.s3 import CREDENTIALS, S3Store

_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
#: those that name a server of S3
_S3_TESTS = ("tests/storage/test_objects.py", "tests/storage/test_versions.py",
             "tests/storage/test_locations.py", "tests/maintain/test_s3.py",
             "tests/datasets/test_object_store.py", "tests/cli/test_find.py",
             "tests/cli/test_index.py", "tests/spark/test_frames.py",
             "tests/spark/test_crashes.py", "tests/spark/test_stream_reading.py",
             "tests/spark/test_changing_files.py", "tests/spark/test_policy.py",
             "tests/spark/test_streaming.py")
#: by name: they are left out otherwise
_OF_INDEX = tuple(f"tests/index/test_stores.py::{name}" for name in (
    "test_segments_deleted_under_an_open_reader", "test_verify_on_a_store",
    "test_a_lookup_tries_once_again_if_segments_are_deleted_during_it"))


class Minio(S3Store, ServerProcess):
    """A server with one disk; see :class:`S3Store` and :class:`ServerProcess`."""

    version = "MinIO 2026-02-12"
    tests = (*TESTS, *_S3_TESTS, *_OF_INDEX, "tests/servers/test_minio.py")

    def __init__(self) -> None:
        ServerProcess.__init__(self)
        self.prepare()

    @classmethod
    def build(cls) -> list[str]:
        return [str(from_go("github.com/minio/minio", _VERSION))]

    def command(self) -> list[str]:
        return [*self.program, "server", str(self.folder / "data"), "--address", self.address,
                "--certs-dir", str(self.folder / "certs"), "--quiet"]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "MINIO_ROOT_USER": CREDENTIALS["AWS_ACCESS_KEY_ID"], "MINIO_BROWSER": "off",
            "MINIO_ROOT_PASSWORD": CREDENTIALS["AWS_SECRET_ACCESS_KEY"], "MINIO_UPDATE": "off"}

    def is_ready(self) -> bool:
        return answers(f"http://{self.address}/minio/health/ready", 200)
