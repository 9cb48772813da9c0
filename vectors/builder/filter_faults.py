"""Faults of Bloom filters: their bytes, sealing, place and header."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from secure_bloom.crypto.aad import module_aad
from vectors.builder.faults import (
    HEADER,
    MODULE_TYPES,
    NUM_BYTES,
    SSN,
    Base,
    Fault,
    Place,
    chunk_of,
    every_filter,
    flipped_at,
    only,
    raw_aad,
    spliced,
    swapped,
)
from vectors.builder.headers import header
from vectors.builder.reseal import Module

_CITY, _LATER = (0, "city"), (1, "ssn")
_COLUMN_KEYS = "columns signed single"
_ENCRYPTED = f"{_COLUMN_KEYS} uniform supplied stored"


# --- filters: changed bytes ----------------------------------------------------------------------

def _flipped_bits() -> Iterator[Fault]:
    for part in MODULE_TYPES:
        for field, position in (("length", 0), ("nonce", 9), ("ciphertext", 18), ("tag", -5)):
            def flip(good: Base, part=part, position=position) -> bytes:
                return good.with_part(SSN, part, flipped_at(good.part(SSN, part), position))
            yield Fault(f"{part}-{field}-bit",
                        f"one bit of the {field} of the {part} module is flipped",
                        _ENCRYPTED, flip)


def _module_lengths() -> Iterator[Fault]:
    for part in MODULE_TYPES:
        for length, text in ((0, "is 0"), (27, "is less than that of nonce and tag"),
                             (None, "reaches past the filter"), (2**31 - 1, "is 2 GiB - 1"),
                             (2**32 - 1, "is 4 GiB - 1, -1 as a signed number")):
            def lie(good: Base, part=part, length=length) -> bytes:
                right = good.part(SSN, part)
                claimed = len(good.part(SSN)) if length is None else length
                return good.with_part(SSN, part, claimed.to_bytes(4, "little") + right[4:])
            yield Fault(f"{part}-module-length-{'past-filter' if length is None else length}",
                        f"the length of the {part} module {text}", "signed uniform", lie)


def _overwritten() -> Iterator[Fault]:
    text = b"This is no Bloom filter, whatever the footer of the file may say about this place. "

    def zeros(good: Base) -> bytes:
        return good.with_filter(SSN, bytes(len(good.part(SSN))))

    def words(good: Base) -> bytes:
        return good.with_filter(SSN, (text * 3)[:len(good.part(SSN))])

    for modes, outcome in (("columns supplied", "authentication_failed"),
                           ("plain", "malformed")):
        yield Fault("filter-zeros", "zeros are stored where the filter was", modes, zeros,
                    outcome=outcome)
        yield Fault("filter-text", "text is stored where the filter was", modes, words,
                    outcome=outcome)


# --- filters: sealed otherwise -------------------------------------------------------------------

def _plaintext() -> Iterator[Fault]:
    def plain(*parts: str):
        def change(good: Base) -> bytes:
            plaintexts = {"header": HEADER, "bitset": good.bitset(SSN)}
            return good.with_filter(SSN, b"".join(
                plaintexts[part] if part in parts else good.part(SSN, part)
                for part in MODULE_TYPES))
        return change

    yield Fault("plaintext-filter", "the filter of an encrypted column is not encrypted",
                _ENCRYPTED, plain("header", "bitset"))
    yield Fault("plaintext-header", "the header is not encrypted, the bitset is",
                "signed uniform", plain("header"))
    yield Fault("plaintext-bitset", "the bitset is not encrypted, the header is",
                "columns stored", plain("bitset"))

    def sealed(good: Base) -> bytes:
        footer = good.footer()
        cipher, city = footer.crypto.footer_cipher, chunk_of(footer, _CITY)
        return good.with_filter(_CITY, b"".join(
            cipher.encrypt(plaintext, module_aad(footer.file_aad, MODULE_TYPES[part],
                                                 city.row_group, city.column.ordinal))
            for part, plaintext in (("header", HEADER), ("bitset", good.bitset(_CITY)))))

    yield Fault("encrypted-filter-of-plain-column",
                "the filter of a plaintext column is encrypted, with the footer key", _COLUMN_KEYS,
                sealed, outcome="malformed", lost=only(_CITY))


def _sealed_otherwise() -> Iterator[Fault]:
    for part in MODULE_TYPES:
        def ctr(good: Base, part=part) -> bytes:
            return good.with_part(SSN, part, _without_tag(good, part))

        def footer_key(good: Base, part=part) -> bytes:
            cipher = good.footer().crypto.footer_cipher
            return good.with_part(SSN, part, good.sealed(SSN, part, cipher=cipher))

        yield Fault(f"{part}-ctr", f"the {part} module is sealed with AES-CTR: it has no tag",
                    "columns signed single supplied", ctr)
        yield Fault(f"{part}-footer-key",
                    f"the {part} is sealed with the footer key, not with the column's key",
                    _COLUMN_KEYS, footer_key)


def _without_tag(good: Base, part: str) -> bytes:
    """The module as AES_GCM_CTR_V1 seals pages: a nonce of 12 bytes, no tag."""
    key = good.keys.column_keys.get("ssn", good.keys.footer_key)
    plaintext = {"header": HEADER, "bitset": good.bitset(SSN)}[part]
    module = Module(0, 0, MODULE_TYPES[part], key, 0, 0, ctr=True)
    return module.seal(plaintext, good.footer().file_aad, good.part(SSN, part)[4:16])


def _wrong_aad() -> Iterator[Fault]:
    """Of the second row group's ``ssn``: there row group and column ordinal differ."""
    for part, own in MODULE_TYPES.items():
        other = 17 - own
        for name, text, modes, suffix in (
                ("other-module-type", "names the other part's module type",
                 "columns signed stored", (other, 1, 0)),
                ("ordinals-swapped", "has row group and column swapped",
                 "signed uniform supplied", (own, 0, 1)),
                ("page-ordinal", "has a page ordinal", "columns single uniform", (own, 1, 0, 0)),
                ("other-column", "names another column", "single supplied", (own, 1, 1)),
                ("other-row-group", "names another row group", "signed stored", (own, 2, 0)),
                ("no-ordinals", "has no ordinals", "columns uniform", (own,))):
            def wrong(good: Base, part=part, suffix=suffix) -> bytes:
                aad = raw_aad(good.footer().file_aad, *suffix)
                return good.with_part(_LATER, part, good.sealed(_LATER, part, aad=aad))
            yield Fault(f"{part}-aad-{name}", f"the AAD of the {part} module {text}",
                        modes, wrong, lost=only(_LATER))

        def big_endian(good: Base, part=part, own=own) -> bytes:
            aad = raw_aad(good.footer().file_aad, own, 1, 0, order=">")
            return good.with_part(_LATER, part, good.sealed(_LATER, part, aad=aad))

        def no_prefix(good: Base, part=part, own=own) -> bytes:
            aad = raw_aad(good.footer().algorithm.aad_file_unique, own, 0, 0)
            return good.with_part(SSN, part, good.sealed(SSN, part, aad=aad))

        yield Fault(f"{part}-aad-big-endian",
                    f"the AAD of the {part} module has big-endian ordinals", "uniform", big_endian,
                    lost=only(_LATER))
        yield Fault(f"{part}-aad-no-prefix", f"the AAD of the {part} module lacks the prefix",
                    "supplied stored", no_prefix)


# --- filters: moved ------------------------------------------------------------------------------

def _moved() -> Iterator[Fault]:
    for part in ("filter", *MODULE_TYPES):
        def swap(other: Place, part=part):
            return lambda good: swapped(good.data, good.slice_of(SSN, part),
                                        good.slice_of(other, part))

        def from_other_file(good: Base, part=part) -> bytes:
            return spliced(good.data, good.slice_of(SSN, part),
                           good.other_file().part(SSN, part))

        def from_other_row_group(good: Base, part=part) -> bytes:
            return spliced(good.data, good.slice_of(SSN, part), good.part(_LATER, part))

        what = f"the {part}s" if part == "filter" else f"the {part} modules"
        yield Fault(f"{part}-swapped-between-row-groups", f"{what} of two row groups are swapped",
                    _ENCRYPTED, swap(_LATER), lost=only(SSN, _LATER))
        yield Fault(f"{part}-swapped-between-columns",
                    f"{what} of two columns with the same key are swapped",
                    "uniform supplied stored",
                    swap((0, "name")), lost=only(SSN, (0, "name")))
        yield Fault(f"{part}-of-other-row-group",
                    f"{what} of two row groups are both those of the second",
                    "columns single supplied",
                    from_other_row_group)
        yield Fault(f"{part}-of-other-file",
                    f"the {part} is that of another file with the same keys",
                    _ENCRYPTED, from_other_file)


def _rearranged() -> Iterator[Fault]:
    for name, text, order in (
            ("parts-swapped", "bitset and header are swapped", ("bitset", "header")),
            ("header-twice", "the header module is stored where the bitset should be",
             ("header", "header")),
            ("bitset-twice", "the bitset module is stored where the header should be",
             ("bitset", "bitset"))):
        yield Fault(name, text, "columns signed single uniform", lambda good, order=order:
                    good.with_filter(SSN, b"".join(good.part(SSN, part) for part in order)))


# --- filters: what the header says ---------------------------------------------------------------

def _headers() -> Iterator[Fault]:
    modes = "columns stored plain"

    def says(plaintext: bytes):
        return lambda good: good.with_part(SSN, "header", good.sealed(SSN, "header", plaintext))

    for name, text, plaintext in (
            ("claims-more", "the header claims 128 bytes, the bitset has 64", header(128)),
            ("claims-0", "the header claims 0 bytes", header(0)),
            ("claims-negative", "the header claims -64 bytes", header(-64)),
            ("claims-2-gib", "the header claims 2 GiB - 1", header(2**31 - 1)),
            ("cut", "the header is truncated after half of its bytes", HEADER[:8]),
            ("without-end", "the header lacks its last byte", HEADER[:-1])):
        yield Fault(f"header-{name}", text,
                    "stored" if name in ("cut", "without-end") else modes, says(plaintext),
                    outcome="malformed")
    yield Fault("header-claims-less", "the header claims 32 bytes, the bitset has 64",
                "columns stored", says(header(32)), outcome="malformed")
    yield Fault("header-empty", "the header module has an empty plaintext",
                "signed stored", says(b""), outcome="malformed")
    yield Fault("bitset-empty", "the bitset module has an empty plaintext", "columns stored",
                lambda good: good.with_part(SSN, "bitset", good.sealed(SSN, "bitset", b"")),
                outcome="malformed")
    yield Fault("header-without-size", "the header does not say the size", modes,
                says(b"\x2c" + HEADER[4:]), outcome="malformed")
    for i, name in enumerate(("algorithm", "hash", "compression")):
        plaintext = bytearray(HEADER)
        plaintext[4 + 4 * i] = 0x2C  # the second member of the union
        yield Fault(f"header-unknown-{name}",
                    f"the header names {_an(name)} {name} that the specification does not define",
                    modes, says(bytes(plaintext)), outcome="unsupported")

    def of_size(size: int):
        return lambda good: good.with_filter(SSN, b"".join((
            good.sealed(SSN, "header", header(size)),
            good.sealed(SSN, "bitset", (good.bitset(SSN) + bytes(1))[:size]))))

    for size in (NUM_BYTES - 31, NUM_BYTES + 1):
        yield Fault(f"bitset-of-{size}-bytes", f"{size} bytes are not a whole number of blocks",
                    "columns stored plain", of_size(size), outcome="unsupported")


def _an(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


# --- filters: where they are ---------------------------------------------------------------------

def _places() -> Iterator[Fault]:
    def at(offset: Callable[[Base], int]):
        def change(good: Base) -> bytes:
            length = len(good.part(SSN))
            return good.with_footer(
                lambda footer: chunk_of(footer, SSN).set_bloom_filter(offset(good), length))
        return change

    def long(length: Callable[[Base], int]):
        def change(good: Base) -> bytes:
            offset = good.slice_of(SSN).start
            return good.with_footer(
                lambda footer: chunk_of(footer, SSN).set_bloom_filter(offset, length(good)))
        return change

    modes = "columns plain"
    for name, text, offset in (
            ("negative", "is -1", lambda _: -1), ("0", "is 0", lambda _: 0),
            ("beyond-file", "is beyond the file", lambda good: len(good.data) + 1000),
            ("huge", "is 2^63 - 1", lambda _: 2**63 - 1),
            ("in-footer", "is inside the footer", lambda good: good.footer().start + 10)):
        yield Fault(f"offset-{name}", f"bloom_filter_offset {text}", modes, at(offset),
                    outcome="malformed")
    for some, outcome in (("signed supplied", "authentication_failed"), ("plain", "malformed")):
        yield Fault("offset-one-late", "bloom_filter_offset is one too large", some,
                    at(lambda good: good.slice_of(SSN).start + 1), outcome=outcome)
        yield Fault("offset-at-page", "bloom_filter_offset is that of a page", some,
                    at(lambda _: 4), outcome=outcome)
    for name, text, length in (
            ("0", "is 0", lambda _: 0), ("negative", "is -1", lambda _: -1),
            ("2-gib", "is 2 GiB - 1", lambda _: 2**31 - 1)):
        yield Fault(f"filter-length-{name}", f"bloom_filter_length {text}", modes, long(length),
                    outcome="malformed")
    yield Fault("filter-length-past-footer", "bloom_filter_length reaches into the footer",
                "columns stored", long(
                    lambda good: good.footer().start - good.slice_of(SSN).start + 1),
                outcome="malformed")
    for some, outcome in (("single uniform", "authentication_failed"), ("plain", "malformed")):
        yield Fault("filter-length-one-short", "bloom_filter_length is one byte too short", some,
                    long(lambda good: len(good.part(SSN)) - 1), outcome=outcome)
        yield Fault("filter-length-without-bitset", "bloom_filter_length ends after the header",
                    some, long(lambda good: len(good.part(SSN, "header"))), outcome=outcome)

    def byte_missing(good: Base) -> bytes:
        start = good.slice_of(SSN).start
        return good.data[:start - 1] + good.data[start:]

    for some, outcome in (("uniform", "authentication_failed"), ("plain", "malformed")):
        yield Fault("byte-missing", "a byte before the filters is missing", some, byte_missing,
                    outcome=outcome, lost=every_filter)


TABLES = (_flipped_bits, _module_lengths, _overwritten, _plaintext, _sealed_otherwise, _wrong_aad,
          _moved, _rearranged, _headers, _places)
