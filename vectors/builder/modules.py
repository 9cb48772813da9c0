"""The layers ``aad`` and ``modules``: AES-GCM straight from the cryptography package."""

from __future__ import annotations

import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vectors.builder.small import Layer, flipped
from vectors.builder.vector import AAD_PREFIX, MASTER_KEYS, Seeded

_UNIQUE = Seeded("aad_file_unique").bytes(8)
_TYPES = {0: "footer", 1: "column_meta_data", 2: "data_page", 3: "dictionary_page",
          4: "data_page_header", 5: "dictionary_page_header", 6: "column_index",
          7: "offset_index", 8: "bloom_filter_header", 9: "bloom_filter_bitset"}
_WITH_PAGE = (2, 4)


def _aad(prefix: bytes, module_type: int, *ordinals: int) -> bytes:
    return prefix + _UNIQUE + bytes([module_type]) + struct.pack(f"<{len(ordinals)}h", *ordinals)


def aad() -> Layer:
    """The AAD of every module type, ordinals at their limits, and ordinals that do not fit."""
    layer = Layer("aad", "vectors/builder/modules.py, from the specification")

    def add(name, module_type, ordinals, prefix=b"", fault=None):
        inputs = {"aad_prefix": prefix, "aad_file_unique": _UNIQUE, "module_type": module_type,
                  **dict(zip(("row_group", "column", "page"), ordinals, strict=False))}
        inputs = {field: value for field, value in inputs.items() if value is not None}
        outcome = ("built", {"aad": _aad(prefix, module_type, *ordinals)}) if fault is None \
            else ("invalid_ordinal", None)
        layer.add(f"aad_{name}", "build", inputs, *outcome, fault=fault)

    for module_type, name in _TYPES.items():
        count = 0 if module_type == 0 else 3 if module_type in _WITH_PAGE else 2
        add(name, module_type, (3, 258, 7)[:count], AAD_PREFIX)
    for module_type in (8, 9):
        name = _TYPES[module_type]
        add(f"{name}_without_prefix", module_type, (0, 0))
        add(f"{name}_long_prefix", module_type, (1, 2), b"table/day=2024-07-01/part-0" * 5)
        add(f"{name}_largest_ordinals", module_type, (32767, 32767))
        for what, ordinals in (("row group", (32768, 0)), ("column", (0, 32768))):
            add(f"{name}_{what.replace(' ', '_')}_32768", module_type, ordinals,
                fault=f"the {what} ordinal does not fit 15 bits")
        add(f"{name}_row_group_negative", module_type, (-1, 0), fault="a negative ordinal")
        add(f"{name}_column_negative", module_type, (0, -1), fault="a negative ordinal")
        add(f"{name}_with_page", module_type, (0, 0, 0), fault="these modules have no page ordinal")
        add(f"{name}_without_column", module_type, (0,), fault="the column ordinal is missing")
        add(f"{name}_without_ordinals", module_type, (), fault="both ordinals are missing")
    add("footer_with_row_group", 0, (0,), fault="a footer has no ordinals")
    add("data_page_without_page", 2, (0, 0), fault="the page ordinal is missing")
    return layer


# --- modules -------------------------------------------------------------------------------------

_HEADER = bytes.fromhex("15401c1c00001c1c00001c1c000000")
_BITSET = Seeded("bitset").bytes(32)
_KEYS = {128: MASTER_KEYS["kf"], 192: Seeded("192").bytes(24), 256: Seeded("256").bytes(32)}
_AADS = {"header": _aad(AAD_PREFIX, 8, 0, 1), "bitset": _aad(AAD_PREFIX, 9, 0, 1)}
_PLAINTEXTS = {"header": _HEADER, "bitset": _BITSET}


def _module(key: bytes, nonce: bytes, aad: bytes, plaintext: bytes) -> bytes:
    sealed = AESGCM(key).encrypt(nonce, plaintext, aad)
    return struct.pack("<I", len(nonce) + len(sealed)) + nonce + sealed


def modules() -> Layer:
    """Encryption with a fixed nonce, decryption, and modules with one fault."""
    layer = Layer("modules", "vectors/builder/modules.py, AES-GCM by pyca/cryptography")
    for bits, key in _KEYS.items():
        for part, plaintext in {**_PLAINTEXTS, "empty": b"", "1000_bytes": bytes(1000)}.items():
            name, aad = f"{bits}_{part}", _AADS.get(part, _AADS["bitset"])
            nonce = Seeded(f"nonce {name}").bytes(12)
            module = _module(key, nonce, aad, plaintext)
            layer.add(f"module_encrypt_{name}", "encrypt",
                      {"key": key, "nonce": nonce, "aad": aad, "plaintext": plaintext},
                      "encrypted", {"module": module})
            layer.add(f"module_decrypt_{name}", "decrypt",
                      {"key": key, "aad": aad, "module": module}, "decrypted",
                      {"plaintext": plaintext})
    for bits in (128, 256):
        for part in _PLAINTEXTS:
            _broken(layer, part, bits)
    for size in (0, 15, 17, 33):
        key = bytes(size)
        layer.add(f"module_encrypt_key_of_{size}", "encrypt",
                  {"key": key, "nonce": bytes(12), "aad": b"", "plaintext": _HEADER},
                  "invalid_key", fault=f"AES has no keys of {size} bytes")
        layer.add(f"module_decrypt_key_of_{size}", "decrypt",
                  {"key": key, "aad": b"", "module": _module(_KEYS[128], bytes(12), b"", _HEADER)},
                  "invalid_key", fault=f"AES has no keys of {size} bytes")
    _signatures(layer)
    return layer


def _broken(layer: Layer, part: str, bits: int) -> None:
    key, aad, plaintext = _KEYS[bits], _AADS[part], _PLAINTEXTS[part]
    good = _module(key, Seeded(f"broken {part} {bits}").bytes(12), aad, plaintext)

    def add(name: str, fault: str, *, module: bytes = good, key: bytes = key, aad: bytes = aad):
        layer.add(f"module_{bits}_{part}_{name}", "decrypt",
                  {"key": key, "aad": aad, "module": module}, "authentication_failed",
                  fault=fault)

    places = {"length": (0, 4), "nonce": (4, 16), "ciphertext": (16, len(good) - 16),
              "tag": (len(good) - 16, len(good))}
    for name, (start, end) in places.items():
        add(f"{name}_first_bit", f"the first bit of the {name} is flipped",
            module=flipped(good, start * 8))
        add(f"{name}_last_bit", f"the last bit of the {name} is flipped",
            module=flipped(good, end * 8 - 1))
    for size in (0, 3, 4, 16, 31, len(good) - 1):
        add(f"cut_after_{size}", f"{size} of {len(good)} bytes are present", module=good[:size])
    add("one_byte_more", "a byte follows the module", module=good + b"\0")
    for length in (0, 27, len(good) - 5, len(good) - 3, 2**31 - 1, 2**31, 2**32 - 1):
        add(f"length_{length}", f"the length is {length}, but {len(good) - 4} bytes follow",
            module=struct.pack("<I", length) + good[4:])
    add("length_big_endian", "the length is big-endian", module=good[3::-1] + good[4:])
    add("without_length", "the length is missing", module=good[4:])
    add("without_tag", "the tag is missing, as in AES-CTR",
        module=struct.pack("<I", len(good) - 20) + good[4:-16])
    add("wrong_key", "the key is another", key=Seeded("another key").bytes(bits // 8))
    add("empty_aad", "there is no AAD", aad=b"")
    own, other = (8, 9) if part == "header" else (9, 8)
    for name, fault, wrong in (
            ("other_module_type", "the AAD is that of the other part",
             _aad(AAD_PREFIX, other, 0, 1)),
            ("other_row_group", "the AAD names another row group", _aad(AAD_PREFIX, own, 1, 1)),
            ("other_column", "the AAD names another column", _aad(AAD_PREFIX, own, 0, 2)),
            ("ordinals_swapped", "the AAD has the ordinals swapped", _aad(AAD_PREFIX, own, 1, 0)),
            ("page_ordinal", "the AAD has a page ordinal", _aad(AAD_PREFIX, own, 0, 1, 0)),
            ("other_prefix", "the AAD prefix is another", _aad(b"Tester", own, 0, 1)),
            ("no_prefix", "the AAD prefix is missing", _aad(b"", own, 0, 1))):
        add(name, fault, aad=wrong)
    add("other_file", "the AAD is that of another file",
        aad=aad.replace(_UNIQUE, Seeded("another file").bytes(8)))
    add("ordinals_big_endian", "the ordinals of the AAD are big-endian",
        aad=aad[:-4] + struct.pack(">hh", 0, 1))


def _signatures(layer: Layer) -> None:
    footer, aad = Seeded("footer").bytes(50), _aad(AAD_PREFIX, 0)
    for bits, key in _KEYS.items():
        nonce = Seeded(f"signature {bits}").bytes(12)
        signature = nonce + AESGCM(key).encrypt(nonce, footer, aad)[-16:]
        layer.add(f"signature_{bits}", "sign",
                  {"key": key, "nonce": nonce, "aad": aad, "footer": footer}, "signed",
                  {"signature": signature})
        layer.add(f"signature_verify_{bits}", "verify",
                  {"key": key, "aad": aad, "footer": footer, "signature": signature}, "verified")
    good = {"key": key, "aad": aad, "footer": footer, "signature": signature}
    for name, fault, change in (
            ("nonce_bit", "a bit of the nonce is flipped", {"signature": flipped(signature, 5)}),
            ("tag_bit", "a bit of the tag is flipped", {"signature": flipped(signature, 200)}),
            ("footer_first_bit", "a bit of the footer is flipped", {"footer": flipped(footer, 0)}),
            ("footer_last_bit", "a bit of the footer is flipped", {"footer": flipped(footer, 399)}),
            ("footer_longer", "a byte more was not signed", {"footer": footer + b"\0"}),
            ("footer_shorter", "the last byte is missing", {"footer": footer[:-1]}),
            ("cut", "the last byte of the tag is missing", {"signature": signature[:-1]}),
            ("empty", "there is no signature", {"signature": b""}),
            ("longer", "a byte follows the tag", {"signature": signature + b"\0"}),
            ("wrong_key", "the key is another", {"key": _KEYS[128]}),
            ("wrong_aad", "the AAD is that of a module", {"aad": _aad(AAD_PREFIX, 8, 0, 0)})):
        layer.add(f"signature_{name}", "verify", {**good, **change}, "authentication_failed",
                  fault=fault)
