"""Encrypted Bloom filters for encrypted Parquet: write them, read them, prune with them.

>>> import secure_bloom
>>> secure_bloom.write_table(table, "people.parquet", bloom_filters={"ssn": True},
...                          encryption=config, keys="keyring.json")              # doctest: +SKIP
>>> secure_bloom.read_table("people.parquet", "keyring.json",
...                         filters=[("ssn", "==", "078-05-1120")])               # doctest: +SKIP

Names are imported when they are first used, so that ``import secure_bloom`` is quick.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from secure_bloom.public_names import public_names

_HOME = {
    "Absence": "secure_bloom.erasing.result",
    "AuditResult": "secure_bloom.auditing.result",
    "BloomFilterInfo": "secure_bloom.parquet.bloom_filter",
    "BloomFilterOptions": "secure_bloom.sbbf.options",
    "ColumnAudit": "secure_bloom.auditing.result",
    "ColumnTotals": "secure_bloom.auditing.result",
    "CommitSummary": "secure_bloom.storage.summary",
    "Counts": "secure_bloom.datasets.report",
    "Dataset": "secure_bloom.datasets.dataset",
    "EncryptionConfiguration": "secure_bloom.encryption",
    "EraseResult": "secure_bloom.erasing.result",
    "ErasedFile": "secure_bloom.erasing.result",
    "ErasedValue": "secure_bloom.erasing.result",
    "ExplicitKeys": "secure_bloom.keys.retrieval",
    "FileAudit": "secure_bloom.auditing.result",
    "FileChange": "secure_bloom.maintain.change",
    "FilterCheck": "secure_bloom.verify.findings",
    "FilterTotals": "secure_bloom.storage.summary",
    "Finding": "secure_bloom.findings",
    "Keyring": "secure_bloom.keys.keyring",
    "MaintainResult": "secure_bloom.maintain.folders",
    "PageReads": "secure_bloom.reading.page_reads",
    "ParquetFile": "secure_bloom.reader",
    "ParquetWriter": "secure_bloom.writer",
    "Policy": "secure_bloom.policy.policy",
    "ReencryptResult": "secure_bloom.reencryption.result",
    "ReencryptedFile": "secure_bloom.reencryption.result",
    "ScanReport": "secure_bloom.datasets.report",
    "SplitBlockBloomFilter": "secure_bloom.sbbf.filter",
    "UniformKey": "secure_bloom.encryption",
    "VerifyResult": "secure_bloom.verify.findings",
    "WriteSummary": "secure_bloom.storage.summary",
    "attach": "secure_bloom.maintain.attach",
    "audit": "secure_bloom.auditing.audit",
    "dataset": "secure_bloom.datasets.dataset",
    "decrypt": "secure_bloom.reencryption.operations",
    "encrypt": "secure_bloom.reencryption.operations",
    "erase": "secure_bloom.erasing.erase",
    "find": "secure_bloom.datasets.lookup",
    "open_kms": "secure_bloom.keys.uri",
    "read_table": "secure_bloom.datasets.table",
    "reencrypt": "secure_bloom.reencryption.operations",
    "scan": "secure_bloom.engines.polars",
    "seal": "secure_bloom.maintain.seal",
    "strip": "secure_bloom.maintain.strip",
    "verify_file": "secure_bloom.verify.verify",
    "write_dataset": "secure_bloom.datasets.writing",
    "write_table": "secure_bloom.table_writing",
}

#: whose names are used with theirs: secure_bloom.index.build
_PACKAGES = ("errors", "index", "keys", "spark")

__version__ = "0.1.0"
__all__ = sorted(_HOME)

if TYPE_CHECKING:  # the same names, for mypy, pyright and editors
    from secure_bloom import errors as errors
    from secure_bloom import index as index
    from secure_bloom import keys as keys
    from secure_bloom import spark as spark
    from secure_bloom.auditing.audit import audit as audit
    from secure_bloom.auditing.result import AuditResult as AuditResult
    from secure_bloom.auditing.result import ColumnAudit as ColumnAudit
    from secure_bloom.auditing.result import ColumnTotals as ColumnTotals
    from secure_bloom.auditing.result import FileAudit as FileAudit
    from secure_bloom.datasets.dataset import Dataset as Dataset
    from secure_bloom.datasets.dataset import dataset as dataset
    from secure_bloom.datasets.lookup import find as find
    from secure_bloom.datasets.report import Counts as Counts
    from secure_bloom.datasets.report import ScanReport as ScanReport
    from secure_bloom.datasets.table import read_table as read_table
    from secure_bloom.datasets.writing import write_dataset as write_dataset
    from secure_bloom.encryption import EncryptionConfiguration as EncryptionConfiguration
    from secure_bloom.encryption import UniformKey as UniformKey
    from secure_bloom.engines.polars import scan as scan
    from secure_bloom.erasing.erase import erase as erase
    from secure_bloom.erasing.result import Absence as Absence
    from secure_bloom.erasing.result import ErasedFile as ErasedFile
    from secure_bloom.erasing.result import ErasedValue as ErasedValue
    from secure_bloom.erasing.result import EraseResult as EraseResult
    from secure_bloom.findings import Finding as Finding
    from secure_bloom.keys.keyring import Keyring as Keyring
    from secure_bloom.keys.retrieval import ExplicitKeys as ExplicitKeys
    from secure_bloom.keys.uri import open_kms as open_kms
    from secure_bloom.maintain.attach import attach as attach
    from secure_bloom.maintain.change import FileChange as FileChange
    from secure_bloom.maintain.folders import MaintainResult as MaintainResult
    from secure_bloom.maintain.seal import seal as seal
    from secure_bloom.maintain.strip import strip as strip
    from secure_bloom.parquet.bloom_filter import BloomFilterInfo as BloomFilterInfo
    from secure_bloom.policy.policy import Policy as Policy
    from secure_bloom.reader import ParquetFile as ParquetFile
    from secure_bloom.reading.page_reads import PageReads as PageReads
    from secure_bloom.reencryption.operations import decrypt as decrypt
    from secure_bloom.reencryption.operations import encrypt as encrypt
    from secure_bloom.reencryption.operations import reencrypt as reencrypt
    from secure_bloom.reencryption.result import ReencryptedFile as ReencryptedFile
    from secure_bloom.reencryption.result import ReencryptResult as ReencryptResult
    from secure_bloom.sbbf.filter import SplitBlockBloomFilter as SplitBlockBloomFilter
    from secure_bloom.sbbf.options import BloomFilterOptions as BloomFilterOptions
    from secure_bloom.storage.summary import CommitSummary as CommitSummary
    from secure_bloom.storage.summary import FilterTotals as FilterTotals
    from secure_bloom.storage.summary import WriteSummary as WriteSummary
    from secure_bloom.table_writing import write_table as write_table
    from secure_bloom.verify.findings import FilterCheck as FilterCheck
    from secure_bloom.verify.findings import VerifyResult as VerifyResult
    from secure_bloom.verify.verify import verify_file as verify_file
    from secure_bloom.writer import ParquetWriter as ParquetWriter
else:
    __getattr__, __dir__ = public_names(__name__, _HOME, _PACKAGES)


if "IPython" in sys.modules:  # otherwise this costs nothing
    from secure_bloom.notebook import shorten_tracebacks
    shorten_tracebacks()
    del shorten_tracebacks
