"""Kernels that were compiled when the package was built: found, verified, loaded and called.

The files are in :data:`~secure_bloom.kernels.interface.BUILT`. They are loaded only if they are
complete, were built from these sources, and pass a test on this machine. They have no state, so
threads and forked processes can use them; ctypes releases the GIL during a call.
"""

from __future__ import annotations

import ctypes
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from secure_bloom.kernels.cpu import ASKING, architecture, levels
from secure_bloom.kernels.interface import (
    BUILT,
    FUNCTIONS,
    MANIFEST,
    PREFIX,
    sources_digest,
)
from secure_bloom.kernels.verification import verify


class NotUsableError(Exception):
    """Built kernels cannot be used; the message says why."""


class Native:
    """The functions of one library.

    Nothing is checked here: :mod:`secure_bloom.kernels.bulk` and
    :mod:`secure_bloom.parquet.compiled_footers` do that.
    """

    def __init__(self, path: Path, level: str):
        self.level = level
        library = ctypes.CDLL(str(path))
        functions = {name: _bound(library, name, arguments)
                     for name, arguments in FUNCTIONS.items()}
        self._words = {width: functions[f"hash_words_{8 * width}"] for width in (4, 8)}
        self._binary = {width: functions[f"hash_binary_{8 * width}"] for width in (4, 8)}
        self._insert = {width: functions[f"insert_{8 * width}"] for width in (4, 8)}
        self._fixed, self._check = functions["hash_fixed"], functions["check"]
        self._sort, self._distribute = functions["sort"], functions["distribute"]
        self._gather, self._scatter = functions["gather"], functions["scatter"]
        self._unite = functions["unite"]
        self._narrow = functions["narrow"]
        self._encode_pages = functions["encode_pages"]
        self._ends, self._fields = functions["struct_ends"], functions["fields"]
        self._with_bloom_filters = functions["with_bloom_filters"]

    def hash_words(self, values: np.ndarray, out: np.ndarray) -> None:
        """See :func:`secure_bloom.kernels.hashing.hash_words`."""
        self._words[values.itemsize](*_array(values), *_array(out))

    def hash_fixed(self, data: np.ndarray, width: int, out: np.ndarray) -> None:
        """See :func:`secure_bloom.kernels.hashing.hash_fixed`."""
        self._fixed(*_array(data), width, *_array(out))

    def hash_binary(self, offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> int:
        """See :func:`secure_bloom.kernels.hashing.hash_binary`."""
        return int(self._binary[offsets.itemsize](*_array(offsets), *_array(data), *_array(out)))

    def insert(self, words: np.ndarray, values: np.ndarray, hashed: bool) -> None:
        """See :func:`secure_bloom.kernels.blocks.insert`."""
        self._insert[values.itemsize](*_array(words), *_array(values), hashed)

    def check(self, words: np.ndarray, asked: np.ndarray, out: np.ndarray) -> None:
        """See :func:`secure_bloom.kernels.blocks.check`."""
        self._check(*_array(words), *_array(asked), *_array(out))

    def sort(self, values: np.ndarray, spare: np.ndarray, first_bit: int) -> int:
        """See :func:`secure_bloom.kernels.sorting.sort`."""
        return int(self._sort(*_array(values), *_array(spare), first_bit))

    def distribute(self, values: np.ndarray, target: np.ndarray, ends: np.ndarray) -> None:
        """See :func:`secure_bloom.kernels.sorting.distribute`."""
        self._distribute(*_array(values), *_array(target), *_array(ends))

    def gather(self, starts: np.ndarray, stops: np.ndarray, target: np.ndarray) -> None:
        """See :func:`secure_bloom.kernels.sorting.gather`."""
        self._gather(*_array(starts), *_array(stops), *_array(target))

    def scatter(self, source: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
        """See :func:`secure_bloom.kernels.sorting.scatter`."""
        self._scatter(*_array(source), *_array(starts), *_array(stops))

    def unite(self, pairs: np.ndarray, range_bits: int) -> int:
        """See :func:`secure_bloom.kernels.pairs.unite`."""
        return int(self._unite(*_array(pairs), range_bits))

    def narrow(self, pairs: np.ndarray, *bits: int) -> None:
        """See :func:`secure_bloom.kernels.pairs.narrow`."""
        self._narrow(*_array(pairs), *bits)

    def encode_pages(self, pairs: np.ndarray, starts: np.ndarray, out: np.ndarray,
                     ends: np.ndarray, *bits: int) -> None:
        """See :func:`secure_bloom.kernels.pairs.encode_pages`."""
        self._encode_pages(*_array(pairs), *_array(starts), *_array(out), *_array(ends), *bits)

    def struct_ends(self, data: bytes, position: int, ends: np.ndarray) -> None:
        """See :func:`secure_bloom.parquet.footer_kernels.struct_ends`."""
        self._ends(data, len(data), position, *_array(ends))

    def fields(self, data: bytes, table: np.ndarray) -> int:
        """See :func:`secure_bloom.parquet.footer_kernels.fields`."""
        return int(self._fields(data, len(data), *_array(table)))

    def with_bloom_filters(self, data: bytes, bounds: np.ndarray, places: np.ndarray,
                           out: np.ndarray, ends: np.ndarray) -> None:
        """See :func:`secure_bloom.parquet.footer_kernels.with_bloom_filters`."""
        self._with_bloom_filters(data, len(data), *_array(bounds), *_array(places), *_array(out),
                                 *_array(ends))


def load(level: str | None = None, folder: Path = BUILT) -> Native:
    """Load the fastest kernels that this CPU can execute, or those of a level.

    Raises NotUsableError if there are none.
    """
    try:
        libraries = _libraries(folder)
        usable = _usable(folder, libraries)
        if not usable or level not in (None, *usable):
            raise NotUsableError(f"this CPU can execute {', '.join(usable) or 'none of them'}")
        name = level or usable[0]
        native = Native(_verified(folder, name, libraries), name)
    except OSError as error:  # no such file, or the folder does not allow to execute it
        raise NotUsableError(f"they cannot be loaded: {error}") from None
    except AttributeError as error:
        raise NotUsableError(f"a function is missing: {error}") from None
    if fault := verify(native):
        raise NotUsableError(f"the test of {fault} failed")
    return native


def usable_levels(folder: Path = BUILT) -> list[str]:
    """Return the levels that this CPU can execute, the fastest first.

    Raises NotUsableError or OSError if the build cannot be used.
    """
    return _usable(folder, _libraries(folder))


def _usable(folder: Path, libraries: dict[str, str]) -> list[str]:
    if architecture() == "aarch64":
        return ["aarch64"]
    return levels(_verified(folder, ASKING, libraries))


def _libraries(folder: Path) -> dict[str, str]:
    """Return the digest of each library of a build, by level."""
    if architecture() is None:
        raise NotUsableError("there are none for this operating system and CPU")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        sources, libraries = manifest["sources"], dict(manifest["libraries"])
    except FileNotFoundError:
        raise NotUsableError("the package was built without them") from None
    except (ValueError, LookupError, TypeError):
        raise NotUsableError(f"{folder / MANIFEST} is damaged") from None
    if sources != sources_digest():
        raise NotUsableError("they were built from other sources: run python -m build_kernels")
    return libraries


def _verified(folder: Path, name: str, libraries: dict[str, str]) -> Path:
    """Return the path of a library that is complete; mapping a truncated one ends the process."""
    path = folder / f"{name}.so"
    if sha256(path.read_bytes()).hexdigest() != libraries.get(name):
        raise NotUsableError(f"{path} is damaged")
    return path


def _bound(library: ctypes.CDLL, name: str, arguments: tuple[str, ...]) -> Any:
    function = getattr(library, PREFIX + name)
    function.restype = ctypes.c_int64
    function.argtypes = [kind for argument in arguments for kind in (
        (ctypes.c_void_p, ctypes.c_int64) if "*" in argument else (ctypes.c_int64,))]
    return function


def _array(array: np.ndarray) -> tuple[int, int]:
    """Return the address and the length of the first dimension, as a kernel takes them."""
    if array.size and array.flags.writeable:  # ten times as fast as ``array.ctypes``
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data)), len(array)
    return array.ctypes.data, len(array)
