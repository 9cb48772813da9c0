"""Runs tests on mutants, each in a process that is forked off with the libraries loaded."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import Mutant

_NOT_COPIED = "build", "dist", ".[!c]*", "__pycache__", "*.egg-info"
_LIBRARIES = ("pytest", "hypothesis", "numpy", "pandas", "pyarrow.dataset", "pyarrow.parquet",
              "cryptography.hazmat.primitives.ciphers.aead", "xxhash", "click", "duckdb",
              "xdist.plugin", "multiprocessing.pool", "concurrent.futures.thread", "asyncio",
              "urllib3", "thrift.Thrift")
_OURS = "tests", "secure_bloom", "vectors", "build_kernels", "benchmarks"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - .*)?$", re.MULTILINE)
_NOT_FOUND = re.compile(r"^ERROR: not found: (\S+)$", re.MULTILINE)
_START = 20.0  # seconds that starting a process may take at most, on a busy machine


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: killed by a test, killed by the time limit, or survived."""

    outcome: str
    test: str | None
    seconds: float


class Workplace:
    """A copy of the source tree, in which mutants are tried one after another.

    Parameters
    ----------
    root : Path
        The source tree.
    folder : Path
        Receives the copy, and what pytest prints.
    options : str
        For pytest.
    """

    def __init__(self, root: Path, folder: Path, *options: str):
        self._folder, self._log, self._options = folder / "tree", folder / "log", options
        shutil.copytree(root, self._folder, symlinks=True,
                        ignore=shutil.ignore_patterns(*_NOT_COPIED))
        for library in _LIBRARIES:
            importlib.import_module(library)
        self._sound: dict[str, bool] = {}

    def try_mutant(self, mutant: Mutant, tests: list[str], seconds: float) -> Outcome:
        """Run tests on a mutant until one fails; a test that fails without it does not count."""
        path = self._folder / mutant.file
        source = path.read_text()
        start = time.monotonic()
        try:
            while True:
                _write(path, mutant.applied_to(source))
                outcome, test = self._run(tests, seconds)
                _write(path, source)
                affected = [one for one in tests if test and one.startswith(test)]
                if not affected or self._is_sound(affected[0]):
                    return Outcome(outcome, test, round(time.monotonic() - start, 1))
                tests = [one for one in tests if one not in affected]
        finally:
            _write(path, source)

    def _is_sound(self, test: str) -> bool:
        if test not in self._sound:
            self._sound[test] = self._run([test], 120)[0] == "survived"
        return self._sound[test]

    def _run(self, tests: list[str], seconds: float) -> tuple[str, str | None]:
        """Run tests; returns what became of the mutant, and the test that failed."""
        if not tests:
            return "survived", None
        child = os.fork()
        if not child:
            self._be_pytest(tests)
        status = _ended(child, time.monotonic() + seconds + _START)
        if status is None:
            return "time", None
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return "survived", None
        failed = _FAILED.findall(self._log.read_text(errors="replace"))
        if not failed and code > 1:  # nothing was tried
            return self._run(self._with_their_names(tests), seconds)
        return "killed", failed[0] if failed else None

    def _with_their_names(self, tests: list[str]) -> list[str]:
        """Return tests with all parameters where a mutant has changed the names of parameters."""
        log = self._log.read_text(errors="replace")
        renamed = {name.removeprefix(f"{self._folder}/") for name in _NOT_FOUND.findall(log)}
        found = [name if (name := test.partition("[")[0]) in renamed else test for test in tests]
        if found == tests:
            raise RuntimeError(log[-2000:])
        return list(dict.fromkeys(found))

    def _be_pytest(self, tests: list[str]) -> None:
        """Become a process that runs tests in the copy, and ends."""
        code = 70
        try:
            os.setpgid(0, 0)
            os.chdir(self._folder)
            sys.stdout = sys.stderr = self._log.open("w")
            os.dup2(sys.stdout.fileno(), 1)
            os.dup2(sys.stdout.fileno(), 2)
            for name in [*sys.modules]:
                if name.partition(".")[0] in _OURS:
                    del sys.modules[name]
            sys.path.insert(0, str(self._folder))
            os.environ["PYTHONPATH"] = str(self._folder)
            self._keep_kernels()
            import pytest
            code = int(pytest.main(["-x", "-q", "--tb=line", "-p", "no:cacheprovider",
                                    *self._options, *tests]))
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _keep_kernels(self) -> None:
        """Let the compiled kernels be used although one of their sources may be a mutant.

        Else each mutant of such a source would be killed by the first test that needs them.
        """
        if (self._folder / "secure_bloom" / "kernels").exists():
            from secure_bloom.kernels.interface import BUILT, MANIFEST, sources_digest
            manifest = json.loads((BUILT / MANIFEST).read_text())
            (BUILT / MANIFEST).write_text(json.dumps(manifest | {"sources": sources_digest()}))


def _ended(child: int, deadline: float) -> int | None:
    """Wait for a process; return its status, or None if it took too long and was killed."""
    try:
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status
            time.sleep(0.02)
    except KeyboardInterrupt:  # does not reach the tests, which have a process group of their own
        os.killpg(child, signal.SIGKILL)
        raise
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _write(path: Path, source: str) -> None:
    """Write a module, and remove what was compiled from its last version."""
    path.write_text(source)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
