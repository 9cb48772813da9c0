"""The same pages under another encryption, as a new version of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.build import build_filter
from secure_bloom.maintain.copied_chunk import CopiedChunk, NewChunk, Part
from secure_bloom.maintain.new_version import NewVersion
from secure_bloom.parquet.bloom_filter import encode_filter
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.file_crypto import FileCrypto
from secure_bloom.parquet.row_group import RowGroup
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reencryption.target import Target
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.verify.measure import ColumnHashes

_MOST = 1 << 15  # row groups, and columns: their ordinals in the AAD have two bytes, with a sign


class NewFile(NewVersion):
    """The parts of a file that is encrypted in another way.

    Parameters
    ----------
    file : OpenFile
        Open as long as parts are taken. The keys of its footer and of all columns are needed.
    target : Target
    filters : mapping of int to BloomFilterOptions
        Which columns get a Bloom filter if they have none, by ordinal.
    keys : Keys
        Of the file.
    advance : callable
        As for :class:`.NewVersion`.
    """

    def __init__(self, file: OpenFile, target: Target, filters: Mapping[int, BloomFilterOptions],
                 keys: Keys, advance: Callable[[float], None] = lambda fraction: None):
        super().__init__(file, advance)
        self._target, self._filters = target, filters
        self._hashes = ColumnHashes(file, keys)

    def check(self) -> None:
        """See :meth:`.NewVersion.check`."""
        super().check()
        for what, number in (("row groups", len(self._footer.row_groups)),
                             ("columns", len(self._footer.columns))):
            if self._target.crypto.algorithm is not None and number > _MOST:
                raise UnsupportedError(f"the file has {number:,} {what}; the format can encrypt "
                                       f"at most {_MOST:,}")

    def _new_crypto(self) -> FileCrypto:
        return self._target.crypto

    def _encrypt_as(self, chunk: ColumnChunk) -> None:
        new = self._target.columns.get(chunk.column.ordinal)
        chunk.encrypt_as(None if new is None else new.by, None if new is None else new.key_metadata,
                         has_encrypted_footer=self._target.crypto.has_encrypted_footer)

    def _new_chunks(self, group: RowGroup) -> Sequence[NewChunk]:
        return [self._copied(chunk, group.num_rows) for chunk in group]

    def _copied(self, chunk: ColumnChunk, num_rows: int) -> CopiedChunk:
        ordinal, build = chunk.column.ordinal, None
        if ordinal in self._filters and chunk.bloom_filter is None:
            build = partial(self._built, chunk, num_rows, self._filters[ordinal])
        return CopiedChunk(chunk, self._file, build=build,
                           is_as_it_was=chunk.encryption is None and not self._may_have_extensions
                           and ordinal not in self._target.columns)

    def _built(self, chunk: ColumnChunk, num_rows: int, options: BloomFilterOptions) \
            -> Sequence[Part]:
        return encode_filter(build_filter(self._hashes, chunk, num_rows, options), chunk)
