"""A server in a process of its own, on a free port of the loopback interface."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_PATIENCE = 120  # seconds; a busy machine starts a server in ten
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG; the parent is the thread, so one thread starts them all
_STARTER = ThreadPoolExecutor(1)


class ServerProcess:
    """A server that runs until ``stop``, or until this process ends.

    Attributes
    ----------
    folder : Path
        For its data and its log; removed by ``stop``.
    address : str
        ``127.0.0.1:port``; stays the same when it is started again.
    """

    version = ""  #: of the program, as the docs state it
    fixture = "s3"  #: that returns it
    tests: tuple[str, ...] = ()  #: files and folders of tests that run with it

    def __init__(self) -> None:
        self.program = self.build()
        # In memory, like other files of tests, if pytest has decided so.
        self.folder = Path(tempfile.mkdtemp(prefix="secure_bloom-server-",
                                            dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
        self.address = f"127.0.0.1:{free_port()}"
        self.start()

    @classmethod
    def build(cls) -> list[str]:
        """Return how its command line begins; build it if need be. Raises NotBuilt."""
        raise NotImplementedError

    def command(self) -> Sequence[str]:
        """Return the command line."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Return all that the process sees of the environment."""
        return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder)}

    def is_ready(self) -> bool:
        """Whether it answers requests."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, also again after :meth:`kill`, and wait until it answers."""
        with open(self.folder / "log", "ab") as log:
            self._process = _STARTER.submit(
                subprocess.Popen, self.command(), cwd=self.folder, env=self.environment(),
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                preexec_fn=_end_with_parent).result()
        end = time.monotonic() + _PATIENCE
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                log_text = (self.folder / "log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"{type(self).__name__} does not start:\n{log_text[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it as a power cut would; what it has stored stays."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it, and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def answers(url: str, *statuses: int) -> bool:
    """Whether a server answers a request, with one of these statuses unless there are none."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            status = response.status
    except urllib.error.HTTPError as error:
        status = error.code
    except OSError:
        return False
    return not statuses or status in statuses


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
