"""Footers: opened, changed and written back in every encryption mode; pyarrow reads the result."""

import io
import os
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from secure_bloom import ParquetFile
from secure_bloom.arrow.decryption import decryption_properties
from secure_bloom.crypto.aad import ModuleType, module_aad
from secure_bloom.crypto.modules import ModuleCipher
from secure_bloom.errors import (
    AuthenticationError,
    FormatError,
    KeyNotFoundError,
    SecureBloomError,
    UnknownEncryptionError,
    UnsupportedError,
)
from secure_bloom.keys import ExplicitKeys
from secure_bloom.keys.retrieval import key_retriever
from secure_bloom.parquet import thrift
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.tail import MAX_FOOTER, read_footer
from secure_bloom.parquet.thrift import BINARY, I32, I64, STRUCT, Struct, tree
from secure_bloom.storage.source import Source
from tests.cases import for_each
from tests.support import (
    FOOTER_KEY,
    MODES,
    arrow_file,
    encrypted_arrow_file,
    encryptions,
    footer_parts,
    open_footer,
)

TABLE = pa.table({"a": range(20), "s": [{"x": i, "y": str(i)} for i in range(20)],
                  "l": [[i, i] for i in range(20)]})
PATHS = ["a", "s.x", "s.y", "l.list.element"]


@pytest.fixture(autouse=True, params=["walker", "kernels"])
def _how(request, monkeypatch):
    """Footers are read in Python, and those that are large by compiled kernels."""
    if request.param == "kernels":
        monkeypatch.setattr(tree, "_LARGE", 0)


def file_of(mode: str, column="a", table=TABLE) -> tuple[bytes, object]:
    encryption, kms, keys = encryptions(column)[mode]
    file, _ = encrypted_arrow_file(table, encryption, kms, row_group_size=8)
    return file, key_retriever(keys)


def properties_for(keys):
    """How pyarrow is to decrypt."""
    if keys is None:
        return None
    if isinstance(keys, ExplicitKeys):
        return pe.create_decryption_properties(FOOTER_KEY, aad_prefix=keys.aad_prefix)
    return decryption_properties(keys.kms)


def with_footer(file: bytes, footer: Footer) -> bytes:
    return file[:footer.start] + footer.to_bytes()


# --- what a footer says --------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_footers_say_what_pyarrow_wrote(mode):
    file, keys = file_of(mode)
    footer = open_footer(file, keys)
    assert [column.path for column in footer.columns] == PATHS
    assert len(footer.row_groups) == 3
    assert footer.num_rows == 20
    assert [footer.row_group_num_rows(i) for i in range(3)] == [8, 8, 4]
    assert footer.created_by.startswith("parquet-cpp-arrow")
    assert footer.is_encrypted == (mode != "plain")
    assert footer.has_encrypted_footer == (file[-4:] == b"PARE") == (file[:4] == b"PARE")
    assert footer.signature_verified == ("plaintext footer" in mode)
    encrypted = [[chunk.encryption for chunk in chunks] for chunks in footer.row_groups]
    own = mode in ("column keys", "plaintext footer", "ctr", "single wrapping")
    expected = {True: ["column key", None, None, None],
                False: [None if mode == "plain" else "footer key"] * 4}[own]
    assert encrypted == [expected] * 3
    assert [chunk.bloom_filter for chunk in footer.column_chunks()] == [None] * 12
    if footer.is_encrypted:
        assert footer.algorithm.name == ("AES_GCM_CTR_V1" if mode == "ctr" else "AES_GCM_V1")
        assert len(footer.algorithm.aad_file_unique) == 8
        assert footer.file_aad.endswith(footer.algorithm.aad_file_unique)
        assert footer.algorithm.supply_aad_prefix == (mode == "key, supplied prefix")


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "encryption"), [
    ("plain", "not encrypted"), ("column keys", "encrypted, AES_GCM_V1"),
    ("plaintext footer", "signed, AES_GCM_V1")])
def test_a_footer_is_shown_with_its_encryption(mode, encryption):
    assert repr(open_footer(*file_of(mode))).endswith(
        f"4 columns, 3 row groups, 20 rows, {encryption}>")


def test_a_row_group_is_placed_and_resized():
    """Readers take the offset for where the row group is."""
    group = open_footer(arrow_file(TABLE)).row_groups[0]
    group.place(2, 1234, group.shared)
    group.resize(5, 60, 700)
    struct, _ = thrift.decode(group.encode(), {})
    total_size, num_rows, file_offset, compressed_size = 2, 3, 5, 6  # field ids of RowGroup
    assert [struct.get_int(field) for field in (total_size, num_rows, file_offset,
                                                compressed_size)] == [700, 5, 1234, 60]


@pytest.mark.parametrize("options", [
    {}, {"version": "1.0"}, {"write_page_index": True}, {"store_schema": False},
    {"flavor": "spark"}, {"compression": "zstd"}, {"use_deprecated_int96_timestamps": True},
    {"sorting_columns": [pq.SortingColumn(0)]}, {"write_statistics": False}], ids=str)
def test_pyarrow_footers_come_back_byte_for_byte(options):
    table = TABLE.append_column("t", pa.array([None, *range(19)]).cast(pa.timestamp("us")))
    table = table.append_column("d", pa.array([1] * 20).cast(pa.decimal128(21, 2)))
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"key": "value"}), sink, row_group_size=1,
                   **options)
    content, magic = footer_parts(sink.getvalue())
    assert Footer(content, magic).to_bytes() \
        == content + len(content).to_bytes(4, "little") + magic


def test_a_file_without_row_groups_or_columns():
    empty = open_footer(arrow_file(TABLE.schema.empty_table()))
    assert empty.num_rows == sum(map(empty.row_group_num_rows, range(len(empty.row_groups)))) == 0
    sink = io.BytesIO()
    pq.ParquetWriter(sink, TABLE.schema).close()
    assert open_footer(sink.getvalue()).row_groups == []
    [group] = open_footer(arrow_file(TABLE.select([]))).row_groups
    group.place(1, 1234, group.shared)
    assert thrift.decode(group.encode(), {})[0].get_int(5) == 1234


# --- patches -------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", MODES)
def test_a_patched_footer_opens_again_and_pyarrow_reads_the_file(mode):
    file, keys = file_of(mode)
    footer = open_footer(file, keys)
    for number, chunk in enumerate(footer.column_chunks()):
        chunk.set_bloom_filter(1000 + number, 47 + number)
    patched = with_footer(file, footer)
    assert patched != file
    again = open_footer(patched, keys)
    places = [chunk.bloom_filter for chunk in again.column_chunks()]
    assert places == [(1000 + i, 47 + i) for i in range(12)]
    assert pq.read_table(io.BytesIO(patched),
                         decryption_properties=properties_for(keys)).equals(TABLE)
    if keys is not None:
        metadata = pq.read_metadata(io.BytesIO(patched),
                                    decryption_properties=properties_for(keys))
        assert metadata.num_row_groups == 3


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@for_each("are_open", [False, True])
def test_filters_are_set_all_at_once_as_one_by_one(mode, are_open):
    file, keys = file_of(mode)
    one_by_one, at_once = open_footer(file, keys), open_footer(file, keys)
    for number, chunks in enumerate(at_once.row_groups):
        places = {ordinal: (10**number, 2**ordinal) for ordinal in (0, 3, 1)}
        if are_open:
            assert not any(chunk.bloom_filter for chunk in chunks)
        at_once.set_bloom_filters(number, places)
        for ordinal, place in places.items():
            assert chunks[ordinal].bloom_filter == place
            one_by_one.row_groups[number][ordinal].set_bloom_filter(*place)
    at_once, one_by_one = (open_footer(with_footer(file, footer), keys)
                           for footer in (at_once, one_by_one))
    for theirs, ours in zip(one_by_one.row_groups, at_once.row_groups, strict=True):
        assert [[thrift.encode(meta) for meta in chunk.metadata_to_change()] for chunk in theirs] \
            == [[thrift.encode(meta) for meta in chunk.metadata_to_change()] for chunk in ours]


def test_what_was_changed_before_is_kept():
    file, keys = file_of("plain")
    footer = open_footer(file, keys)
    for meta in footer.row_groups[0][1].metadata_to_change():
        meta.set_int(7, I64, 12345)  # total_compressed_size
    footer.set_bloom_filters(0, {0: (100, 47), 1: (147, 47)})
    again = open_footer(with_footer(file, footer), keys)
    assert again.row_groups[0][1].bloom_filter == (147, 47)
    assert again.row_groups[0][1].pages[1] == 12345


@pytest.mark.parametrize("mode", MODES)
def test_filters_are_set_in_several_steps(mode):
    """Of some columns, of all, and again of some that have one."""
    file, keys = file_of(mode)
    footer = open_footer(file, keys)
    for ordinals in ((2,), (0, 1, 2, 3), (3, 0), (1,)):
        footer.set_bloom_filters(1, {ordinal: (10 + ordinal, 20) for ordinal in ordinals})
    footer.set_bloom_filters(1, {2: (2**40, 2**30)})
    again = open_footer(with_footer(file, footer), keys)
    assert [chunk.bloom_filter for chunk in again.row_groups[1]] \
        == [(10, 20), (11, 20), (2**40, 2**30), (13, 20)]
    assert not any(chunk.bloom_filter for number in (0, 2) for chunk in again.row_groups[number])


@pytest.mark.parametrize("mode", MODES)
@for_each("column", ["s.x", "l.list.element"])
def test_only_the_patched_column_changes(mode, column):
    file, keys = file_of(mode, column)
    footer = open_footer(file, keys)
    ordinal = PATHS.index(column)
    footer.row_groups[1][ordinal].set_bloom_filter(77, 2**31 - 1)
    again = open_footer(with_footer(file, footer), keys)
    assert {(group, i): chunk.bloom_filter for group, chunks in enumerate(again.row_groups)
            for i, chunk in enumerate(chunks) if chunk.bloom_filter} \
        == {(1, ordinal): (77, 2**31 - 1)}


@pytest.mark.parametrize("mode", ["plaintext footer", "key, plaintext footer"])
def test_a_plaintext_footer_says_where_filters_are_without_keys(mode):
    file, keys = file_of(mode)
    footer = open_footer(file, keys)
    footer.row_groups[0][0].set_bloom_filter(500, 60)
    keyless = open_footer(with_footer(file, footer))
    assert keyless.row_groups[0][0].bloom_filter == (500, 60)
    assert not keyless.signature_verified
    with pytest.raises(KeyNotFoundError, match="--keys"):
        _ = keyless.row_groups[0][0].cipher
    with pytest.raises(KeyNotFoundError):
        keyless.to_bytes()  # it cannot be signed


def test_a_footer_written_twice_never_repeats_a_nonce():
    file, keys = file_of("column keys")
    footer = open_footer(file, keys)
    footer.row_groups[0][0].set_bloom_filter(500, 60)
    first, second = footer.to_bytes(), footer.to_bytes()
    assert first != second
    assert [open_footer(file[:footer.start] + tail, keys).row_groups[0][0].bloom_filter
            for tail in (first, second)] == [(500, 60)] * 2


UNKNOWN = [[200, BINARY, b"\x03new"], [-7, I64, b"\x05"]]


def add_unknown(struct: Struct) -> Struct:
    for field in UNKNOWN:
        struct.set(*field)
    return struct


def has_unknown(struct: Struct) -> bool:
    return all(struct.get(field_id) == value for field_id, _, value in UNKNOWN)


LAYOUT = {2: [{10: {}}], 4: [{1: [{3: {}, 8: {1: {}, 2: {}}}]}], 8: {1: {}, 2: {}}}


def structures(file_metadata: Struct):
    yield file_metadata
    yield from file_metadata.get(2)
    for group in file_metadata.get(4):
        yield group
        for chunk in group.get(1):
            yield chunk
            yield chunk.get(3)


@pytest.mark.parametrize("signed", [False, True])
def test_unknown_fields_survive_a_patch(signed):
    """At every level, in plaintext, and in a module of a column's metadata."""
    content, magic = footer_parts(file_of("plain")[0])
    file_metadata, _ = thrift.decode(content, LAYOUT)
    cipher, keys = ModuleCipher(FOOTER_KEY), None
    for struct in structures(file_metadata):
        add_unknown(struct)
    if signed:
        keys = ExplicitKeys(FOOTER_KEY, {"a": b"c" * 16})
        algorithm = add_unknown(Struct())
        algorithm.set_binary(2, b"12345678")
        file_metadata.set(8, STRUCT, Struct([[1, STRUCT, algorithm]]))
        for number, group in enumerate(file_metadata.get(4)):
            chunk = group.get(1)[0]
            chunk.set(8, STRUCT, Struct([[2, STRUCT, add_unknown(Struct())]]))
            aad = module_aad(b"12345678", ModuleType.COLUMN_META_DATA, number, 0)
            chunk.set_binary(9, ModuleCipher(b"c" * 16).encrypt(
                thrift.encode(chunk.get(3)) + bytes(50), aad))  # padded as parquet-java does
    content = thrift.encode(file_metadata)
    footer_aad = module_aad(b"12345678", ModuleType.FOOTER)
    footer = Footer(content + (cipher.sign(content, footer_aad) if signed else b""), magic, keys)
    for chunk in footer.column_chunks():
        chunk.set_bloom_filter(100, 50)
    patched, _ = thrift.decode(footer_parts(footer.to_bytes())[0], LAYOUT)
    assert all(has_unknown(struct) for struct in structures(patched))
    for number, group in enumerate(patched.get(4)):
        for chunk in group.get(1):
            assert chunk.get(3).get_int(14) == 100
        if signed:
            chunk = group.get(1)[0]
            assert has_unknown(chunk.get(8).get(2))
            aad = module_aad(b"12345678", ModuleType.COLUMN_META_DATA, number, 0)
            module = ModuleCipher(b"c" * 16).decrypt(chunk.get_binary(9), aad)
            inner, _ = thrift.decode(module, {})
            assert has_unknown(inner)
            assert (inner.get_int(14), inner.get_int(15)) == (100, 50)


def test_key_metadata_can_be_replaced():
    for mode in ("key", "key, plaintext footer"):
        file, keys = file_of(mode)
        footer = open_footer(file, keys)
        assert footer.footer_key_metadata is None
        footer.set_footer_key_metadata(b"named")
        again = with_footer(file, footer)
        assert open_footer(again, ExplicitKeys(key_ids={"named": FOOTER_KEY},
                                               aad_prefix=keys.aad_prefix)
                           ).footer_key_metadata == b"named"


def test_a_supplied_prefix_can_be_stored():
    file, keys = file_of("key, supplied prefix")
    footer = open_footer(file, keys)
    footer.store_aad_prefix()
    again = open_footer(with_footer(file, footer), ExplicitKeys(FOOTER_KEY))
    assert again.algorithm.aad_prefix == b"prefix"
    assert not again.algorithm.supply_aad_prefix


# --- what is wrong -------------------------------------------------------------------------------

def test_the_magic_must_be_parquets():
    content, _ = footer_parts(file_of("plain")[0])
    for magic in (b"PAR2", b"PAR", b""):
        with pytest.raises(FormatError, match="PAR1 or PARE"):
            Footer(content, magic)


@pytest.mark.parametrize("mode", ["plain", "uniform", "plaintext footer"])
def test_a_footer_cut_off_anywhere_is_refused(mode):
    file, keys = file_of(mode)
    content, magic = footer_parts(file)
    for size in range(0, len(content), 1 if mode == "uniform" else 7):
        with pytest.raises(SecureBloomError):
            Footer(content[:size], magic, keys)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["plaintext footer", "key, plaintext footer", "key"])
def test_no_changed_byte_passes_as_verified(mode):
    """A change that hides the algorithm makes the file look unsigned, and it says so."""
    file, keys = file_of(mode, table=TABLE.select(["a"]))
    content, magic = footer_parts(file)
    passed = 0
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 4
        try:
            footer = Footer(bytes(changed), magic, keys)
        except SecureBloomError:
            continue
        assert not footer.is_encrypted
        assert not footer.signature_verified
        passed += 1
    assert passed < 10 if "plaintext" in mode else passed == 0


def test_a_missing_signature_is_noticed():
    content, magic = footer_parts(file_of("key, plaintext footer")[0])
    keys = ExplicitKeys(FOOTER_KEY)
    with pytest.raises(AuthenticationError, match="missing"):
        Footer(content[:-28], magic, keys)
    # Without a footer key nobody can tell.
    assert not Footer(content[:-28], magic, ExplicitKeys()).signature_verified


def plain_metadata() -> Struct:
    return thrift.decode(footer_parts(file_of("plain")[0])[0], LAYOUT)[0]


def refused(file_metadata: Struct, error, **place) -> None:
    with pytest.raises(error) as caught:
        _ = Footer(thrift.encode(file_metadata), b"PAR1", ExplicitKeys(FOOTER_KEY)
                   ).row_groups[0][0].cipher
    for name, value in place.items():
        assert getattr(caught.value, name) == value


def test_row_groups_have_the_columns_of_the_schema():
    metadata = plain_metadata()
    del metadata.get(4)[1].get(1)[0]
    refused(metadata, FormatError, row_group=1)


@pytest.mark.parametrize("algorithm", [
    Struct(), Struct([[1, I32, b"\x02"]]), Struct([[1, STRUCT, Struct()], [2, STRUCT, Struct()]])])
def test_a_malformed_algorithm(algorithm):
    metadata = plain_metadata()
    metadata.set(8, STRUCT, algorithm)
    refused(metadata, FormatError)


def test_an_unknown_algorithm():
    metadata = plain_metadata()
    metadata.set(8, STRUCT, Struct([[9, STRUCT, Struct()]]))
    with pytest.raises((UnsupportedError, FormatError)):
        Footer(thrift.encode(metadata), b"PAR1")


@pytest.mark.parametrize("crypto", [
    Struct(), Struct([[3, STRUCT, Struct()]]),
    Struct([[1, STRUCT, Struct()], [2, STRUCT, Struct()]])])
def test_malformed_crypto_metadata_of_a_column(crypto):
    metadata = plain_metadata()
    metadata.get(4)[0].get(1)[0].set(8, STRUCT, crypto)
    encrypted_in_an_unknown_way(metadata)


def encrypted_in_an_unknown_way(metadata):
    chunk = Footer(thrift.encode(metadata), b"PAR1").row_groups[0][0]
    with pytest.raises(UnknownEncryptionError) as error:
        _ = chunk.cipher
    assert (error.value.row_group, error.value.column) == (0, "a")


def test_type_confusion_in_a_column_chunk():
    metadata = plain_metadata()
    chunk = metadata.get(4)[0].get(1)[0]
    chunk.set(8, STRUCT, Struct([[2, I32, b"\x02"]]))
    encrypted_in_an_unknown_way(metadata)
    chunk.set(8, STRUCT, Struct([[2, STRUCT, Struct()]]))
    chunk.set(3, I32, b"\x02")
    chunk.set_binary(9, b"module")
    column = Footer(thrift.encode(metadata), b"PAR1").row_groups[0][0]
    with pytest.raises((KeyNotFoundError, FormatError)):
        _ = column.bloom_filter


def test_an_encrypted_column_in_a_plain_file():
    metadata = plain_metadata()
    metadata.get(4)[0].get(1)[0].set(8, STRUCT, Struct([[1, STRUCT, Struct()]]))
    chunk = Footer(thrift.encode(metadata), b"PAR1", ExplicitKeys(FOOTER_KEY)).row_groups[0][0]
    with pytest.raises(FormatError, match="without an encryption algorithm"):
        _ = chunk.modules


def test_a_column_without_metadata():
    metadata = plain_metadata()
    metadata.get(4)[0].get(1)[0].remove(3)
    chunk = Footer(thrift.encode(metadata), b"PAR1").row_groups[0][0]
    with pytest.raises(FormatError, match="no metadata") as caught:
        _ = chunk.bloom_filter
    assert caught.value.column == "a"


def test_a_column_of_another_type_than_the_schema_says():
    metadata = plain_metadata()
    metadata.get(4)[0].get(1)[0].get(3).set_int(1, I32, 6)
    chunk = Footer(thrift.encode(metadata), b"PAR1").row_groups[0][0]
    with pytest.raises(FormatError, match="differs from the schema"):
        _ = chunk.bloom_filter


@pytest.mark.parametrize("field", [2, 4])
def test_lists_that_are_none(field):
    metadata = plain_metadata()
    metadata.set(field, BINARY, b"\x20" + b"x" * 32)
    with pytest.raises(FormatError):
        Footer(thrift.encode(metadata), b"PAR1")


def test_the_ordinal_of_a_row_group_counts_in_its_aad():
    metadata = plain_metadata()
    algorithm = Struct()
    algorithm.set_binary(2, b"unique")
    metadata.set(8, STRUCT, Struct([[1, STRUCT, algorithm]]))
    groups = metadata.get(4)
    groups[0].set_int(7, thrift.I16, 5)
    groups[1].remove(7)
    groups[2].set_int(7, thrift.I16, -1)
    for group in groups:
        group.get(1)[2].set(8, STRUCT, Struct([[1, STRUCT, Struct()]]))
    footer = Footer(thrift.encode(metadata), b"PAR1")
    footer.crypto.use_footer_key(FOOTER_KEY)
    aads = [footer.row_groups[i][2].modules.aad(ModuleType.BLOOM_FILTER_HEADER) for i in (0, 1)]
    assert aads == [b"unique\x08\x05\0\x02\0", b"unique\x08\x01\0\x02\0"]
    with pytest.raises(FormatError, match="is out of range"):
        footer.row_groups[2][2].modules.aad(ModuleType.BLOOM_FILTER_HEADER)


def sparse_file(path, length: int, magic: bytes) -> str:
    """A file that takes no place on the disk, with a footer of so many zeros."""
    with open(path, "wb") as file:
        file.truncate(length + 4)
        file.seek(length + 4)
        file.write(length.to_bytes(4, "little") + magic)
    return str(path)


@pytest.mark.parametrize("magic", [b"PAR1", b"PARE"])
def test_a_footer_of_more_bytes_than_any_file_needs_is_not_read(tmp_path, magic):
    path = sparse_file(tmp_path / "a.parquet", MAX_FOOTER + 1, magic)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"claims 268,435,457 bytes; at most 268,435,456"):
            ParquetFile(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("magic", [b"PAR1", b"PARE"])
def test_a_large_footer_is_in_memory_once(tmp_path, magic):
    size = 32 * 1024 * 1024
    path = sparse_file(tmp_path / "a.parquet", size, magic)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"schema is empty|algorithm is missing"):
            ParquetFile(path)
        assert size <= tracemalloc.get_traced_memory()[1] < 1.5 * size
    finally:
        tracemalloc.stop()
    assert read_footer(Source(path)) == (bytes(size), magic)


def test_a_file_that_is_truncated_before_its_large_footer_is_read(tmp_path, monkeypatch):
    path, read_tail = sparse_file(tmp_path / "a.parquet", 2 << 20, b"PAR1"), Source.read_tail

    def then_truncated(source, size):
        tail = bytes(read_tail(source, size))
        os.truncate(path, 1 << 20)
        return tail

    monkeypatch.setattr(Source, "read_tail", then_truncated)
    with pytest.raises(FormatError, match="truncated while it was being read"):
        read_footer(Source(path))
