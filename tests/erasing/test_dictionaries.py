"""Erased values are in no dictionary, whether rows use them or not."""

import base64

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    UniformKey,
    encrypt,
    erase,
    read_table,
    write_table,
    writer,
)
from secure_bloom.arrow import page_writer
from secure_bloom.cli.report import render_erasure
from secure_bloom.erasing.dictionary_pages import dictionary_values
from secure_bloom.erasing.page import render_page
from secure_bloom.errors import AuthenticationError, FormatError
from secure_bloom.keys import ExplicitKeys, InMemoryKms
from secure_bloom.parquet import thrift
from secure_bloom.parquet.created_by import CREATED_BY
from secure_bloom.reading.open_file import OpenFile
from tests.modes import MASTER_KEYS, MODES

PEOPLE = [f"person-{number:04}" for number in range(300)]
NICKS = [f"nick-{number:04}" for number in range(300)]
GONE = 41  # in the second row group of the first file


def _table(first: int, ordered: bool = False) -> pa.Table:
    """Return 100 people, whose columns have dictionaries of all people."""
    indices = pa.array(range(first, first + 100), pa.int32())
    ssn, nick = (pa.DictionaryArray.from_arrays(indices, pa.array(texts), ordered=ordered)
                 for texts in (PEOPLE, NICKS))
    return pa.table({"ssn": ssn, "struct": pa.StructArray.from_arrays([nick], ["nick"]),
                     "list": pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), nick),
                     "id": indices})


def _stored(path, keys=None) -> dict[str, set]:
    """Return all values of all dictionaries, by column, and of the rows."""
    file, found = OpenFile(path, keys), {}
    for chunk in file.footer.column_chunks():
        for values in dictionary_values(file, chunk) or ():
            found.setdefault(chunk.column.path, set()).update(values.to_pylist())
    return found


@pytest.fixture
def lake(tmp_path):
    folder = tmp_path / "lake"
    folder.mkdir()
    for first in (0, 100):
        pq.write_table(_table(first), folder / f"{first}.parquet", row_group_size=40,
                       write_page_index=True)
    return folder


def test_no_dictionary_of_a_folder_has_values_of_erased_rows(lake):
    before = read_table(lake).to_pylist()
    dry = erase(lake, "ssn", PEOPLE[GONE], dry_run=True, max_share=1)
    result = erase(lake, "ssn", PEOPLE[GONE], max_share=1)
    assert dry.dictionaries == result.dictionaries == 5 and result.rows_removed == 1
    assert result.ok and result.absence.dictionaries == 6
    assert [(one.rows_removed, one.dictionaries) for one in result.files] == [(1, 2), (0, 3)]
    stored = [_stored(path) for path in lake.glob("*.parquet")]
    for found in stored:
        assert len(found) == 4
        assert not {PEOPLE[GONE], NICKS[GONE]} & set().union(*found.values())
    assert sorted(map(str, read_table(lake).to_pylist())) \
        == sorted(str(row) for row in before if row["ssn"] != PEOPLE[GONE])
    assert "5 more row groups written again" in render_erasure(result)
    assert "5 more row groups" in render_page(result)
    assert result.to_dict()["dictionaries"] == 5


def test_what_a_file_says_of_its_writer_does_not_matter(lake):
    """Neither created_by, nor an Arrow schema without dictionaries, nor the list of encodings."""
    plain = pa.schema([("ssn", pa.string()), ("struct", pa.struct([("nick", pa.string())])),
                       ("list", pa.list_(pa.string())), ("id", pa.int32())])
    said = {"ARROW:schema": base64.b64encode(plain.serialize())}
    for number, name in enumerate((None, b"", CREATED_BY.encode())):
        path = lake / f"{number * 100}.parquet"
        table = _table(number * 100)
        table = table.set_column(0, "ssn", table["ssn"].cast(pa.string()))  # values of rows only
        pq.write_table(table.replace_schema_metadata(said), path, store_schema=False,
                       row_group_size=40)
        _claim(path, name)
        assert NICKS[GONE] in _stored(path)["list.list.element"]
    assert erase(lake, "ssn", PEOPLE[GONE], max_share=1).dictionaries == 8
    for path in lake.glob("*.parquet"):
        assert NICKS[GONE] not in set().union(*_stored(path).values())


def _claim(path, writer: bytes | None) -> None:
    """Change the writer in a footer, and let it say that no page has a dictionary."""
    content = OpenFile(path).stored_footer
    meta, _ = thrift.decode(content, {4: [{1: [{3: {}}]}]})
    if writer is not None:
        meta.set_binary(6, writer)
    for group in meta.get(4):
        for chunk in group.get(1):
            description = chunk.get(3)
            description.set(2, thrift.LIST, b"\x15\x00")  # encodings: PLAIN
            description.set_int(9, thrift.I64, description.get_int(11))
            description.remove(11)
            description.remove(13)
    footer = thrift.encode(meta)
    data = path.read_bytes()[:-8 - len(content)]
    path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_values_that_no_row_has_are_erased_from_dictionaries(lake):
    result = erase(lake, "ssn", PEOPLE[299])
    assert result.ok and not result.rows_removed and result.dictionaries == 6
    assert all(PEOPLE[299] not in _stored(path)["ssn"] for path in lake.glob("*.parquet"))


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("convert", [str, str.encode])
def test_few_values_are_looked_for_in_the_bytes_of_a_dictionary(convert, codec, tmp_path):
    people = list(map(convert, ["", "a", "ab", "abc", *PEOPLE]))
    table = pa.table({"x": pa.DictionaryArray.from_arrays(
        pa.array(range(100), pa.int32()), pa.array(people))})
    pq.write_table(table, tmp_path / "a.parquet", compression=codec)
    gone = people[200:202]  # which no row has
    result = erase(tmp_path / "a.parquet", "x", [*gone, convert("b"), convert("person-01")])
    assert result.ok and result.dictionaries == 1
    assert not {*gone} & _stored(tmp_path / "a.parquet")["x"]
    for value in ("bc", "person-9999"):
        assert erase(tmp_path / "a.parquet", "x", convert(value)).dictionaries == 0


def test_values_that_other_rows_have_stay_in_files_that_are_not_touched(tmp_path):
    for first in (0, 200):
        table = _table(first).append_column("city", pa.array(["x", "y"] * 50).dictionary_encode())
        table = table.select(["id", "city"])
        pq.write_table(table, tmp_path / f"{first}.parquet", row_group_size=40)
    untouched = (tmp_path / "200.parquet").read_bytes()
    result = erase(tmp_path, "id", 3)
    assert result.rows_removed == 1 and not result.dictionaries
    assert (tmp_path / "200.parquet").read_bytes() == untouched


def test_a_value_written_meanwhile_is_found_in_a_dictionary(lake, monkeypatch):
    from secure_bloom.erasing import erasure
    change = erasure.Erasure._change

    def change_and_append(self, *arguments):
        changed = change(self, *arguments)
        pq.write_table(_table(200), lake / "new.parquet")
        return changed

    monkeypatch.setattr(erasure.Erasure, "_change", change_and_append)
    result = erase(lake, "ssn", PEOPLE[GONE], max_share=1)
    assert not result.ok and result.absence.found_dictionaries == 1
    assert ": 1 row group (in a dictionary). Run it again" in render_erasure(result)


def test_another_value_of_the_row_is_found_in_a_file_that_was_replaced_meanwhile(lake, monkeypatch):
    from secure_bloom.erasing import erasure
    change, path = erasure.Erasure._change, lake / "other.parquet"
    others = _table(200).set_column(0, "ssn", pa.array(PEOPLE[200:]).dictionary_encode())
    pq.write_table(others.select(["ssn", "id"]), path)

    def change_and_replace(self, *arguments):
        changed = change(self, *arguments)
        pq.write_table(others, lake / "new")
        (lake / "new").rename(path)
        return changed

    monkeypatch.setattr(erasure.Erasure, "_change", change_and_replace)
    result = erase(lake, "ssn", PEOPLE[GONE], max_share=1)
    assert not result.ok and result.absence.found_dictionaries == 1


def test_a_file_that_is_replaced_by_a_shorter_one_during_the_search_is_searched_again(
        lake, monkeypatch):
    from secure_bloom.erasing import erasure
    removed, tries = erasure.LeftoverSearch.removed, []

    def replace_and_search(self, *arguments):
        tries.append(1)
        if len(tries) == 1:  # the row is now in the only row group
            pq.write_table(_table(0), lake / "new")
            (lake / "new").rename(lake / "0.parquet")
        return removed(self, *arguments)

    monkeypatch.setattr(erasure.LeftoverSearch, "removed", replace_and_search)
    result = erase(lake, "ssn", PEOPLE[GONE], max_share=1)
    assert result.ok and result.rows_removed == 1 and len(tries) == 2


def test_a_scale_loses_what_is_erased_and_nothing_else(tmp_path):
    pq.write_table(_table(0, ordered=True), tmp_path / "a.parquet", row_group_size=40)
    result = erase(tmp_path / "a.parquet", "ssn", PEOPLE[GONE])
    assert result.ok and result.dictionaries == 2
    reader = pq.ParquetFile(tmp_path / "a.parquet")
    for number in range(3):
        column = reader.read_row_group(number, ["ssn"])["ssn"]
        assert column.type.ordered
        assert column.chunk(0).dictionary.to_pylist() == [*PEOPLE[:GONE], *PEOPLE[GONE + 1:]]


def _write_as_others(monkeypatch, created_by="parquet-cpp-arrow version 23.0.0") -> None:
    """Let our writer store whole dictionaries, as others do."""
    monkeypatch.setattr(page_writer, "compact_dictionaries", lambda table: table)
    monkeypatch.setattr(writer, "CREATED_BY", created_by)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_our_dictionaries_are_not_read_where_only_a_key_can_say_that_they_are_ours(
        mode, tmp_path, monkeypatch):
    """Here, whoever has the keys has lied: so what is left tells which dictionaries were read."""
    _write_as_others(monkeypatch, CREATED_BY)
    for first in (0, 100):
        mode.write(_table(first), tmp_path / f"{first}.parquet",
                   {"kc1": ["ssn"], "kc2": ["struct.nick"]})
    is_believed = mode.is_encrypted and "AES_GCM_CTR_V1" not in mode.options.values()
    result = erase(tmp_path, "ssn", PEOPLE[GONE], mode.keys, max_share=1)
    assert result.ok and result.dictionaries == (0 if is_believed else 1)
    assert result.absence.dictionaries == (0 if is_believed else 2)
    assert is_believed == any(NICKS[GONE] in _stored(path, mode.keys)["struct.nick"]
                              for path in tmp_path.glob("*.parquet"))


def test_encryption_does_not_make_a_claim_believable(tmp_path, monkeypatch):
    """Anyone who can write to a plaintext file can write this into it."""
    _write_as_others(monkeypatch, CREATED_BY)
    for first in (0, 100):
        write_table(_table(first), tmp_path / f"{first}.parquet")
    keys = InMemoryKms(MASTER_KEYS)
    encrypt(tmp_path, keys, encryption=EncryptionConfiguration("kf", {"kc1": ["ssn"]}))
    result = erase(tmp_path, "ssn", PEOPLE[GONE], keys, max_share=1)
    assert result.ok and result.dictionaries == 1
    assert not any(NICKS[GONE] in _stored(path, keys)["struct.nick"]
                   for path in tmp_path.glob("*.parquet"))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_each_mode_of_encryption(mode, tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    _write_as_others(monkeypatch)
    mode.write(_table(0), path, {"kc1": ["ssn"], "kc2": ["struct.nick"]}, row_group_size=40)
    assert PEOPLE[299] in _stored(path, mode.keys)["ssn"]
    result = erase(path, "ssn", [PEOPLE[GONE], PEOPLE[299]], mode.keys)
    assert result.ok and result.dictionaries == 2
    stored = _stored(path, mode.keys)
    assert not {PEOPLE[GONE], PEOPLE[299], NICKS[GONE]} & set().union(*stored.values())


def test_enums_of_polars(tmp_path):
    """Polars stores all values of an Enum, used or not."""
    people = pl.Enum(PEOPLE)
    for first in (0, 100):
        pl.DataFrame({"ssn": PEOPLE[first:first + 100]}, schema={"ssn": people}) \
            .write_parquet(tmp_path / f"{first}.parquet", row_group_size=40)
    assert PEOPLE[GONE] in _stored(tmp_path / "100.parquet")["ssn"]
    result = erase(tmp_path, "ssn", PEOPLE[GONE], max_share=1)
    assert result.ok and result.rows_removed == 1
    assert all(PEOPLE[GONE] not in _stored(path)["ssn"] for path in tmp_path.glob("*.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_damaged_dictionary_is_an_error_that_names_its_place(encrypted, tmp_path):
    """Whatever its header claims, no more is allocated than the stored bytes can hold."""
    path = tmp_path / "a.parquet"
    keys = ExplicitKeys(b"k" * 16) if encrypted else None
    write_table(_table(0), path, compression="none", use_dictionary=True,
                encryption=UniformKey(b"k" * 16) if encrypted else None)
    data = path.read_bytes()
    file = OpenFile(path, keys)
    start, _ = file.footer.row_groups[0][0].pages
    file.close()
    outcomes = set()
    for offset in range(60):
        for value in (0x00, 0x7F, 0xFF):
            changed = bytearray(data)
            changed[start + offset] = value
            path.write_bytes(changed)
            try:
                with OpenFile(path, keys) as opened:
                    dictionary_values(opened, opened.footer.row_groups[0][0])
                    outcomes.add("read")
            except (FormatError, AuthenticationError) as error:
                assert error.column == "ssn" and error.row_group == 0
                outcomes.add(type(error).__name__)
    assert outcomes <= ({"read", "AuthenticationError", "FormatError"})


@pytest.mark.parametrize("store_schema", [True, False])
def test_a_scale_that_the_file_does_not_call_one_loses_what_is_erased(store_schema, tmp_path):
    path, keys = tmp_path / "a.parquet", ExplicitKeys(b"k" * 16)
    write_table(_table(0, ordered=True), path, row_group_size=40, store_schema=store_schema,
                encryption=UniformKey(b"k" * 16))
    assert PEOPLE[299] in _stored(path, keys)["ssn"]
    result = erase(path, "ssn", [PEOPLE[GONE], PEOPLE[299]], keys)
    assert result.ok and result.dictionaries == 2
    assert not {PEOPLE[GONE], PEOPLE[299]} & _stored(path, keys)["ssn"]


def test_every_type_of_values_is_compared(tmp_path):
    """With a writer that is not known, each dictionary is looked into."""
    numbers = list(range(20)) * 3
    kinds = [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal32(5, 1),
             pa.decimal64(12, 1), pa.decimal128(30, 2), pa.decimal256(50, 2), pa.date32(),
             pa.timestamp("ns", "UTC"), pa.duration("us"), pa.time32("s"), pa.string(),
             pa.large_binary(), pa.string_view(), pa.binary(2)]
    columns = {str(t): pa.array([f"{n:02}" for n in numbers] if "str" in str(t) or "bin" in str(t)
                                else numbers, t) for t in kinds}
    table = pa.table({"id": pa.array(range(60)), **columns})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20, store_schema=False)
    result = erase(tmp_path / "a.parquet", "id", 7, max_share=1)
    assert result.ok and result.rows_removed == 1 and not result.dictionaries
