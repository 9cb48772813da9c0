"""The additional authenticated data of a module, which binds it to its position.

Encryption.md, section 4.4:

    file AAD            AAD prefix (any length, may be empty) + aad_file_unique
    module type         1 byte
    row group ordinal   2 bytes, little-endian; all modules but the footer
    column ordinal      2 bytes, little-endian; likewise; counts leaf columns
    page ordinal        2 bytes, little-endian; data pages and their headers only
"""

from __future__ import annotations

import struct
from enum import IntEnum

_MAX_ORDINAL = 2**15 - 1


class ModuleType(IntEnum):
    """Module types of Encryption.md, section 4.4.2."""

    FOOTER = 0
    COLUMN_META_DATA = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5
    COLUMN_INDEX = 6
    OFFSET_INDEX = 7
    BLOOM_FILTER_HEADER = 8
    BLOOM_FILTER_BITSET = 9


_WITH_PAGE = (ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER)


def module_aad(file_aad: bytes, module_type: ModuleType, row_group: int | None = None,
               column: int | None = None, page: int | None = None) -> bytes:
    """Return the additional authenticated data of a module.

    Parameters
    ----------
    file_aad : bytes
        AAD prefix followed by aad_file_unique.
    module_type : ModuleType
    row_group, column : int
        Ordinals, 0 to 32767; for every module but the footer.
    page : int
        Page ordinal; for data pages and data page headers only.

    Raises
    ------
    ValueError
        If an ordinal is missing, superfluous, or does not fit in 15 bits.
    """
    ordinals = {"row group": row_group, "column": column, "page": page}
    wanted = set()
    if module_type != ModuleType.FOOTER:
        wanted = {"row group", "column"} | ({"page"} if module_type in _WITH_PAGE else set())
    suffix = bytes([module_type])
    for name, ordinal in ordinals.items():
        if (ordinal is not None) != (name in wanted):
            raise ValueError(f"a {module_type.name} module takes "
                             f"{'a' if name in wanted else 'no'} {name} ordinal")
        if ordinal is None:
            continue
        if not 0 <= ordinal <= _MAX_ORDINAL:
            raise ValueError(f"{name} ordinal {ordinal} is out of range: encrypted files allow 0 "
                             f"to {_MAX_ORDINAL}")
        suffix += struct.pack("<h", ordinal)
    return file_aad + suffix
