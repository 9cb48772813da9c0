"""Encrypted Parquet files with encrypted Bloom filters from PySpark: ``secure_parquet``.

>>> import secure_bloom.spark
>>> secure_bloom.spark.register(spark)                                           # doctest: +SKIP
>>> secure_bloom.spark.write(df, "people", policy="policy.toml", keys="keyring.json",
...                          mode="append")                                      # doctest: +SKIP
>>> people = secure_bloom.spark.read(spark, "people", policy="policy.toml",
...                                  keys="keyring.json")                        # doctest: +SKIP
>>> people.where("ssn = '078-05-1120'")                                          # doctest: +SKIP

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secure_bloom.public_names import public_names

_HOME = {
    "attach": "secure_bloom.spark.maintain",
    "build_index": "secure_bloom.spark.indexing",
    "compact_index": "secure_bloom.spark.index_merging",
    "encrypt": "secure_bloom.spark.encrypting",
    "erase": "secure_bloom.spark.erasing",
    "last_commit": "secure_bloom.spark.commits",
    "read": "secure_bloom.spark.frames",
    "read_stream": "secure_bloom.spark.frames",
    "register": "secure_bloom.spark.registration",
    "write": "secure_bloom.spark.frames",
}

__all__ = sorted(_HOME)

_REMOVED = {
    "load": "use secure_bloom.spark.read(spark, path, filters=...)",
    "enable_pushdown": "after register, the conditions of queries are used anyway; remove the "
                       "call, and option single_use",
}

if TYPE_CHECKING:  # the same names, for mypy, pyright and editors
    from secure_bloom.spark.commits import last_commit as last_commit
    from secure_bloom.spark.encrypting import encrypt as encrypt
    from secure_bloom.spark.erasing import erase as erase
    from secure_bloom.spark.frames import read as read
    from secure_bloom.spark.frames import read_stream as read_stream
    from secure_bloom.spark.frames import write as write
    from secure_bloom.spark.index_merging import compact_index as compact_index
    from secure_bloom.spark.indexing import build_index as build_index
    from secure_bloom.spark.maintain import attach as attach
    from secure_bloom.spark.registration import register as register
else:
    _get, __dir__ = public_names(__name__, _HOME)

    def __getattr__(name: str) -> object:
        if name in _REMOVED:
            from secure_bloom.errors import RenamedError
            raise RenamedError(f"{name} was removed: {_REMOVED[name]}")
        return _get(name)
