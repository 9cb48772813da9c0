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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.soak.checks.adversary.table import tree

SECONDS = 10
MEMORY = 500 << 20  #: bytes beside what the process had before
_ROOM = 4 << 30  # bytes of addresses: threads and arenas reserve many that they never use
_HOPELESS = 90  # seconds after which a process that no signal reaches ends


class TooSlow(BaseException):
    """A reader takes too long; no reader may catch this."""


@contextlib.contextmanager
def bounded(folder: Path) -> Iterator[None]:
    """Raise TooSlow, or AssertionError, if the body takes more time or memory than allowed.

    No signal reaches Arrow while it waits for a pipe in the folder: the pipe is opened then.
    """
    is_over = threading.Event()
    opener = threading.Thread(target=_open_pipes, args=(folder, is_over), daemon=True)
    opener.start()
    before = _status("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts again
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + _ROOM, hard))
    earlier = signal.signal(signal.SIGALRM, _too_slow)
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
    used = _status("VmHWM") - before
    if used > MEMORY:
        gc.collect()
        raise AssertionError(f"{used / 2**20:,.0f} MiB of memory")


def _open_pipes(folder: Path, is_over: threading.Event) -> None:
    if is_over.wait(SECONDS + 1):
        return
    while not is_over.wait(0.1):
        for path, info in tree(folder).items():
            if stat.S_ISFIFO(info.st_mode):
                os.close(os.open(folder / path, os.O_RDWR | os.O_NONBLOCK))


def _too_slow(*_: Any) -> None:
    raise TooSlow(f"more than {SECONDS} seconds")


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{name}:"))
