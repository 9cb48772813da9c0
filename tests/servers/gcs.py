"""fake-gcs-server, a server of Google Cloud Storage."""

from __future__ import annotations

import json
import urllib.request

import pyarrow.fs as pa_fs

from tests.servers.building import from_go
from tests.servers.processes import ServerProcess, answers
from tests.servers.stores import TESTS
from tests.storage.s3 import BUCKET

_VERSION = "v1.56.1"


class Gcs(ServerProcess):
    """A server with one bucket. pyarrow is its client."""

    version = f"fake-gcs-server {_VERSION[1:]}"
    tests = (*TESTS, "tests/servers/test_table.py")
    filesystem_class = pa_fs.GcsFileSystem

    def __init__(self) -> None:
        super().__init__()
        request = urllib.request.Request(
            f"http://{self.address}/storage/v1/b?project=p", json.dumps({"name": BUCKET}).encode(),
            {"Content-Type": "application/json"})
        urllib.request.urlopen(request).close()

    @classmethod
    def build(cls) -> list[str]:
        return [str(from_go("github.com/fsouza/fake-gcs-server", _VERSION))]

    def command(self) -> list[str]:
        host, _, port = self.address.partition(":")
        return [*self.program, "-scheme", "http", "-host", host, "-port", port,
                "-public-host", self.address, "-external-url", f"http://{self.address}",
                "-backend", "memory", "-log-level", "error"]

    def is_ready(self) -> bool:
        return answers(f"http://{self.address}/storage/v1/b?project=p", 200)

    def filesystem_of(self, cls=filesystem_class, **options):
        return cls(anonymous=True, scheme="http", endpoint_override=self.address, **options)

    def uri(self, path: str) -> str:
        return (f"gs://anonymous@{BUCKET}/{path}?scheme=http"
                f"&endpoint_override={self.address.replace(':', '%3A')}")
