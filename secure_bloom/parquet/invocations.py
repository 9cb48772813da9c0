"""How often each key of a file encrypts: no more than nonces at random allow."""

from __future__ import annotations

import contextlib

from secure_bloom.crypto import modules
from secure_bloom.errors import NO_KEY
from secure_bloom.parquet.footer import Footer

_PER_PAGE = 2  # the page and its header
_PER_CHUNK = 3  # column index, offset index, column metadata


def count_invocations(footer: Footer) -> None:
    """Count the modules that another writer has encrypted, of an open footer.

    Columns whose key is not at hand are left out: nothing is encrypted with it here.

    Raises
    ------
    KeyExhaustedError
        If a key has encrypted more than 2**32 modules (NIST SP 800-38D, section 8.3).
    """
    num_bytes = sum(map(footer.row_group_num_bytes, range(len(footer.row_groups))))
    num_chunks = len(footer.row_groups) * len(footer.columns)
    if num_bytes // modules.OVERHEAD + _PER_CHUNK * num_chunks < modules.MAX_INVOCATIONS // 2:
        return  # it cannot be, whatever the pages are like
    for chunk in footer.column_chunks():
        with contextlib.suppress(*NO_KEY):
            if chunk.cipher is not None:
                chunk.cipher.count(_PER_PAGE * chunk.num_pages + _PER_CHUNK)
