"""An S3 server for tests: moto in a separate process, which prints its port.

Servers of other stores have the same methods: see ``tests/servers``.
"""

import logging
import os
import subprocess
import sys
import threading

import pyarrow.fs as pa_fs

BUCKET = "bucket"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret",
               "AWS_EC2_METADATA_DISABLED": "true"}


class S3Store:
    """What tests do with the store at ``address``, in which there is a bucket.

    ``filesystem_class`` is what pyarrow calls its filesystem.
    """

    filesystem_class = pa_fs.S3FileSystem

    def prepare(self):
        """Make the bucket. Spark's workers get credentials from the environment."""
        os.environ.update(CREDENTIALS)
        self.filesystem_of(allow_bucket_creation=True).create_dir(BUCKET)

    def filesystem_of(self, cls=filesystem_class, **options):
        return cls(region="us-east-1", scheme="http", endpoint_override=self.address, **options)

    def uri(self, path: str) -> str:
        return (f"s3://{BUCKET}/{path}?region=us-east-1&scheme=http"
                f"&endpoint_override={self.address}")


class S3Server(S3Store):
    """A server that runs until ``stop``, or until this process ends."""

    def __init__(self):
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                         text=True)
        self.address = f"127.0.0.1:{int(self._process.stdout.readline())}"
        self.prepare()

    def stop(self):
        self._process.kill()
        self._process.wait()


def main():
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app),
                         threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    server.serve_forever()


def _end_with_parent():
    sys.stdin.read()  # until the parent closes it, or dies
    os._exit(0)


if __name__ == "__main__":
    main()
