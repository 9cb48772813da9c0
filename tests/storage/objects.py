"""An object store in memory, which behaves like S3 as pyarrow's filesystem for S3 shows it.

``test_objects.py`` holds what both must do. There are no folders: one exists while an object below
it does, and deleting an object leaves a marker of its folder. An object appears, whole, when its
upload is closed; a reader keeps no version open; dates are whole seconds.
"""

import hashlib
import io
import threading
import time
from bisect import bisect_left, insort
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs

from tests.storage.s3 import BUCKET


class Object(NamedTuple):
    data: bytes
    etag: str
    seconds: int


class Bucket(dict):
    """Objects by their names; and by how many seconds the clock of the store is behind."""

    seconds_behind = 0

    def __init__(self):
        super().__init__()
        self._sorted, self._lock = [], threading.Lock()

    def put(self, path, data):
        etag = f'"{hashlib.md5(data).hexdigest()}-1"'
        with self._lock:
            if path not in self:
                insort(self._sorted, path)
            self[path] = Object(data, etag, int(time.time()) - self.seconds_behind)

    def remove(self, path):
        with self._lock:
            if self.pop(path, None) is not None:
                del self._sorted[bisect_left(self._sorted, path)]

    def below(self, folder):
        """Return the names that begin with this one, which ends with a slash, in order."""
        with self._lock:  # "0" follows "/"
            first, end = (bisect_left(self._sorted, folder[:-1] + last) for last in "/0")
            return self._sorted[first:end]


class Objects(pa_fs.PyFileSystem):
    """The filesystem. Those that share objects are of the same store."""

    type_name = "s3"

    def __init__(self, objects):
        super().__init__(_Handler(objects))

    def open_input_file(self, path):
        return _File(_Reader(self.handler.objects, path))

    def open_input_stream(self, path, compression="detect", buffer_size=None):
        return self.open_input_file(path)


class _File(pa.PythonFile):
    """An object that is open for reading, with the facts that were known when it was opened."""

    def __init__(self, reader):
        self._found = reader.found

    def metadata(self):
        found = self._found
        date = datetime.fromtimestamp(found.seconds, UTC)
        return {"Content-Length": b"%d" % len(found.data), "ETag": found.etag.encode(),
                "Last-Modified": date.strftime("%Y-%m-%dT%H:%M:%SZ").encode()}


class _Reader(io.RawIOBase):
    """Each read is a request for bytes of the object that has the name then."""

    def __init__(self, objects, path):
        if path not in objects or path.endswith("/"):
            raise FileNotFoundError(f"Path does not exist '{path}'")
        self._objects, self._path, self._at = objects, path, 0
        self.found = objects[path]

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=0):
        self._at = offset + (0, self._at, len(self.found.data))[whence]
        return self._at

    def read(self, size=-1):
        rest = max(len(self.found.data) - self._at, 0)
        size = rest if size is None or size < 0 else min(size, rest)
        if size == 0:
            return b""
        if self._path not in self._objects:
            raise OSError("AWS Error INTERNAL_FAILURE during GetObject operation")
        data = self._objects[self._path].data[self._at:self._at + size]
        self._at += size
        return data.ljust(size, b"\0")  # pyarrow does not notice that fewer bytes came


class _Upload(io.RawIOBase):
    """Deleting it completes it, as in pyarrow."""

    def __init__(self, objects, path):
        self._objects, self._path, self._parts = objects, path, []

    def writable(self):
        return True

    def write(self, data):
        self._parts.append(bytes(data))
        return len(data)

    def close(self):
        if not self.closed:
            self._objects.put(self._path, b"".join(self._parts))
        super().close()


class _Handler(pa_fs.FileSystemHandler):
    def __init__(self, objects):
        self.objects = objects

    def __eq__(self, other):
        return isinstance(other, _Handler) and other.objects is self.objects

    def get_type_name(self):
        return "objects"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector):
        above = selector.base_dir.rstrip("/") + "/"
        if self._info(above).type != pa_fs.FileType.Directory:
            if selector.allow_not_found:
                return []
            raise FileNotFoundError(f"Path does not exist '{above}'")
        found = {}
        for key in self.objects.below(above):
            parts = key.removeprefix(above).rstrip("/").split("/")
            for depth in range(1, len(parts) + 1 if selector.recursive else 2):
                path = above + "/".join(parts[:depth])
                if path != above:
                    found[path] = self._info(path)
        return list(found.values())

    def create_dir(self, path, recursive):
        parts = path.rstrip("/").split("/")
        for depth in range(1, len(parts) + 1):
            self.objects.put("/".join(parts[:depth]) + "/", b"")

    def delete_dir(self, path):
        below = self.objects.below(path.rstrip("/") + "/")
        if not below:
            raise FileNotFoundError(f"Path does not exist '{path}'")
        self._delete(path, below)

    def delete_file(self, path):
        if path not in self.objects:
            raise FileNotFoundError(f"Path does not exist '{path}'")
        self._delete(path, [path])

    def move(self, src, dest):
        self.copy_file(src, dest)
        self.delete_file(src)

    def copy_file(self, src, dest):
        if src not in self.objects:
            raise OSError("AWS Error NO_SUCH_KEY during CopyObject operation")
        self.objects.put(dest, self.objects[src].data)

    def open_input_file(self, path):
        return pa.PythonFile(_Reader(self.objects, path), mode="r")

    def open_input_stream(self, path):
        return self.open_input_file(path)

    def open_output_stream(self, path, metadata):
        _check(path)
        if path.endswith("/") or f"{path.partition('/')[0]}/" not in self.objects:
            raise OSError(f"there is no bucket, or not a regular file: {path}")
        return pa.PythonFile(_Upload(self.objects, path), mode="w")

    def _refuse(self, *args, **kwargs):
        raise NotImplementedError

    open_append_stream = delete_dir_contents = delete_root_dir_contents = _refuse

    def _info(self, path):
        _check(path)
        found = self.objects.get(path)
        if found is not None and not path.endswith("/"):
            return pa_fs.FileInfo(path, pa_fs.FileType.File, size=len(found.data),
                                  mtime_ns=found.seconds * 10**9)
        is_folder = bool(self.objects.below(path.rstrip("/") + "/"))
        return pa_fs.FileInfo(path, pa_fs.FileType.Directory if is_folder
                              else pa_fs.FileType.NotFound)

    def _delete(self, path, keys):
        for key in keys:
            self.objects.remove(key)
        self.objects.put(path.rstrip("/").rpartition("/")[0] + "/", b"")


def _check(path):
    if path.startswith("/"):
        raise pa.ArrowInvalid(f"Path cannot start with a separator ('{path}')")
    if "//" in path:
        raise pa.ArrowInvalid(f"Empty path component in path {path}")


def new_objects():
    """Return the objects of a new store, which has one bucket."""
    objects = Bucket()
    objects.put(f"{BUCKET}/", b"")
    return objects
