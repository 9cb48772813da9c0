"""A program that answers each input line with an output line, and that may misbehave.

Whatever the program does, a question ends within its time limit, and memory is limited: of the
output no more than one reply is kept, of the standard error only the end. The program runs in a
process group of its own. When it is stopped, its children are killed as well.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from typing import IO, Any

_TIME_TO_END = 5.0  # seconds, after its input or its output has ended
_CHUNK = 64 * 1024  # bytes to read at a time
_TAIL = 1000  # bytes of standard error to keep
_LOOK = 0.1  # seconds between checks whether the program still runs


class BadReply(Exception):
    """The program died, did not answer in time, or sent an invalid reply."""


class LineProcess:
    """A running program with pipes to its standard input, output and error.

    Parameters
    ----------
    command : list of str
        The program and its arguments.

    Raises
    ------
    OSError
        If the program cannot be started.
    """

    def __init__(self, command: list[str]):
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, bufsize=0, start_new_session=True)
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._input, self._output = self._process.stdin, self._process.stdout
        self._log = self._process.stderr
        self._unwritten = b""  # of the question
        self._unread = b""  # output that has not been returned yet
        self._tail = b""  # of standard error
        self._was_asked = self._group_is_killed = False
        self._pipes = selectors.DefaultSelector()
        for pipe in (self._input, self._output, self._log):
            os.set_blocking(pipe.fileno(), False)
        self._pipes.register(self._output, selectors.EVENT_READ)
        self._pipes.register(self._log, selectors.EVENT_READ)

    def ask(self, line: str, timeout: float, max_reply: int) -> str:
        """Send a line and return the line that the program answers, without its end.

        Parameters
        ----------
        line : str
        timeout : float
            Seconds until the reply must be complete.
        max_reply : int
            The largest length of a reply, in bytes.

        Raises
        ------
        BadReply
            Then the program must be stopped: it may still be about to answer.
        """
        patience = min(timeout, _TIME_TO_END)
        self._transfer(0)
        if self._input.closed or self._output.closed or self._has_ended():
            raise self._gone(patience)
        if self._unread:
            raise BadReply("the program wrote more than one line for the case before"
                           if self._was_asked else "the program wrote before it was asked")
        self._was_asked = True
        self._unwritten = f"{line}\n".encode()
        self._pipes.register(self._input, selectors.EVENT_WRITE)
        deadline = time.monotonic() + timeout
        while self._unwritten or b"\n" not in self._unread:
            if len(self._unread) > max_reply:
                raise _too_long(max_reply)
            if self._output.closed:
                break
            left = deadline - time.monotonic()
            if left <= 0:
                raise BadReply(f"no answer within {timeout:g} seconds")
            ended = self._has_ended()  # asked first: so all of its output is read before the end
            if not self._transfer(0 if ended else min(left, _LOOK)) and ended:
                break
        reply, end, self._unread = self._unread.partition(b"\n")
        if len(reply) > max_reply:
            raise _too_long(max_reply)
        if not reply and not end:
            raise self._gone(patience)
        return reply.decode("utf-8", "replace").rstrip("\r")

    def close(self, *, kill: bool = False) -> None:
        """Close the input, which should end the program; kill it if it keeps running.

        Parameters
        ----------
        kill : bool
            Do not wait for its end.
        """
        self._close(self._input)
        if not kill:
            self._wait(_TIME_TO_END)
        self._kill_group()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_TIME_TO_END)
        self._close(self._output)
        self._close(self._log)
        self._pipes.close()

    def _transfer(self, seconds: float) -> bool:
        """Wait until a pipe is ready, and use it once; return whether output was read."""
        was_read = False
        for key, _ in self._pipes.select(seconds):
            if key.fileobj is self._input:
                self._write()
            elif data := self._read(key.fileobj):
                if key.fileobj is self._output:
                    self._unread += data
                    was_read = True
                else:
                    self._tail = (self._tail + data)[-_TAIL:]
        return was_read

    def _write(self) -> None:
        try:
            written = os.write(self._input.fileno(), self._unwritten)
        except BlockingIOError:
            return
        except OSError:  # a broken pipe: the program does not read, but may have answered
            self._unwritten = b""
            self._close(self._input)
            return
        self._unwritten = self._unwritten[written:]
        if not self._unwritten:
            self._pipes.unregister(self._input)

    def _read(self, pipe: Any) -> bytes:
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            self._close(pipe)
        return data

    def _close(self, pipe: IO[bytes]) -> None:
        if not pipe.closed:
            if pipe in self._pipes.get_map():
                self._pipes.unregister(pipe)
            pipe.close()

    def _has_ended(self) -> bool:
        if self._process.poll() is None:
            return False
        self._kill_group()  # at once: later the number may belong to another group
        return True

    def _wait(self, seconds: float) -> int | None:
        """Wait for the end of the program; return its exit code, or None if it keeps running."""
        deadline = time.monotonic() + seconds
        while not self._has_ended() and (left := deadline - time.monotonic()) > 0:
            self._transfer(min(left, _LOOK))
            self._unread = b""
        self._transfer(0)
        return self._process.returncode

    def _gone(self, patience: float) -> BadReply:
        """Return the error for a program that ended or closed its input or output."""
        code = self._wait(patience)
        if code is None:
            return BadReply("the program closed its standard input or output and kept running")
        return BadReply(f"the program ended (exit code {code}) "
                        + self._tail.decode("utf-8", "replace").strip())

    def _kill_group(self) -> None:
        """Kill the program, if it runs, and its children."""
        if not self._group_is_killed:
            self._group_is_killed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _too_long(max_reply: int) -> BadReply:
    return BadReply(f"the program wrote more than the {max_reply} bytes that a reply to this case "
                    "may have")
