"""AES GCM streams: how Iceberg encrypts manifests and other files that are not Parquet.

A stream on disk (gcm-stream-spec.md of Iceberg):

    magic        4 bytes, "AGS1"
    block size   4 bytes, little-endian: plaintext bytes of every block but the last
    blocks       nonce (12 bytes), ciphertext, tag (16 bytes)

The additional authenticated data of a block is the AAD prefix of the file and the number of the
block, in 4 bytes, little-endian. So blocks cannot change places. Only the length of the file, which
is recorded elsewhere, shows that the last ones were removed.
"""

from __future__ import annotations

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_bloom.crypto.aes_gcm import NONCE_SIZE, TAG_SIZE
from secure_bloom.errors import AuthenticationError

MAGIC = b"AGS1"
_HEADER = struct.Struct("<4sI")
_OVERHEAD = NONCE_SIZE + TAG_SIZE


def decrypt_stream(data: bytes, key: bytes, aad_prefix: bytes, length: int) -> bytes:
    """Return the plaintext of a stream.

    Parameters
    ----------
    data : bytes
        The whole file.
    key : bytes
        16, 24 or 32 bytes.
    aad_prefix : bytes
    length : int
        Bytes that the file must have.

    Raises
    ------
    AuthenticationError
        If it is not an AES GCM stream, has another length, or does not authenticate.
    """
    if len(data) != length or len(data) < _HEADER.size + _OVERHEAD:
        raise AuthenticationError("the encrypted file has another length than the table records")
    magic, block_size = _HEADER.unpack_from(data)
    if magic != MAGIC or not block_size:
        raise AuthenticationError("the file is not an AES GCM stream, although the table records "
                                  "a key for it; it may have been replaced")
    aes, blocks = AESGCM(key), memoryview(data)[_HEADER.size:]
    step = block_size + _OVERHEAD
    try:
        return b"".join(_decrypted(aes, blocks[start:start + step], aad_prefix, number)
                        for number, start in enumerate(range(0, len(blocks), step)))
    except (InvalidTag, ValueError):  # ValueError: a block that is too short
        raise AuthenticationError("a block of the encrypted file does not authenticate: the key "
                                  "is wrong, or the file was changed") from None


def _decrypted(aes: AESGCM, block: memoryview, aad_prefix: bytes, number: int) -> bytes:
    return aes.decrypt(block[:NONCE_SIZE], block[NONCE_SIZE:],
                       aad_prefix + number.to_bytes(4, "little"))
