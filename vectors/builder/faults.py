"""Small good files in seven ways of writing, and the tools that change one thing in them."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom import BloomFilterOptions, ExplicitKeys, UniformKey
from secure_bloom.crypto.aad import ModuleType
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.crypto.modules import ModuleCipher, module_length
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.thrift import Struct
from vectors.builder import reference
from vectors.builder.headers import header
from vectors.builder.reseal import modules, open_footer, reseal, seeded_random
from vectors.builder.small import flipped
from vectors.builder.vector import AAD_PREFIX, MASTER_KEYS, FileKeys, Filter, Seeded

Place = tuple[int, str]  # row group and column

COLUMNS = ("ssn", "name", "city")
PLACES = [(group, column) for group in range(2) for column in COLUMNS]
SSN = (0, "ssn")
NUM_BYTES = 64  # all filters have the same size: what was swapped cannot be told by its length
HEADER = header(NUM_BYTES)
MODULE_TYPES = {"header": ModuleType.BLOOM_FILTER_HEADER, "bitset": ModuleType.BLOOM_FILTER_BITSET}

_ROWS = 3  # in each row group
_VALUES = {"ssn": [f"078-05-11{i:02}" for i in range(2 * _ROWS)],
           "name": ["Ada", "Blaise", "Carl", "Dora", "Emmy", "Felix"],
           "city": ["Aachen", "Bari", "Cadiz", "Delft", "Espoo", "Faro"]}
_ABSENT = {"ssn": "219-09-9999", "name": "Zeno", "city": "Zagreb"}

_COLUMN_KEYS = {"kc1": ["ssn"], "kc2": ["name"]}
_SIGNED = {"plaintext_footer": True}
_CTR = "AES_GCM_CTR_V1"
_MODES = {
    "plain": None,
    "columns": EncryptionConfiguration("kf", column_keys=_COLUMN_KEYS),
    "signed": EncryptionConfiguration("kf", column_keys=_COLUMN_KEYS, **_SIGNED),
    "single": EncryptionConfiguration("kf", column_keys=_COLUMN_KEYS, double_wrapping=False,
                                      encryption_algorithm=_CTR, **_SIGNED),
    "uniform": UniformKey(MASTER_KEYS["kf"]),
    "supplied": UniformKey(MASTER_KEYS["kf"], aad_prefix=AAD_PREFIX, store_aad_prefix=False,
                           algorithm=_CTR),
    "stored": UniformKey(MASTER_KEYS["kf"], aad_prefix=AAD_PREFIX, algorithm=_CTR, **_SIGNED),
}


class Base:
    """A good file, and copies of it that differ in one thing.

    Methods that give ``bytes`` give a whole file; where the footer has to change, it is sealed or
    signed again.
    """

    def __init__(self, mode: str, data: bytes, keys: FileKeys, filters: list[Filter]):
        self.mode = mode
        self.data = data
        self.keys = keys
        self.filters = filters

    # --- what is in it -------------------------------------------------------------------------

    def footer(self) -> Footer:
        """The footer, opened anew: changes to it are nobody else's."""
        return open_footer(self.data, self.retriever)

    @property
    def retriever(self) -> KeyRetriever | None:
        """The data keys, for our code."""
        keys = self.keys
        return None if keys.footer_key is None else ExplicitKeys(
            keys.footer_key, keys.column_keys, aad_prefix=keys.aad_prefix)

    def other_file(self) -> Base:
        """A file with the same rows, keys and places, and another aad_file_unique."""
        return base(self.mode, copy=True)

    def slice_of(self, place: Place, part: str = "filter") -> slice:
        """Where a filter is, or its header or bitset, with the module around it."""
        found = chunk_of(self.footer(), place)
        offset, length = found.bloom_filter
        end = offset + length
        middle = offset + (len(HEADER) if found.cipher is None
                           else module_length(self.data[offset:end]))
        return {"filter": slice(offset, end), "header": slice(offset, middle),
                "bitset": slice(middle, end)}[part]

    def part(self, place: Place, part: str = "filter") -> bytes:
        """The bytes of a filter, or of its header or bitset, with the module around it."""
        return self.data[self.slice_of(place, part)]

    def bitset(self, place: Place) -> bytes:
        """The bitset, in plaintext."""
        return next(filter_.bitset for filter_ in self.filters
                    if (filter_.row_group, filter_.column) == place)

    # --- copies --------------------------------------------------------------------------------

    def sealed(self, place: Place, part: str, plaintext: bytes | None = None, *,
               cipher: ModuleCipher | None = None, aad: bytes | None = None) -> bytes:
        """A header or bitset as it has to stand at its place, but for what is given."""
        footer = self.footer()
        found = chunk_of(footer, place)
        if plaintext is None:
            plaintext = HEADER if part == "header" else self.bitset(place)
        if found.cipher is None:
            return plaintext
        return (cipher or found.cipher).encrypt(
            plaintext, found.modules.aad(MODULE_TYPES[part]) if aad is None else aad)

    def with_filter(self, place: Place, payload: bytes) -> bytes:
        """With other bytes for a filter, its length in the footer being theirs."""
        where = self.slice_of(place)
        if len(payload) == where.stop - where.start:
            return spliced(self.data, where, payload)
        return self.laid_out({place: payload})

    def with_part(self, place: Place, part: str, payload: bytes) -> bytes:
        """With other bytes for a header or a bitset."""
        parts = {name: self.part(place, name) for name in MODULE_TYPES} | {part: payload}
        return self.with_filter(place, parts["header"] + parts["bitset"])

    def laid_out(self, changed: dict[Place, bytes] | None = None, *,
                 order: Iterable[Place] = PLACES, gap: bytes = b"") -> bytes:
        """With other filters, all of them one after another before the footer."""
        payloads = {place: self.part(place) for place in PLACES} | (changed or {})
        footer = self.footer()
        out = bytearray(self.data[:self.slice_of(SSN).start])
        for place in order:
            chunk_of(footer, place).set_bloom_filter(len(out), len(payloads[place]))
            out += payloads[place] + gap
        return bytes(out) + footer.to_bytes()

    def with_footer(self, change: Callable[[Footer], None]) -> bytes:
        """With a changed footer, correctly sealed or signed."""
        footer = self.footer()
        change(footer)
        return self.data[:footer.start] + footer.to_bytes()


def chunk_of(footer: Footer, place: Place) -> ColumnChunk:
    """A column chunk of a footer."""
    return footer.row_groups[place[0]][COLUMNS.index(place[1])]


def spliced(data: bytes, where: slice, new: bytes) -> bytes:
    """The data with other bytes at a place."""
    return data[:where.start] + new + data[where.stop:]


def swapped(data: bytes, one: slice, other: slice) -> bytes:
    """The data with two places of the same size swapped."""
    return spliced(spliced(data, one, data[other]), other, data[one])


def flipped_at(data: bytes, position: int) -> bytes:
    """The data with one bit of one byte changed; positions below 0 count from the end."""
    return flipped(data, position % len(data) * 8)


def raw_aad(file_aad: bytes, module_type: int, *ordinals: int, order: str = "<") -> bytes:
    """An AAD of any parts, sensible or not."""
    return file_aad + bytes([module_type]) + struct.pack(f"{order}{len(ordinals)}h", *ordinals)


def algorithm_of(footer: Footer) -> Struct:
    """The union EncryptionAlgorithm of a footer."""
    return footer._crypto_meta.get(1) if footer.has_encrypted_footer else footer._file_meta.get(8)


def set_file_unique(footer: Footer, unique: bytes) -> None:
    """Give a footer another aad_file_unique, with which it will be sealed."""
    prefix = footer.file_aad[:-len(footer.algorithm.aad_file_unique)]
    algorithm_of(footer).fields[0][2].set_binary(2, unique)
    footer.crypto.file_aad = prefix + unique


# --- what is wrong -------------------------------------------------------------------------------

def as_written(good: Base) -> bytes:
    """The file unchanged."""
    return good.data


def own_keys(good: Base) -> FileKeys:
    """The keys unchanged."""
    return good.keys


def only(*places: Place) -> Callable[[Filter], bool]:
    """Whether a filter stands at one of these places."""
    return lambda filter_: (filter_.row_group, filter_.column) in places


def in_column(name: str) -> Callable[[Filter], bool]:
    """Whether a filter is that of a column."""
    return lambda filter_: filter_.column == name


def encrypted(filter_: Filter) -> bool:
    """Whether a filter is encrypted."""
    return filter_.encrypted


def every_filter(_: Filter) -> bool:
    """True."""
    return True


_FIRST = only(SSN)


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, in files of several modes.

    ``data`` and ``keys`` make the file and what the reader is given; ``lost`` are the filters that
    cannot be read. With ``footer`` the file cannot be opened at all.
    """

    name: str
    text: str
    modes: str
    data: Callable[[Base], bytes] = as_written
    keys: Callable[[Base], FileKeys] = own_keys
    outcome: str = "authentication_failed"
    lost: Callable[[Filter], bool] = _FIRST
    footer: bool = False


# --- the good files ------------------------------------------------------------------------------

@cache
def base(mode: str, *, copy: bool = False) -> Base:
    """A good file, or one with the same rows, keys and places and another aad_file_unique."""
    if copy:
        good = base(mode)
        return Base(mode, _copied(good), good.keys, good.filters)
    unfiltered = Base(mode, *_written(mode), [])
    return Base(mode, unfiltered.data, unfiltered.keys,
                [_filter(unfiltered, place) for place in PLACES])


def _written(mode: str) -> tuple[bytes, FileKeys]:
    encryption, sink = _MODES[mode], io.BytesIO()
    kms = InMemoryKms(MASTER_KEYS) if isinstance(encryption, EncryptionConfiguration) else None
    options = BloomFilterOptions(ndv=1000, max_bytes=NUM_BYTES)
    secure_bloom.write_table(
        pa.table(_VALUES), sink, bloom_filters=dict.fromkeys(COLUMNS, options),
        encryption=encryption, keys=kms, row_group_size=_ROWS, compression="none",
        use_dictionary=False, write_statistics=False, write_page_index=False, store_schema=False)
    if encryption is None:
        return sink.getvalue(), FileKeys()
    keys = KmsKeys(kms) if kms else ExplicitKeys(encryption.footer_key,
                                                 aad_prefix=encryption.aad_prefix)
    return reseal(sink.getvalue(), keys, f"faults {mode}")


def _copied(good: Base) -> bytes:
    footer, source = good.footer(), Seeded(f"faults {good.mode}, other file")
    opened = [(module, module.open(good.data, footer.file_aad))
              for module in modules(good.data, good.retriever) if module.offset < footer.start]
    for place in PLACES:
        chunk_of(footer, place).metadata_to_change()  # opened, so that it will be sealed again
    set_file_unique(footer, source.bytes(len(footer.algorithm.aad_file_unique)))
    out = bytearray(good.data[:footer.start])
    for module, plaintext in opened:
        out[module.offset:module.end] = module.seal(plaintext, footer.file_aad, source.bytes(12))
    with seeded_random(source):
        return bytes(out) + footer.to_bytes()


def _filter(good: Base, place: Place) -> Filter:
    row_group, column = place
    values = values_at(place)
    bits = reference.bitset(reference.hashes(value.encode() for value in values),
                            NUM_BYTES // reference.BYTES_PER_BLOCK)
    return Filter(row_group, column, chunk_of(good.footer(), place).encryption is not None, bits,
                  probes(bits, [values[0], _ABSENT[column]]))


def values_at(place: Place) -> list[str]:
    """The values of a column chunk."""
    row_group, column = place
    return _VALUES[column][row_group * _ROWS:][:_ROWS]


def probes(bits: bytes, values: Iterable[str]) -> list[tuple[bytes, str, bool]]:
    """Strings with the answer of a bitset."""
    return [(value.encode(), value, reference.check(bits, *reference.hashes([value.encode()])))
            for value in values]
