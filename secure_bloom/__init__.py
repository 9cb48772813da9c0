"""Encrypted Bloom filters for encrypted Parquet: write them, read them, prune with them.

>>> import secure_bloom
>>> secure_bloom.write_table(table, "people.parquet", bloom_filters={"ssn": True},
...                          encryption=config, keys="keyring.json")              # doctest: +SKIP
>>> secure_bloom.read_table("people.parquet", "keyring.json",
...                         filters=[("ssn", "==", "078-05-1120")])               # doctest: +SKIP

Names are imported when they are first used, so that ``import secure_bloom`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_HOME = {
    "BloomFilterInfo": "secure_bloom.parquet.bloom_filter",
    "BloomFilterOptions": "secure_bloom.sbbf.options",
    "EncryptionConfiguration": "secure_bloom.encryption",
    "EraseResult": "secure_bloom.erasing.result",
    "ExplicitKeys": "secure_bloom.keys.retrieval",
    "Keyring": "secure_bloom.keys.keyring",
    "ParquetFile": "secure_bloom.reader",
    "ParquetWriter": "secure_bloom.writer",
    "Policy": "secure_bloom.policy.policy",
    "SplitBlockBloomFilter": "secure_bloom.sbbf.filter",
    "UniformKey": "secure_bloom.encryption",
    "VerifyResult": "secure_bloom.verify.findings",
    "attach": "secure_bloom.maintain.attach",
    "audit": "secure_bloom.auditing.audit",
    "dataset": "secure_bloom.datasets.dataset",
    "erase": "secure_bloom.erasing.erase",
    "find": "secure_bloom.datasets.lookup",
    "open_kms": "secure_bloom.keys.uri",
    "read_table": "secure_bloom.datasets.reading",
    "scan": "secure_bloom.engines.polars",
    "seal": "secure_bloom.maintain.seal",
    "strip": "secure_bloom.maintain.strip",
    "verify_file": "secure_bloom.verify.verify",
    "write_dataset": "secure_bloom.datasets.writing",
    "write_table": "secure_bloom.writer",
}

_PACKAGES = "index",  # whose names are used with theirs: secure_bloom.index.build

__version__ = "0.1.0"
__all__ = sorted(_HOME)

if TYPE_CHECKING:  # the same names, for mypy, pyright and editors
    from secure_bloom import index as index
    from secure_bloom.auditing.audit import audit as audit
    from secure_bloom.datasets.dataset import dataset as dataset
    from secure_bloom.datasets.lookup import find as find
    from secure_bloom.datasets.reading import read_table as read_table
    from secure_bloom.datasets.writing import write_dataset as write_dataset
    from secure_bloom.encryption import EncryptionConfiguration as EncryptionConfiguration
    from secure_bloom.encryption import UniformKey as UniformKey
    from secure_bloom.engines.polars import scan as scan
    from secure_bloom.erasing.erase import erase as erase
    from secure_bloom.erasing.result import EraseResult as EraseResult
    from secure_bloom.keys.keyring import Keyring as Keyring
    from secure_bloom.keys.retrieval import ExplicitKeys as ExplicitKeys
    from secure_bloom.keys.uri import open_kms as open_kms
    from secure_bloom.maintain.attach import attach as attach
    from secure_bloom.maintain.seal import seal as seal
    from secure_bloom.maintain.strip import strip as strip
    from secure_bloom.parquet.bloom_filter import BloomFilterInfo as BloomFilterInfo
    from secure_bloom.policy.policy import Policy as Policy
    from secure_bloom.reader import ParquetFile as ParquetFile
    from secure_bloom.sbbf.filter import SplitBlockBloomFilter as SplitBlockBloomFilter
    from secure_bloom.sbbf.options import BloomFilterOptions as BloomFilterOptions
    from secure_bloom.verify.findings import VerifyResult as VerifyResult
    from secure_bloom.verify.verify import verify_file as verify_file
    from secure_bloom.writer import ParquetWriter as ParquetWriter
    from secure_bloom.writer import write_table as write_table
else:
    def __getattr__(name: str) -> object:
        if name in _PACKAGES:
            return importlib.import_module(f"{__name__}.{name}")
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_PACKAGES})
