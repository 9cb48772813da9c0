"""Parquet files that are open for reading."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import FormatError
from secure_bloom.storage.files import FileSource, is_path, resolve
from secure_bloom.storage.versions import FileVersion, VersionedFile, open_file

_FAR = ("s3", "gcs", "abfs", "hdfs", "py::fsspec")
_READ_AHEAD = 64 * 1024  # enough for most footers
_FEW_BYTES = 64 * 1024


class Source(VersionedFile):
    """A Parquet file open for reading at any position; see :class:`VersionedFile`."""

    def __init__(self, source: FileSource, filesystem: pa_fs.FileSystem | None = None):
        if is_path(source):
            filesystem, path = resolve(source, filesystem)
            file, version = open_file(filesystem, path)
            super().__init__(file, path, filesystem, path, version)
        elif isinstance(source, pa.NativeFile):
            super().__init__(source, "<Arrow file>")
        elif isinstance(source, bytes | bytearray | memoryview | pa.Buffer):
            super().__init__(pa.BufferReader(source), "<buffer>")
        elif hasattr(source, "read") and hasattr(source, "seek"):
            super().__init__(pa.PythonFile(source, mode="r"),
                             str(getattr(source, "name", "<file object>")))
        else:
            raise TypeError("source must be a path, a buffer or a seekable binary file, not "
                            f"{type(source).__name__}")
        self.size = self.file.size()
        if self.version is not None and self.version.size not in (None, self.size):
            raise self.changed()
        self._tail = memoryview(b"")  # the part of the file's end that was read ahead

    def read_at(self, nbytes: int, offset: int) -> memoryview:
        """Read up to ``nbytes`` bytes from ``offset`` on; fewer at the end of the file.

        Many bytes are in Arrow's memory, which is reused; see :meth:`ModuleCipher.decrypt_buffer`.
        """
        start = offset - (self.size - len(self._tail))
        if start >= 0:
            return self._tail[start:start + nbytes]
        if nbytes <= _FEW_BYTES:
            data = memoryview(self.file.read_at(nbytes, offset))
        else:
            data = memoryview(self.file.get_stream(offset, nbytes).read_buffer(nbytes)).cast("B")
        self.note_read()
        return data

    def read_tail(self, size: int) -> memoryview:
        """Read the last ``size`` bytes, or all of a shorter file."""
        size = min(size, self.size)
        if len(self._tail) < size:
            ahead = min(max(size, _READ_AHEAD), self.size) if self.is_far else size
            data = memoryview(self.file.read_at(ahead, self.size - ahead))
            if len(data) != ahead:
                raise FormatError("the file was truncated while it was being read")
            if not self.is_far:
                self.note_read()
                return data
            self._tail = data  # the response to one request is from one version
        return self._tail[len(self._tail) - size:]

    @property
    def for_pyarrow(self) -> pa.NativeFile:
        """The file for pyarrow: in memory if it is so small that all of it was read ahead."""
        if self._tail and len(self._tail) == self.size:
            return pa.BufferReader(pa.py_buffer(self._tail))
        return self.file

    @property
    def is_one_by_one(self) -> bool:
        """Whether Arrow makes only one request at a time, as with filesystems in Python."""
        return isinstance(self.file, pa.PythonFile)

    @property
    def is_far(self) -> bool:
        """Whether a read is a request to a server, which costs more than reading extra bytes."""
        return self.filesystem is not None and self.filesystem.type_name.startswith(_FAR)


class UnopenedSource(Source):
    """A file that had a certain version just now; it is opened when it is first read."""

    def __init__(self, filesystem: pa_fs.FileSystem, path: str, version: FileVersion):
        self.filesystem, self.path, self.name, self.version = filesystem, path, path, version
        assert version.size is not None
        self.size, self._tail = version.size, memoryview(b"")
        self._last_read = self._last_checked = object()

    @cached_property
    def file(self) -> pa.NativeFile:
        """The open file. Raises ChangedMeanwhileError if it has been replaced or removed."""
        assert self.filesystem is not None and self.path is not None
        try:
            file, version = open_file(self.filesystem, self.path)
        except FileNotFoundError as error:
            raise self.changed() from error
        if version != self.version:
            file.close()
            raise self.changed()
        return file

    def close(self) -> None:
        """See :meth:`VersionedFile.close`."""
        if "file" in vars(self):
            self.file.close()
