"""The names under which this package writes files.

In a file that it has written whole, no dictionary has a value that no row has. A file with scales,
which are stored whole, has the name of Arrow's writer instead. What this package has only encrypted
is another program's, or may be.
"""

from __future__ import annotations

import pyarrow as pa

from secure_bloom import __version__

_WRITER = "secure_bloom version "

CREATED_BY = f"{_WRITER}{__version__} (build parquet-cpp-arrow {pa.__version__})"  #: its encoder
ENCRYPTED_BY = f"secure_bloom.encrypt version {__version__}"


def claims_to_be_ours(created_by: str | None) -> bool:
    """Whether a file names this package as the writer of its pages, which anyone can do."""
    return created_by is not None and created_by.startswith(_WRITER)
