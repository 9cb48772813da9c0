"""A file that was erased from is a new file: nothing of the version before opens in it."""

from pathlib import Path

import pyarrow as pa
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, attach, erase, strip, verify_file
from secure_bloom.crypto.aad import ModuleType
from secure_bloom.crypto.modules import module_length
from secure_bloom.errors import AuthenticationError, FormatError, KeyAccessError, KeyExhaustedError
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.operations.rotation import rotate_master_keys
from secure_bloom.parquet import thrift
from secure_bloom.reading.open_file import OpenFile
from tests.erasing.helpers import KEYS, KMS, numbers_in, ssn, write_people
from tests.modes import Mode, mode
from tests.tiers import sweep_where

M = ModuleType
BODIES = M.DATA_PAGE, M.DICTIONARY_PAGE
HEADERS = {M.DATA_PAGE: M.DATA_PAGE_HEADER, M.DICTIONARY_PAGE: M.DICTIONARY_PAGE_HEADER}
ROWS = 40  # in each of three row groups
TABLE = pa.table({"id": pa.array(range(3 * ROWS)), "name": [f"n{i:04d}" for i in range(3 * ROWS)]})
ERASED = {"a row": [3], "a row group": range(ROWS)}
EVERY_KIND = {*M} - {M.FOOTER, M.COLUMN_META_DATA}


def modules_of(data: bytes, file: ParquetFile) -> dict[tuple, slice]:
    """Return where the modules of all column chunks are, by type and ordinals."""
    found = {}
    for chunk in file.footer.column_chunks():
        place, modules = (chunk.row_group, chunk.column.ordinal), chunk.modules
        position, page, last = chunk.pages[0], 0, sum(chunk.pages)
        while position < last:
            header = slice(position, position + module_length(data[position:]))
            kind = _page_type(data[header], modules, page)
            size = thrift.decode(modules.decrypt(data[header], HEADERS[kind], page if kind == 2
                                                 else None), {})[0].get_int(3)
            of_page = page if kind == M.DATA_PAGE else None
            found[HEADERS[kind], *place, of_page] = header
            found[kind, *place, of_page] = slice(header.stop, header.stop + size)
            position, page = header.stop + size, page + (of_page is not None)
        for type_, (start, size) in ((M.COLUMN_INDEX, chunk.column_index),
                                     (M.OFFSET_INDEX, chunk.offset_index)):
            found[type_, *place, None] = slice(start, start + size)
        if chunk.bloom_filter is None:
            continue
        start, size = chunk.bloom_filter
        middle = start + module_length(data[start:])
        found[M.BLOOM_FILTER_HEADER, *place, None] = slice(start, middle)
        found[M.BLOOM_FILTER_BITSET, *place, None] = slice(middle, start + size)
    return found


def _page_type(header: bytes, modules, page: int) -> ModuleType:
    try:
        modules.decrypt(header, M.DATA_PAGE_HEADER, page)
        return M.DATA_PAGE
    except AuthenticationError:
        return M.DICTIONARY_PAGE


def versions(path: Path, mode: Mode, erased: str) -> tuple[bytes, bytes]:
    """Return a file before and after an erasure."""
    mode.write(TABLE, path, {"kc1": ["id"], "kc2": ["name"]}, row_group_size=ROWS,
               bloom_filters=True, write_page_index=True, data_page_size=200, write_batch_size=10,
               use_dictionary=["name"], compression="none")
    old = path.read_bytes()
    result = erase(path, "id", ERASED[erased], mode.keys, max_share=1)
    assert result.ok and verify_file(path, mode.keys).ok
    return old, path.read_bytes()


def with_old(new: bytes, where: slice, module: bytes) -> bytes:
    """Return a file with a module of another one; where it is longer, it covers what follows."""
    data = bytearray(new)
    data[where.start:where.start + len(module)] = module
    return bytes(data)


some_modes = pytest.mark.parametrize("mode", [mode(name) for name in (
    "columns double gcm 128", "signed columns single gcm 128", "key stored prefix gcm 192",
    "columns single ctr 192", "signed columns double ctr 256", "signed key ctr 192")], ids=str)


@sweep_where(lambda mode, erased: (erased == "a row") == ("ctr" in str(mode)))
@pytest.mark.slow
@some_modes
@pytest.mark.parametrize("erased", ERASED)
def test_no_module_of_the_old_version_opens_in_the_new_one(tmp_path, mode, erased):
    old, new = versions(tmp_path / "a.parquet", mode, erased)
    before, after = OpenFile(old, mode.keys), OpenFile(new, mode.keys)
    of_old, of_new = modules_of(old, before), modules_of(new, after)
    both = of_old.keys() & of_new.keys()
    assert both == of_new.keys() and {key[0] for key in both} == EVERY_KIND
    for key in both:
        module, (type_, group, column, page) = old[of_old[key]], key
        chunk = after.footer.row_groups[group][column]
        chunk.modules.decrypt(new[of_new[key]], type_, page)
        if type_ in BODIES and not chunk.modules.by_gcm:  # nothing authenticates it
            own = before.footer.row_groups[group][column].modules.decrypt(module, type_, page)
            assert (chunk.modules.decrypt(module, type_, page) == own) != mode.uses_kms
            continue
        with pytest.raises(AuthenticationError):
            chunk.modules.decrypt(module, type_, page)
        if type_ in (M.COLUMN_INDEX, M.OFFSET_INDEX):
            continue  # our readers do not use them
        changed = with_old(new, of_new[key], module)
        file, size = ParquetFile(changed, mode.keys), of_new[key].stop - of_new[key].start
        with pytest.raises(AuthenticationError if len(module) == size
                           else (AuthenticationError, FormatError)):
            if type_ in (M.BLOOM_FILTER_HEADER, M.BLOOM_FILTER_BITSET):
                file.read_bloom_filter(group, chunk.column.path)
            else:
                file.read()
        assert not verify_file(changed, mode.keys).ok, key
    for chunk, other in zip(before.footer.column_chunks(), after.footer.column_chunks(),
                            strict=False):
        if (module := chunk._struct.get_binary(9)) is not None:
            with pytest.raises(AuthenticationError):
                other.modules.decrypt(module, M.COLUMN_META_DATA)


@pytest.mark.parametrize(("mode", "accepts"), [
    (mode("key gcm 128"), False), (mode("columns single ctr 192"), False),
    (mode("key ctr 256"), True)], ids=str)
def test_the_report_says_if_old_pages_are_accepted(tmp_path, mode, accepts):
    path = tmp_path / "a.parquet"
    mode.write(TABLE, path, {"kc1": ["id"]})
    result = erase(path, "id", 3, mode.keys)
    assert [one.accepts_old_pages for one in result.files] == [accepts]
    assert any("put its pages back" in one for one in result.out_of_reach) == accepts


@some_modes
def test_the_old_footer_does_not_open_as_that_of_the_new_version(tmp_path, mode):
    """With its own key metadata, it is the footer of the old version, of which nothing is left."""
    old, new = versions(tmp_path / "a.parquet", mode, "a row")
    before, after = OpenFile(old, mode.keys), OpenFile(new, mode.keys)
    body = new[:after.footer.start]
    file = ParquetFile(body + old[before.footer.start:], mode.keys)
    for ask in (file.read, lambda: file.read_bloom_filter(0, "id")):
        with pytest.raises((AuthenticationError, FormatError)):
            ask()
    start = after.footer.start
    if mode.plaintext_footer:
        content = before.stored_footer[:-28]
        for one in (9, 8):
            value = after.footer._file_meta.get(one)
            meta, _ = thrift.decode(content, {8: {1: {}, 2: {}}})
            if value is not None:
                meta.set(one, thrift.STRUCT if one == 8 else thrift.BINARY, value)
            content = thrift.encode(meta)
        content += before.stored_footer[-28:]
    else:
        _, size = thrift.decode(after.stored_footer, {})
        _, skipped = thrift.decode(before.stored_footer, {})
        content = after.stored_footer[:size] + before.stored_footer[skipped:]
    spliced = new[:start] + content + len(content).to_bytes(4, "little") + new[-4:]
    with pytest.raises(AuthenticationError):
        ParquetFile(spliced, mode.keys)


# --- keys ----------------------------------------------------------------------------------------

class MayNotWrap(InMemoryKms):
    """A KMS that only unwraps for this identity."""

    def wrap_key(self, key_bytes, master_key_identifier):
        raise KeyAccessError("wrapping is denied")


def data_keys(path, keys) -> set[bytes]:
    footer = ParquetFile(path, keys).footer
    assert footer.file_aad
    return {footer.crypto.footer_cipher._key, *(
        chunk.cipher._key for chunk in footer.column_chunks() if chunk.cipher is not None)}


def encryption(**options) -> EncryptionConfiguration:
    return EncryptionConfiguration("footer", {"pii": ["ssn"]}, **options)


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("double_wrapping", [True, False])
def test_data_keys_are_new_and_master_keys_are_the_same(tmp_path, double_wrapping, bits):
    path = write_people(tmp_path / "a.parquet", range(12), encryption=encryption(
        double_wrapping=double_wrapping, data_key_length_bits=bits))
    before, aad = data_keys(path, KMS), ParquetFile(path, KMS).footer.file_aad
    erase(path, "ssn", ssn(1), KMS, max_share=1)
    after = data_keys(path, KMS)
    assert len(after) == 2 and not after & before and {len(key) * 8 for key in after} == {bits}
    footer = ParquetFile(path, KMS).footer
    assert len(footer.file_aad) == len(aad) == 8 and footer.file_aad != aad
    assert footer.crypto.master_key(footer.footer_key_metadata) == "footer"
    assert {footer.crypto.master_key(chunk.key_metadata) for chunk in footer.column_chunks()
            if chunk.key_metadata} == {"pii"}


@pytest.mark.parametrize(("double_wrapping", "are_new"), [(True, True), (False, False)])
def test_a_kms_that_may_not_wrap(tmp_path, double_wrapping, are_new):
    """Key-encryption keys of the file wrap without the KMS."""
    path = write_people(tmp_path / "a.parquet", range(12),
                        encryption=encryption(double_wrapping=double_wrapping))
    before, aad = data_keys(path, KMS), ParquetFile(path, KMS).footer.file_aad
    erase(path, "ssn", ssn(1), MayNotWrap(KEYS), max_share=1)
    assert (data_keys(path, KMS) == before) != are_new
    assert ParquetFile(path, KMS).footer.file_aad != aad
    assert numbers_in(path) == [0, *range(2, 12)]


@pytest.mark.parametrize(("is_folder", "are_new"), [(True, True), (False, False)])
def test_key_material_in_a_separate_file(tmp_path, is_folder, are_new):
    """Two files cannot be replaced in one step; a job writes both under new names."""
    path = write_people(tmp_path / "t" / "a.parquet", range(12),
                        encryption=encryption(internal_key_material=False))
    before, aad = data_keys(path, KMS), ParquetFile(path, KMS).footer.file_aad
    erase(tmp_path / "t" if is_folder else path, "ssn", ssn(1), KMS, max_share=1)
    [path] = (tmp_path / "t").glob("*.parquet")
    assert (data_keys(path, KMS) == before) != are_new
    assert ParquetFile(path, KMS).footer.file_aad != aad
    assert len(list((tmp_path / "t").glob("_KEY_MATERIAL_FOR_*"))) == 1
    assert numbers_in(path) == [0, *range(2, 12)] and verify_file(path, KMS).ok


@pytest.mark.parametrize(("double_wrapping", "fits"), [(True, True), (False, False)])
def test_what_a_key_encrypts_is_counted_over_both_versions_if_it_stays(tmp_path, monkeypatch,
                                                                       double_wrapping, fits):
    path = write_people(tmp_path / "a.parquet", range(400), rows=100, data_page_size=1,
                        write_batch_size=10, use_dictionary=False,
                        encryption=encryption(double_wrapping=double_wrapping))
    content = path.read_bytes()  # about 90 modules under the key of the column
    monkeypatch.setattr("secure_bloom.crypto.modules.MAX_INVOCATIONS", 130)
    if fits:
        erase(path, "ssn", ssn(1), MayNotWrap(KEYS))
        return
    with pytest.raises(KeyExhaustedError):
        erase(path, "ssn", ssn(1), MayNotWrap(KEYS))
    assert path.read_bytes() == content


# --- operations that change no rows --------------------------------------------------------------

def filter_of(path, keys) -> bytes:
    file = OpenFile(path, keys)
    start, size = file.footer.row_groups[0][0].bloom_filter
    return file.read_at(size, start)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_old_filters_of_unchanged_rows_have_all_their_values(tmp_path, plaintext_footer):
    """Without new rows there is no new identity: filters of older versions open, and are right."""
    path = write_people(tmp_path / "a.parquet", range(100), rows=100, bloom_filters=[],
                        encryption=encryption(plaintext_footer=plaintext_footer))
    identity, found = ParquetFile(path, KMS).footer.file_aad, []
    for fpp in (0.1, 0.01, 0.001):
        attach(path, {"ssn": {"fpp": fpp}}, KMS, replace=True)
        found.append(filter_of(path, KMS))
    strip(path, KMS)
    assert not ParquetFile(path, KMS).bloom_filters
    attach(path, {"ssn": {"fpp": 0.01}}, KMS)
    rotate_master_keys(path, KMS, old="pii", new="other")
    file, content = ParquetFile(path, KMS), path.read_bytes()
    assert file.footer.file_aad == identity
    start, size = file.footer.row_groups[0][0].bloom_filter
    values = [ssn(number) for number in range(100)]
    opened = 0
    for old in found:
        replayed = ParquetFile(with_old(content, slice(start, start + size), old[:size]), KMS)
        try:
            assert replayed.might_contain("ssn", values).all()
            opened += 1
        except (AuthenticationError, FormatError):
            assert len(old) != size
    assert opened >= 1
