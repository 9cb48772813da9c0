"""How long a change of encryption will take, and how often it calls the KMS."""

from __future__ import annotations

import os
from dataclasses import dataclass
from time import perf_counter

import pyarrow.fs as pa_fs

from secure_bloom.crypto.modules import ModuleCipher
from secure_bloom.display import Result
from secure_bloom.reencryption.result import ReencryptResult
from secure_bloom.storage.source import Source

_SAMPLE = 8 << 20  # bytes
_PAGE = 1 << 20


@dataclass(frozen=True)
class Estimate(Result):
    """What a change of encryption will cost.

    Attributes
    ----------
    seconds : float
        About how long it will take on this machine.
    kms_wraps : int
        Calls of the KMS that wrap keys, if data keys are wrapped by key-encryption keys.
    kms_unwraps : int
        Calls that unwrap keys, in the same case, and at most: files of one writer share some.
    """

    seconds: float
    kms_wraps: int
    kms_unwraps: int


def estimate(plan: ReencryptResult, filesystem: pa_fs.FileSystem, planning: float,
             files_at_once: int | None) -> Estimate:
    """Estimate what a planned change will cost.

    Parameters
    ----------
    plan : ReencryptResult
        Of a dry run.
    filesystem : pyarrow.fs.FileSystem
    planning : float
        How many seconds the dry run took, which opened all files.
    files_at_once : int, optional
        Default: one per core.

    Raises OSError if a file cannot be read.
    """
    workers = max(1, min(len(plan.changed), files_at_once or os.cpu_count() or 1))
    per_byte = 0.0 if not plan.changed else _seconds_per_byte(
        filesystem, max(plan.changed, key=lambda one: one.bytes).file)
    return Estimate(planning + plan.bytes * per_byte / workers,
                    len({name for one in plan.changed for name in one.new_master_keys}),
                    sum(len(one.old_master_keys) for one in plan.changed))


def _seconds_per_byte(filesystem: pa_fs.FileSystem, path: str) -> float:
    """Measure how long it takes to read a file, to decrypt and encrypt it, and to write it.

    Writing is assumed to take as long as reading.
    """
    source = Source(path, filesystem)
    try:
        start = perf_counter()
        data = source.read_at(min(_SAMPLE, source.size), 0)
        reading = perf_counter() - start
    finally:
        source.file.close()
    cipher, start = ModuleCipher(os.urandom(16)), perf_counter()
    for position in range(0, len(data), _PAGE):
        cipher.decrypt(cipher.encrypt(data[position:position + _PAGE], b""), b"")
    return (2 * reading + perf_counter() - start) / max(1, len(data))
