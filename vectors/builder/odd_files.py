"""Whole files that look odd and are right: a reader has to read every filter of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from secure_bloom.parquet import thrift
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.thrift import Struct
from vectors.builder import reference
from vectors.builder.faults import (
    COLUMNS,
    HEADER,
    PLACES,
    SSN,
    Base,
    Place,
    as_written,
    base,
    chunk_of,
    own_keys,
    probes,
    values_at,
)
from vectors.builder.headers import header
from vectors.builder.reseal import seeded_random
from vectors.builder.vector import FileKeys, FileVector, Filter, Seeded

_OFFSET, _LENGTH = 14, 15  # of the Bloom filter, in ColumnMetaData
_UNION = bytes.fromhex("1c1c0000")
_LONG_FORM = bytes.fromhex("05028001" "0c041c0000" "0c061c0000" "0c081c0000" "00")
_OTHER_ORDER = bytes.fromhex("4c1c0000" "0c061c0000" "0c041c0000" "05028001" "00")
_LONG_VARINT = bytes.fromhex("15808100") + _UNION * 3 + b"\0"
_UNKNOWN_FIELDS = HEADER[:-1] + bytes.fromhex("1803616263" "1c15020000")


def _own_filters(good: Base) -> list[Filter]:
    return good.filters


@dataclass(frozen=True)
class Odd:
    """One odd thing; ``filters`` are what a reader finds."""

    name: str
    text: str
    modes: str
    data: Callable[[Base], bytes] = as_written
    keys: Callable[[Base], FileKeys] = own_keys
    filters: Callable[[Base], list[Filter]] = _own_filters


def odd_files(origin: str) -> Iterator[FileVector]:
    """Odd files that are right."""
    for table in (_bitsets, _headers, _places, _missing, _given):
        for odd in table():
            for mode in odd.modes.split():
                good, name = base(mode), f"{mode}-{odd.name}"
                with seeded_random(Seeded(name)):
                    data = odd.data(good)
                yield FileVector(name, data, origin, odd.keys(good), odd.filters(good),
                                 comment=odd.text)


def _bitsets() -> Iterator[Odd]:
    def of(bits: Callable[[], bytes]):
        def data(good: Base) -> bytes:
            return good.with_filter(SSN, good.sealed(SSN, "header", header(len(bits())))
                                    + good.sealed(SSN, "bitset", bits()))

        def filters(good: Base) -> list[Filter]:
            first, *rest = good.filters
            values = [value for _, value, _ in first.probes]
            return [replace(first, bitset=bits(), probes=probes(bits(), values)), *rest]

        return {"data": data, "filters": filters}

    def blocks(count: int):
        return of(lambda: reference.bitset(reference.hashes(
            value.encode() for value in values_at(SSN)), count))

    yield Odd("three-blocks", "a filter of three blocks: their number need not be a power of two",
              "columns stored plain", **blocks(3))
    yield Odd("one-block", "a filter of one block, the smallest", "signed plain", **blocks(1))
    yield Odd("empty-filter", "an empty filter: no value was inserted", "uniform plain",
              **of(lambda: bytes(64)))
    yield Odd("full-filter", "all bits of a filter are set: every value may be there", "single",
              **of(lambda: b"\xff" * 64))


def _headers() -> Iterator[Odd]:
    for name, text, modes, plaintext in (
            ("padded-header", "zeros pad the plaintext of the header module to 100 bytes",
             "signed supplied", HEADER.ljust(100, b"\0")),
            ("header-then-garbage", "bytes follow the header's structure in its module",
             "columns", HEADER + b"\x15\x02\x7f"),
            ("header-unknown-fields", "the header has fields that the specification does not "
             "define", "single plain", _UNKNOWN_FIELDS),
            ("header-long-form", "the header's fields are in Thrift's long form", "uniform plain",
             _LONG_FORM),
            ("header-other-order", "the header's fields are in another order", "supplied",
             _OTHER_ORDER),
            ("header-long-varint", "the header's size is a varint longer than it need be",
             "stored", _LONG_VARINT)):
        yield Odd(name, text, modes, lambda good, plaintext=plaintext:
                  good.with_part(SSN, "header", good.sealed(SSN, "header", plaintext)))


def _places() -> Iterator[Odd]:
    yield Odd("filters-in-reverse", "the filters are stored in reverse order", "columns uniform",
              lambda good: good.laid_out(order=reversed(PLACES)))
    yield Odd("gaps", "other bytes are stored between the filters", "signed plain",
              lambda good: good.laid_out(gap=b"between filters"))
    yield Odd("filter-between-row-groups", "a filter is stored between the pages of two row groups",
              "columns stored plain", _between_row_groups)


def _between_row_groups(good: Base) -> bytes:
    footer, old = good.footer(), good.slice_of(SSN)
    position = chunk_of(footer, (1, COLUMNS[0])).metadata_to_change()[0].get_int(9)
    payload = good.part(SSN)

    def move(struct: Struct, *fields: int) -> None:
        for field in fields:
            offset = struct.get_int(field)
            if offset is not None and position <= offset < old.start:
                struct.set_int(field, thrift.I64, offset + len(payload))

    for chunk in footer.column_chunks():
        for meta in chunk.metadata_to_change():
            move(meta, 9, 10, 11)
        move(chunk.to_change(), 2, 4, 6)
    chunk_of(footer, SSN).set_bloom_filter(position, len(payload))
    groups = []
    for group in footer.row_groups:
        group.seal()
        groups.append(thrift.decode(group.encode(), {})[0])
        move(groups[-1], 5)
    footer.row_groups = []
    footer._file_meta.set(4, thrift.LIST, thrift.encode(Struct([[1, thrift.LIST, groups]]))[1:-1])
    return (good.data[:position] + payload + good.data[position:old.start]
            + good.data[old.stop:footer.start] + footer.to_bytes())


def _missing() -> Iterator[Odd]:
    def without(*fields: int, places: list[Place]):
        def change(footer: Footer) -> None:
            for place in places:
                for meta in chunk_of(footer, place).metadata_to_change():
                    for field in fields:
                        meta.remove(field)
        return lambda good: good.with_footer(change)

    def but(*places: Place):
        return lambda good: [f for f in good.filters if (f.row_group, f.column) not in places]

    yield Odd("no-filter-length", "bloom_filter_length is absent, as in files of old writers",
              "columns signed plain", without(_LENGTH, places=PLACES))
    names = [(0, "name"), (1, "name")]
    yield Odd("column-without-filter", "a column has no filter", "columns stored",
              without(_OFFSET, _LENGTH, places=names), filters=but(*names))
    second = [(1, column) for column in COLUMNS]
    yield Odd("row-group-without-filters", "the second row group has no filters", "signed",
              without(_OFFSET, _LENGTH, places=second), filters=but(*second))


def _given() -> Iterator[Odd]:
    def unknown_fields(footer: Footer) -> None:
        footer._file_meta.set_binary(100, b"unknown")
        for chunk in footer.row_groups[0]:
            for meta in chunk.metadata_to_change():
                meta.set_binary(100, b"unknown")

    yield Odd("footer-unknown-fields",
              "file and columns have metadata fields that the specification does not define",
              "columns stored", lambda good: good.with_footer(unknown_fields))
    yield Odd("column-keys-alone",
              "the reader has no footer key: it cannot verify the signature, and can read",
              "signed single", keys=lambda good: FileKeys(column_keys=good.keys.column_keys))
    yield Odd("prefix-stored-and-given", "the file stores its AAD prefix, the reader has it too",
              "stored", keys=lambda good: replace(good.keys, aad_prefix=b"tester"))
