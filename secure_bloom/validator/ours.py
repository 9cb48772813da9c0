"""The answers of secure_bloom to test vectors, computed by its production code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.fs as pa_fs

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
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.lookup import located
from secure_bloom.index.stamps import Stamp
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.material import KeyMaterial, is_key_material, key_reference
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.header import decode_header, encode_header
from secure_bloom.parquet.redaction import revealed_fields
from secure_bloom.parquet.row_ranges import ALL_PARTS
from secure_bloom.parquet.tail import MAGIC
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.probes import ValueHashes
from secure_bloom.sbbf.sizing import (
    BYTES_PER_BLOCK,
    check_fpp,
    check_num_blocks,
    false_positive_probability,
    num_blocks_for,
)
from secure_bloom.validator.cases import Answer, Case
from secure_bloom.validator.files import kms_of, read
from secure_bloom.validator.hashing import (
    WrongLengthError,
    arrow_type,
    hash_plain,
    hash_text,
    hashes_of,
)


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


# --- xxh64 ---------------------------------------------------------------------------------------

def _hash(physical_type: str, plain: Any, type_length: int = 0, logical_type: Any = None,
          value: Any = None) -> Answer:
    if physical_type == "BOOLEAN":
        return "unsupported_type", {}
    try:
        result = hash_plain(physical_type, type_length, bytes.fromhex(plain))
    except WrongLengthError:
        return "wrong_length", {}
    if value is not None:
        column_type = ColumnType(physical_type, type_length,
                                 arrow_type(physical_type, type_length, logical_type))
        if hash_text(value, column_type) != result:
            return "error", {"message": "plain and value are different values"}
    return "hashed", {"hash": f"{result:016x}"}


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


def _build(physical_type: str, num_bytes: int, values: Any, type_length: int = 0) -> Answer:
    try:
        filter_ = SplitBlockBloomFilter(_num_blocks(num_bytes))
    except ValueError:
        return "invalid_size", {}
    try:
        filter_.insert_hashes(hashes_of(values, physical_type, type_length))
    except WrongLengthError:
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
    hashes = hashes_of(values, physical_type, type_length)
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
        data_key = KmsKeys(kms_of(master_keys)).footer_key(metadata)
        return "unwrapped", {"data_key": data_key.hex(),
                             "master_key": KeyMaterial.parse(metadata).master_key_id}
    except KeyNotFoundError:
        return "key_not_found", {}
    except KeyUnwrapError:
        return "unwrap_failed", {}
    except KeyRetrievalError:
        return "malformed", {}


# --- index ---------------------------------------------------------------------------------------

def _look_up(case: Case) -> Answer:
    return look_up(case, hashes_of(case.input["values"], "INT64", 0))


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
    ("files", "read"): read,
    ("index", "lookup"): _look_up,
}


# --- the data-set index ---------------------------------------------------------------------------

def look_up(case: Case, hashes: np.ndarray) -> Answer:
    """Look hashes of values up in the index next to a case."""
    keys = case.input.get("master_keys")
    kms = None if keys is None else CachedKms(kms_of(keys))
    listing = {path: Stamp(int(size), int(time), tag) for path, size, time, tag in
               (one.rsplit(":", 3) for one in case.input["files"])}
    try:
        return _answered(_opened(case, kms), listing, hashes)
    except SecureBloomError:
        return "refused", {}


def _opened(case: Case, kms: CachedKms | None) -> ColumnIndex:
    folder = IndexFolder(pa_fs.LocalFileSystem(), "", case.input["column"])
    folder.path = str(case.folder)  # not below a table
    manifest = folder.open_newest(kms)
    if manifest is None:
        raise SecureBloomError("there is no manifest", file=folder.path)
    return ColumnIndex(folder, manifest)


def _answered(index: ColumnIndex, listing: dict[str, Stamp], hashes: np.ndarray) -> Answer:
    coverage = index.coverage(listing)
    found: set[tuple[int, str, int, int]] = set()
    probes = ValueHashes(hashes, np.arange(hashes.size), np.empty(0, np.int64))
    for hits in index.find_hashes(lambda _: probes):
        found.update((value, path, group, parts)
                     for value, path, _, group, parts in located(coverage, hits))
    return "answered", {"found": [_text(*one) for one in sorted(found)],
                        "uncovered": sorted(coverage.uncovered)}


def _text(value: int, path: str, group: int, parts: int) -> str:
    return f"{value}:{path}:{group}" + ("" if parts == ALL_PARTS else f":{parts:08x}")
