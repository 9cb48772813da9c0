"""arrow-rs, the Rust crate parquet, as a peer in tests: Cargo fetches and compiles it."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from functools import partial
from os import PathLike, fspath
from pathlib import Path

from tests.peers.keys import Keys
from tests.peers.process import (
    Peer,
    PeerError,
    PeerUnavailable,
    cached_build,
    find_tool,
    run_compiler,
)

PACKAGE = Path(__file__).parent / "arrow_rs"
#: what Cargo compiles stays here, so that a changed adapter is compiled in seconds
TARGET = Path(__file__).parents[2] / "build" / "peers" / PACKAGE.name
_NAME = "arrow_rs_adapter"
OLDEST_CARGO = (1, 88)  #: which the crate parquet states


class ArrowRs(Peer):
    """A running arrow-rs; a context manager."""

    def __init__(self) -> None:
        super().__init__(command())

    def ask(self, operation: str, **fields: object) -> str:
        """Return the reply to an operation of the vectors' protocol, such as ``files read``."""
        layer, name = operation.split(" ")
        return self._process.ask(
            "\t".join([layer, name, *(f"{field}={value}" for field, value in fields.items())])
        )

    def copy(
        self,
        path: str | PathLike[str],
        to: str | PathLike[str],
        *,
        keys: Keys | None = None,
        to_keys: Keys | None = None,
        bloom: Iterable[str] = (),
        row_group_rows: int = 2**20,
    ) -> int:
        """Read a file and write its rows into another one; return their number.

        Parameters
        ----------
        keys, to_keys
            Of the file that is read, and of the one that is written; None for a plaintext file.
        bloom
            Dotted paths of the columns that get Bloom filters.
        """
        reply = self.ask(
            "files copy",
            path=fspath(path),
            **_reading(keys),
            to=fspath(to),
            **_writing(to_keys),
            to_bloom=_list(bloom),
            to_row_group_rows=row_group_rows,
        )
        outcome, _, fields = reply.partition("\t")
        if outcome != "copied":
            raise PeerError(outcome, fields)
        return int(fields.removeprefix("rows="))


def version() -> str:
    """Return the version of the crate parquet that Cargo.lock states."""
    lock = tomllib.loads((PACKAGE / "Cargo.lock").read_text(encoding="utf-8"))
    [found] = [one["version"] for one in lock["package"] if one["name"] == "parquet"]
    return str(found)


def command(package: Path = PACKAGE, name: str = _NAME) -> list[str]:
    """Return the command line of the adapter or another program, compiled where it is not yet.

    Raises
    ------
    PeerUnavailable
        If Cargo is not installed, or does not get the crates.
    """
    sources = [package / "Cargo.toml", package / "Cargo.lock", *sorted(package.glob("src/*.rs"))]
    build = partial(_build, package, name)
    return [str(cached_build(sources, "arrow-rs", build) / name)]


def _build(package: Path, name: str, folder: Path) -> None:
    cargo = find_tool("cargo")
    stated = subprocess.run([cargo, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"cargo (\d+)\.(\d+)", stated)
    if not found or tuple(map(int, found.groups())) < OLDEST_CARGO:
        raise PeerUnavailable(f"arrow-rs needs Cargo {'.'.join(map(str, OLDEST_CARGO))}: {stated}")
    options = ["--locked", "--manifest-path", str(package / "Cargo.toml")]
    fetched = subprocess.run([cargo, "fetch", *options], capture_output=True, text=True)
    if fetched.returncode:
        raise PeerUnavailable(f"Cargo did not get the crates: {fetched.stderr[-2000:]}")
    jobs, target = str(os.cpu_count() or 1), TARGET.with_name(package.name)
    run_compiler([cargo, "build", "--offline", "--release", "--quiet", "--jobs", jobs, *options,
                  "--target-dir", str(target)])
    shutil.copy(target / "release" / name, folder)


def _reading(keys: Keys | None) -> dict[str, str]:
    if keys is None or keys.footer_key is None:
        return {}
    fields = {"footer_key": keys.footer_key.hex(), "column_keys": _column_keys(keys)}
    if keys.aad_prefix is not None:
        fields["aad_prefix"] = keys.aad_prefix.hex()
    return fields


def _writing(keys: Keys | None) -> dict[str, str]:
    if keys is None:
        return {}
    flags = {"plaintext_footer": keys.plaintext_footer, "store_aad_prefix": keys.store_aad_prefix}
    fields = _reading(keys) | {name: str(flag).lower() for name, flag in flags.items()}
    return {f"to_{name}": value for name, value in fields.items()}


def _column_keys(keys: Keys) -> str:
    return _list(f"{path}:{key.hex()}" for path, key in keys.column_keys.items() if key)


def _list(items: Iterable[str]) -> str:
    return "".join(f"{item}," for item in items)
