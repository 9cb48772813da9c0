"""Faults of footers, of keys, and of what a reader is given."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from secure_bloom.crypto.modules import module_length
from secure_bloom.parquet import thrift
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.thrift import Struct
from vectors.builder.faults import (
    SSN,
    Base,
    Fault,
    Place,
    algorithm_of,
    chunk_of,
    encrypted,
    flipped_at,
    in_column,
    only,
    set_file_unique,
    spliced,
)
from vectors.builder.small import flipped
from vectors.builder.vector import FileKeys

_CITY = (0, "city")
_WRONG_KEY = b"wrong key, 16 b."

_COLUMN_KEYS = "columns signed single"
_SIGNED = "signed single stored"
_ENCRYPTED_FOOTER = "columns uniform supplied"


# --- keys and AAD prefix -------------------------------------------------------------------------

def _keys() -> Iterator[Fault]:
    def given(**changes):
        return lambda good: replace(good.keys, master_keys={}, **changes)

    def column_key(key: bytes | None):
        def change(good: Base) -> FileKeys:
            keys = good.keys.column_keys | {"ssn": key}
            return replace(good.keys, master_keys={}, column_keys={
                name: key for name, key in keys.items() if key is not None})
        return change

    def master(name: str, key: bytes | None):
        return lambda good: FileKeys(master_keys={
            name: key for name, key in (good.keys.master_keys | {name: key}).items()
            if key is not None})

    yield Fault("wrong-footer-key", "the reader has another footer key",
                f"{_ENCRYPTED_FOOTER} {_SIGNED}", keys=given(footer_key=_WRONG_KEY), footer=True)
    yield Fault("no-footer-key", "the reader has no footer key", _ENCRYPTED_FOOTER,
                keys=given(footer_key=None), outcome="key_unavailable", footer=True)
    yield Fault("no-footer-key", "the reader has no footer key, which encrypts the columns",
                "stored", keys=given(footer_key=None), outcome="key_unavailable", lost=encrypted)
    yield Fault("no-keys", "the reader has no keys", "columns", keys=lambda _: FileKeys(),
                outcome="key_unavailable", footer=True)
    yield Fault("no-keys", "the reader has no keys", "signed single", keys=lambda _: FileKeys(),
                outcome="key_unavailable", lost=encrypted)
    yield Fault("wrong-column-key", "the reader has another key for the column", _COLUMN_KEYS,
                keys=column_key(_WRONG_KEY), lost=in_column("ssn"))
    yield Fault("no-column-key", "the reader has no key for the column", _COLUMN_KEYS,
                keys=column_key(None), outcome="key_unavailable", lost=in_column("ssn"))
    for name, key, text in (("wrong", _WRONG_KEY, "another"), ("no", None, "no")):
        yield Fault(f"{name}-master-key-of-footer",
                    f"the reader has {text} master key for the footer key", _COLUMN_KEYS,
                    keys=master("kf", key), outcome="key_unavailable", footer=True)
        yield Fault(f"{name}-master-key-of-column",
                    f"the reader has {text} master key for the column's key", _COLUMN_KEYS,
                    keys=master("kc1", key), outcome="key_unavailable", lost=in_column("ssn"))
    yield Fault("wrong-prefix", "the reader has another AAD prefix", "supplied stored",
                keys=given(aad_prefix=b"Tester"), footer=True)
    yield Fault("longer-prefix", "the reader's AAD prefix has a byte more", "supplied",
                keys=given(aad_prefix=b"tester2"), footer=True)
    yield Fault("empty-prefix", "the reader's AAD prefix is empty", "supplied",
                keys=given(aad_prefix=b""), footer=True)
    yield Fault("no-prefix", "the file does not store its AAD prefix, and the reader has none",
                "supplied", keys=given(aad_prefix=None), outcome="key_unavailable", footer=True)


def _key_metadata() -> Iterator[Fault]:
    """Only those who unwrap keys see these faults: data keys given outright open the files."""
    def edited(**fields):
        return lambda old: json.dumps(json.loads(old) | fields).encode()

    def bit_of_wrapped_key(old: bytes) -> bytes:
        wrapped = base64.b64decode(json.loads(old)["wrappedDEK"])
        return edited(wrappedDEK=base64.b64encode(flipped_at(wrapped, 20)).decode())(old)

    for name, text, outcome, change in (
            ("garbage", "is not valid JSON", "key_unavailable", lambda _: b"\xffkey"),
            ("cut", "is cut off", "key_unavailable", lambda old: old[:-20]),
            ("wrapped-key-bit", "has a bit of the wrapped key flipped", "key_unavailable",
             bit_of_wrapped_key),
            ("unknown-master-key", "names a master key that does not exist", "key_unavailable",
             edited(masterKeyID="kx")),
            ("unknown-type", "is of an unknown type", "key_unavailable",
             edited(keyMaterialType="PKMT9")),
            ("external", "says that the key is in an external file, which is missing",
             "key_unavailable",
             edited(internalStorage=False, keyReference="key-7"))):
        def of_footer(good: Base, change=change) -> bytes:
            return good.with_footer(lambda footer: footer.set_footer_key_metadata(
                change(footer.footer_key_metadata)))

        def of_column(good: Base, change=change) -> bytes:
            def edit(footer: Footer) -> None:
                chunk = chunk_of(footer, SSN)
                chunk.set_key_metadata(change(chunk.key_metadata))
            return good.with_footer(edit)

        with_master_keys = {"keys": lambda good: FileKeys(master_keys=good.keys.master_keys),
                            "outcome": outcome}
        yield Fault(f"footer-key-metadata-{name}", f"the footer's key metadata {text}",
                    "single", of_footer, footer=True, **with_master_keys)
        yield Fault(f"column-key-metadata-{name}", f"the column's key metadata {text}",
                    "columns" if name in ("garbage", "wrapped-key-bit") else "single",
                    of_column, **with_master_keys)


# --- footers -------------------------------------------------------------------------------------

def _signatures() -> Iterator[Fault]:
    def changed(change: Callable[[bytes], bytes]):
        return lambda good: change(good.data)

    def found(text: bytes):
        return lambda good: flipped_at(good.data, good.data.rindex(text))

    def other_signature(good: Base) -> bytes:
        return spliced(good.data, _signature(good.data), good.other_file().data[-36:-8])

    def moved_unsigned(good: Base) -> bytes:
        """The places of two filters swapped by somebody without the key."""
        def change(footer: Footer) -> None:
            one, other = (chunk_of(footer, place) for place in (_CITY, (1, "city")))
            places = one.bloom_filter, other.bloom_filter
            one.set_bloom_filter(*places[1])
            other.set_bloom_filter(*places[0])
        data = good.with_footer(change)
        return spliced(data, _signature(data), good.data[-36:-8])

    def no_signature(good: Base) -> bytes:
        length = int.from_bytes(good.data[-8:-4], "little") - 28
        return good.data[:-36] + length.to_bytes(4, "little") + good.data[-4:]

    for name, text, data in (
            ("signature-nonce-bit", "one bit of the signature's nonce is flipped",
             changed(lambda data: flipped_at(data, -30))),
            ("signature-tag-bit", "one bit of the signature's tag is flipped",
             changed(lambda data: flipped_at(data, -10))),
            ("signed-name-bit", "one bit of a column name in the signed footer is flipped",
             found(b"city")),
            ("signed-creator-bit", "one bit of created_by in the signed footer is flipped",
             found(b"parquet-cpp")),
            ("signature-of-other-footer", "the signature is that of another footer",
             other_signature),
            ("no-signature", "the signature is missing", no_signature)):
        yield Fault(name, text, _SIGNED, data, footer=True)
    yield Fault("filters-exchanged-unsigned",
                "the footer points to other filters, its signature is the old one",
                "signed single", moved_unsigned, footer=True)


def _signature(data: bytes) -> slice:
    return slice(len(data) - 36, len(data) - 8)


def _footer_modules() -> Iterator[Fault]:
    def flip(position: Callable[[bytes], int]):
        def change(good: Base) -> bytes:
            content = good.data[good.footer().start:]
            _, start = thrift.decode(content, {})
            return flipped_at(good.data, good.footer().start + start + position(content[start:]))
        return change

    for field, position in (("length", lambda _: 0), ("nonce", lambda _: 6),
                            ("ciphertext", lambda _: 60),
                            ("tag", lambda module: module_length(module) - 3)):
        yield Fault(f"footer-{field}-bit",
                    f"one bit of the {field} of the footer module is flipped", _ENCRYPTED_FOOTER,
                    flip(position), footer=True)


def _footers() -> Iterator[Fault]:
    def with_wrong_key(good: Base) -> bytes:
        def change(footer: Footer) -> None:
            footer.crypto.use_footer_key(_WRONG_KEY)
        return good.with_footer(change)

    def of_other_file(good: Base) -> bytes:
        other = good.other_file()
        return good.data[:good.footer().start] + other.data[other.footer().start:]

    def unique_bit(good: Base) -> bytes:
        unique = good.footer().algorithm.aad_file_unique
        return flipped_at(good.data, good.data.rindex(unique))

    def unique_bit_resealed(good: Base) -> bytes:
        return good.with_footer(lambda footer: set_file_unique(
            footer, flipped(footer.algorithm.aad_file_unique, 0)))

    def unknown_algorithm(good: Base) -> bytes:
        def change(footer: Footer) -> None:
            algorithm_of(footer).fields[0][0] = 3
        return good.with_footer(change)

    def stripped(good: Base) -> bytes:
        """As a plaintext footer, without algorithm and signature."""
        footer = good.footer()
        footer._file_meta.remove(8)
        content = footer._content()
        return good.data[:footer.start] + content + len(content).to_bytes(4, "little") + b"PAR1"

    yield Fault("footer-wrong-key", "the footer is sealed or signed with another key",
                "columns uniform signed stored", with_wrong_key, footer=True)
    yield Fault("footer-of-other-file",
                "the footer is that of another file with the same keys and places",
                "columns signed stored", of_other_file, lost=encrypted)
    yield Fault("file-unique-bit", "one bit of aad_file_unique is flipped",
                "columns signed uniform", unique_bit, footer=True)
    yield Fault("file-unique-bit-resealed",
                "one bit of aad_file_unique is flipped and the footer sealed with it",
                "columns signed uniform stored", unique_bit_resealed, lost=encrypted)
    yield Fault("unknown-algorithm",
                "the encryption algorithm is a union member that the specification does not define",
                "columns signed supplied", unknown_algorithm, outcome="unsupported", footer=True)
    yield Fault("footer-stripped",
                "the footer does not mention encryption, and there is no signature",
                "signed stored", stripped, outcome="malformed", lost=encrypted)


def _column_metadata() -> Iterator[Fault]:
    """The ColumnMetaData in a module of its own."""
    def flip(position: int):
        def change(footer: Footer) -> None:
            struct = chunk_of(footer, SSN).to_change()
            struct.set_binary(9, flipped_at(struct.get_binary(9), position))
        return lambda good: good.with_footer(change)

    def swap(other: Place):
        def change(footer: Footer) -> None:
            one, two = (chunk_of(footer, place).to_change() for place in (SSN, other))
            modules = one.get_binary(9), two.get_binary(9)
            one.set_binary(9, modules[1])
            two.set_binary(9, modules[0])
        return lambda good: good.with_footer(change)

    def unknown_encryption(footer: Footer) -> None:
        member = [3, thrift.STRUCT, Struct()]
        chunk_of(footer, SSN).to_change().set(8, thrift.STRUCT, Struct([member]))

    yield Fault("column-encryption-unknown",
                "the column's crypto metadata is a union member that the specification does not "
                "define", "columns signed", lambda good: good.with_footer(unknown_encryption),
                outcome="unsupported")
    for field, position in (("length", 0), ("nonce", 6), ("ciphertext", 30), ("tag", -3)):
        yield Fault(f"column-metadata-{field}-bit",
                    f"one bit of the {field} of the column's metadata module is flipped",
                    "columns stored", flip(position))
    for name, text, other in (("row-groups", "row groups", (1, "ssn")),
                              ("columns", "columns", (0, "name"))):
        yield Fault(f"column-metadata-swapped-between-{name}",
                    f"the metadata modules of two {text} are swapped", "columns stored",
                    swap(other), lost=only(SSN, other))


def _ends() -> Iterator[Fault]:
    """The end of the file: nothing of it can be read."""
    def length(value: Callable[[int], int]):
        def change(good: Base) -> bytes:
            old = int.from_bytes(good.data[-8:-4], "little")
            return good.data[:-8] + value(old).to_bytes(4, "little") + good.data[-4:]
        return change

    def magic(value: bytes):
        return lambda good: good.data[:-4] + value

    def cut(size: Callable[[Base], int]):
        return lambda good: good.data[:size(good)]

    for name, text, modes, data in (
            ("footer-length-past-file", "the footer's length is more than the file",
             "columns signed plain", length(lambda _: 10**6)),
            ("footer-length-4-gib", "the footer's length is 4 GiB - 1", "columns plain",
             length(lambda _: 2**32 - 1)),
            ("footer-length-0", "the footer's length is 0", "columns signed plain",
             length(lambda _: 0)),
            ("footer-length-one-less", "the footer's length is one less than it has",
             "columns signed plain", length(lambda old: old - 1)),
            ("magic-par1", "an encrypted footer precedes the magic of a plaintext one",
             _ENCRYPTED_FOOTER, magic(b"PAR1")),
            ("magic-pare", "a plaintext footer precedes the magic of an encrypted one",
             f"{_SIGNED} plain", magic(b"PARE")),
            ("magic-garbage", "the file ends with other bytes than PAR1 or PARE",
             "columns plain", magic(b"ORC1")),
            ("cut-in-pages", "the file ends in the pages", "signed plain",
             cut(lambda good: good.slice_of(SSN).start // 2)),
            ("cut-in-filter", "the file ends in a filter", "columns plain",
             cut(lambda good: good.slice_of(SSN).start + 40)),
            ("cut-before-footer", "the file ends before the footer", "columns plain",
             cut(lambda good: good.footer().start)),
            ("cut-in-footer", "the file ends in the footer", "uniform signed",
             cut(lambda good: (good.footer().start + len(good.data)) // 2)),
            ("cut-last-byte", "the last byte of the file is missing", "columns stored plain",
             cut(lambda good: len(good.data) - 1)),
            ("cut-after-magic", "the file ends after its first 4 bytes", "plain",
             cut(lambda _: 4)),
            ("empty", "the file is empty", "plain uniform", cut(lambda _: 0))):
        yield Fault(name, text, modes, data, outcome="malformed", footer=True)


TABLES = (_keys, _key_metadata, _signatures, _footer_modules, _footers, _column_metadata, _ends)
