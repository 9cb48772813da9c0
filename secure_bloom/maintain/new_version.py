"""A new version of a file, whose pages are copied as far as possible.

If a column is encrypted, so are its pages again: the new version has a new identity
(aad_file_unique), and mostly new data keys, so that no module of the old one authenticates in it.
Schema, row groups, pages and key-value metadata stay. What no part of the footer refers to is left
out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow.fs as pa_fs

from secure_bloom.display import shown
from secure_bloom.errors import ChangedMeanwhileError, FormatError, UnsupportedError, error_location
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.change import leaks
from secure_bloom.maintain.copied_chunk import NewChunk, Part, kept_parts
from secure_bloom.parquet.chunk_states import Shared
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.file_crypto import FileCrypto
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.placing import set_column_index, set_offset_index, total_size
from secure_bloom.parquet.row_group import RowGroup
from secure_bloom.parquet.tail import MAGIC, MAGIC_ENCRYPTED
from secure_bloom.policy.requirement import Requirement
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.rewrite import Kept, Rewrite
from secure_bloom.storage.summary import FilterTotals


class NewVersion(ABC):
    """The parts of a new version of a file.

    Parameters
    ----------
    file : OpenFile
        Open as long as parts are taken.
    advance : callable
        Called with the completed fraction, after each row group.

    Attributes
    ----------
    filters : FilterTotals
        Of the new version, once all parts have been taken.
    """

    def __init__(self, file: OpenFile, advance: Callable[[float], None]):
        self._file, self._advance = file, advance
        # Not the footer of the file, with which it is read.
        self._footer = Footer(file.stored_footer, file.magic, file.keys, start=file.footer.start)
        self._may_have_extensions = self._footer.may_have_extensions
        self._chunks: list[NewChunk] = []
        self._has_indexes = False  # later, chunks would be decoded again for that
        self._position = 0
        self.filters = FilterTotals()

    def check(self) -> None:
        """Check what can be checked before anything is written.

        Raises
        ------
        UnsupportedError
            If a column is encrypted but its filter is not, or pages are in another file.
        FormatError, AuthenticationError, KeyRetrievalError
            If the file is damaged, parts of it overlap, or a key is not available.
        """
        ranges = Ranges()
        for chunk in self._footer.column_chunks():
            _ = chunk.cipher  # its key is available
            if leaks(self._file, chunk):
                raise UnsupportedError("the column is encrypted but its filter is not: anyone can "
                                       "test which values it contains. Repair it with seal first",
                                       **chunk.place)
            if (other := chunk.file_path) is not None:
                raise UnsupportedError(f"its pages are in another file, {shown(other)}",
                                       **chunk.place)
            ranges.add(chunk, *kept_parts(chunk, self._file))
        ranges.check()
        if self._footer.is_encrypted:
            _ = self._footer.crypto.footer_cipher

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the new file; each is made when the one before was written.

        Raises
        ------
        UnsupportedError
            If pyarrow cannot read or write a column in the way that this file stores it.
        FormatError, AuthenticationError, KeyExhaustedError
        """
        for part in self._parts():
            self._position += part.end - part.start if isinstance(part, Kept) else len(part)
            yield part

    @abstractmethod
    def _new_crypto(self) -> FileCrypto:
        """Return how the new version is encrypted."""

    @abstractmethod
    def _encrypt_as(self, chunk: ColumnChunk) -> None:
        """Record how a column chunk is encrypted in the new version, before it is placed there."""

    @abstractmethod
    def _new_chunks(self, group: RowGroup) -> Sequence[NewChunk]:
        """Return the column chunks of a row group, which is at its old place."""

    def _num_rows(self, group: RowGroup) -> int:
        """Return how many rows of a row group there are in the new version."""
        return group.num_rows

    def _stays(self, group: RowGroup) -> bool:
        """Whether a row group is in the new version, too."""
        return True

    def _parts(self) -> Iterator[Part]:
        crypto = self._new_crypto()
        yield MAGIC_ENCRYPTED if crypto.has_encrypted_footer else MAGIC
        shared = self._footer.encrypt_as(crypto)
        kept = [group for group in self._footer.row_groups if self._stays(group)]
        done, size = 0, max(1, self._footer.start)
        for number, group in enumerate(kept):
            done += group.num_bytes  # before it gets those of the new version
            yield from self._row_group(group, number, shared)
            self._advance(done / size)
        for one in self._chunks if self._has_indexes else ():
            if one.chunk.column_index is not None:
                yield from self._placed(one.chunk, one.column_index(), set_column_index)
        for one in self._chunks if self._has_indexes else ():
            if one.chunk.offset_index is not None:
                yield from self._placed(one.chunk, one.offset_index(), set_offset_index)
        self._footer.keep_row_groups(kept)
        yield self._footer.to_bytes(with_extensions=False)

    def _row_group(self, group: RowGroup, number: int, shared: Shared) -> Iterator[Part]:
        start, num_rows = self._position, self._num_rows(group)
        chunks = self._new_chunks(group)
        self._chunks += chunks
        for chunk in group:
            chunk.remove_extensions()  # and decrypt the metadata with its old key
            self._encrypt_as(chunk)
        group.place(number, start, shared)
        for one in chunks:
            yield from one.pages(self._position)
        if not all(one.is_as_it_was for one in chunks):
            group.resize(num_rows, self._position - start, sum(map(total_size, group)))
        for one in chunks:  # here, not at the end, so that few filters are in memory
            yield from self._filter(one)
            one.release()

    def _placed(self, chunk: ColumnChunk, part: Part | None,
                record: Callable[[ColumnChunk, int, int], None]) -> Iterator[Part]:
        start = self._position
        if part is not None:
            yield part
        record(chunk, start, self._position - start)
        chunk.finish()

    def _filter(self, one: NewChunk) -> Iterator[Part]:
        start = self._position
        yield from one.filter()
        if size := self._position - start:
            one.chunk.set_bloom_filter(start, size)
            totals, is_encrypted = self.filters, one.chunk.encryption is not None
            self.filters = FilterTotals(totals.encrypted + is_encrypted,
                                        totals.plain + (not is_encrypted), totals.bytes + size)
        else:
            one.chunk.remove_bloom_filter()
        self._has_indexes |= one.chunk.column_index is not None \
            or one.chunk.offset_index is not None
        one.chunk.finish()


@contextmanager
def opened_to_rewrite(filesystem: pa_fs.FileSystem, path: str, keys: Keys,
                      requirement: Requirement | None = None, *, folder: str | None = None,
                      keep_times: bool = False) -> Iterator[tuple[Rewrite, OpenFile]]:
    """Open a file to be replaced, and the same version of it to be read.

    ``folder`` and ``keep_times``: see :class:`.Rewrite`.

    Raises
    ------
    ChangedMeanwhileError
        If it was changed between the two.
    FormatError, AuthenticationError, KeyRetrievalError
        If its footer cannot be read, or does not meet the requirement.
    """
    with error_location(file=path), \
            Rewrite(filesystem, path, folder=folder, keep_times=keep_times) as rewrite, \
            OpenFile(path, keys, filesystem=filesystem, require_encryption=requirement) as file:
        if rewrite.source.version != file.version:  # or a link has a new target
            raise ChangedMeanwhileError("the file was changed in the meantime; run it again")
        yield rewrite, file


class Ranges:
    """Detects parts of column chunks that share bytes: pages, filters and page indexes.

    What is copied for an open column could otherwise be the pages of one that is encrypted.
    """

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")
        self._last: list[tuple[int, ColumnChunk]] = []  # of each column chunk, its last part

    def add(self, chunk: ColumnChunk, *parts: Kept | None) -> None:
        """Add the parts of a column chunk, which the file has."""
        for part in parts:
            if part is not None and part.end > part.start:
                self._starts.append(part.start)
                self._ends.append(part.end)
        self._last.append((len(self._starts), chunk))

    def check(self) -> None:
        """Raise FormatError if two parts overlap."""
        starts, ends = (np.frombuffer(one, np.int64) for one in (self._starts, self._ends))
        order = np.argsort(starts, kind="stable")
        [overlaps] = np.nonzero(starts[order[1:]] < np.maximum.accumulate(ends[order])[:-1])
        if len(overlaps):
            number = order[overlaps[0] + 1]
            chunk = next(chunk for last, chunk in self._last if number < last)
            raise FormatError("parts of this column overlap with others of the file: pages, "
                              "filters or page indexes", **chunk.place)
