"""What commands share that show files one by one: which files, their JSON, their errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import click
import pyarrow.fs as pa_fs

from secure_bloom.cli.shared import UNREADABLE, echo, exit_code, progress
from secure_bloom.datasets.search import FailedFile
from secure_bloom.datasets.sources import find_files
from secure_bloom.display import is_terminal
from secure_bloom.errors import SecureBloomError
from secure_bloom.keys.kms import KmsClient
from secure_bloom.keys.retrieval import open_keys
from secure_bloom.policy.requirement import FolderChecks, Requirement
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.many_files import NO_FAULT_OF_A_FILE, Advance


class FoundFile(NamedTuple):
    """A file to show; without a filesystem, the path is as the user wrote it."""

    path: str
    filesystem: pa_fs.FileSystem | None = None


class FoundFiles(NamedTuple):
    """The files that paths stand for.

    ``is_single``: a single file was named. The values of ``path_columns`` come from the paths.
    """

    files: list[FoundFile]
    is_single: bool
    path_columns: list[str]


def files_of(paths: tuple[str, ...]) -> FoundFiles:
    """Find the files of paths, each of a file or folder, or a glob pattern.

    In the folder of a Delta Lake, Iceberg or Hudi table, all files are found.
    """
    files: list[FoundFile] = []
    columns: list[str] = []
    is_single = len(paths) == 1
    for path in paths:
        found = find_files(path, None, all_files=True)
        if found.paths == [found.name]:
            files.append(FoundFile(path))
            continue
        is_single = False
        files += (FoundFile(one, found.filesystem) for one in found.paths)
        columns += found.partition_schema.names
    return FoundFiles(files, is_single, columns)


class Results:
    """The results of a function for files, one by one; those of files that fail have ``error``.

    Errors are printed. ``code`` is the worst exit code of them so far.
    """

    def __init__(self, found: FoundFiles, label: str, kms: KmsClient | None,
                 requirement: Requirement | None,
                 work: Callable[[OpenFile], dict[str, Any]]):
        self._found, self._label, self._keys, self._work = found, label, open_keys(kms), work
        self._checks = FolderChecks(requirement, found.path_columns)
        self.code = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with progress_of_many(self._label) as advance:
            for number, file in enumerate(self._found.files, 1):
                yield self._of_file(file)
                advance(number / len(self._found.files))
        if not self.code:
            self._checks.finish()

    def _of_file(self, file: FoundFile) -> dict[str, Any]:
        try:
            with OpenFile(file.path, self._keys, filesystem=file.filesystem,
                          require_encryption=self._checks) as parquet_file:
                return self._work(parquet_file)
        except NO_FAULT_OF_A_FILE:
            raise
        except (SecureBloomError, OSError) as error:
            self.code = max(self.code, UNREADABLE, exit_code(error))
            echo(f"secure-bloom: error: {FailedFile(file.path, error).message}", err=True)
            return {"file": file.path, "error": str(error)}


def progress_of_many(label: str) -> AbstractContextManager[Advance]:
    """A progress bar for many files, unless their results are shown on the same screen."""
    return progress(label, hidden=is_terminal(sys.stdout))


class JsonFiles:
    """One JSON object with a list ``files``, printed one by one, so that not all are in memory."""

    def __init__(self) -> None:
        self._held: list[dict[str, Any]] = []
        self._is_first = True

    def add(self, record: dict[str, Any], *, hold: bool = False) -> None:
        """Print the record of a file, unless all so far are held: they are printed with the next.
        """
        self._held.append(record)
        if not hold or not self._is_first:
            self._print_held()

    def finish(self, rest: dict[str, Any]) -> None:
        """Print everything besides the files."""
        self._print_held()
        click.echo('{\n  "files": [],' if self._is_first else "\n  ],")
        click.echo(json.dumps(rest, indent=2, default=str)[2:])

    def _print_held(self) -> None:
        for record in self._held:
            click.echo('{\n  "files": [' if self._is_first else ",", nl=False)
            click.echo(f"\n    {json.dumps(record, default=str)}", nl=False)
            self._is_first = False
        self._held.clear()
