"""Try cases in several processes until the time is up, and keep what was tried."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.soak.check import Case
from tests.soak.checks import CHECKS

CASE_SECONDS = 3.0  # for which a case tries what has no end of its own
_SLICE = 2.0  # seconds for which a process tries cases of one check
_HANGS = 600.0  # seconds after which a case counts as hanging, on a busy machine
_MOST_FAILURES = 20  # of one check; more would say no more


@dataclass
class Tried:
    """What was tried of one check, in all runs so far."""

    cases: int = 0
    tried: int = 0
    seconds: float = 0.0
    next_seed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: Tried) -> None:
        """Add what was tried elsewhere."""
        self.cases += other.cases
        self.tried += other.tried
        self.seconds += other.seconds
        self.counts += other.counts
        self.failures = (self.failures + other.failures)[:_MOST_FAILURES]


def load(path: Path) -> dict[str, Tried]:
    """Return what earlier runs have tried, by check."""
    stored = json.loads(path.read_text())["checks"] if path.exists() else {}
    return {name: Tried(**{**stored[name], "counts": Counter(stored[name]["counts"])})
            if name in stored else Tried() for name in CHECKS}


def save(path: Path, tried: dict[str, Tried], about: dict[str, Any]) -> None:
    """Store what was tried."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"about": about, "checks": {
        name: vars(one) for name, one in tried.items()}}, indent=1))
    new.replace(path)


def try_seed(name: str, seed: int, case_seconds: float = CASE_SECONDS) -> Tried:
    """Try one case; a failure is in the result."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        case = Case.of(name, seed, Path(folder), case_seconds)
        failures = []
        try:
            CHECKS[name].try_case(case)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failures.append({"seed": seed, "error": traceback.format_exc()[-8000:]})
    return Tried(1, case.tried, time.monotonic() - start, 0, case.counts, failures)


def run(names: list[str], seconds: float, processes: int, tried: dict[str, Tried],
        tell: Callable[[str, Tried], None], case_seconds: float = CASE_SECONDS) -> None:
    """Try cases of these checks in turn, and add them to ``tried``.

    ``tell`` is called after each slice of a check.
    """
    deadline, turns = time.monotonic() + seconds, _turns(names)
    workers = [_Worker(case_seconds) for _ in range(processes)]
    try:
        for worker in workers:
            worker.start(next(turns), tried)
        while any(worker.name for worker in workers):
            for worker in _ready(workers):
                name, done = worker.finish()
                tried[name].add(done)
                tell(name, done)
                if time.monotonic() < deadline:
                    worker.start(next(turns), tried)
    finally:
        for worker in workers:
            worker.stop()


def _turns(names: list[str]) -> Iterator[str]:
    while True:
        yield from names


def _ready(workers: list[_Worker]) -> list[_Worker]:
    """Wait for workers that have finished, died or hang."""
    busy = [worker for worker in workers if worker.name]
    done = wait([worker.pipe for worker in busy], timeout=1.0)
    return [worker for worker in busy if worker.pipe in done or worker.hangs]


class _Worker:
    """A process that tries cases; replaced when it dies or hangs."""

    def __init__(self, case_seconds: float = CASE_SECONDS) -> None:
        self.name: str | None = None
        self._case_seconds = case_seconds
        self._spawn()

    def _spawn(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._seed = context.Value("q", 0)
        self._begun = context.Value("d", 0.0)
        self._process = context.Process(target=_work, args=(theirs, self._seed, self._begun,
                                                            self._case_seconds),
                                        daemon=False)
        self._process.start()
        theirs.close()

    def start(self, name: str, tried: dict[str, Tried]) -> None:
        """Let it try cases of a check for a while."""
        self.name, first = name, tried[name].next_seed
        tried[name].next_seed += 1_000_000  # of which this slice uses a few
        self._begun.value = 0.0
        self.pipe.send((name, first))

    @property
    def hangs(self) -> bool:
        """Whether its case has taken too long."""
        begun = self._begun.value
        return bool(begun) and time.monotonic() - begun > _HANGS + self._case_seconds

    def finish(self) -> tuple[str, Tried]:
        """Return what was tried."""
        name, self.name = self.name, None
        assert name is not None
        if not self.hangs:
            try:
                done: Tried = self.pipe.recv()
                return name, done
            except EOFError:
                self._process.join()
                error = f"the process died with exit code {self._process.exitcode}"
        else:
            error = f"the case took more than {_HANGS + self._case_seconds:.0f} seconds"
        seed = self._seed.value
        self.stop()
        self._spawn()
        return name, Tried(1, failures=[{"seed": seed, "error": error}])

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _work(pipe: Connection, seed: Any, begun: Any, case_seconds: float) -> None:
    while True:
        try:
            name, first = pipe.recv()
        except EOFError:
            return
        total, start = Tried(), time.monotonic()
        while time.monotonic() - start < _SLICE:
            seed.value, begun.value = first + total.cases, time.monotonic()
            total.add(try_seed(name, seed.value, case_seconds))
        begun.value = 0.0
        pipe.send(total)
