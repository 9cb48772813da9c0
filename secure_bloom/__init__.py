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

_HOME = {
    "BloomFilterInfo": "secure_bloom.reader",
    "BloomFilterOptions": "secure_bloom.sbbf.options",
    "EncryptionConfiguration": "secure_bloom.encryption",
    "ExplicitKeys": "secure_bloom.keys.retrieval",
    "Keyring": "secure_bloom.keys.keyring",
    "ParquetFile": "secure_bloom.reader",
    "ParquetWriter": "secure_bloom.writer",
    "SplitBlockBloomFilter": "secure_bloom.sbbf.filter",
    "UniformKey": "secure_bloom.encryption",
    "VerifyResult": "secure_bloom.verify.findings",
    "attach": "secure_bloom.maintain.attach",
    "audit": "secure_bloom.auditing.audit",
    "open_kms": "secure_bloom.keys.uri",
    "read_table": "secure_bloom.dataset",
    "seal": "secure_bloom.maintain.seal",
    "strip": "secure_bloom.maintain.strip",
    "verify_file": "secure_bloom.verify.verify",
    "write_table": "secure_bloom.writer",
}

__version__ = "0.1.0"
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
