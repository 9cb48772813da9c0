"""A filesystem that takes as long as an object store: local files, with a delay for each request.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

REQUEST = 0.03  #: seconds that each request takes
BANDWIDTH = 100e6  #: bytes per second


class SlowStore(pa_fs.FileSystemHandler):
    """Reads local files as from a store; writes them without delay, as far as an index needs it.

    Parameters
    ----------
    request : float, optional
        Seconds that each request takes.

    Attributes
    ----------
    bytes_read : int
        Of all files.
    requests : int
        That read or list something.
    """

    def __init__(self, request: float = REQUEST) -> None:
        self._local, self._request = pa_fs.LocalFileSystem(), request
        self.bytes_read = self.requests = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlowStore)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def get_type_name(self) -> str:
        """Name the filesystem."""
        return "fsspec, slow"  # so that footers are read as from other stores

    def normalize_path(self, path: str) -> str:
        """Return the path unchanged."""
        return path

    def get_file_info(self, paths: list[str]) -> list[pa_fs.FileInfo]:
        """Look files up; one request each, at the same time."""
        self.wait()
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector: pa_fs.FileSelector) -> list[pa_fs.FileInfo]:
        """List a folder; 1,000 files a request."""
        found = self._local.get_file_info(selector)
        for _ in range(max(1, -(-len(found) // 1000))):
            self.wait()
        return found

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file; each read is a request."""
        return pa.PythonFile(_SlowFile(self._local.open_input_file(path), self), "r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file as a stream."""
        return self.open_input_file(path)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Create a folder."""
        self._local.create_dir(path, recursive=recursive)

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Open a file to write."""
        return self._local.open_output_stream(path)

    def move(self, source: str, target: str) -> None:
        """Rename a file."""
        self._local.move(source, target)

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._local.delete_file(path)

    def wait(self, size: int = 0) -> None:
        """Take as long as a request that returns so many bytes, and count it."""
        self.requests += 1
        self.bytes_read += size
        if self._request:
            time.sleep(self._request + size / BANDWIDTH)

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError("this store cannot do that")

    delete_dir = delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream \
        = _refuse


class _SlowFile:
    def __init__(self, file: pa.NativeFile, store: SlowStore):
        self._file, self._store = file, store
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(None if size < 0 else size)
        self._store.wait(len(data))
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self.closed = True
        self._file.close()

    def flush(self) -> None:
        pass

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False
