"""The data-set index: where values are in a table of many files, in one small read.

``secure_bloom.index.build`` builds or updates it, :class:`Index` looks values up. Readers of
secure_bloom use it by themselves. See the page "The index of a table".

Names are imported when they are first used: readers import this package, but mostly need few of its
modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secure_bloom.public_names import public_names

_HOME = {
    "Index": "secure_bloom.index.index",
    "IndexInfo": "secure_bloom.index.inspection",
    "IndexRotation": "secure_bloom.index.rotation",
    "IndexVerification": "secure_bloom.index.integrity",
    "Lookup": "secure_bloom.index.lookup",
    "UpdateResult": "secure_bloom.index.update",
    "build": "secure_bloom.index.index",
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:  # the same names, for mypy, pyright and editors
    from secure_bloom.index.index import Index as Index
    from secure_bloom.index.index import build as build
    from secure_bloom.index.inspection import IndexInfo as IndexInfo
    from secure_bloom.index.integrity import IndexVerification as IndexVerification
    from secure_bloom.index.lookup import Lookup as Lookup
    from secure_bloom.index.rotation import IndexRotation as IndexRotation
    from secure_bloom.index.update import UpdateResult as UpdateResult
else:
    __getattr__, __dir__ = public_names(__name__, _HOME)
