"""The answers of secure_bloom to test vectors that are files."""

from __future__ import annotations

import hashlib
from typing import Any

from secure_bloom.errors import (
    AuthenticationError,
    KeyRetrievalError,
    SecureBloomError,
    UnsupportedError,
)
from secure_bloom.keys import NO_KEYS, ExplicitKeys, InMemoryKms
from secure_bloom.policy import NO_POLICY
from secure_bloom.reader import ParquetFile
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.validator.cases import Answer, Case
from secure_bloom.validator.hashing import hash_text, hashes_of


def read(case: Case) -> Answer:
    """Read with the data keys, and with the master keys if any; both results must agree."""
    answer, *others = (_read_with(case, keys) for keys in keys_of(**case.input))
    return next((("the data keys and the master keys lead to different results", {})
                 for other in others if other != answer), answer)


def keys_of(file: Any, footer_key: Any = None, column_keys: Any = None, master_keys: Any = None,
            aad_prefix: Any = None) -> list[Any]:
    """Return the keys, of one or two kinds, with which a case's file is read."""
    keys: list[Any] = []
    if footer_key is not None or column_keys is not None:
        keys.append(ExplicitKeys(
            None if footer_key is None else bytes.fromhex(footer_key),
            {path: bytes.fromhex(key) for path, key in (column_keys or {}).items()},
            aad_prefix=None if aad_prefix is None else bytes.fromhex(aad_prefix),
            plaintext_files_allowed=True))  # so that both kinds of keys return the same answer
    if master_keys is not None:
        keys.append(kms_of(master_keys))
    return keys or [NO_KEYS]


def _read_with(case: Case, keys: Any) -> Answer:
    refusal: SecureBloomError | None = None
    filters: list[dict[str, Any]] = []
    try:
        file = ParquetFile(case.path, keys, policy=NO_POLICY)
    except SecureBloomError as error:
        return _refused(error, [])
    with file:
        for chunk in file.footer.column_chunks():
            try:
                filter_ = file.read_bloom_filter(chunk.row_group, chunk.column.path)
            except SecureBloomError as error:
                refusal = refusal or error
                continue
            if filter_ is not None:
                filters.append(_filter(filter_, chunk, _probes(case, chunk)))
    return ("read", {"filters": filters}) if refusal is None else _refused(refusal, filters)


def _refused(error: SecureBloomError, filters: list[dict[str, Any]]) -> Answer:
    outcome = next(outcome for kind, outcome in _REFUSALS if isinstance(error, kind))
    at = "footer" if error.column is None else f"{error.row_group}:{error.column}"
    return outcome, {"at": at, "filters": filters}


_REFUSALS: list[tuple[type[SecureBloomError], str]] = [
    (AuthenticationError, "authentication_failed"), (UnsupportedError, "unsupported"),
    (KeyRetrievalError, "key_unavailable"), (SecureBloomError, "malformed")]


def _probes(case: Case, chunk: Any) -> list[dict[str, Any]]:
    place = chunk.row_group, chunk.column.path
    return next((filter_["probes"] for filter_ in case.output["filters"]
                 if (filter_["row_group"], filter_["column"]) == place), [])


def _filter(filter_: SplitBlockBloomFilter, chunk: Any, probes: list[dict[str, Any]]) \
        -> dict[str, Any]:
    return {"row_group": chunk.row_group, "column": chunk.column.path,
            "encrypted": chunk.encryption is not None, "num_bytes": filter_.num_bytes,
            "sha256": hashlib.sha256(filter_.bitset).hexdigest(),
            "probes": [{"plain": probe["plain"], "value": probe["value"],
                        "answer": _probe(filter_, probe)} for probe in probes]}


def _probe(filter_: SplitBlockBloomFilter, probe: dict[str, Any]) -> bool | str:
    """The answer, provided that ``value`` and ``plain`` are the same value."""
    column_type = filter_.column_type
    assert column_type is not None  # the filter was read from a file
    hashes = hashes_of([probe["plain"]], column_type.physical_type, column_type.length)
    try:
        of_text = hash_text(probe["value"], column_type)
    except (ValueError, SecureBloomError):
        return "value is not a valid value of this type"
    if of_text != hashes[0]:
        return "value and plain are different values"
    return bool(filter_.check_hashes(hashes)[0])


def kms_of(master_keys: dict[str, str]) -> InMemoryKms:
    """Return a KMS of the master keys of a case."""
    return InMemoryKms({name: bytes.fromhex(key) for name, key in master_keys.items()})
