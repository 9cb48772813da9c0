"""The number of encryptions per key of a file, limited by the use of random nonces."""

from __future__ import annotations

import contextlib

from secure_bloom.crypto import modules
from secure_bloom.errors import NO_KEY
from secure_bloom.parquet.footer import Footer

_PER_PAGE = 2  # the page and its header
_PER_CHUNK = 3  # column index, offset index, column metadata


def count_invocations(footer: Footer) -> None:
    """Count the modules of an open footer that another writer has encrypted.

    Columns whose key is not available are skipped, because nothing is encrypted with it here.

    Raises KeyExhaustedError if a key has encrypted more than 2**32 modules (NIST SP 800-38D,
    section 8.3).
    """
    num_bytes = sum(map(footer.row_group_num_bytes, range(len(footer.row_groups))))
    num_chunks = len(footer.row_groups) * len(footer.columns)
    if num_bytes // modules.OVERHEAD + _PER_CHUNK * num_chunks < modules.MAX_INVOCATIONS // 2:
        return  # the limit cannot be reached, whatever the pages are
    for chunk in footer.column_chunks():
        with contextlib.suppress(*NO_KEY):
            if chunk.cipher is not None:
                chunk.cipher.count(_PER_PAGE * chunk.num_pages + _PER_CHUNK)
