"""Bounds on the time and the memory that a game may take."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import resource
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.memory import Peak, status
from tests.soak.checks.adversary.table import tree

SECONDS = 10
MEMORY = 500 << 20  #: bytes beside what the process had before
_ROOM = 4 << 30  # bytes of addresses: threads and arenas reserve many that they never use
_HOPELESS = 300  # seconds after which a process that no signal reaches ends


class TooSlow(BaseException):
    """A reader takes too long; no reader may catch this."""


@contextlib.contextmanager
def bounded(folder: Path) -> Iterator[None]:
    """Raise TooSlow, or AssertionError, if the body takes more time or memory than allowed.

    Time in which its threads wait for a core, on a busy machine, does not count. No signal reaches
    Arrow while it waits for a pipe in the folder: the pipe is opened then.
    """
    is_over, stopwatch = threading.Event(), _Stopwatch()

    def check(*_: Any) -> None:
        if stopwatch.seconds() > SECONDS:
            raise TooSlow(f"more than {SECONDS} seconds")

    def open_pipes() -> None:
        while not is_over.wait(0.1):
            if stopwatch.seconds() > SECONDS + 1:
                _open_pipes(folder)

    opener = threading.Thread(target=open_pipes, daemon=True)
    opener.start()
    peak = Peak()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + _ROOM, hard))
    earlier = signal.signal(signal.SIGALRM, check)
    faulthandler.dump_traceback_later(_HOPELESS, exit=True)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 1)
    try:
        yield
    finally:
        is_over.set()
        opener.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, earlier)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    if (used := peak.bytes()) > MEMORY:
        gc.collect()
        raise AssertionError(f"{used / 2**20:,.0f} MiB of memory")


def _open_pipes(folder: Path) -> None:
    for path, info in tree(folder).items():
        if stat.S_ISFIFO(info.st_mode):
            os.close(os.open(folder / path, os.O_RDWR | os.O_NONBLOCK))


class _Stopwatch:
    """Time, less that in which threads of this process wait for a core."""

    def __init__(self) -> None:
        self._start, self._waited = time.monotonic(), _waited()

    def seconds(self) -> float:
        """Return the time since the start."""
        waited = sum(now - self._waited.get(thread, 0) for thread, now in _waited().items())
        return time.monotonic() - self._start - waited / 10**9


def _waited() -> dict[str, int]:
    """Return the nanoseconds that each thread has waited for a core."""
    found = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has just ended
            found[path.parent.name] = int(path.read_text().split()[1])
    return found
