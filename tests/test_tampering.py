"""Nothing leaks, and changed, moved or hostile bytes give a typed error, never a wrong answer."""

import io
import random
import tracemalloc
from functools import cache

import pyarrow as pa
import pytest

from secure_bloom import BloomFilterOptions, ExplicitKeys, ParquetFile, SplitBlockBloomFilter
from secure_bloom.crypto.aad import ModuleType
from secure_bloom.crypto.modules import module_length
from secure_bloom.errors import (
    AuthenticationError,
    FileError,
    FormatError,
    KeyNotFoundError,
    KeyUnwrapError,
    SecureBloomError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.retrieval import key_retriever
from secure_bloom.parquet import thrift
from secure_bloom.parquet.header import encode_header
from tests.cases import for_each
from tests.modes import AAD_PREFIX, ENCRYPTED, MASTER_KEYS, MODES, PLAINTEXT, Mode, mode
from tests.support import open_footer

ROWS = 20  # in each of the two row groups
TABLE = pa.table({"secret": pa.array(range(10**6, 10**6 + 2 * ROWS)),
                  "name": [f"name {i}" for i in range(2 * ROWS)],
                  "open": [f"open {i}" for i in range(2 * ROWS)]})
SENSITIVE, PLAIN = ["secret", "name"], ["open"]
COLUMN_KEYS = {"kc1": ["secret"], "kc2": ["name"]}
NUM_BYTES = {"secret": 64, "name": 64, "open": 128}
WRONG_KEY = b"wrong key, 16 b."

every_encrypted_mode = pytest.mark.parametrize("mode", ENCRYPTED, ids=str)


def some_modes(*names):
    return pytest.mark.parametrize("mode", [mode(name) for name in names], ids=str)


@cache
def _written(name: str, copy: int) -> bytes:
    sink = io.BytesIO()
    mode(name).write(TABLE, sink, COLUMN_KEYS, row_group_size=ROWS, bloom_filters={
        column: BloomFilterOptions(ndv=1000, max_bytes=size) for column, size in NUM_BYTES.items()})
    return sink.getvalue()


def written(mode: Mode, copy: int = 0) -> bytes:
    """A file of this mode; another copy has the same rows and, with explicit keys, the same key."""
    return _written(mode.name, copy)


def opened(data, mode: Mode) -> ParquetFile:
    return ParquetFile(data, mode.keys)


def encrypted_columns(mode: Mode) -> list[str]:
    return SENSITIVE + PLAIN if mode.is_uniform else SENSITIVE if mode.is_encrypted else []


def values_of(group: int, column: str) -> list:
    return TABLE[column][group * ROWS:(group + 1) * ROWS].to_pylist()


def place(data: bytes, mode: Mode, group: int, column: str) -> slice:
    """Where a filter is: header and bitset."""
    [info] = [info for info in opened(data, mode).bloom_filters
              if (info.row_group, info.column) == (group, column)]
    return slice(info.offset, info.offset + info.length)


def parts(data: bytes, where: slice) -> dict[str, slice]:
    """A filter of two encrypted modules: both, and each of them."""
    middle = where.start + module_length(data[where])
    return {"filter": where, "header": slice(where.start, middle),
            "bitset": slice(middle, where.stop)}


def assert_refused(data: bytes, keys, group: int, column: str, error=AuthenticationError):
    """Nobody gets an answer from this filter, and the error says where it is."""
    file = ParquetFile(data, keys)
    value = values_of(group, column)[0]
    with pytest.raises(error) as raised:
        file.read_bloom_filter(group, column)
    assert (raised.value.row_group, raised.value.column) == (group, column)
    assert raised.value.file == "<buffer>"
    for ask in (file.might_contain, lambda *_: file.prune([(column, "==", value)]),
                lambda *_: file.read(filters=[(column, "==", value)])):
        with pytest.raises(error) as raised:
            ask(column, value)
        assert raised.value.file == "<buffer>" and raised.value.column == column


def assert_right(data: bytes, mode: Mode):
    file = opened(data, mode)
    for column in NUM_BYTES:
        for group in range(2):
            assert file.might_contain(column, values_of(group, column))[group].all()


# --- no leak -------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", MODES, ids=str)
def test_only_filters_of_plain_columns_are_readable(mode):
    data = written(mode)
    for column, num_bytes in NUM_BYTES.items():
        hidden = column in encrypted_columns(mode)
        for group in range(2):
            rebuilt = SplitBlockBloomFilter(num_bytes // 32)
            rebuilt.insert(values_of(group, column))
            bitset = bytes(rebuilt.bitset)
            blocks = [bitset[i:i + 32] for i in range(0, num_bytes, 32)]
            assert opened(data, mode).read_bloom_filter(group, column) == rebuilt
            assert (encode_header(num_bytes) + bitset in data) != hidden
            assert all(any(block) for block in blocks)
            assert not (hidden and any(block in data for block in blocks))
    assert mode is PLAINTEXT or encode_header(NUM_BYTES["secret"]) not in data
    assert (encode_header(NUM_BYTES["open"]) in data) == ("open" not in encrypted_columns(mode))


@every_encrypted_mode
def test_equal_rows_never_give_equal_bytes(mode):
    one, other = written(mode), written(mode, 1)
    for column in encrypted_columns(mode):
        for group in range(2):
            ones = one[place(one, mode, group, column)]
            others = other[place(other, mode, group, column)]
            assert ones[4:] != others[4:]
            assert ones[4:16] != others[4:16]  # the nonce


# --- moved modules -------------------------------------------------------------------------------

def swapped(data: bytes, one: slice, other: slice) -> bytes:
    result = bytearray(data)
    result[one], result[other] = data[other], data[one]
    assert len(result) == len(data) and result != data
    return bytes(result)


@every_encrypted_mode
@for_each("part", ["filter", "header", "bitset"])
@for_each(("one", "other"), [
    ((0, "secret"), (1, "secret")), ((0, "secret"), (0, "name")), ((0, "name"), (1, "secret"))])
def test_swapped_filters(mode, part, one, other):
    data = written(mode)
    data = swapped(data, *(parts(data, place(data, mode, *at))[part] for at in (one, other)))
    for group, column in (one, other):
        assert_refused(data, mode.keys, group, column)


@every_encrypted_mode
def test_a_bitset_for_a_header(mode):
    data = bytearray(written(mode))
    modules = parts(data, place(data, mode, 1, "name"))
    data[modules["filter"]] = data[modules["bitset"]] + data[modules["header"]]
    assert_refused(bytes(data), mode.keys, 1, "name")


@every_encrypted_mode
@for_each("part", ["filter", "header", "bitset"])
def test_filters_of_another_file(mode, part):
    data, other = bytearray(written(mode)), written(mode, 1)
    data[parts(data, place(data, mode, 0, "secret"))[part]] \
        = other[parts(other, place(other, mode, 0, "secret"))[part]]
    assert_refused(bytes(data), mode.keys, 0, "secret")


@pytest.mark.parametrize("mode", [mode for mode in ENCRYPTED if mode.plaintext_footer], ids=str)
def test_a_signed_footer_that_points_elsewhere(mode):
    """Places of filters swapped in the footer, the signature left as it was."""
    data = written(mode)
    footer = open_footer(data, key_retriever(mode.keys))
    [secret, name, _], start = footer.row_groups[0], footer.start
    places = secret.bloom_filter, name.bloom_filter
    name.set_bloom_filter(*places[0])
    secret.set_bloom_filter(*places[1])
    changed = footer.to_bytes()
    with pytest.raises(AuthenticationError, match="signature") as raised:
        opened(data[:start] + changed[:-36] + data[-36:-8] + changed[-8:], mode)
    assert raised.value.file == "<buffer>"
    assert_refused(data[:start] + changed, mode.keys, 0, "secret")  # signed by who has the key


# --- wrong keys ----------------------------------------------------------------------------------

@every_encrypted_mode
def test_a_wrong_footer_key(mode):
    if mode.uses_kms:
        keys, error = InMemoryKms({**MASTER_KEYS, "kf": WRONG_KEY}), KeyUnwrapError
    else:
        keys, error = ExplicitKeys(WRONG_KEY, aad_prefix=mode.keys.aad_prefix), AuthenticationError
    with pytest.raises(error) as raised:
        ParquetFile(written(mode), keys)
    assert raised.value.file == "<buffer>"


with_column_keys = pytest.mark.parametrize(
    "mode", [mode for mode in ENCRYPTED if not mode.is_uniform], ids=str)


@with_column_keys
def test_a_wrong_column_key(mode):
    data, right = written(mode), mode.explicit_keys(written(mode))
    keys = ExplicitKeys(right.footer_key, {**right.column_keys, "secret": WRONG_KEY})
    assert_refused(data, keys, 0, "secret")
    with pytest.raises(AuthenticationError):
        _ = ParquetFile(data, keys).bloom_filters
    for column in ("name", "open"):
        assert ParquetFile(data, keys).might_contain(column, values_of(0, column))[0].all()


@with_column_keys
def test_a_wrong_or_missing_master_key_of_a_column(mode):
    data = written(mode)
    assert_refused(data, InMemoryKms({**MASTER_KEYS, "kc1": WRONG_KEY}), 0, "secret",
                   KeyUnwrapError)
    less = InMemoryKms({name: key for name, key in MASTER_KEYS.items() if name != "kc1"})
    assert_refused(data, less, 0, "secret", KeyNotFoundError)
    file = ParquetFile(data, less)
    assert file.columns_without_key == ([] if mode.plaintext_footer else ["secret"])
    assert file.might_contain("name", values_of(1, "name"))[1].all()


@every_encrypted_mode
def test_no_keys(mode):
    data = written(mode)
    if not mode.plaintext_footer:
        with pytest.raises(KeyNotFoundError) as raised:
            ParquetFile(data)
        assert raised.value.file == "<buffer>"
        return
    for column in encrypted_columns(mode):
        assert_refused(data, None, 0, column, KeyNotFoundError)
    for column in set(NUM_BYTES) - set(encrypted_columns(mode)):
        assert ParquetFile(data).might_contain(column, values_of(1, column))[1].all()


@pytest.mark.parametrize("mode", [mode for mode in ENCRYPTED if not mode.uses_kms], ids=str)
def test_a_wrong_aad_prefix(mode):
    data, key = written(mode), mode.options["footer_key"]
    for prefix in (b"Tester", b"teste", b"tester2"):
        with pytest.raises(AuthenticationError) as raised:
            ParquetFile(data, ExplicitKeys(key, aad_prefix=prefix))
        assert raised.value.file == "<buffer>"
    if mode.options.get("store_aad_prefix", True):
        assert ParquetFile(data, ExplicitKeys(key)).bloom_filters
    else:
        with pytest.raises(KeyNotFoundError, match="AAD prefix"):
            ParquetFile(data, ExplicitKeys(key))
    assert mode.keys.aad_prefix in (None, AAD_PREFIX)


# --- changed bytes -------------------------------------------------------------------------------

@every_encrypted_mode
def test_every_flipped_bit_of_a_filter(mode):
    data = bytearray(written(mode))
    where = place(data, mode, 0, "secret")
    file = opened(data, mode)  # sees the changes in data
    right = file.read_bloom_filter(0, "secret")
    for position in range(where.start, where.stop):
        for bit in range(8):
            data[position] ^= 1 << bit
            with pytest.raises(AuthenticationError) as raised:
                file.read_bloom_filter(0, "secret")
            assert raised.value.file and (raised.value.row_group, raised.value.column) \
                == (0, "secret")
            data[position] ^= 1 << bit
    assert file.read_bloom_filter(0, "secret") == right


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_truncated_files(mode):
    data = written(mode)
    for size in {*range(0, len(data), 41), *range(16), *range(len(data) - 40, len(data))}:
        with pytest.raises(FormatError) as raised:
            opened(data[:size], mode)
        assert raised.value.file == "<buffer>"


@every_encrypted_mode
@for_each("missing", [1, 16, 100, 500])
def test_filters_at_other_places(mode, missing):
    data = written(mode)
    start = place(data, mode, 0, "secret").start
    file = opened(data[:start - missing] + data[start:], mode)
    for column in encrypted_columns(mode):
        for group in range(2):
            with pytest.raises(FileError) as raised:
                file.read_bloom_filter(group, column)
            assert (raised.value.row_group, raised.value.column) == (group, column)


def test_a_signed_footer_that_ends_early():
    """One changed byte must not make it an empty footer without encryption."""
    signed = mode("signed key ctr 192")
    content = written(signed)[opened(written(signed), signed).footer.start:]
    early = b"\x15\x02\x19\x2c\x48\x06schema\x15\x02\0\x15\x02\x18\x01a\0\0" + content[:-8]
    data = b"PAR1" + early + len(early).to_bytes(4, "little") + b"PAR1"
    for keys in (signed.keys, None):
        with pytest.raises(FormatError, match="extra bytes after its end"):
            ParquetFile(data, keys)


def test_changed_pages_and_schema_of_a_plain_file():
    """Nobody can tell that they were changed, but pyarrow's complaints come as a typed error."""
    data = written(PLAINTEXT)
    rng = random.Random(1)
    for _ in range(200):
        changed = bytearray(data)
        for _ in range(3):
            changed[rng.randrange(4, len(data))] = rng.randrange(256)
        try:
            file = opened(changed, PLAINTEXT)
            _ = file.schema, list(file.iter_tables())
        except SecureBloomError as error:
            assert error.file == "<buffer>"


# --- hostile headers and places ------------------------------------------------------------------

BITSET = bytes(range(64))


def planted(mode: Mode, filter_bytes, length=None, offset=None) -> bytes:
    """The file with another filter for column "secret" of row group 0, just before the footer."""
    data = written(mode)
    footer = open_footer(data, key_retriever(mode.keys))
    chunk = footer.row_groups[0][0]
    payload = filter_bytes(chunk)
    chunk.set_bloom_filter(footer.start if offset is None else offset,
                           len(payload) if length is None else length)
    return data[:footer.start] + payload + footer.to_bytes()


def packed(header: bytes, bitset: bytes = BITSET):
    """Any bytes as a filter, sealed where the column is encrypted."""
    def filter_bytes(chunk):
        if (modules := chunk.modules) is None:
            return header + bitset
        return (modules.encrypt(header, ModuleType.BLOOM_FILTER_HEADER)
                + modules.encrypt(bitset, ModuleType.BLOOM_FILTER_BITSET))
    return filter_bytes


def header(num_bytes: int, members=(1, 1, 1)) -> bytes:
    """A header with other members of its three unions."""
    unions = b"".join(bytes([0x1C, member << 4 | 0xC, 0, 0]) for member in members)
    return b"\x15" + thrift.encode_int(num_bytes) + unions + b"\0"


hostile_modes = some_modes("plaintext", "columns double gcm 128", "signed columns double ctr 256",
                           "key gcm 128")


@hostile_modes
@pytest.mark.parametrize("padding", [0, 1, 84, 900])
def test_zeros_behind_a_header_or_a_filter(mode, padding):
    zeros = bytes(padding)
    padded = header(64) + (b"" if mode is PLAINTEXT else zeros)
    data = planted(mode, lambda chunk: packed(padded)(chunk) + zeros)
    assert bytes(opened(data, mode).read_bloom_filter(0, "secret").bitset) == BITSET


@hostile_modes
@for_each("num_bytes", [2**31, 2**31 - 1, -2**31, 2**27 + 32, 2**27, -64, 0, 10**5,
                                       96])
def test_impossible_sizes(mode, num_bytes):
    data = planted(mode, packed(header(num_bytes)))
    file = opened(data, mode)
    tracemalloc.start()
    try:
        assert_refused(data, mode.keys, 0, "secret", FormatError)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert file.might_contain("open", values_of(0, "open"))[0].all()


@hostile_modes
@for_each("header", [header(63), header(33), header(1), header(64, (2, 1, 1)),
                                    header(64, (1, 2, 1)), header(64, (1, 1, 15)),
                                    header(64, (7, 7, 7))])
def test_unknown_kinds_of_filters_tell_nothing(mode, header):
    file = opened(planted(mode, packed(header)), mode)
    with pytest.raises(UnsupportedError) as raised:
        file.read_bloom_filter(0, "secret")
    assert (raised.value.row_group, raised.value.column) == (0, "secret")
    assert file.might_contain("secret", [-1, 10**6]).tolist() == [[True, True], [False, False]]
    assert file.prune([("secret", "==", values_of(0, "secret")[0])]) == [0]
    assert file.bloom_filters[0].num_bytes is None


@hostile_modes
@for_each("bad", [b"", b"\0", b"\xff" * 30, header(64)[:-1], bytes(500)])
def test_what_is_no_header(mode, bad):
    assert_refused(planted(mode, packed(bad, b"")), mode.keys, 0, "secret", FormatError)


@hostile_modes
@for_each("offset", [0, -1, -2**63, 10**6, 2**31, 2**63 - 1])
def test_offsets_outside_the_data(mode, offset):
    assert_refused(planted(mode, packed(header(64)), offset=offset), mode.keys, 0, "secret",
                   FormatError)


@pytest.mark.slow
@hostile_modes
def test_lengths_that_do_not_fit(mode):
    size = len(packed(header(64))(open_footer(written(mode), key_retriever(mode.keys))
                                  .row_groups[0][0]))
    for length in (0, -1, -2**31, size + 1, 2**31 - 1):
        assert_refused(planted(mode, packed(header(64)), length), mode.keys, 0, "secret",
                       FormatError)
    for length in range(1, size):
        assert_refused(planted(mode, packed(header(64)), length), mode.keys, 0, "secret", FileError)


@some_modes("columns double gcm 128", "key gcm 128")
@for_each("length", [0, 27, 28, 2**20, 2**31, 2**32 - 1])
def test_module_lengths_that_do_not_fit(mode, length):
    """In the header's module and in the bitset's: nothing is allocated for what they claim."""
    for number in range(2):
        def lying(chunk, number=number):
            data = bytearray(packed(header(64))(chunk))
            start = number * module_length(data)
            data[start:start + 4] = length.to_bytes(4, "little")
            return bytes(data)

        data = planted(mode, lying)
        tracemalloc.start()
        try:
            assert_refused(data, mode.keys, 0, "secret")
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("mode", MODES, ids=str)
@for_each("length", [0, 1, 2**16, 2**31, 2**32 - 1])
def test_footer_lengths_that_do_not_fit(mode, length):
    data = written(mode)
    with pytest.raises(FileError) as raised:
        opened(data[:-8] + length.to_bytes(4, "little") + data[-4:], mode)
    assert raised.value.file == "<buffer>"


# --- random changes ------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", MODES, ids=str)
def test_random_changes(mode):
    data = written(mode)
    first = place(data, mode, 0, "secret").start  # pages before it are pyarrow's
    rng = random.Random(mode.name)
    refused = 0
    for _ in range(120):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            changed[rng.randrange(first, len(data))] = rng.randrange(256)
        try:
            file = opened(changed, mode)
            _ = file.bloom_filters
            for column in NUM_BYTES:
                answers = file.might_contain(column, values_of(0, column))
                if column in encrypted_columns(mode):
                    assert answers[0].all()
        except SecureBloomError as error:
            assert error.file == "<buffer>"
            refused += 1
    assert refused > 20
    assert_right(data, mode)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_random_footers(mode):
    """Footers of random length, changed at random: refused, or read."""
    data = written(mode)
    rng = random.Random(mode.name)
    for _ in range(60):
        start, end = sorted(rng.randrange(len(data) - 8) for _ in range(2))
        changed = data[:start] + rng.choice((b"", rng.randbytes(30))) + data[end:]
        try:
            _ = opened(changed, mode).bloom_filters
        except SecureBloomError as error:
            assert error.file == "<buffer>"
