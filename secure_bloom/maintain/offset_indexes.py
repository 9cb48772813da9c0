"""Offset indexes for existing files: which column chunks get one, and what is in it.

The pages are not decoded: their headers say where they are, and how many values they have.
"""

from __future__ import annotations

from collections.abc import Iterator

from secure_bloom.display import count, shown
from secure_bloom.errors import KMS_FAULTS, NO_KEY, UnsupportedError, error_location
from secure_bloom.parquet.bloom_filter import Disjoint
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.offset_index import make_offset_index
from secure_bloom.parquet.pages import data_pages
from secure_bloom.reading.open_file import OpenFile

_MAX_BYTES = 64 << 20  # of all indexes of a file


class MissingIndexes:
    """The offset indexes that a file lacks.

    Attributes
    ----------
    found : list of (ColumnChunk, bytes)
        The column chunks that can have one, and the indexes, not encrypted.
    notes : tuple of str
        Which columns get none, and why.

    Raises
    ------
    FormatError, AuthenticationError
        If headers of pages are malformed, or contradict the footer.
    KeyRetrievalError
        If the KMS does not respond. A column whose key is missing gets no index.
    """

    def __init__(self, file: OpenFile):
        self._file, self._disjoint = file, Disjoint(file.footer.start, "pages")
        self._left_out: dict[tuple[str, str], int] = {}
        self.found = list(self._all())
        self.notes = tuple(
            f"column {shown(path)}: no offset index in {count(number, 'row group')}: {why}"
            for (path, why), number in self._left_out.items())

    def check_any(self) -> None:
        """Raise UnsupportedError if no column has an index or can get one."""
        if self.notes and not any(chunk.offset_index
                                  for chunk in self._file.footer.column_chunks()):
            raise UnsupportedError("; ".join(self.notes))

    def _all(self) -> Iterator[tuple[ColumnChunk, bytes]]:
        left = _MAX_BYTES
        for chunk in self._file.footer.column_chunks():
            if chunk.offset_index is not None \
                    or not self._file.footer.row_group_num_rows(chunk.row_group):
                continue
            try:
                index = self._made(chunk)
                left -= len(index)
                if left < 0:
                    raise UnsupportedError("the file has too many pages")
                yield chunk, index
            except KMS_FAULTS:
                raise
            except NO_KEY:
                self._leave_out(chunk, "its key is not available")
            except UnsupportedError as error:
                self._leave_out(chunk, error.message)

    def _made(self, chunk: ColumnChunk) -> bytes:
        if chunk.column_index is not None:
            raise UnsupportedError("it has a column index, whose pages may be others")
        if chunk.file_path is not None:
            raise UnsupportedError("its pages are in another file")
        modules, where = chunk.modules, chunk.pages
        if where is None:
            raise UnsupportedError("the footer does not say where its pages are")
        self._disjoint.add(chunk, max(where[1], 0))
        with error_location(**chunk.place):
            return make_offset_index(
                data_pages(self._file, where, modules),
                self._file.footer.row_group_num_rows(chunk.row_group),
                is_repeated=chunk.column.is_repeated)

    def _leave_out(self, chunk: ColumnChunk, why: str) -> None:
        key = chunk.column.path, why
        self._left_out[key] = self._left_out.get(key, 0) + 1
