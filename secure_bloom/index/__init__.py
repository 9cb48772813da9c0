"""The data-set index: where values are in a table of many files, in one small read.

``secure_bloom.index.build`` builds or updates it, :class:`Index` looks values up. Readers of
secure_bloom use it by themselves. See ``docs/index.md``.
"""

from __future__ import annotations

from secure_bloom.index.index import Index as Index
from secure_bloom.index.index import build as build
from secure_bloom.index.inspection import IndexInfo as IndexInfo
from secure_bloom.index.integrity import IndexFinding as IndexFinding
from secure_bloom.index.integrity import IndexVerification as IndexVerification
from secure_bloom.index.lookup import Lookup as Lookup
from secure_bloom.index.rotation import IndexRotation as IndexRotation
from secure_bloom.index.update import UpdateResult as UpdateResult

__all__ = ["Index", "IndexFinding", "IndexInfo", "IndexRotation", "IndexVerification", "Lookup",
           "UpdateResult", "build"]
