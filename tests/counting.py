"""A filesystem that counts the bytes read and the files opened through it."""

import threading
from collections import Counter

import pyarrow as pa
import pyarrow.fs as pa_fs


class CountingFile:
    """A local file that counts bytes, for :class:`pyarrow.PythonFile`."""

    closed = False

    def __init__(self, path: str, count):
        self._file = open(path, "rb")  # noqa: SIM115 - open as long as pyarrow wants it
        self._count = count

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._count(len(data))
        return data

    def __getattr__(self, name: str):
        return getattr(self._file, name)

    def close(self) -> None:
        self.closed = True
        self._file.close()


class CountingHandler(pa_fs.FileSystemHandler):
    """Local files, with only the operations that reading a folder needs.

    Attributes
    ----------
    bytes_read, opened : Counter
        By path.
    """

    def __init__(self, type_name: str = "counting"):
        self._local = pa_fs.LocalFileSystem()
        self._type_name = type_name
        self._lock = threading.Lock()
        self.bytes_read: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()

    def get_type_name(self) -> str:
        return self._type_name

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths):
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self._local.get_file_info(selector)

    def open_input_file(self, path: str):
        def count(size: int) -> None:
            with self._lock:
                self.bytes_read[path] += size
        with self._lock:
            self.opened[path] += 1
        return pa.PythonFile(CountingFile(path, count), mode="r")

    def open_input_stream(self, path: str):
        return self.open_input_file(path)

    def _not_here(self, *_, **__):
        raise NotImplementedError

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _not_here
    delete_file = move = copy_file = open_output_stream = open_append_stream = _not_here
