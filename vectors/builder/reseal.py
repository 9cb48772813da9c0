"""Modules of an encrypted file, and the same file again under keys and nonces from a seed.

Writers draw data keys, nonces and aad_file_unique at random. So a file that a real writer has made
is opened module by module and sealed again in place. No length changes, hence no offset does.

A page under AES_GCM_CTR_V1 is a module without a tag (Encryption.md, section 5.2.2): length (4),
nonce (12), ciphertext. The initial counter block of AES-CTR is the nonce and a 4-byte 1.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from unittest.mock import patch

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secure_bloom.crypto import modules as gcm
from secure_bloom.crypto.aad import ModuleType, module_aad
from secure_bloom.crypto.aes_gcm import NONCE_SIZE
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.crypto.modules import LENGTH_SIZE, ModuleCipher
from secure_bloom.errors import FormatError
from secure_bloom.keys import InMemoryKms, kms
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import EncryptionAlgorithm, Footer
from secure_bloom.parquet.tail import TAIL_SIZE, split_tail
from secure_bloom.parquet.thrift import Struct
from vectors.builder.vector import MASTER_KEYS, FileKeys, Seeded

# Field ids of parquet.thrift.
_NUM_VALUES, _DATA_PAGE_OFFSET, _DICTIONARY_PAGE_OFFSET = 5, 9, 11  # ColumnMetaData
_ENCRYPTED_META_DATA = 9  # ColumnChunk
_INDEXES = {ModuleType.OFFSET_INDEX: (4, 5), ModuleType.COLUMN_INDEX: (6, 7)}  # offset, length
_COMPRESSED_PAGE_SIZE, _DATA_PAGE_HEADER, _DATA_PAGE_HEADER_V2 = 3, 5, 8  # PageHeader
_CRYPTO_ALGORITHM, _ALGORITHM, _AAD_FILE_UNIQUE = 1, 8, 2


@dataclass(frozen=True)
class Module:
    """An encrypted module that stands in a file.

    Attributes
    ----------
    offset, length : int
        Where it is; both count the 4 bytes of its own length.
    type : ModuleType
    key : bytes
    row_group, column, page : int or None
        The ordinals of its AAD.
    path : str or None
        The column's dotted path.
    ctr : bool
        Whether it is a page in AES-CTR.
    """

    offset: int
    length: int
    type: ModuleType
    key: bytes
    row_group: int | None = None
    column: int | None = None
    page: int | None = None
    path: str | None = None
    ctr: bool = False

    @property
    def end(self) -> int:
        """Where the next byte after it is."""
        return self.offset + self.length

    def aad(self, file_aad: bytes) -> bytes:
        """Its AAD; ``file_aad`` is AAD prefix and aad_file_unique."""
        return module_aad(file_aad, self.type, self.row_group, self.column, self.page)

    def open(self, data: bytes, file_aad: bytes) -> bytes:
        """Its plaintext."""
        module = data[self.offset:self.end]
        if self.ctr:
            return _ctr(self.key, module[LENGTH_SIZE:LENGTH_SIZE + NONCE_SIZE],
                        module[LENGTH_SIZE + NONCE_SIZE:])
        return ModuleCipher(self.key).decrypt(module, self.aad(file_aad))

    def seal(self, plaintext: bytes, file_aad: bytes, nonce: bytes) -> bytes:
        """The module of a plaintext in its place, length first."""
        if self.ctr:
            sealed = nonce + _ctr(self.key, nonce, plaintext)
            return len(sealed).to_bytes(LENGTH_SIZE, "little") + sealed
        return ModuleCipher(self.key)._seal(plaintext, self.aad(file_aad), nonce)


def _ctr(key: bytes, nonce: bytes, data: bytes) -> bytes:
    cipher = Cipher(algorithms.AES(key), modes.CTR(nonce + (1).to_bytes(4, "big")))
    return cipher.encryptor().update(data)


# --- enumerating ---------------------------------------------------------------------------------

def open_footer(data: bytes, keys: KeyRetriever | None) -> Footer:
    """The footer of a file in memory."""
    before, content, magic = split_tail(data)
    return Footer(content, magic, keys, start=len(before))


def modules(data: bytes, keys: KeyRetriever) -> list[Module]:
    """The encrypted modules of a file, by offset; ``keys`` must open all of them.

    Column metadata is listed under a plaintext footer only: else it is inside the footer's module.
    A signature of a plaintext footer is no module.
    """
    footer = open_footer(data, keys)
    found = [module for chunk in footer.column_chunks() if chunk.encryption
             for module in _of_chunk(data, footer, chunk, keys)]
    if footer.has_encrypted_footer:
        found.append(_footer_module(data, footer, keys))
    return sorted(found, key=lambda module: module.offset)


def _footer_module(data: bytes, footer: Footer, keys: KeyRetriever) -> Module:
    _, crypto_size = thrift.decode(data[footer.start:], {})
    offset = footer.start + crypto_size
    return Module(offset, len(data) - TAIL_SIZE - offset, ModuleType.FOOTER,
                  keys.footer_key(footer.footer_key_metadata))


def _of_chunk(data: bytes, footer: Footer, chunk: ColumnChunk, keys: KeyRetriever) \
        -> Iterator[Module]:
    key = _chunk_key(footer, chunk, keys)
    place = Module(0, 0, ModuleType.COLUMN_META_DATA, key, chunk._ordinal, chunk.column.ordinal,
                   path=chunk.column.path)

    def at(offset: int, type_: ModuleType) -> Module:
        length = LENGTH_SIZE + int.from_bytes(data[offset:offset + LENGTH_SIZE], "little")
        return replace(place, offset=offset, length=length, type=type_)

    yield from _pages(data, footer, chunk, at)
    for type_, (offset, length) in _INDEXES.items():
        if (offset := chunk._struct.get_int(offset)) is not None:
            index = at(offset, type_)
            _check(index.length == chunk._struct.get_int(length), "an index has another length")
            yield index
    if chunk.bloom_filter is not None:
        header = at(chunk.bloom_filter[0], ModuleType.BLOOM_FILTER_HEADER)
        yield header
        yield at(header.end, ModuleType.BLOOM_FILTER_BITSET)
    metadata = chunk._struct.get_binary(_ENCRYPTED_META_DATA)
    if metadata is not None and not footer.has_encrypted_footer:
        yield at(data.index(metadata, footer.start), ModuleType.COLUMN_META_DATA)


def _chunk_key(footer: Footer, chunk: ColumnChunk, keys: KeyRetriever) -> bytes:
    return keys.footer_key(footer.footer_key_metadata) if chunk.encryption == "footer key" \
        else keys.column_key(chunk.column.path, chunk.key_metadata)


def _pages(data: bytes, footer: Footer, chunk: ColumnChunk, at) -> Iterator[Module]:
    meta = chunk.metadata()
    ctr = footer.algorithm.name == "AES_GCM_CTR_V1"
    dictionary, position = meta.get_int(_DICTIONARY_PAGE_OFFSET), meta.get_int(_DATA_PAGE_OFFSET)
    if dictionary is not None:
        header = at(dictionary, ModuleType.DICTIONARY_PAGE_HEADER)
        yield header
        yield replace(at(header.end, ModuleType.DICTIONARY_PAGE), ctr=ctr)
    left, page = meta.get_int(_NUM_VALUES), 0
    while left > 0:
        header = replace(at(position, ModuleType.DATA_PAGE_HEADER), page=page)
        body = replace(at(header.end, ModuleType.DATA_PAGE), page=page, ctr=ctr)
        content, _ = thrift.decode(header.open(data, footer.file_aad),
                                   {_DATA_PAGE_HEADER: {}, _DATA_PAGE_HEADER_V2: {}})
        # parquet-java leaves the levels of V2 pages in plaintext, before the module
        _check(body.length == content.get_int(_COMPRESSED_PAGE_SIZE), "a page is not one module")
        yield from (header, body)
        kind: Struct = content.get(_DATA_PAGE_HEADER) or content.get(_DATA_PAGE_HEADER_V2)
        left -= kind.get_int(1)
        position, page = body.end, page + 1


def _check(holds: bool, fault: str) -> None:
    if not holds:
        raise FormatError(fault)


# --- sealing again -------------------------------------------------------------------------------

def reseal(data: bytes, keys: KeyRetriever, name: str) -> tuple[bytes, FileKeys]:
    """A file with its modules sealed again, and the keys to read it with.

    Keys that key material holds are replaced, master keys and keys given outright are not.

    Parameters
    ----------
    data : bytes
        A file of secure_bloom or pyarrow.
    keys : KeyRetriever
        All its keys: KmsKeys over :data:`MASTER_KEYS`, or ExplicitKeys.
    name : str
        The seed.
    """
    footer = open_footer(data, keys)
    old = [(module, module.open(data, footer.file_aad)) for module in modules(data, keys)
           if module.offset < footer.start]
    for chunk in footer.column_chunks():
        chunk.to_change()
        _ = chunk.bloom_filter  # opens its metadata, while the old keys are known
    renewed = _Renewed(keys, Seeded(name))
    with seeded_random(renewed.source):
        file_keys = renewed.footer(footer)
        out = bytearray(data[:footer.start])
        for module, plaintext in old:
            module = replace(module, key=renewed.data_key(module.key))
            sealed = module.seal(plaintext, footer.file_aad, renewed.source.bytes(NONCE_SIZE))
            _check(len(sealed) == module.length, "a module changes its length")
            out[module.offset:module.end] = sealed
        out += footer.to_bytes()
    _check(len(out) == len(data), "the footer changes its length")
    return bytes(out), file_keys


@contextmanager
def seeded_random(source: Seeded) -> Iterator[None]:
    """Nonces of modules and of locally wrapped keys come from a seed."""
    fake = SimpleNamespace(urandom=source.bytes)
    with patch.object(gcm, "os", fake), patch.object(kms, "os", fake):
        yield


class _Renewed:
    """What takes the place of the random keys of a file."""

    def __init__(self, keys: KeyRetriever, source: Seeded):
        self.source = source
        self._keys = keys
        self._kms = InMemoryKms(MASTER_KEYS)
        self._data_keys: dict[bytes, bytes] = {}
        self._materials: dict[bytes, bytes] = {}  # one for all row groups, as it was
        self._keks: dict[str, tuple[bytes, bytes, str]] = {}  # by old id: id, key, wrapped

    def data_key(self, key: bytes) -> bytes:
        """The new key, or the old one where it was given outright."""
        return self._data_keys.get(key, key)

    def footer(self, footer: Footer) -> FileKeys:
        """Put new keys and a new aad_file_unique into a footer, which is not sealed yet."""
        column_keys: dict[str, bytes] = {}
        masters: set[str] = set()
        old = footer.footer_key_metadata
        footer_key = self._keys.footer_key(old)
        if old is not None:
            footer_key = self._renew_key(footer_key)
            footer.set_footer_key_metadata(self._material(old, footer_key, masters))
        footer.crypto.use_footer_key(footer_key)
        self._renew_file_unique(footer)
        for chunk in footer.column_chunks():
            if chunk.encryption == "column key":
                path, old = chunk.column.path, chunk.key_metadata
                key = column_keys[path] = self._renew_key(self._keys.column_key(path, old))
                chunk.set_key_metadata(self._material(old, key, masters))
                chunk._decoded.cipher = ModuleCipher(key)
            elif chunk.encryption:
                chunk._decoded.cipher = footer.crypto.footer_cipher
        prefix = self._keys.aad_prefix if footer.algorithm.supply_aad_prefix else None
        return FileKeys(footer_key, column_keys,
                        {name: MASTER_KEYS[name] for name in MASTER_KEYS if name in masters},
                        prefix)

    def _renew_key(self, key: bytes) -> bytes:
        if key not in self._data_keys:
            self._data_keys[key] = self.source.bytes(len(key))
        return self._data_keys[key]

    def _renew_file_unique(self, footer: Footer) -> None:
        union = footer._crypto_meta.get(_CRYPTO_ALGORITHM) if footer.has_encrypted_footer \
            else footer._file_meta.get(_ALGORITHM)
        fields = union.fields[0][2]
        fields.set_binary(_AAD_FILE_UNIQUE,
                          self.source.bytes(len(fields.get_binary(_AAD_FILE_UNIQUE))))
        footer.crypto.algorithm = EncryptionAlgorithm.of(union)
        del footer.crypto.file_aad  # cached

    def _material(self, old: bytes, key: bytes, masters: set[str]) -> bytes:
        """Key material for another data key, with the fields and lengths that it had."""
        fields = json.loads(old)
        masters.add(fields["masterKeyID"])
        if old not in self._materials:
            _check(_json(fields) == old, "the key material is written otherwise")
            new = _json(fields | self._wrapped(fields, key))
            _check(len(new) == len(old), "the key material changes its length")
            self._materials[old] = new
        return self._materials[old]

    def _wrapped(self, fields: dict, key: bytes) -> dict:
        master = fields["masterKeyID"]
        if not fields["doubleWrapping"]:
            return {"wrappedDEK": self._kms.wrap_key(key, master)}
        old_id = fields["keyEncryptionKeyID"]
        if old_id not in self._keks:
            kek_id = self.source.bytes(len(base64.b64decode(old_id)))
            kek = self.source.bytes(len(self._kms.unwrap_key(fields["wrappedKEK"], master)))
            self._keks[old_id] = kek_id, kek, self._kms.wrap_key(kek, master)
        kek_id, kek, wrapped = self._keks[old_id]
        return {"wrappedDEK": kms.wrap_locally(kek, key, kek_id),
                "keyEncryptionKeyID": base64.b64encode(kek_id).decode(), "wrappedKEK": wrapped}


def _json(fields: dict) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
