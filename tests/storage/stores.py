"""Folders on several filesystems, and filesystems that fail or crash at one operation."""

import ctypes
import os
import random
import threading
from datetime import timedelta

import pyarrow.fs as pa_fs

from secure_bloom.storage import ending
from secure_bloom.storage.commit import Job
from secure_bloom.storage.files import write_file
from secure_bloom.storage.visibility import data_files
from tests import tiers
from tests.counting import CountingHandler
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET

_OPERATIONS = ("move", "delete_file", "delete_dir", "create_dir", "get_file_info",
               "open_input_file", "open_input_stream")


class Died(BaseException):
    """The process has crashed: none of its further operations takes effect."""


class Faults:
    """Counts operations, and makes one of them fail, or this one and all later ones.

    Parameters
    ----------
    at : int, optional
        Number of the operation, counted from 1.
    after : bool
        Whether the operation is carried out, and only its response is lost.
    error : type
        OSError for one failure, Died for a crash.
    watch : callable, optional
        Called before each operation, and before a response is lost.
    lasting : bool
        Whether all later operations fail too, as they do for Died.
    """

    def __init__(self, at=None, after=False, error=OSError, watch=None, lasting=False):
        self.at, self.after, self.error, self.watch = at, after, error, watch
        self.lasting = lasting or error is Died
        self.count = 0
        self._watcher = None
        self._lock = threading.Lock()

    def call(self, operation, *args, **kwargs):
        if self._watcher == threading.get_ident():  # functions of ``os`` are patched globally
            return operation(*args, **kwargs)
        with self._lock:
            if self.lasting and self.at is not None and self.count >= self.at:
                raise self.error(5, "the disk is gone")
            self._watch()
            self.count += 1
            fails = self.count == self.at
        if fails and not self.after:
            raise self.error(5, "the disk is gone")
        result = operation(*args, **kwargs)
        if fails:
            with self._lock:
                self._watch()
            raise self.error(5, "the disk is gone")
        return result

    def _watch(self):
        if self.watch is not None:
            self._watcher = threading.get_ident()
            try:
                self.watch()
            finally:
                self._watcher = None

    def filesystem(self, cls):
        """Return a subclass whose operations pass through :meth:`call`."""
        def wrap(name):
            original = getattr(cls, name)
            return lambda self_, *args, **kwargs: self.call(original, self_, *args, **kwargs)
        def open_output_stream(self_, path):
            return _Stream(cls.open_output_stream(self_, path), self)
        return type(cls.__name__, (cls,), {name: wrap(name) for name in _OPERATIONS}
                    | {"open_output_stream": open_output_stream})


class Acts(Faults):
    """Runs the first act after ``count`` operations, and one more before each further operation.

    ``done`` tells whether the first act has run.
    """

    def __init__(self, count, *acts, **faults):
        super().__init__(**faults, watch=self._act)
        self._acts = {count + number: act for number, act in enumerate(acts)}
        self.done = False

    def _act(self):
        if self.count in self._acts:
            self.done = True
            self._acts.pop(self.count)()


class _Stream:
    """An upload: only its completion counts as an operation."""

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
    """A folder on a filesystem, with helpers for tests.

    ``every``: of so many steps of a job one is tried, where each takes long.
    """

    def __init__(self, make, folder, every=1):
        self._make = make
        self.filesystem = make()
        self.folder, self._every = folder, every

    def below(self, name):
        return Store(self._make, f"{self.folder}/{name}", self._every)

    def steps(self, first=1):
        """Return numbers of steps: all of them, or the first one and some that chance chooses."""
        every = 1 if tiers.tier == "all" else self._every
        return [first, *range(first + 1 + random.randrange(every), 300, every)]

    def with_faults(self, faults, patch=None):
        """Make a filesystem with faults; those in functions of ``os`` last as long as the patch."""
        return self._make(faults, patch)

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
        """Return the values that our readers see."""
        return sorted(self._value(path) for path in data_files(self.filesystem, self.folder))

    def all_values(self):
        """Return the values that readers see that do not know ``_staging``."""
        def hidden(part):
            return part[0] == "." or (part[0] == "_" and "=" not in part)
        return sorted(self._value(f"{self.folder}/{name}") for name in self.names()
                      if not any(map(hidden, name.split("/"))))

    def outcome(self):
        """Return the values that all readers see if no job has left anything; else what is wrong.
        """
        seen, by_others, staged = self.values(), self.all_values(), self.staged()
        return seen if seen == by_others and not staged else (seen, by_others, staged)

    def names(self):
        """Return the names of all files below the folder."""
        found = self.filesystem.get_file_info(
            pa_fs.FileSelector(self.folder, recursive=True, allow_not_found=True))
        return sorted(info.path.removeprefix(f"{self.folder}/") for info in found
                      if info.type == pa_fs.FileType.File)

    def staged(self):
        """Return the files that jobs left in ``_staging``, except the one that always stays."""
        return [name for name in self.names()
                if name.startswith("_staging/") and name != "_staging/generation"]

    def has_success(self):
        return "_SUCCESS" in self.names()

    def _value(self, path):
        with self.filesystem.open_input_stream(path) as stream:
            return int(stream.read())


def everything_is_stale(monkeypatch):
    monkeypatch.setattr(ending, "STALE_AFTER", timedelta(days=-1))
    monkeypatch.setattr(ending, "GRACE", timedelta(days=-1))


def later_jobs(store, monkeypatch):
    """Run jobs that give up dead jobs, roll them back, and wait once for missing files."""
    with monkeypatch.context() as patch:
        everything_is_stale(patch)
        for _ in range(3):
            if store.staged():
                store.job().abort()


def local_store(folder, monkeypatch):
    """Return a local store; files are written with functions of ``os``, so these fail too."""
    def make(faults=None, patch=None):
        if faults is None:
            return pa_fs.LocalFileSystem()
        for name in ("fsync", "replace"):
            original = getattr(os, name)
            (patch or monkeypatch).setattr(os, name, lambda *a, _o=original, **k: faults.call(
                _o, *a, **k))
        return faults.filesystem(pa_fs.LocalFileSystem)()
    return Store(make, str(folder), every=3)


def objects_store():
    """Return a store in memory that behaves like S3."""
    objects = new_objects()
    def make(faults=None, patch=None):
        return (Objects if faults is None else faults.filesystem(Objects))(objects)
    return Store(make, f"{BUCKET}/table")


def server_store(server, folder):
    def make(faults=None, patch=None):
        cls = server.filesystem_class
        return server.filesystem_of(cls if faults is None else faults.filesystem(cls))
    return Store(make, f"{BUCKET}/{folder}", every=6)


def coarse_store(folder):
    """Return a store like S3, but with more precise times in listings, as in MinIO."""
    def make(faults=None, patch=None):
        cls = pa_fs.PyFileSystem if faults is None else faults.filesystem(pa_fs.PyFileSystem)
        return cls(_Coarse())
    return Store(make, str(folder), every=2)


class _Coarse(CountingHandler):
    """A local filesystem that does not identify itself as local."""

    def __init__(self):
        super().__init__("coarse")
        self.delete_dir, self.delete_file = self._local.delete_dir, self._local.delete_file
        self.move = self._local.move

    def __eq__(self, other):
        return isinstance(other, _Coarse)

    def get_file_info(self, paths):
        return [_with_time(info, 10**9) for info in super().get_file_info(paths)]

    def get_file_info_selector(self, selector):
        return [_with_time(info, 10**6) for info in super().get_file_info_selector(selector)]

    def create_dir(self, path, recursive):
        self._local.create_dir(path, recursive=recursive)

    def open_output_stream(self, path, metadata):
        return self._local.open_output_stream(path)


def _with_time(info, unit):
    if info.type != pa_fs.FileType.File:
        return info
    return pa_fs.FileInfo(info.path, info.type, size=info.size,
                          mtime_ns=info.mtime_ns // unit * unit)
