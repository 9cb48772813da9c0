"""Bloom filters held in bounded memory until their file is closed.

Filters are stored after the last page, so a writer holds them until the end. What exceeds a limit
is spilled to an anonymous temporary file, encrypted with a key that exists only in memory: the
filters of sensitive columns are never on disk in plaintext.
"""

from __future__ import annotations

import os
import tempfile
from typing import BinaryIO, cast

from secure_bloom.crypto.modules import ModuleCipher
from secure_bloom.sbbf.filter import SplitBlockBloomFilter

MEMORY_LIMIT = 4 * 1024 * 1024  #: bytes of bitsets that stay in memory


class FilterStore:
    """Store for filters by number, with up to ``memory_limit`` bytes of bitsets in memory."""

    def __init__(self, memory_limit: int = MEMORY_LIMIT):
        self._free = memory_limit
        self._filters: list[SplitBlockBloomFilter | tuple[int, int]] = []
        self._spilled: tuple[BinaryIO, ModuleCipher] | None = None

    def put(self, filter_: SplitBlockBloomFilter) -> int:
        """Store a filter; return its number."""
        self._free -= filter_.num_bytes
        self._filters.append(filter_ if self._free >= 0 else self._spill(filter_))
        return len(self._filters) - 1

    def get(self, number: int) -> SplitBlockBloomFilter:
        """Return the filter with this number."""
        filter_ = self._filters[number]
        if isinstance(filter_, SplitBlockBloomFilter):
            return filter_
        offset, size = filter_
        file, cipher = self._temporary()
        file.seek(offset)
        return SplitBlockBloomFilter.from_bitset(cipher.decrypt(file.read(size), b"%d" % number))

    def close(self) -> None:
        """Discard all filters."""
        self._filters.clear()
        if self._spilled is not None:
            self._spilled[0].close()

    def _spill(self, filter_: SplitBlockBloomFilter) -> tuple[int, int]:
        file, cipher = self._temporary()
        module = cipher.encrypt(filter_.bitset, b"%d" % len(self._filters))
        offset = file.seek(0, os.SEEK_END)
        file.write(module)
        return offset, len(module)

    def _temporary(self) -> tuple[BinaryIO, ModuleCipher]:
        """Return the temporary file and its cipher, which share one lifetime."""
        if self._spilled is None:
            # Not buffered: a forked process would write the buffer a second time.
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
            self._spilled = cast("BinaryIO", file), ModuleCipher(os.urandom(32))
        return self._spilled
