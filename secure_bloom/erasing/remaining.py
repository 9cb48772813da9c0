"""A file without some of its rows; the rest stays what it was.

Pages of row groups that keep all their rows are copied. Those of encrypted columns are encrypted
again: the new file has a new identity, aad_file_unique and data keys, so that no module of the old
file authenticates in it. Master keys, algorithm, AAD prefix and schema stay, and so does whatever
else the footer says of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from secure_bloom.arrow.dictionaries import Stays, is_scale
from secure_bloom.crypto.aad import ModuleType
from secure_bloom.erasing.encoding import encode_rows
from secure_bloom.erasing.rows import RowReader
from secure_bloom.errors import UnsupportedError, error_location
from secure_bloom.keys.renewal import RenewedKeys
from secure_bloom.maintain.build import build_filter
from secure_bloom.maintain.copied_chunk import CopiedChunk, NewChunk, Part, filter_range
from secure_bloom.maintain.new_version import NewVersion
from secure_bloom.parquet.bloom_filter import encode_filter, read_header
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.file_crypto import FileCrypto
from secure_bloom.parquet.invocations import count_invocations
from secure_bloom.parquet.page_index import placed_index
from secure_bloom.parquet.pages import StoredPages, copied_pages
from secure_bloom.parquet.placing import replace_pages
from secure_bloom.parquet.row_group import RowGroup
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK
from secure_bloom.verify.measure import ColumnHashes


class RemainingRows(NewVersion):
    """The parts of a file without some of its rows.

    Parameters
    ----------
    file : OpenFile
        Open as long as parts are taken. The keys of its footer and of all columns are needed.
    erased : mapping of int to BooleanArray
        By row group, of those that are written again: which rows go, if any.
    advance : callable
        As for :class:`.NewVersion`.
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
    """

    def __init__(self, file: OpenFile, erased: Mapping[int, pa.BooleanArray],
                 advance: Callable[[float], None] = lambda fraction: None,
                 stays: Stays = is_scale, *, has_new_material: bool = False):
        super().__init__(file, advance)
        self._erased = erased
        self._rows = RowReader(file, stays)
        self.keys = RenewedKeys(file.keys, has_new_material=has_new_material)
        self.accepts_old_pages = False
        self.num_rows = sum(map(self._num_rows, self._footer.row_groups))
        self.num_whole = sum(not rows.true_count for rows in erased.values())

    def check(self) -> None:
        """Check what can be checked before anything is written, and make the new keys.

        Errors are those of :meth:`.NewVersion.check`.
        """
        super().check()
        for chunk in self._footer.column_chunks():
            if (cipher := chunk.cipher) is not None and chunk.encryption == "column key":
                self.keys.renew(chunk.key_metadata, cipher.key_bits // 8)
        if self._footer.is_encrypted:
            self.keys.renew(self._footer.footer_key_metadata,
                            self._footer.crypto.footer_cipher.key_bits // 8)
        self.accepts_old_pages = any(map(self._accepts_old_pages, self._footer.column_chunks()))

    def _accepts_old_pages(self, chunk: ColumnChunk) -> bool:
        modules = chunk.modules
        key_metadata = chunk.key_metadata if chunk.encryption == "column key" \
            else self._footer.footer_key_metadata
        return modules is not None and not modules.by_gcm and not self.keys.is_new(key_metadata)

    def _num_rows(self, group: RowGroup) -> int:
        erased = self._erased.get(group.number)
        return group.num_rows - (0 if erased is None else erased.true_count)

    def _stays(self, group: RowGroup) -> bool:
        return self._num_rows(group) > 0

    def _new_crypto(self) -> FileCrypto:
        count_invocations(self._footer)  # by those keys that stay
        crypto = self._footer.crypto
        return crypto.renewed(self.keys, self.keys.renewed(crypto.footer_key_metadata))

    def _encrypt_as(self, chunk: ColumnChunk) -> None:
        key_metadata = self.keys.renewed(chunk.key_metadata)
        if key_metadata is not None:
            chunk.set_key_metadata(key_metadata)

    def _new_chunks(self, group: RowGroup) -> Sequence[NewChunk]:
        erased = self._erased.get(group.number)
        if erased is not None:
            return self._written(group, self._rows.remaining(group.number, erased))
        return [CopiedChunk(chunk, self._file, is_as_it_was=chunk.encryption is None
                            and not self._may_have_extensions) for chunk in group]

    def _written(self, group: RowGroup, rows: pa.Table) -> list[NewChunk]:
        new = encode_rows(rows, group, self._footer.schema_file())
        hashes = ColumnHashes(new)
        return [WrittenChunk(chunk, self._file, of_rows, new, hashes, rows.num_rows)
                for chunk, of_rows in zip(group, new.footer.row_groups[0], strict=True)]


class WrittenChunk:
    """A column chunk whose pages are written again.

    Parameters
    ----------
    chunk : ColumnChunk
        At its old place: what is bound to it is read now.
    file : OpenFile
        The old file.
    new : ColumnChunk
        The only one of its column in ``new_file``, which is in memory and not encrypted.
    hashes : ColumnHashes
        Of ``new_file``.
    num_rows : int
        Of ``new_file``.
    """

    is_as_it_was = False

    def __init__(self, chunk: ColumnChunk, file: OpenFile, new: ColumnChunk,
                 new_file: OpenFile, hashes: ColumnHashes, num_rows: int):
        self.chunk, self._new, self._new_file = chunk, new, new_file
        self._hashes, self._num_rows = hashes, num_rows
        self._column_index = self._read(new.column_index) if chunk.column_index else None
        self._offset_index = self._read(new.offset_index) if chunk.offset_index else None
        self._num_blocks = 0
        if filter_range(chunk, file) is not None and chunk.column.type.can_be_hashed:
            with suppress(UnsupportedError):  # a filter that cannot be used is left out
                size = read_header(file, chunk, file.footer.start) or 0
                self._num_blocks = size // BYTES_PER_BLOCK
        self._start, self._stored = 0, StoredPages()

    def pages(self, start: int) -> Iterator[Part]:
        with error_location(**self.chunk.place):
            yield from copied_pages(self._new_file, self._new.pages or (0, 0), None,
                                    self.chunk.modules, self._stored)
        replace_pages(self.chunk, self._new, start, self._stored)
        self._start = start + self._stored.dictionary_size

    def filter(self) -> Sequence[Part]:
        if not self._num_blocks:
            return []
        filter_ = build_filter(self._hashes, self._new, self._num_rows, self._num_blocks)
        return encode_filter(filter_, self.chunk)

    def release(self) -> None:
        del self._new, self._new_file, self._hashes

    def column_index(self) -> Part | None:
        return self._sealed(self._column_index, ModuleType.COLUMN_INDEX)

    def offset_index(self) -> Part | None:
        data = self._offset_index
        return self._sealed(data and placed_index(data, self._start, self._stored.data_sizes),
                            ModuleType.OFFSET_INDEX)

    def _read(self, where: tuple[int, int] | None) -> bytes | None:
        return None if where is None else self._new_file.read_at(where[1], where[0])

    def _sealed(self, data: bytes | None, module_type: ModuleType) -> bytes | None:
        modules = self.chunk.modules
        return data if data is None or modules is None else modules.encrypt(data, module_type)
