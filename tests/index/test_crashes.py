"""An update, merge or vacuum that dies at any moment loses nothing, and the next one repairs it."""

import os
import shutil

import pyarrow.fs as pa_fs
import pytest

from secure_bloom.index import Index, build, compaction
from secure_bloom.storage import files as storage_files
from tests.index.helpers import KMS, age, segments_of, write

_OPERATIONS = ["create_dir", "delete_file", "move", "get_file_info", "open_input_file",
               "open_input_stream", "open_output_stream"]
_OF_OS = ["fsync", "replace", "link", "unlink"]


class Death:
    """Ends the process without any cleanup before or after an operation on files."""

    def __init__(self, at: int):
        self._at, self._count = at, 0

    def _step(self):
        if self._count == self._at:
            os._exit(9)
        self._count += 1

    def around(self, operation):
        def call(*args, **kwargs):
            self._step()
            result = operation(*args, **kwargs)
            self._step()
            return result
        return call

    def filesystem(self):
        """Return a local filesystem; also patch what writes local files. Only for a fork."""
        for name in _OF_OS:
            setattr(os, name, self.around(getattr(os, name)))
        storage_files.Output.write = self.around(storage_files.Output.write)
        methods = {}
        for name in _OPERATIONS:
            original = getattr(pa_fs.LocalFileSystem, name)
            methods[name] = self.around(original)
        return type("LocalFileSystem", (pa_fs.LocalFileSystem,), methods)()


def dies(operation, at: int) -> bool:
    """Run an operation in a fork of this process that dies at a step; whether it did."""
    child = os.fork()
    if child == 0:
        try:
            operation(Death(at).filesystem())
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9)
    return code == 9


VALUES = {f"{number}.parquet": [f"v{number}-{place}" for place in range(4)] for number in range(6)}
PROBES = [*(value for stored in VALUES.values() for value in stored), "absent"]


@pytest.fixture
def base(tmp_path):
    """A table with four segments, a file to index, a deleted one and an overwritten one."""
    folder = tmp_path / "base"
    for number in range(4):
        write(folder / f"{number}.parquet", VALUES[f"{number}.parquet"], rows=2)
        build(folder, "ssn", KMS)
    (folder / "1.parquet").unlink()
    write(folder / "0.parquet", VALUES["0.parquet"], rows=2)
    write(folder / "4.parquet", VALUES["4.parquet"], rows=2)
    age(folder, 100)  # of all files; so the first ones must be restamped
    return folder


def check(folder, *, is_whole=False):
    found = Index.open(folder, KMS).lookup("ssn", PROBES)
    there = {path.name for path in folder.glob("*.parquet")}
    for value, one in zip(PROBES, found.row_groups, strict=True):
        expected = {name: [stored.index(value) // 2] for name, stored in VALUES.items()
                    if value in stored and name in there and name not in found.uncovered}
        assert one == expected
    assert not is_whole or found.uncovered == []


def update(folder, filesystem):
    Index.open(folder, KMS, filesystem=filesystem).update()


def update_and_merge(folder, filesystem):
    compaction.FAN_OUT = 2
    Index.open(folder, KMS, filesystem=filesystem).update()


def compact_and_vacuum(folder, filesystem):
    index = Index.open(folder, KMS, filesystem=filesystem)
    index.compact()
    index.vacuum(0)


@pytest.mark.slow
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("operation", [update, update_and_merge, compact_and_vacuum])
def test_death_at_any_step(base, tmp_path, operation, every):
    steps = 0
    while True:
        folder = tmp_path / str(steps)
        shutil.copytree(base, folder)
        is_dead = dies(lambda filesystem, folder=folder: operation(str(folder), filesystem), steps)
        check(folder)
        index = Index.open(folder, KMS)
        assert index.update().failed == {}
        check(folder, is_whole=True)
        index.compact()
        index.vacuum(0)
        check(folder, is_whole=True)
        left = {path.name for path in (folder / "_index" / "ssn").iterdir()}
        assert len(left) == 2 and len(segments_of(folder)) == 1, left
        shutil.rmtree(folder)
        if not is_dead:
            break
        steps += every
    assert steps > 50, steps


@pytest.mark.slow
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.sweep)])
def test_death_while_an_index_is_first_built(tmp_path, every):
    base = tmp_path / "base"
    write(base / "0.parquet", VALUES["0.parquet"], rows=2)
    age(base)
    steps, is_dead = 0, True
    while is_dead:
        folder = tmp_path / str(steps)
        shutil.copytree(base, folder)
        is_dead = dies(lambda filesystem, folder=folder: build(str(folder), "ssn", KMS,
                                                               filesystem=filesystem), steps)
        assert build(folder, "ssn", KMS).failed == {}
        check(folder, is_whole=True)
        steps += every
    assert steps > 20, steps
