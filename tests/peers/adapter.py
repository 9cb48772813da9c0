"""The peers behind the protocol of ``vectors/README.md``: ``python -m tests.peers.adapter NAME``.

    secure-bloom validate --against 'python -m tests.peers.adapter parquet-java'
    secure-bloom validate --against 'python -m tests.peers.adapter arrow-cpp'

From the root of the sources. The first start compiles; this process then becomes the program.
"""

import os
import sys

from tests.peers import arrow_cpp, parquet_java
from tests.peers.process import cached_build

HERE = parquet_java.HERE


def command(name: str) -> list[str]:
    """The command line of an adapter, which is compiled where it is not yet."""
    return {"parquet-java": _parquet_java, "arrow-cpp": _arrow_cpp}[name]()


def _parquet_java() -> list[str]:
    sources = [*parquet_java.SOURCES, *sorted(HERE.glob("Vector*.java"))]
    return parquet_java.java_command("VectorAdapter", sources)


def _arrow_cpp() -> list[str]:
    libraries = arrow_cpp.libraries()
    sources = sorted(HERE.glob("vector_*.cc"))
    headers = [HERE / "sha256.h", *sorted(HERE.glob("vector_*.h"))]
    folder = cached_build(
        [*sources, *headers],
        arrow_cpp.salt(libraries),
        lambda to: arrow_cpp.compile_program(libraries, sources, to / "vector_adapter"),
    )
    return [str(folder / "vector_adapter")]


def main() -> None:
    """Become the adapter that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] not in ("parquet-java", "arrow-cpp"):
        sys.exit("usage: python -m tests.peers.adapter parquet-java|arrow-cpp")
    program = command(sys.argv[1])
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
