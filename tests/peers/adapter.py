"""The peers behind the protocol of ``vectors/README.md``: ``python -m tests.peers.adapter NAME``.

    secure-bloom validate --against 'python -m tests.peers.adapter parquet-java'
    secure-bloom validate --against 'python -m tests.peers.adapter arrow-rs'

From the root of the sources. The first start compiles; this process then becomes the program.
``newest-parquet-java`` and ``arrow-rs`` are fetched before that, with Maven and Cargo.
"""

import os
import sys

from tests.peers import arrow_cpp, arrow_rs, parquet_java
from tests.peers.process import cached_build

HERE = parquet_java.HERE


def command(name: str) -> list[str]:
    """The command line of an adapter, which is compiled where it is not yet."""
    return _COMMANDS[name]()


def _parquet_java(newest: bool = False) -> list[str]:
    sources = [*parquet_java.SOURCES, *sorted(HERE.glob("Vector*.java"))]
    return parquet_java.java_command("VectorAdapter", sources, newest=newest)


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


_COMMANDS = {
    "parquet-java": _parquet_java,
    "newest-parquet-java": lambda: _parquet_java(newest=True),
    "arrow-cpp": _arrow_cpp,
    "arrow-rs": arrow_rs.command,
}


NAMES = tuple(_COMMANDS)
FETCHED = ("newest-parquet-java", "arrow-rs")


def main() -> None:
    """Become the adapter that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
        sys.exit(f"usage: python -m tests.peers.adapter {'|'.join(NAMES)}")
    program = command(sys.argv[1])
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
