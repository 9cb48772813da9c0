"""A file without some of its rows; the rest stays what it was.

Pages of row groups that keep all their rows are copied. Those of encrypted columns are encrypted
again: the new file has a new identity, aad_file_unique and data keys, so that no module of the old
file authenticates in it. Master keys, algorithm, AAD prefix and schema stay, and so does whatever
else the footer says of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from secure_bloom.arrow.dictionaries import Stays, is_scale
from secure_bloom.display import shown
from secure_bloom.erasing.chunks import CopiedChunk, NewChunk, Part, WrittenChunk
from secure_bloom.erasing.encoding import encode_rows
from secure_bloom.erasing.rows import RowReader
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.renewal import RenewedKeys
from secure_bloom.maintain.change import leaks
from secure_bloom.parquet.bloom_filter import Disjoint
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.file_crypto import FileCrypto
from secure_bloom.parquet.footer import MAGIC, Footer
from secure_bloom.parquet.invocations import count_invocations
from secure_bloom.parquet.placing import set_column_index, set_offset_index, total_size
from secure_bloom.parquet.row_group import RowGroup, Shared
from secure_bloom.reader import ParquetFile
from secure_bloom.storage.rewrite import Kept
from secure_bloom.storage.summary import FilterTotals
from secure_bloom.verify.measure import ColumnHashes


class RemainingRows:
    """The parts of a file without some of its rows.

    Parameters
    ----------
    file : ParquetFile
        Open as long as parts are taken. The keys of its footer and of all columns are needed.
    erased : mapping of int to BooleanArray
        By row group, of those that are written again: which rows go, if any.
    advance : callable
        Called with the stored bytes of each row group that is done.
    stays : callable
        Which entries of dictionaries stay although no row has them.
    has_new_material : bool
        Whether key material in a separate file can be replaced, too; see :class:`.RenewedKeys`.

    Attributes
    ----------
    keys : RenewedKeys
        Of the new file, after :meth:`check`.
    accepts_old_pages : bool
        Whether pages of the old file would open in the new one, after :meth:`check`: nothing
        authenticates those of AES_GCM_CTR_V1, so only new data keys could prevent that.
    num_rows : int
        That remain.
    num_whole : int
        Row groups that are written again with all their rows.
    filters : FilterTotals
        Of the new file, once all parts have been taken.
    """

    def __init__(self, file: ParquetFile, erased: Mapping[int, pa.BooleanArray],
                 advance: Callable[[int], None] = lambda num_bytes: None,
                 stays: Stays = is_scale, *, has_new_material: bool = False):
        self._file, self._erased, self._advance = file, erased, advance
        self._rows = RowReader(file, stays)
        # Not the footer of the file, with which it is read.
        self._footer = Footer(file.stored_footer, file.magic, file.keys, start=file.footer.start)
        self._may_have_extensions = self._footer.may_have_extensions
        self.keys = RenewedKeys(file.keys, has_new_material=has_new_material)
        self.accepts_old_pages = False
        self._chunks: list[NewChunk] = []
        self._position = 0
        self.filters = FilterTotals()
        self.num_rows = sum(map(self._num_left, self._footer.row_groups))
        self.num_whole = sum(not rows.true_count for rows in erased.values())

    def check(self) -> None:
        """Check what can be checked before anything is written, and make the new keys.

        Raises
        ------
        UnsupportedError
            If a column is encrypted but its filter is not, or pages are in another file.
        FormatError, AuthenticationError, KeyRetrievalError
            If the file is damaged, or a key is not available.
        """
        disjoint = Disjoint(self._footer.start, "pages")
        for chunk in self._footer.column_chunks():
            if (cipher := chunk.cipher) is not None and chunk.encryption == "column key":
                self.keys.renew(chunk.key_metadata, cipher.key_bits // 8)
            disjoint.add(chunk, max(0, (chunk.pages or (0, 0))[1]))
            if leaks(self._file, chunk):
                raise UnsupportedError("the column is encrypted but its filter is not: anyone can "
                                       "test which values it contains. Repair it with seal first",
                                       **chunk.place)
            if (other := chunk.file_path) is not None:
                raise UnsupportedError(f"its pages are in another file, {shown(other)}",
                                       **chunk.place)
        if self._footer.is_encrypted:
            self.keys.renew(self._footer.footer_key_metadata,
                            self._footer.crypto.footer_cipher.key_bits // 8)
        self.accepts_old_pages = any(map(self._accepts_old_pages, self._footer.column_chunks()))

    def _accepts_old_pages(self, chunk: ColumnChunk) -> bool:
        modules = chunk.modules
        key_metadata = chunk.key_metadata if chunk.encryption == "column key" \
            else self._footer.footer_key_metadata
        return modules is not None and not modules.by_gcm and not self.keys.is_new(key_metadata)

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

    def _parts(self) -> Iterator[Part]:
        yield Kept(0, len(MAGIC))
        count_invocations(self._footer)  # by those keys that stay
        shared = self._footer.renew(self._new_crypto())
        kept = [group for group in self._footer.row_groups if self._num_left(group)]
        for number, group in enumerate(kept):
            size = group.num_bytes
            yield from self._row_group(group, number, shared)
            self._advance(size)
        for one in self._chunks:
            if one.chunk.column_index is not None:
                yield from self._placed(one.chunk, one.column_index(), set_column_index)
        for one in self._chunks:
            if one.chunk.offset_index is not None:
                yield from self._placed(one.chunk, one.offset_index(), set_offset_index)
        self._footer.keep_row_groups(kept)
        yield self._footer.to_bytes_without_extensions()

    def _num_left(self, group: RowGroup) -> int:
        erased = self._erased.get(group.number)
        return group.num_rows - (0 if erased is None else erased.true_count)

    def _new_crypto(self) -> FileCrypto:
        crypto = self._footer.crypto
        return crypto.renewed(self.keys, self.keys.renewed(crypto.footer_key_metadata))

    def _row_group(self, group: RowGroup, number: int, shared: Shared) -> Iterator[Part]:
        start, erased = self._position, self._erased.get(group.number)
        rows = None if erased is None else self._rows.remaining(group.number, erased)
        chunks: Sequence[NewChunk] = self._written(group, rows) if rows is not None \
            else [CopiedChunk(chunk, self._file, may_have_extensions=self._may_have_extensions)
                  for chunk in group]
        self._chunks += chunks
        for chunk in group:
            chunk.remove_extensions()  # and decrypt the metadata with its old key
            key_metadata = self.keys.renewed(chunk.key_metadata)
            if key_metadata is not None:
                chunk.set_key_metadata(key_metadata)
        group.place(number, start, shared)
        for one in chunks:
            yield from one.pages(self._position)
        if rows is not None or self._may_have_extensions \
                or any(chunk.encryption for chunk in group):
            group.resize(group.num_rows if rows is None else rows.num_rows,
                         self._position - start, sum(map(total_size, group)))
        for one in chunks:  # here, not at the end, so that few filters are in memory
            yield from self._filter(one)
            one.release()

    def _written(self, group: RowGroup, rows: pa.Table) -> list[NewChunk]:
        new = encode_rows(rows, group, self._footer.schema_file())
        hashes = ColumnHashes(new)
        return [WrittenChunk(chunk, self._file, of_rows, new, hashes, rows.num_rows)
                for chunk, of_rows in zip(group, new.footer.row_groups[0], strict=True)]

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
        one.chunk.finish()
