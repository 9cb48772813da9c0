"""What an erasure refuses, and what it never tells. Nothing is changed then."""

import datetime
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, erase, read_table, write_table
from secure_bloom.errors import (
    AuthenticationError,
    ColumnError,
    FormatError,
    KeyRetrievalError,
    PredicateError,
    SecureBloomError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms
from tests.erasing.helpers import KEYS, KMS, numbers_in, snapshot, ssn, write_people
from tests.maintain.helpers import KMS as LEAKING_KMS
from tests.maintain.helpers import leaking


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        write_people(tmp_path / "t" / f"{number}.parquet", range(number * 100, number * 100 + 100),
                     rows=40, bloom_filters=["ssn", "name"])
    return tmp_path / "t"


def refused(folder, error, match, **options):
    """Assert that nothing changes; return the error."""
    before = snapshot(folder)
    options = {"column": "ssn", "values": ssn(3), "keys": KMS, "max_share": 1} | options
    with pytest.raises(error, match=match) as raised:
        erase(options.pop("path", folder), options.pop("column"), options.pop("values"), **options)
    assert snapshot(folder) == before
    return raised.value


def test_more_than_one_percent_of_the_rows(folder):
    values = [ssn(n) for n in range(4)]
    refused(folder, ValueError, "4 rows of 300 would be erased", values=values, max_share=0.01)
    refused(folder, ValueError, "4 rows of 300", values=values, max_share=0.01, dry_run=True)
    refused(folder, ValueError, "4 rows of 300", values=values, max_share=float("nan"))
    result = erase(folder, "ssn", values[:3], KMS)
    assert result.rows_removed == 3 and result.ok


def test_a_dry_run_changes_nothing(folder):
    before = snapshot(folder)
    result = erase(folder, "ssn", [ssn(3), ssn(250), "none"], KMS, dry_run=True)
    assert snapshot(folder) == before
    assert [(one.rows_before, one.rows_removed, one.new_file) for one in result.files] \
        == [(100, 1, None), (100, 1, None)]
    assert [value.found for value in result.values] == [1, 1, 0] and not result.ok


@pytest.mark.parametrize(("mark", "statement"), [
    ("_delta_log/00000000000000000000.json", "MERGE INTO delta.`"),
    ("metadata/v1.metadata.json", "rewrite_data_files"),
    (".hoodie/hoodie.properties", "run_clean"),
    ("_spark_metadata/0", "stop the query")])
def test_tables_with_a_log(folder, mark, statement):
    (folder / mark).parent.mkdir()
    (folder / mark).write_text("{}")
    error = refused(folder, UnsupportedError, "erase there: ")
    assert statement in str(error)
    refused(folder, UnsupportedError, "erase there: ", path=folder / "0.parquet")


@pytest.mark.parametrize("lacking", ["footer", "pii"])
def test_a_missing_key(folder, lacking):
    kms = InMemoryKms({name: key for name, key in KEYS.items() if name != lacking})
    refused(folder, KeyRetrievalError, lacking, keys=kms)


def test_the_missing_key_of_another_column(tmp_path):
    path = tmp_path / "t" / "a.parquet"
    write_people(path, range(10), encryption=EncryptionConfiguration(
        "footer", {"pii": ["ssn"], "other": ["name"]}))
    kms = InMemoryKms({name: key for name, key in KEYS.items() if name != "other"})
    for path_ in (path, path.parent):
        error = refused(path.parent, KeyRetrievalError, "other", keys=kms, path=path_)
        assert error.file == str(path) and error.column == "name"


@pytest.mark.parametrize("one", [False, True])
def test_a_plaintext_filter_on_an_encrypted_column(tmp_path, one):
    path = leaking(tmp_path / "a.parquet")
    error = refused(tmp_path, UnsupportedError, "Repair it with seal first", column="city",
                    values="Rome", keys=LEAKING_KMS, path=path if one else tmp_path)
    assert (error.file, error.column, error.row_group) == (str(path), "ssn", 0)


@pytest.mark.parametrize("values", [5, [b"x", 1.5], datetime.date(2020, 1, 1), True])
def test_values_of_another_type(folder, values):
    error = refused(folder, PredicateError, "cannot be compared", values=values)
    assert error.column == "ssn"


@pytest.mark.parametrize("values", [[], None, [None], pa.array([], pa.string())])
def test_no_values(folder, values):
    refused(folder, ValueError, "no values", values=values)


def test_nan(folder):
    refused(folder, ValueError, "NaN", column="number", values=[1, float("nan")])


def test_unknown_columns_and_groups(tmp_path, folder):
    refused(folder, ColumnError, "no such column", column="nobody")
    write_table(pa.table({"s": [{"a": 1, "b": 2}]}), tmp_path / "s.parquet")
    refused(tmp_path, ColumnError, "several|group", column="s", values=1,
            path=tmp_path / "s.parquet")


def test_partition_columns(tmp_path):
    write_people(tmp_path / "t" / "year=2020" / "a.parquet", range(10))
    refused(tmp_path / "t", ColumnError, "delete the folders", column="year", values=2020)


def test_nothing_at_the_path(tmp_path):
    with pytest.raises(FileNotFoundError):
        erase(tmp_path / "nobody", "ssn", "x", KMS)


def test_files_that_lack_the_column_stay(folder):
    pq.write_table(pa.table({"number": [7]}), folder / "other.parquet")
    content = (folder / "other.parquet").read_bytes()
    result = erase(folder, "ssn", ssn(7), KMS, max_share=1)
    assert result.ok and result.rows_removed == 1
    assert (folder / "other.parquet").read_bytes() == content


def test_names_with_dots_and_equal_names(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a.b": [1, 2, 3], "n": [1, 2, 3]}), path)
    assert erase(path, "a.b", 2, max_share=1).rows_removed == 1
    assert pq.read_table(path)["n"].to_pylist() == [1, 3]
    pq.write_table(pa.Table.from_arrays([pa.array([1, 2]), pa.array([2, 1]), pa.array([5, 6])],
                                        ["x", "x", "n"]), path)
    content = path.read_bytes()
    try:
        erase(path, "n", 5, max_share=1)
    except SecureBloomError:
        assert path.read_bytes() == content
    else:
        rows = pq.ParquetFile(path).read()
        assert [column.to_pylist() for column in rows.columns] == [[2], [1], [6]]
    content = path.read_bytes()
    with pytest.raises(SecureBloomError):
        erase(path, "x", 2, max_share=1)
    assert path.read_bytes() == content


# --- damaged files -------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize("encryption", [None, EncryptionConfiguration(
    "footer", uniform_encryption=True)], ids=["plaintext", "encrypted"])
def test_every_damaged_byte_is_an_error_or_does_no_harm(tmp_path, encryption):
    """Nothing changes, or rows that are there before the erasure are there after it."""
    path = tmp_path / "a.parquet"
    write_people(path, range(12), encryption=encryption, rows=6, write_page_index=True,
                 compression="none", use_dictionary=False)
    content = path.read_bytes()
    kms, errors = KMS if encryption else None, 0
    for position in range(4, len(content), max(1, len(content) // 60)):
        damaged = bytearray(content)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            before = numbers_in(path, kms)
        except (SecureBloomError, OSError, pa.ArrowException):
            before = None
        try:
            erase(path, "ssn", ssn(3), kms, max_share=1)
        except SecureBloomError as error:
            errors += 1
            assert path.read_bytes() == damaged
            assert error.file == str(path) or isinstance(error, ColumnError)  # its name is damaged
        except ValueError as error:  # more rows than the share, as the footer says
            assert "would be erased" in str(error) and path.read_bytes() == damaged
        else:
            if before is not None and path.read_bytes() != damaged:
                after = numbers_in(path, kms)
                assert set(after) <= set(before) and len(after) in (len(before) - 1, len(before))
        assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]
    assert errors > 5


def test_a_damaged_file_of_a_folder_names_itself(folder):
    path = folder / "1.parquet"
    content = bytearray(path.read_bytes())
    with ParquetFile(path, KMS) as file:
        start, _ = file.footer.row_groups[1][1].pages
    content[start] ^= 1  # a page of another column of the row group
    path.write_bytes(content)
    error = refused(folder, (AuthenticationError, FormatError), "cannot", values=[ssn(3), ssn(145)])
    assert error.file == str(path) and error.row_group == 1


# --- secrets -------------------------------------------------------------------------------------

@pytest.mark.slow
def test_no_value_is_told(folder, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    values = [ssn(3), ssn(250), "999-99-9999"]
    result = erase(folder, "ssn", values, KMS)
    texts = [repr(result), str(result), result._repr_html_() if hasattr(result, "_repr_html_")
             else "", json.dumps(result.to_dict()), caplog.text]
    assert not any(value in text for value in values for text in texts)
    assert not any(value.encode() in content for value in values
                   for content in snapshot(folder).values())
    for options in ({"column": "number"}, {"max_share": 0}, {"keys": None}):
        again = erase(folder, "ssn", "nobody at all", KMS)
        assert "nobody" not in repr(again)
        with pytest.raises((SecureBloomError, ValueError)) as raised:
            erase(folder, **{"column": "ssn", "values": ssn(99), "keys": KMS} | options)
        assert ssn(99) not in str(raised.value)


@pytest.mark.slow
def test_hashes_of_values(folder):
    by_key = [erase(folder, "ssn", [ssn(1), ssn(2)], KMS, dry_run=True, hash_key=key)
              for key in (b"k" * 16, b"k" * 16, b"other" * 4)]
    one, same, other = [[value.hash for value in result.values] for result in by_key]
    assert one == same and not set(one) & set(other)
    random = [erase(folder, "ssn", ssn(1), KMS, dry_run=True).values[0].hash for _ in range(2)]
    assert random[0] != random[1]


def test_no_temporary_file_has_a_value(folder, monkeypatch, tmp_path):
    """All bytes that are written, also to files that are gone afterwards."""
    from secure_bloom.storage import files
    written = []
    original = files.Output.write
    monkeypatch.setattr(files.Output, "write",
                        lambda self, data: written.append(bytes(data)) or original(self, data))
    erase(folder, "ssn", ssn(3), KMS)
    assert written and not any(ssn(3).encode() in data for data in written)


def test_statistics_and_indexes_have_no_erased_value(tmp_path):
    """Also those of other columns of an erased row."""
    path = tmp_path / "a.parquet"
    write_people(path, range(40), encryption=None, rows=8, write_page_index=True)
    erase(path, "ssn", [ssn(0), ssn(7), ssn(39), ssn(20)], max_share=1)
    content = path.read_bytes()
    for number in (0, 7, 39, 20):
        assert ssn(number).encode() not in content
        assert b"name %d" % number + b"\0" not in content or number == 0
    meta = pq.read_metadata(path)
    bounds = [meta.row_group(group).column(2).statistics for group in range(5)]
    assert [(one.min, one.max) for one in bounds] == [(1, 6), (8, 15), (16, 23), (24, 31), (32, 38)]
    assert read_table(path)["number"].to_pylist() \
        == [n for n in range(40) if n not in (0, 7, 39, 20)]
