"""How the pages of a column chunk are stored, as far as the footer says."""

from __future__ import annotations

from dataclasses import dataclass

from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk

# Field ids of parquet.thrift that this module uses.
_ENCODINGS, _CODEC, _DICTIONARY_PAGE, _STATISTICS, _ENCODING_STATS = 2, 4, 11, 12, 13
_DATA_PAGE_V2 = 3  # PageType
_DICTIONARY_ENCODINGS = {2, 8}  # Encoding: PLAIN_DICTIONARY, RLE_DICTIONARY


@dataclass(frozen=True)
class PageFormat:
    """How pages are stored.

    Attributes
    ----------
    codec : int
        A CompressionCodec of parquet.thrift.
    encodings : frozenset of int
        The Encodings of parquet.thrift that values and levels have.
    has_dictionary : bool
        Whether there is a dictionary page.
    has_pages_v2 : bool
        Whether data pages are of version 2.
    has_statistics : bool
        Whether the footer has statistics of the values.
    """

    codec: int
    encodings: frozenset[int]
    has_dictionary: bool
    has_pages_v2: bool
    has_statistics: bool

    @classmethod
    def of(cls, chunk: ColumnChunk) -> PageFormat:
        """Return the format of a column chunk; errors as for :meth:`.ColumnChunk.metadata`."""
        meta = chunk.metadata()
        raw = meta.get(_ENCODINGS)
        encodings = frozenset(thrift.decode_integers(raw).tolist() if isinstance(raw, bytes)
                              else ())
        kinds = {stats.get_int(1) for stats in thrift.each(meta, _ENCODING_STATS, {})}
        return cls(meta.get_int(_CODEC) or 0, encodings,
                   bool(meta.get_int(_DICTIONARY_PAGE) or encodings & _DICTIONARY_ENCODINGS),
                   _DATA_PAGE_V2 in kinds, meta.get(_STATISTICS) is not None)
