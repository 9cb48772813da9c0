"""Arrow C++, from the libraries inside the pyarrow wheel, as a peer in tests."""

from collections.abc import Iterable, Sequence
from os import PathLike, fsencode
from pathlib import Path
from typing import Any

import pyarrow

from tests.peers.keys import Keys
from tests.peers.process import (
    Peer,
    PeerError,
    PeerUnavailable,
    cached_build,
    find_tool,
    run_compiler,
)
from tests.peers.records import FilterRecord, Value

SOURCE = Path(__file__).parent / "arrow_bloom.cc"
# As the libraries are built: without the assertions in the headers, which would end the program.
OPTIONS = ["-std=c++20", "-O1", "-DNDEBUG"]


class ArrowCpp(Peer):
    """A running Arrow C++ program; a context manager.

    Values are as for `ParquetJava`. Keys come as `Keys`, or as its fields by name.
    """

    def __init__(self) -> None:
        found = libraries()
        folder = cached_build(
            [SOURCE],
            salt(found),
            lambda to: compile_program(found, [SOURCE], to / "arrow_bloom"),
        )
        super().__init__([str(folder / "arrow_bloom")])

    def filters(
        self,
        path: str | PathLike[str],
        keys: Keys | None = None,
        columns: Sequence[str] | None = None,
        **explicit: Any,
    ) -> list[FilterRecord]:
        """The file's Bloom filters, by row group and then column; of the dotted columns only."""
        names = "-" if columns is None else _join(_hex(name) for name in columns)
        reply = self._ask("filters", _hex(fsencode(path)), _keys(keys, explicit), names)
        return [_record(line) for line in reply]

    def probe(
        self,
        path: str | PathLike[str],
        keys: Keys | None,
        column: str,
        values: Iterable[Value],
    ) -> list[list[bool] | None]:
        """For each row group the filter's answer to each value, or None without a filter."""
        reply = self._ask(
            "probe", _hex(fsencode(path)), _keys(keys, {}), _hex(column), _join(map(_value, values))
        )
        return [None if line == "-" else [bit == "1" for bit in line[1:]] for line in reply]

    def hash(self, physical_type: str, values: Iterable[Value]) -> list[int]:
        """XXH64 of each value, unsigned; the type by its Parquet name, as `INT64`."""
        return [int(h) for h in self._ask("hash", physical_type, _join(map(_value, values)))]

    def _ask(self, *fields: str) -> list[str]:
        status, _, rest = self._process.ask(" ".join(fields)).partition(" ")
        if status == "error":
            name, message = rest.split(" ")
            raise PeerError(_unhex(name).decode(), _unhex(message).decode(errors="replace"))
        return rest.split(";")[:-1]


def libraries() -> list[Path]:
    """Arrow C++'s libraries, libparquet first."""
    for folder in map(Path, pyarrow.get_library_dirs()):
        found = [sorted(folder.glob(f"lib{name}.so.*")) for name in ("parquet", "arrow")]
        if all(found):
            return [files[0] for files in found]
    raise PeerUnavailable("this pyarrow has no Arrow C++ libraries beside it")


def salt(libraries: Sequence[Path]) -> str:
    """What else than its sources a program depends on."""
    return f"{pyarrow.__version__} {libraries} {OPTIONS}"


def compile_program(libraries: Sequence[Path], sources: Sequence[Path], to: Path) -> None:
    """Compile and link a program with Arrow C++."""
    run_compiler(
        [
            find_tool("g++"),
            *OPTIONS,
            f"-I{pyarrow.get_include()}",
            *map(str, sources),
            "-o",
            str(to),
            *map(str, libraries),
            f"-Wl,-rpath,{libraries[0].parent}",
        ]
    )


def _keys(keys: Keys | None, explicit: dict[str, Any]) -> str:
    """The five fields of the keys."""
    keys = keys or Keys(**explicit)
    columns = [f"{_hex(c)}:{_hex(k)}" for c, k in keys.column_keys.items() if k is not None]
    pairs = [f"{_hex(m)}:{_hex(k)}" for m, k in keys.by_metadata.items()]
    flags = "f" + "v" * keys.verify_footer + "p" * keys.allow_plaintext
    footer, prefix = (
        "-" if field is None else _hex(field) for field in (keys.footer_key, keys.aad_prefix)
    )
    return " ".join([footer, prefix, _join(columns), _join(pairs), flags])


def _record(line: str) -> FilterRecord:
    row_group, column, offset, length, num_bytes, bitset = line.split(" ")
    return FilterRecord(
        int(row_group),
        _unhex(column).decode(),
        int(offset),
        int(length),
        int(num_bytes),
        _unhex(bitset),
    )


def _value(value: Value) -> str:
    if isinstance(value, str | bytes):
        return _hex(value)
    return f"f{value.hex()}" if isinstance(value, float) else f"i{int(value)}"


def _hex(value: str | bytes) -> str:
    return "x" + (value.encode() if isinstance(value, str) else value).hex()


def _unhex(field: str) -> bytes:
    return bytes.fromhex(field[1:])


def _join(items: Iterable[str]) -> str:
    return ",".join(items) or "-"
