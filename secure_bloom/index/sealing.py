"""Keys of an index, and its sealed modules.

Each index has one random key of 32 bytes. The master key of the column wraps it, so that rotation
rewrites one small file. HKDF-SHA256 derives the other keys from it, with the index id as salt:

    fingerprint key    info "fingerprint"
    segment key        info "segment" | segment id (16 bytes)
    manifest key       info "manifest"

A sealed module is an encrypted module as in Parquet (:mod:`secure_bloom.crypto.modules`). Its AAD
binds it to its position:

    format (4) | index id (16) | segment id (16) | module type (1) | ordinal (8, little-endian)

The format is that of the segment or manifest, SBX2 or SBX3.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from functools import cached_property
from threading import local

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_bloom.crypto.modules import Bytes, ModuleCipher

MAGIC = b"SBX3"
SBX2 = b"SBX2"  #: the format before, which is read, too
KEY_SIZE = 32
ID_SIZE = 16  #: bytes of the id of an index or a segment
_IN_CACHE = 1 << 13  # hashes whose blocks stay in the cache of a core


class ModuleType(IntEnum):
    """What a sealed module holds."""

    PAGE = 0
    DIRECTORY = 1
    FILES = 2
    FOOTER = 3
    MANIFEST = 4
    FILE_PAGE = 5


class IndexKey:
    """The key of an index, and what is derived from it.

    ``secret`` is the plaintext key, for callers that wrap it immediately.
    """

    def __init__(self, key: bytes, index_id: bytes):
        if len(key) != KEY_SIZE or len(index_id) != ID_SIZE:
            raise ValueError("an index has a key of 32 bytes and an id of 16 bytes")
        self.secret, self.index_id = key, index_id
        self._of_thread = local()

    @classmethod
    def new(cls) -> IndexKey:
        """Make the random key of a new index."""
        return cls(os.urandom(KEY_SIZE), os.urandom(ID_SIZE))

    def segment(self, segment_id: bytes) -> Sealer:
        """Return what seals the modules of a segment."""
        return Sealer(self._derive(b"segment" + segment_id), self.index_id + segment_id)

    def manifest(self) -> Sealer:
        """Return what seals the bodies of manifests."""
        return Sealer(self._derive(b"manifest"), self.index_id + bytes(ID_SIZE))

    def fingerprints(self, hashes: np.ndarray) -> np.ndarray:
        """Return keyed fingerprints, uint64: half an AES block of each XXH64 hash and zeros."""
        found, most = np.empty(hashes.size, np.uint64), min(hashes.size, _IN_CACHE)
        blocks, encrypted = np.zeros((most, 2), "<u8"), np.empty(16 * most + 15, np.uint8)
        encryptor = self._cipher.encryptor()
        for start in range(0, hashes.size, _IN_CACHE):
            some = hashes[start:start + _IN_CACHE]
            blocks[:some.size, 0] = some
            encryptor.update_into(blocks[:some.size].data.cast("B"), encrypted.data)
            found[start:start + some.size] = encrypted[:16 * some.size].view("<u8")[::2]
        return found

    def fingerprint(self, value_hash: int) -> int:
        """Return one of :meth:`fingerprints`, in less time."""
        try:
            encryptor = self._of_thread.encryptor  # to make one takes longer than all else
        except AttributeError:
            encryptor = self._of_thread.encryptor = self._cipher.encryptor()
        return int.from_bytes(encryptor.update(value_hash.to_bytes(16, "little"))[:8], "little")

    @cached_property
    def _cipher(self) -> Cipher[modes.ECB]:
        # Single blocks: a pseudorandom function of the hash, not encryption of a message.
        return Cipher(algorithms.AES(self._derive(b"fingerprint")), modes.ECB())

    def _derive(self, info: bytes) -> bytes:
        return HKDF(hashes.SHA256(), KEY_SIZE, self.index_id, info).derive(self.secret)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexKey) \
            and (self.secret, self.index_id) == (other.secret, other.index_id)

    def __hash__(self) -> int:
        return hash((self.secret, self.index_id))

    def __repr__(self) -> str:
        return f"<IndexKey of index {self.index_id.hex()}>"

    def __reduce__(self) -> str:
        raise TypeError("an index key must not be pickled")


class Sealer:
    """Seals and opens the modules of one segment, or of the manifests.

    Parameters
    ----------
    key : bytes
    place : bytes
        Id of the index, and of the segment.
    magic : bytes
        The format.
    """

    def __init__(self, key: bytes, place: bytes, magic: bytes = MAGIC):
        self._key, self._place = key, place
        self._cipher, self._prefix = ModuleCipher(key), magic + place

    def of_format(self, magic: bytes) -> Sealer:
        """Return what opens the modules of a format."""
        return self if self._prefix.startswith(magic) else Sealer(self._key, self._place, magic)

    def seal(self, plaintext: Bytes, kind: ModuleType, ordinal: int = 0) -> bytes:
        """Return a sealed module."""
        return self._cipher.encrypt(plaintext, self._aad(kind, ordinal))

    def open(self, module: Bytes, kind: ModuleType, ordinal: int = 0) -> pa.Buffer:
        """Return the content of a module.

        Raises AuthenticationError if it was changed, or belongs to another position.
        """
        return self._cipher.decrypt_buffer(module, self._aad(kind, ordinal))

    def open_into(self, module: Bytes, target: memoryview, kind: ModuleType,
                  ordinal: int = 0) -> None:
        """Open a module as :meth:`open`, into memory of the caller."""
        self._cipher.decrypt_into(module, self._aad(kind, ordinal), target)

    def _aad(self, kind: ModuleType, ordinal: int) -> bytes:
        return self._prefix + struct.pack("<BQ", kind, ordinal)
