"""Folders on several filesystems, and filesystems that fail or die at one operation."""

import ctypes
import os

import pyarrow.fs as pa_fs

from secure_bloom.files import write_file
from secure_bloom.folder import data_files
from secure_bloom.spark.commit import Job
from tests.spark.s3 import BUCKET

_OPERATIONS = ("move", "delete_file", "delete_dir", "create_dir", "get_file_info",
               "open_input_stream")


class Died(BaseException):
    """The process is gone: nothing that it would do from here on happens."""


class Faults:
    """Counts operations, and makes one of them fail, or that one and all that follow.

    Parameters
    ----------
    at : int, optional
        Number of the operation, counted from 1.
    after : bool
        Whether it is carried out, and only its answer is lost.
    error : type
        OSError for one failure, Died for the end.
    watch : callable, optional
        Called before each operation.
    """

    def __init__(self, at=None, after=False, error=OSError, watch=None):
        self.at, self.after, self.error, self.watch = at, after, error, watch
        self.count = 0

    def call(self, operation, *args, **kwargs):
        if self.error is Died and self.at is not None and self.count >= self.at:
            raise Died
        if self.watch is not None:
            self.watch()
        self.count += 1
        if self.count == self.at and not self.after:
            raise self.error(5, "the disk is gone")
        result = operation(*args, **kwargs)
        if self.count == self.at:
            raise self.error(5, "the disk is gone")
        return result

    def filesystem(self, cls):
        """A subclass whose operations pass through here."""
        def wrap(name):
            original = getattr(cls, name)
            return lambda self_, *args, **kwargs: self.call(original, self_, *args, **kwargs)
        def open_output_stream(self_, path):
            return _Stream(cls.open_output_stream(self_, path), self)
        return type(cls.__name__, (cls,), {name: wrap(name) for name in _OPERATIONS}
                    | {"open_output_stream": open_output_stream})


class _Stream:
    """An upload: what counts is the end of it."""

    closed = False

    def __init__(self, stream, faults):
        # Never deleted: that would complete the upload.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))
        self._stream, self._faults = stream, faults
        self.write = stream.write

    def close(self):
        self._faults.call(self._stream.close)
        self.closed = True


class Store:
    """A folder on a filesystem, as tests look at it."""

    def __init__(self, make, folder):
        self._make = make
        self.filesystem = make()
        self.folder = folder

    def below(self, name):
        return Store(self._make, f"{self.folder}/{name}")

    def with_faults(self, faults):
        return self._make(faults)

    def job(self, overwrite=False):
        job = Job(self.filesystem, self.folder, overwrite)
        job.check_folder()
        job.start()
        return job

    def stage(self, job, value, partition=0, directory=""):
        path = job.new_file(partition, directory)
        write_file(job.filesystem, path, b"%d" % value)
        return job.staged(path, 1)

    def write(self, *values, overwrite=False, directory=""):
        job = self.job(overwrite)
        job.commit([self.stage(job, value, n, directory) for n, value in enumerate(values)])
        return job

    def values(self):
        """What our readers see."""
        return sorted(self._value(path) for path in data_files(self.filesystem, self.folder))

    def all_values(self):
        """What readers see that do not know ``_staging``."""
        return sorted(self._value(f"{self.folder}/{name}") for name in self.names()
                      if name.split("/")[0][0] not in "._")

    def names(self):
        """All files below the folder."""
        found = self.filesystem.get_file_info(
            pa_fs.FileSelector(self.folder, recursive=True, allow_not_found=True))
        return sorted(info.path.removeprefix(f"{self.folder}/") for info in found
                      if info.type == pa_fs.FileType.File)

    def staged(self):
        return [name for name in self.names() if name.startswith("_staging/")]

    def has_success(self):
        return "_SUCCESS" in self.names()

    def _value(self, path):
        with self.filesystem.open_input_stream(path) as stream:
            return int(stream.read())


def local_store(folder, monkeypatch):
    """Files are written with the functions of ``os``, so these have to fail too."""
    def make(faults=None):
        if faults is None:
            return pa_fs.LocalFileSystem()
        for name in ("fsync", "replace"):
            original = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *a, _o=original: faults.call(_o, *a))
        return faults.filesystem(pa_fs.LocalFileSystem)()
    return Store(make, str(folder))


def s3_store(server, folder):
    def make(faults=None):
        cls = pa_fs.S3FileSystem if faults is None else faults.filesystem(pa_fs.S3FileSystem)
        return server.filesystem_of(cls)
    return Store(make, f"{BUCKET}/{folder}")
