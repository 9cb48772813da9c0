"""What the peers share: a build kept in a cache, and a program that answers line by line."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self


class PeerUnavailable(Exception):
    """The peer cannot be built or started on this machine."""


class PeerError(Exception):
    """The peer refused a request, with the error's class name there and its message."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(f"{error_class}: {message}")
        self.error_class = error_class
        self.message = message


def find_tool(name: str) -> str:
    """The path of a program on the PATH."""
    tool = shutil.which(name)
    if not tool:
        raise PeerUnavailable(f"{name} is not installed")
    return tool


def run_compiler(command: Sequence[str]) -> None:
    """Run a compiler; what it wrote becomes the message when it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


def cached_build(sources: Iterable[Path], salt: str, build: Callable[[Path], None]) -> Path:
    """The folder that `build` filled, made once for these sources and this salt."""
    digest = hashlib.sha256(salt.encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    root = Path(tempfile.gettempdir()) / f"secure-bloom-peers-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise PeerUnavailable(f"{root} belongs to somebody else")
    target = root / digest.hexdigest()[:24]
    if not target.exists():
        fresh = Path(tempfile.mkdtemp(dir=root))
        try:
            build(fresh)
            fresh.rename(target)
        except OSError:
            if not target.exists():  # else another process was first
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return target


class LineProcess:
    """A program that reads one request a line and writes one reply a line."""

    def __init__(self, command: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the program runs
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def ask(self, line: str) -> str:
        """The reply to one request line."""
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            reply = self._process.stdout.readline()
        except OSError:  # a broken pipe: it died before it read
            reply = ""
        if not reply:
            raise RuntimeError(f"the peer died (exit {self._process.wait()}): {self._tail()}")
        return reply.rstrip("\n")

    def close(self) -> None:
        """End the program: it stops when its input does."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:]


class Peer:
    """A running program; a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = LineProcess(command)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the program."""
        self._process.close()
