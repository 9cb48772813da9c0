"""Columns whose pages Arrow decodes a few at a time.

Each leaf column has pages of its own, which end at other rows than those of its siblings. So Arrow
decodes the pages of one leaf, as a file of one column, and the leaves of a struct are put together
when each has the same rows.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from secure_bloom.arrow.dictionaries import with_known_codes
from secure_bloom.arrow.leaves import has_dictionary, is_list, is_nested, leaf_types
from secure_bloom.errors import FormatError, UnsupportedError, error_location
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.page_file import page_file
from secure_bloom.parquet.pages import Page
from secure_bloom.parquet.schema import LeafColumn


class PageColumn:
    """A top-level column, for which :meth:`of` has found that its pages can be decoded.

    Attributes
    ----------
    field : pyarrow.Field
    leaves : list of LeafColumn
    """

    def __init__(self, footer: Footer, field: pa.Field, leaves: list[LeafColumn]):
        self.field, self.leaves = field, leaves
        self._fields = [field.with_type(_only(field.type, number)) for number in range(len(leaves))]
        self._schemas = [(footer.elements_to(leaf), b64encode(pa.schema([one]).serialize()))
                         for leaf, one in zip(leaves, self._fields, strict=True)]

    @classmethod
    def of(cls, footer: Footer, field: pa.Field, leaves: list[LeafColumn]) -> PageColumn | None:
        """Return the column of a field; None if only whole column chunks can be decoded.

        Not decoded by pages are maps, lists of several leaves or of lists, and dictionaries in
        nested types, which Arrow cannot always put together.
        """
        is_possible = pa.types.is_dictionary(field.type) or _is_simple(field.type)
        if not is_possible or len(leaf_types(field.type)) != len(leaves):
            return None
        return cls(footer, field, leaves)

    def can_decode(self, chunk: ColumnChunk) -> bool:
        """Whether single pages of a column chunk can be decoded.

        If only some values of a dictionary are in the dictionary page, Arrow makes others for the
        other pages. An ordered one would then lack entries, and the entries have another order.
        """
        return not pa.types.is_dictionary(self.field.type) or chunk.is_dictionary_encoded

    def decode(self, number: int, chunk: ColumnChunk, dictionary: Page | None,
               pages: Sequence[Page], num_rows: int) -> pa.Array:
        """Return the rows in some pages of one leaf: an array as if it were the only leaf.

        Raises FormatError if the pages cannot be decoded, or have another number of rows.
        """
        elements, arrow_schema = self._schemas[number]
        data = page_file(elements, chunk, dictionary, pages, num_rows, arrow_schema)
        try:
            opened = pq.ParquetFile(pa.BufferReader(data))
            if not opened.schema_arrow.field(0).type.equals(self._fields[number].type):
                raise UnsupportedError("a column has another type in a file of its own")
            with error_location(**chunk.place):
                rows = with_known_codes(opened.read(use_threads=False))
            chunks = rows.column(0).chunks
            found = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        except (pa.ArrowInvalid, OSError) as error:
            raise FormatError("pyarrow cannot read the pages", **chunk.place) from error
        if len(found) != num_rows:
            raise FormatError("the pages of a column do not have as many rows as the page index "
                              "says", **chunk.place)
        return found

    def joined(self, arrays: Sequence[pa.Array]) -> pa.Array:
        """Return the column from its leaves, as :meth:`decode` returns them, without offsets."""
        return _joined(self.field.type, iter(arrays))


def _is_simple(t: pa.DataType, in_list: bool = False) -> bool:
    if isinstance(t, pa.BaseExtensionType):
        return not is_nested(t.storage_type) and not has_dictionary(t)
    if pa.types.is_struct(t) and not in_list:
        return bool(t.num_fields) and all(_is_simple(one.type) for one in _children(t))
    if is_list(t):
        return not in_list and _is_simple(t.value_type, in_list=True)
    return not is_nested(t) and not has_dictionary(t)


def _children(t: pa.DataType) -> list[pa.Field]:
    return [t.field(number) for number in range(t.num_fields)]


def _only(t: pa.DataType, number: int) -> pa.DataType:
    """Return the type with only one of its leaves."""
    if not pa.types.is_struct(t) or isinstance(t, pa.BaseExtensionType):
        return t
    for child in _children(t):
        leaves = len(leaf_types(child.type))
        if number < leaves:
            return pa.struct([child.with_type(_only(child.type, number))])
        number -= leaves
    raise AssertionError("the type has no such leaf")


def _joined(t: pa.DataType, leaves: Iterator[pa.Array]) -> pa.Array:
    if not pa.types.is_struct(t) or isinstance(t, pa.BaseExtensionType):
        return next(leaves)
    children, mask = [], None
    for child in _children(t):
        arrays = list(islice(leaves, len(leaf_types(child.type))))
        if mask is None and arrays[0].null_count:
            mask = arrays[0].is_null()
        children.append(_joined(child.type, iter([one.field(0) for one in arrays])))
    return pa.StructArray.from_arrays(children, fields=_children(t), mask=mask)
