"""The additional authenticated data of a module, which binds it to its position.

Encryption.md, section 4.4:

    file AAD            AAD prefix (any length, may be empty) + aad_file_unique
    module type         1 byte
    row group ordinal   2 bytes, little-endian; all modules but the footer
    column ordinal      2 bytes, little-endian; likewise; counts leaf columns
    page ordinal        2 bytes, little-endian; data pages and their headers only
"""

from __future__ import annotations

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


_NAMES = ("row group", "column", "page")
_NUM_ORDINALS = {ModuleType.FOOTER: 0, ModuleType.DATA_PAGE: 3, ModuleType.DATA_PAGE_HEADER: 3}


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
    ordinals = (row_group, column, page)
    expected = _NUM_ORDINALS.get(module_type, 2)
    aad = file_aad + bytes((module_type,))
    for number, ordinal in enumerate(ordinals):
        if (ordinal is not None) != (number < expected):
            raise ValueError(f"a {module_type.name} module takes "
                             f"{'a' if number < expected else 'no'} {_NAMES[number]} ordinal")
        if ordinal is None:
            break
        if not 0 <= ordinal <= _MAX_ORDINAL:
            raise ValueError(f"{_NAMES[number]} ordinal {ordinal} is out of range: encrypted files "
                             f"allow 0 to {_MAX_ORDINAL}")
        aad += ordinal.to_bytes(2, "little")
    return aad
