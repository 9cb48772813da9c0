"""The answers of secure_bloom to test vectors, computed by its production code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from secure_bloom.crypto.aad import ModuleType, module_aad
from secure_bloom.crypto.modules import ModuleCipher
from secure_bloom.errors import (
    AuthenticationError,
    FileError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    SecureBloomError,
    UnsupportedError,
)
from secure_bloom.keys import NO_KEYS, ExplicitKeys, InMemoryKms
from secure_bloom.keys.material import KeyMaterial, is_key_material, key_reference
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.header import decode_header, encode_header
from secure_bloom.parquet.redaction import revealed_fields
from secure_bloom.parquet.tail import MAGIC
from secure_bloom.policy import NO_POLICY
from secure_bloom.reader import ParquetFile
from secure_bloom.sbbf.column_type import WIDTHS, ColumnType
from secure_bloom.sbbf.conversion import convert_exactly
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.hashing import hash_values
from secure_bloom.sbbf.probes import parse_value
from secure_bloom.sbbf.sizing import (
    BYTES_PER_BLOCK,
    check_fpp,
    check_num_blocks,
    false_positive_probability,
    num_blocks_for,
)
from secure_bloom.validator.cases import Case
from secure_bloom.validator.indexes import look_up

Answer = tuple[str, dict[str, Any]]


class SecureBloom:
    """This implementation, as :func:`secure_bloom.validator.run_cases` calls it."""

    name = "secure_bloom"

    def answer(self, case: Case) -> Answer:
        """Return the outcome and output for the input of a case."""
        function = _OPERATIONS[case.layer, case.operation]
        return function(case) if case.layer in ("files", "index") else function(**case.input)

    def __enter__(self) -> SecureBloom:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no resources are held."""


class _WrongLength(ValueError):
    """Bytes that are not a valid value of a physical type."""


# --- xxh64 ---------------------------------------------------------------------------------------

_ARROW_TYPES = {"INT32": pa.int32(), "INT64": pa.int64(), "INT96": pa.timestamp("ns"),
                "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "BYTE_ARRAY": pa.binary()}


def _hash(physical_type: str, plain: Any, type_length: int = 0, logical_type: Any = None,
          value: Any = None) -> Answer:
    if physical_type == "BOOLEAN":
        return "unsupported_type", {}
    try:
        result = _hash_plain(physical_type, type_length, bytes.fromhex(plain))
    except _WrongLength:
        return "wrong_length", {}
    if value is not None:
        column_type = ColumnType(physical_type, type_length,
                                 _arrow_type(physical_type, type_length, logical_type))
        if _hash_value(value, column_type) != result:
            return "error", {"message": "plain and value are different values"}
    return "hashed", {"hash": f"{result:016x}"}


def _hash_plain(physical_type: str, type_length: int, plain: bytes) -> int:
    arrow_type = _ARROW_TYPES.get(physical_type)
    width = WIDTHS.get(physical_type, type_length if arrow_type is None else 0)
    if (width and len(plain) != width) or (physical_type == "FIXED_LEN_BYTE_ARRAY" and not width):
        raise _WrongLength
    if physical_type in ("INT96", "FIXED_LEN_BYTE_ARRAY"):
        # Not as a timestamp: Arrow cannot represent most INT96 values as one.
        column_type = ColumnType("FIXED_LEN_BYTE_ARRAY", width, pa.binary(width))
        array = pa.array([plain], pa.binary(width))
    else:
        column_type = ColumnType(physical_type, 0, arrow_type)
        array = pa.array([plain], pa.binary()) if physical_type == "BYTE_ARRAY" \
            else pa.Array.from_buffers(arrow_type, 1, [None, pa.py_buffer(plain)])
    return int(hash_values(array, column_type)[0])


def _hash_value(value: str, column_type: ColumnType) -> int:
    array = pa.array([parse_value(value, column_type).as_py()], column_type.arrow_type) \
        if column_type.arrow_type == pa.float16() \
        else pa.array([parse_value(value, column_type)], column_type.arrow_type)
    return int(hash_values(convert_exactly(array, column_type), column_type)[0])


_UNITS = {"MILLIS": "ms", "MICROS": "us", "NANOS": "ns"}


def _arrow_type(physical_type: str, type_length: int, logical_type: str | None) -> pa.DataType:
    """The Arrow type of a logical type written as text, such as ``DECIMAL(9,2)``."""
    name, _, arguments = (logical_type or "").rstrip(")").partition("(")
    first, _, second = arguments.partition(",")
    if name in ("STRING", "ENUM", "JSON"):
        return pa.string()
    if name == "DATE":
        return pa.date32()
    if name == "FLOAT16":
        return pa.float16()
    if name == "DECIMAL":
        wide = pa.decimal256 if int(first) > 38 else pa.decimal128
        return wide(int(first), int(second))
    if name == "INTEGER":
        return getattr(pa, f"{'' if second == 'signed' else 'u'}int{first}")()
    if name == "TIME":
        return pa.time32("ms") if first == "MILLIS" else pa.time64(_UNITS[first])
    if name == "TIMESTAMP":
        return pa.timestamp(_UNITS[first], "UTC" if second == "UTC" else None)
    if name in ("", "BSON", "UUID"):
        return _ARROW_TYPES.get(physical_type) or pa.binary(type_length)
    raise UnsupportedError(f"unknown logical type {logical_type!r}")


# --- blocks, bitsets, fold-merge -----------------------------------------------------------------

def _hash_array(hash: str) -> np.ndarray:
    return np.array([int(hash, 16)], dtype=np.uint64)


def _mask(hash: str) -> Answer:
    return _insert(hash, bytes(BYTES_PER_BLOCK).hex())


def _index(hash: str, num_blocks: int) -> Answer:
    try:
        filter_ = SplitBlockBloomFilter(num_blocks)
    except ValueError:
        return "invalid_size", {}
    filter_.insert_hashes(_hash_array(hash))
    blocks = np.frombuffer(filter_.bitset, np.uint8).reshape(num_blocks, -1)
    return "computed", {"index": int(np.flatnonzero(blocks.any(axis=1))[0])}


def _insert(hash: str, block: str) -> Answer:
    filter_ = SplitBlockBloomFilter.from_bitset(bytes.fromhex(block))
    filter_.insert_hashes(_hash_array(hash))
    return "computed", {"block": filter_.bitset.hex()}


def _check(hash: str, block: str) -> Answer:
    filter_ = SplitBlockBloomFilter.from_bitset(bytes.fromhex(block))
    return ("present" if filter_.check_hashes(_hash_array(hash))[0] else "absent"), {}


def _hashes(values: Any, physical_type: str, type_length: int) -> np.ndarray:
    return np.array([_hash_plain(physical_type, type_length, bytes.fromhex(value))
                     for value in values if value is not None], dtype=np.uint64)


def _build(physical_type: str, num_bytes: int, values: Any, type_length: int = 0) -> Answer:
    try:
        filter_ = SplitBlockBloomFilter(_num_blocks(num_bytes))
    except ValueError:
        return "invalid_size", {}
    try:
        filter_.insert_hashes(_hashes(values, physical_type, type_length))
    except _WrongLength:
        return "wrong_length", {}
    return "built", {"bitset": filter_.bitset.hex()}


def _num_blocks(num_bytes: int) -> int:
    blocks, rest = divmod(num_bytes, BYTES_PER_BLOCK)
    if rest:
        raise ValueError("not a whole number of blocks")
    return blocks


def _check_values(physical_type: str, bitset: str, values: Any, type_length: int = 0) -> Answer:
    try:
        filter_ = SplitBlockBloomFilter.from_bitset(bytes.fromhex(bitset))
    except ValueError:
        return "invalid_size", {}
    hashes = _hashes(values, physical_type, type_length)
    return "checked", {"answers": filter_.check_hashes(hashes).tolist()}


def _fold(bitset: str, num_bytes: int) -> Answer:
    try:
        filter_ = SplitBlockBloomFilter.from_bitset(bytes.fromhex(bitset))
        folded = filter_.fold(_num_blocks(num_bytes))
    except ValueError:
        return "invalid_size", {}
    return "folded", {"bitset": folded.bitset.hex()}


def _merge(bitsets: list[str]) -> Answer:
    try:
        first, *rest = (SplitBlockBloomFilter.from_bitset(bytes.fromhex(bitset))
                        for bitset in bitsets)
        for other in rest:
            first.merge(other)
    except ValueError:
        return "invalid_size", {}
    return "merged", {"bitset": first.bitset.hex()}


# --- sizing --------------------------------------------------------------------------------------

def _fpp(num_blocks: int, ndv: int) -> Answer:
    try:
        check_num_blocks(num_blocks)
    except ValueError:
        return "invalid_size", {}
    return "computed", {"fpp": false_positive_probability(num_blocks, ndv)}


def _blocks(ndv: int, fpp: float, power_of_two: bool) -> Answer:
    try:
        check_fpp(fpp)
    except ValueError:
        return "invalid_fpp", {}
    try:
        return "computed", {"num_blocks": num_blocks_for(ndv, fpp, power_of_two=power_of_two)}
    except ValueError:
        return "invalid_ndv", {}


# --- headers, footers, aad, modules --------------------------------------------------------------

def _encode(num_bytes: int) -> Answer:
    return "encoded", {"header": encode_header(num_bytes).hex()}


def _decode(data: str) -> Answer:
    try:
        num_bytes, header_size = decode_header(bytes.fromhex(data))
    except UnsupportedError:
        return "unsupported", {}
    except FileError:
        return "malformed", {}
    return "decoded", {"num_bytes": num_bytes, "header_size": header_size}


def _revealed(footer: str) -> Answer:
    return "listed", {"fields": [
        f"{chunk.row_group}:{chunk.column.path}:{field}"
        for chunk in Footer(bytes.fromhex(footer), MAGIC).column_chunks()
        for field in revealed_fields(chunk)]}


def _aad(aad_prefix: str, aad_file_unique: str, module_type: Any, **ordinals: Any) -> Answer:
    file_aad, module_type = bytes.fromhex(aad_prefix + aad_file_unique), ModuleType(module_type)
    try:
        aad = module_aad(file_aad, module_type, **ordinals)
    except ValueError:
        return "invalid_ordinal", {}
    return "built", {"aad": aad.hex()}


def _cipher(key: str) -> ModuleCipher | None:
    try:
        return ModuleCipher(bytes.fromhex(key))
    except ValueError:
        return None


def _encrypt(key: str, nonce: str, aad: str, plaintext: str) -> Answer:
    cipher = _cipher(key)
    if cipher is None:
        return "invalid_key", {}
    module = cipher._seal(*map(bytes.fromhex, (plaintext, aad, nonce)))
    return "encrypted", {"module": module.hex()}


def _decrypt(key: str, aad: str, module: str) -> Answer:
    cipher = _cipher(key)
    if cipher is None:
        return "invalid_key", {}
    try:
        plaintext = cipher.decrypt(bytes.fromhex(module), bytes.fromhex(aad))
    except AuthenticationError:
        return "authentication_failed", {}
    return "decrypted", {"plaintext": plaintext.hex()}


def _sign(key: str, nonce: str, aad: str, footer: str) -> Answer:
    signature = ModuleCipher(bytes.fromhex(key))._sign(*map(bytes.fromhex, (footer, aad, nonce)))
    return "signed", {"signature": signature.hex()}


def _verify(key: str, aad: str, footer: str, signature: str) -> Answer:
    try:
        ModuleCipher(bytes.fromhex(key)).verify(*map(bytes.fromhex, (footer, signature, aad)))
    except AuthenticationError:
        return "authentication_failed", {}
    return "verified", {}


# --- key-material --------------------------------------------------------------------------------

def _unwrap(key_metadata: Any, master_keys: Any) -> Answer:
    metadata = bytes.fromhex(key_metadata)
    try:
        if is_key_material(metadata) and key_reference(metadata) is not None:
            return "external", {}
        data_key = KmsKeys(_kms(master_keys)).footer_key(metadata)
        return "unwrapped", {"data_key": data_key.hex(),
                             "master_key": KeyMaterial.parse(metadata).master_key_id}
    except KeyNotFoundError:
        return "key_not_found", {}
    except KeyUnwrapError:
        return "unwrap_failed", {}
    except KeyRetrievalError:
        return "malformed", {}


def _kms(master_keys: dict[str, str]) -> InMemoryKms:
    return InMemoryKms({name: bytes.fromhex(key) for name, key in master_keys.items()})


# --- files ---------------------------------------------------------------------------------------

def _read(case: Case) -> Answer:
    """Read with the data keys, and with the master keys if any; both results must agree."""
    answer, *others = (_read_with(case, keys) for keys in _ways(**case.input))
    return next((("the data keys and the master keys lead to different results", {})
                 for other in others if other != answer), answer)


def _ways(file: Any, footer_key: Any = None, column_keys: Any = None, master_keys: Any = None,
          aad_prefix: Any = None) -> list[Any]:
    ways: list[Any] = []
    if footer_key is not None or column_keys is not None:
        ways.append(ExplicitKeys(
            None if footer_key is None else bytes.fromhex(footer_key),
            {path: bytes.fromhex(key) for path, key in (column_keys or {}).items()},
            aad_prefix=None if aad_prefix is None else bytes.fromhex(aad_prefix),
            plaintext_files_allowed=True))  # so that both kinds of keys return the same answer
    if master_keys is not None:
        ways.append(_kms(master_keys))
    return ways or [NO_KEYS]


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
    hashes = _hashes([probe["plain"]], column_type.physical_type, column_type.length)
    try:
        value = pa.array([parse_value(probe["value"], column_type)], column_type.arrow_type)
        in_words = hash_values(convert_exactly(value, column_type), column_type)
    except (ValueError, SecureBloomError):
        return "value is not a valid value of this type"
    if in_words != hashes:
        return "value and plain are different values"
    return bool(filter_.check_hashes(hashes)[0])


# --- index ---------------------------------------------------------------------------------------

def _look_up(case: Case) -> Answer:
    return look_up(case, _hashes(case.input["values"], "INT64", 0))


_OPERATIONS: dict[tuple[str, str], Callable[..., Answer]] = {
    ("xxh64", "hash"): _hash,
    ("blocks", "mask"): _mask, ("blocks", "index"): _index,
    ("blocks", "insert"): _insert, ("blocks", "check"): _check,
    ("bitsets", "build"): _build, ("bitsets", "check"): _check_values,
    ("fold-merge", "fold"): _fold, ("fold-merge", "merge"): _merge,
    ("sizing", "fpp"): _fpp, ("sizing", "blocks"): _blocks,
    ("headers", "encode"): _encode, ("headers", "decode"): _decode,
    ("footers", "revealed"): _revealed,
    ("aad", "build"): _aad,
    ("modules", "encrypt"): _encrypt, ("modules", "decrypt"): _decrypt,
    ("modules", "sign"): _sign, ("modules", "verify"): _verify,
    ("key-material", "unwrap"): _unwrap,
    ("files", "read"): _read,
    ("index", "lookup"): _look_up,
}
