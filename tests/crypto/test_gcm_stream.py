"""AES GCM streams, as Iceberg's gcm-stream-spec.md describes them."""

import os

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_bloom.crypto.gcm_stream import decrypt_stream
from secure_bloom.errors import AuthenticationError

KEY, PREFIX = b"an AES-128 key !", b"an AAD prefix"
BLOCK = 10
TEXT = b"three blocks, one short"


def block(text, number, key=KEY):
    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, text, PREFIX + bytes((number, 0, 0, 0)))


def stream(*blocks, magic=b"AGS1", size=BLOCK):
    return magic + size.to_bytes(4, "little") + b"".join(blocks)


def encrypted():
    return [block(TEXT[start:start + BLOCK], number)
            for number, start in enumerate(range(0, len(TEXT), BLOCK))]


def decrypted(data, key=KEY, prefix=PREFIX, length=None):
    return decrypt_stream(data, key, prefix, len(data) if length is None else length)


def test_blocks_are_decrypted_and_joined():
    assert decrypted(stream(*encrypted())) == TEXT
    assert decrypted(stream(block(b"", 0))) == b""


@pytest.mark.parametrize("change", [
    lambda first, second, third: stream(second, first, third),
    lambda first, second, third: stream(first[:-1] + bytes([first[-1] ^ 1]), second, third),
    lambda first, second, third: stream(first, second, third[:-1]),
    lambda first, second, third: stream(first, second, third, b"short"),
    lambda first, second, third: stream(first, second, third, size=BLOCK + 1),
    lambda first, second, third: stream(first, block(TEXT[10:20], 1, KEY[::-1]), third)])
def test_changed_blocks_do_not_authenticate(change):
    with pytest.raises(AuthenticationError, match="does not authenticate"):
        decrypted(change(*encrypted()))


def test_a_wrong_key_or_prefix_does_not_authenticate():
    for wrong in ({"key": KEY[::-1]}, {"prefix": b""}):
        with pytest.raises(AuthenticationError, match="does not authenticate"):
            decrypted(stream(*encrypted()), **wrong)


def test_blocks_that_were_cut_off_show_in_the_length():
    whole = stream(*encrypted())
    for cut in (stream(*encrypted()[:2]), whole[:8], b""):
        with pytest.raises(AuthenticationError, match="another length"):
            decrypted(cut, length=len(whole))
    with pytest.raises(AuthenticationError, match="another length"):
        decrypted(b"AGS1", length=4)


def test_a_file_that_is_no_stream_is_refused():
    for data in (stream(*encrypted(), magic=b"Obj\1"), stream(*encrypted(), size=0)):
        with pytest.raises(AuthenticationError, match="not an AES GCM stream"):
            decrypted(data)
