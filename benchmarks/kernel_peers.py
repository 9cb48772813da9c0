"""The peers of the kernel benchmark: Arrow C++ and parquet-java, each a running program.

Both read the same files of values, and measure times inside their own process.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

import pyarrow

from tests.peers.arrow_cpp import libraries
from tests.peers.parquet_java import jars
from tests.peers.process import LineProcess, cached_build, find_tool, run_compiler

HERE = Path(__file__).parent
CPP_OPTIONS = ["-std=c++20", "-O3", "-march=native", "-DNDEBUG"]
JAVA_OPTIONS = ["-Xmx4g", "-XX:+UseSerialGC", "-Dlog4j2.level=OFF"]


@dataclass(frozen=True)
class Timing:
    """The report of a contestant for one round.

    Attributes
    ----------
    wall, cpu : float
        Wall-clock seconds, and CPU seconds of the thread.
    digest : int
        Digest of the result: the sum of (2 i + 1) * word i, modulo 2^64.
    """

    wall: float
    cpu: float
    digest: int


class Peer:
    """A running peer; a context manager."""

    def __init__(self, command: list[str]):
        self._process = LineProcess(command)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exception) -> None:
        self._process.close()

    def run(self, request: str) -> Timing:
        """Run one round of a request; see ``arrow_kernels.cc``."""
        wall, cpu, digest = self._process.ask(request).split(" ")
        return Timing(float(wall), float(cpu), int(digest))


def arrow_cpp() -> Peer:
    """Start Arrow C++, using the libraries in the pyarrow wheel."""
    source, found = HERE / "arrow_kernels.cc", libraries()
    folder = cached_build([source], f"{pyarrow.__version__} {found} {CPP_OPTIONS}",
                          lambda to: run_compiler(_cpp_command(source, found, to)))
    return Peer([str(folder / source.stem)])


def _cpp_command(source: Path, found: list[Path], to: Path) -> list[str]:
    return [find_tool("g++"), *CPP_OPTIONS, f"-I{pyarrow.get_include()}", str(source),
            "-o", str(to / source.stem), *map(str, found), f"-Wl,-rpath,{found[0].parent}"]


def parquet_java(name: str = "JavaKernels") -> Peer:
    """Start one of the Java programs here, with parquet-java from the jars of Spark."""
    source = HERE / f"{name}.java"
    folder = cached_build([source], importlib.metadata.version("pyspark"),
                          lambda to: run_compiler([find_tool("javac"), "--release", "17", "-cp",
                                                   f"{jars()}/*", "-d", str(to), str(source)]))
    return Peer([find_tool("java"), *JAVA_OPTIONS, "-cp", f"{folder}:{jars()}/*", source.stem])
