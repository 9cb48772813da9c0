"""Where values of a long list may be, by their hashes.

Arrow would build a table of the whole list for each batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_values

_FPP = 0.001
_PHYSICAL_TYPES = {pa.int32(): "INT32", pa.uint32(): "INT32", pa.int64(): "INT64",
                   pa.uint64(): "INT64", pa.float64(): "DOUBLE", pa.binary(): "BYTE_ARRAY",
                   pa.large_binary(): "BYTE_ARRAY"}


class MemberHashes:
    """The hashes of members, as a Bloom filter in memory.

    Members and values are equal exactly if their bytes are: there is no -0.0 or NaN among them.
    """

    def __init__(self, members: pa.Array):
        self._type = ColumnType(_PHYSICAL_TYPES[members.type], 0, members.type)
        self._filter = SplitBlockBloomFilter.sized(ndv=len(members), fpp=_FPP)
        self._filter.insert_hashes(self._hashes(members))

    @staticmethod
    def can_have(t: pa.DataType) -> bool:
        """Whether values of a type can be looked up."""
        return t in _PHYSICAL_TYPES

    def may_be_in(self, values: pa.Array) -> np.ndarray:
        """Return for each value whether it may be a member; anything for null."""
        return self._filter.check_hashes(self._hashes(values))

    def _hashes(self, values: pa.Array) -> np.ndarray:
        if values.null_count:  # what is stored in their place
            values = pa.Array.from_buffers(values.type, len(values), [None, *values.buffers()[1:]],
                                           offset=values.offset)
        return hash_values(values, self._type)
