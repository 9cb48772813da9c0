"""A fault of storage is a typed error: nothing is lost, nothing is half visible."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import traceback
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError
from secure_bloom.storage import local_files
from tests.index.test_crashes import Death
from tests.soak.check import Case, Check
from tests.soak.checks.crashes import LOCAL, OPERATIONS, Outcome
from tests.soak.faulty_store import HONEST, LAGGING, FaultyStore
from tests.storage.s3 import BUCKET, S3Server

_LOCAL_FAULTS, _STORE_FAULTS = 10, 3  # of each case
_WRITING = {"fsync", "replace", "link", "move", "create_dir", "write", "_open_new"}
_REMOVING = {"unlink", "delete_file"}
_READING = {"get_file_info", "open_input_file", "open_input_stream"}
_ERRORS = {errno.ENOSPC: _WRITING, errno.EROFS: _WRITING | _REMOVING,
           errno.EIO: _WRITING | _REMOVING | _READING}
_TYPED, _DONE = 3, 0


def _try(case: Case) -> None:
    stores = case.random.random() < 0.3
    name = case.random.choice([name for name, one in OPERATIONS.items()
                               if one.on_stores or not stores])
    outcome = Outcome.of(OPERATIONS[name], case.folder / "base", case.folder / "new")
    (_on_a_store if stores else _on_a_disk)(case, name, outcome)


# --- a local disk --------------------------------------------------------------------------------

def _on_a_disk(case: Case, name: str, outcome: Outcome) -> None:
    """Let an operation on files fail in a fork of this process, once or from then on."""
    for number in range(_LOCAL_FAULTS):
        folder = case.folder / str(number)
        shutil.copytree(case.folder / "base", folder)
        error = case.random.choice(list(_ERRORS))
        faults = _Faults(int(10 ** case.random.uniform(0, 2)), error,
                         lasts=case.random.random() < 0.5, after=case.random.random() < 0.2)
        is_over = _runs(lambda fs, folder=folder: outcome.operation.run(folder, fs), faults)
        try:
            seen = outcome.check(folder, LOCAL, is_over=is_over)
        except BaseException as wrong:
            wrong.add_note(f"{name}, fault {number}: {faults}")
            raise
        if not is_over:
            case.tried += 1
            case.counts[f"{errno.errorcode[error]}: {seen}"] += 1


class _Faults(Death):
    """Lets an operation on files fail. Only for a fork."""

    def __init__(self, at: int, error: int, *, lasts: bool, after: bool):
        super().__init__(at)
        self._error, self._lasts, self._after = error, lasts, after
        self._lock = threading.Lock()

    def filesystem(self) -> pa_fs.FileSystem:
        local_files._open_new = self.around(local_files._open_new)
        return super().filesystem()

    def around(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        if operation.__name__ not in _ERRORS[self._error]:
            return operation

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._count += 1
                fails = self._count == self._at or (self._lasts and self._count > self._at)
            if fails and operation.__name__ == "write":
                operation(args[0], memoryview(args[1]).cast("B")[:len(args[1]) // 2])
            elif fails and self._after:
                operation(*args, **kwargs)
            if fails:
                raise OSError(self._error, os.strerror(self._error))
            return operation(*args, **kwargs)
        return call

    def __repr__(self) -> str:
        return f"{errno.errorcode[self._error]} at {self._at}, lasts: {self._lasts}, " \
               f"after: {self._after}"


def _runs(operation: Callable[[pa_fs.FileSystem], Any], faults: _Faults) -> bool:
    """Run an operation in a fork; return whether it succeeded, or raised a typed error."""
    child = os.fork()
    if child == 0:
        try:
            operation(faults.filesystem())
            os._exit(_DONE)
        except (SecureBloomError, OSError):
            os._exit(_TYPED)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (_DONE, _TYPED), f"not a typed error: {faults}"
    return code == _DONE


# --- an object store -----------------------------------------------------------------------------

@cache
def _store() -> tuple[S3Server, FaultyStore]:
    server = S3Server()
    return server, FaultyStore(server.address)


def _on_a_store(case: Case, name: str, outcome: Outcome) -> None:
    """Let requests to an S3 server fail, then look at it without faults."""
    server, faulty = _store()
    healthy = server.filesystem_of()
    through_proxy = pa_fs.S3FileSystem(
        region="us-east-1", scheme="http", endpoint_override=faulty.address, request_timeout=1,
        connect_timeout=1, retry_strategy=pa_fs.AwsStandardS3RetryStrategy(max_attempts=2))
    for _ in range(_STORE_FAULTS):
        folder = Path(BUCKET, uuid.uuid4().hex)
        pa_fs.copy_files(str(case.folder / "base"), str(folder), source_filesystem=LOCAL,
                         destination_filesystem=healthy)
        kinds = case.random.choice([HONEST, LAGGING])
        before = sum(faulty.counts.values())
        faulty.be_faulty(case.random, kinds, 10 ** case.random.uniform(-2.5, -0.5))
        try:
            outcome.operation.run(folder, through_proxy)
            is_over = True
        except (SecureBloomError, OSError):
            is_over = False
        finally:
            faulty.be_well()
        seen = outcome.check(folder, healthy, is_over=is_over)
        if sum(faulty.counts.values()) > before:
            case.tried += 1
            case.counts[f"S3, {'lagging' if kinds == LAGGING else 'failing'}: {seen}"] += 1
        healthy.delete_dir(str(folder))


CHECK = Check("storage_faults", "a fault of storage is a typed error: nothing is lost, and nothing "
              "is half visible", "scenarios", 500, _try)
