"""``secure_bloom.find``: the rows of some values, in many files."""

import math
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration
from secure_bloom.errors import (
    AuthenticationError,
    ColumnError,
    FormatError,
    KeyNotFoundError,
    KeyRetrievalError,
    KmsUnavailableError,
    MissingKeyWarning,
    PredicateError,
    UnsupportedError,
)
from secure_bloom.keys import NO_KEYS, InMemoryKms, Keyring
from secure_bloom.pruning import operands, statistics
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.row_groups import prune
from secure_bloom.sbbf import probes
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from tests.missing_keys import forget_warnings
from tests.support import WatchedKms

CONFIG = EncryptionConfiguration("footer", {"pii": ["ssn"]})
ROWS = 400  # per file, in 4 row groups


def rows_of(day: int) -> pa.Table:
    return pa.table({"ssn": [f"{day}-{i:03}" for i in range(ROWS)], "n": range(ROWS)})


def write(table: pa.Table, path, keys, **options) -> None:
    options = {"bloom_filters": {"ssn": True}, "encryption": CONFIG, "row_group_size": 100,
               **options}
    path.parent.mkdir(parents=True, exist_ok=True)
    secure_bloom.write_table(table, path, keys=keys, **options)


@pytest.fixture
def keys():
    return InMemoryKms({"footer": b"0" * 16, "pii": b"1" * 16})


@pytest.fixture
def people(tmp_path, keys):
    for day in range(3):
        write(rows_of(day), tmp_path / "people" / f"day={day}" / "a.parquet", keys)
    return tmp_path / "people"


def damage(path, value: str, keys) -> None:
    """Flip a bit in the pages of the row group that holds a value, and keep the rest."""
    with OpenFile(path, keys) as file:
        [group] = prune(file, [("ssn", "==", value)])
        [chunk] = [chunk for chunk in file.footer.column_chunks()
                   if chunk.row_group == group and chunk.column.path == "ssn"]
        start = pq.ParquetFile(path, decryption_properties=file.arrow_access().properties) \
            .metadata.row_group(group).column(chunk.column.ordinal).data_page_offset
    data = bytearray(path.read_bytes())
    data[start + 40] ^= 1
    path.write_bytes(data)


def test_rows_come_with_their_file_row_group_and_partition(people, keys):
    found = secure_bloom.find(people, "ssn", ["1-005", "2-399", "9-999"], keys)
    assert found.schema.names == ["file", "row_group", "ssn", "n", "day"]
    assert found.to_pylist() == [
        {"file": f"{people}/day=1/a.parquet", "row_group": 0, "ssn": "1-005", "n": 5, "day": 1},
        {"file": f"{people}/day=2/a.parquet", "row_group": 3, "ssn": "2-399", "n": 399, "day": 2}]


@pytest.mark.parametrize("values", [
    "1-005", ["1-005"], {"1-005"}, pa.array(["1-005"]), pa.chunked_array([["x"], ["1-005"]]),
    pa.scalar("1-005"), pa.array(["1-005", None]).dictionary_encode(), [None, "1-005"], b"1-005"])
def test_values_have_any_form(people, keys, values):
    found = secure_bloom.find(people, "ssn", values, keys, columns=["n"])
    assert found.schema.names == ["file", "row_group", "n"]
    assert found["n"].to_pylist() == [5]


@pytest.mark.parametrize("values", [None, [], [None]])
def test_null_is_not_found(tmp_path, keys, values):
    write(pa.table({"ssn": pa.array([None, "a"])}), tmp_path / "a.parquet", keys)
    assert secure_bloom.find(tmp_path, "ssn", values, keys).num_rows == 0


def test_partition_columns_and_fields_of_structs_can_be_searched(tmp_path):
    for day in (1, 2):
        path = tmp_path / f"day={day}" / "a.parquet"
        write(pa.table({"who": [{"ssn": "a", "n": day}, None, {"ssn": None, "n": 0}]}), path, None,
              encryption=None, bloom_filters={"who.ssn": True})
    assert secure_bloom.find(tmp_path, "day", 2)["row_group"].to_pylist() == [0] * 3
    found = secure_bloom.find(tmp_path, "who.ssn", "a", columns=["day", "who"])
    assert found["who"].to_pylist() == [{"ssn": "a", "n": 1}, {"ssn": "a", "n": 2}]
    assert found["day"].to_pylist() == [1, 2]


def test_files_may_lack_the_column_or_store_it_in_another_type(tmp_path):
    for name, table in {"a": pa.table({"id": pa.array([7, 8], pa.int32())}),
                        "b": pa.table({"id": pa.array([7, 2**40])}),
                        "c": pa.table({"other": [7]})}.items():
        write(table, tmp_path / f"{name}.parquet", None, encryption=None, bloom_filters=True)
    found = secure_bloom.find(tmp_path, "id", [7, 2**40])
    assert found["id"].to_pylist() == [7, 7, 2**40]
    assert [os.path.basename(file) for file in found["file"].to_pylist()] == [
        "a.parquet", "b.parquet", "b.parquet"]


def test_without_columns_only_the_places_are_returned(people, keys):
    found = secure_bloom.find(people, "ssn", ["0-000", "0-001"], keys, columns=[])
    assert found.schema.names == ["file", "row_group"] and found.num_rows == 2


# --- mistakes and damage -------------------------------------------------------------------------

def test_the_first_error_is_raised_by_default(people, keys):
    damage(people / "day=1" / "a.parquet", "1-005", keys)
    with pytest.raises(AuthenticationError) as caught:
        secure_bloom.find(people, "ssn", ["0-000", "1-005"], keys)
    assert caught.value.file == f"{people}/day=1/a.parquet"
    assert secure_bloom.find(people, "ssn", "1-105", keys).num_rows == 1  # in another row group


def test_the_search_goes_on_past_damaged_files(people, keys):
    damage(people / "day=1" / "a.parquet", "1-205", keys)
    (people / "day=0" / "cut.parquet").write_bytes(b"PAR1")
    write(pa.table({"ssn": [1.5]}), people / "day=2" / "other.parquet", keys)
    failed, fractions = [], []
    found = secure_bloom.find(people, "ssn", ["0-000", "1-005", "1-205", "1-305", "2-000"], keys,
                              on_error=failed.append, advance=fractions.append)
    assert {(os.path.relpath(one.file, people), type(one.error)) for one in failed} == {
        ("day=0/cut.parquet", FormatError), ("day=1/a.parquet", AuthenticationError),
        ("day=2/other.parquet", UnsupportedError)}
    # What was found before the damage remains.
    assert found["ssn"].to_pylist() == ["0-000", "1-005", "2-000"]
    assert fractions == sorted(fractions) and fractions[-1] == 1


def test_files_without_keys_are_reported_and_the_others_are_searched(people, keys):
    other = InMemoryKms({"theirs": b"2" * 16})
    write(rows_of(0), people / "day=0" / "theirs.parquet", other,
          encryption=EncryptionConfiguration("theirs", uniform_encryption=True))
    failed = []
    found = secure_bloom.find(people, "ssn", "0-000", keys, on_error=failed.append)
    assert found["file"].to_pylist() == [f"{people}/day=0/a.parquet"]
    [(file, error)] = failed
    assert file == f"{people}/day=0/theirs.parquet" and isinstance(error, KeyNotFoundError)


def test_if_no_file_can_be_opened_the_result_is_empty(people, keys):
    failed = []
    found = secure_bloom.find(people, "ssn", "0-000", NO_KEYS, on_error=failed.append)
    assert found.schema.names == ["file", "row_group"] and found.num_rows == 0
    assert len(failed) == 3


def test_a_kms_that_fails_ends_the_search(people):
    failed = []
    with pytest.raises(KmsUnavailableError):
        secure_bloom.find(people, "ssn", "a", WatchedKms({}, "footer", error=KmsUnavailableError),
                          on_error=failed.append)
    assert failed == []


@pytest.mark.parametrize(("column", "values", "columns", "error"), [
    ("nope", "a", None, ColumnError), ("ssn", "a", ["nope"], ColumnError),
    ("ssn", 5, None, PredicateError), ("ssn", ["a", 5], None, PredicateError)])
def test_mistakes_are_raised_and_are_not_errors_of_a_file(people, keys, column, values, columns,
                                                          error):
    failed = []
    with pytest.raises(error) as caught:
        secure_bloom.find(people, column, values, keys, columns=columns, on_error=failed.append)
    assert failed == [] and caught.value.file is None


def test_a_path_that_does_not_exist_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        secure_bloom.find(tmp_path / "none.parquet", "ssn", "a")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        secure_bloom.dataset([tmp_path / "none.parquet"])


def test_types_of_columns_that_are_not_needed_may_differ(tmp_path):
    for name, n in {"a": [1], "b": ["x"]}.items():
        write(pa.table({"ssn": ["s"], "n": n}), tmp_path / f"{name}.parquet", None, encryption=None)
    with pytest.raises(UnsupportedError):
        secure_bloom.find(tmp_path, "ssn", "s")
    assert secure_bloom.find(tmp_path, "ssn", "s", columns=["ssn"]).num_rows == 2
    for column, columns in ("ssn", ["m"]), ("m", ["n"]), ("m.x", []):
        with pytest.raises(ColumnError, match="no such column; existing columns: ssn, n"):
            secure_bloom.find(tmp_path, column, "s", columns=columns)


def test_a_listed_file_that_is_missing_does_not_end_the_search(people, keys):
    failed, there = [], people / "day=1" / "a.parquet"
    found = secure_bloom.find([people / "none.parquet", there], "ssn", "1-000", keys,
                              on_error=failed.append)
    assert found.num_rows == 1
    assert [type(one.error) for one in failed] == [FileNotFoundError]


def test_a_column_named_file_can_be_left_out(tmp_path):
    write(pa.table({"ssn": ["a"], "file": ["x"]}), tmp_path / "a.parquet", None, encryption=None)
    with pytest.raises(ColumnError, match="choose other columns"):
        secure_bloom.find(tmp_path, "ssn", "a")
    found = secure_bloom.find(tmp_path, "ssn", "a", columns=["ssn"])
    assert found["file"].to_pylist() == [f"{tmp_path}/a.parquet"]


def test_what_must_be_encrypted_is_checked(people, keys):
    write(rows_of(7), people / "day=7" / "a.parquet", None, encryption=None)
    failed = []
    found = secure_bloom.find(people, "ssn", ["0-000", "7-000"], keys,
                              require_encryption=["ssn"], on_error=failed.append)
    assert found["ssn"].to_pylist() == ["0-000"]
    assert [type(one.error) for one in failed] == [AuthenticationError]


# --- many values ---------------------------------------------------------------------------------

MILLION = 1_000_000


def counting(monkeypatch, module, name: str) -> list[int]:
    calls = []
    real = getattr(module, name)

    def counted(*arguments):
        calls.append(len(arguments[0]) if hasattr(arguments[0], "__len__") else 1)
        return real(*arguments)

    monkeypatch.setattr(module, name, counted)
    return calls


@pytest.mark.slow
def test_a_million_values_are_hashed_once_for_all_files(people, keys, monkeypatch):
    values = [f"x{number}" for number in range(MILLION - 1)] + ["2-399"]
    hashed = counting(monkeypatch, probes, "hash_values")
    placed = counting(monkeypatch, operands, "operand")
    ordered = counting(monkeypatch, statistics, "_ordered_array")
    checked = 0
    check_hashes = SplitBlockBloomFilter.check_hashes

    def count_checks(self, hashes):
        nonlocal checked
        checked += len(hashes)
        return check_hashes(self, hashes)

    monkeypatch.setattr(SplitBlockBloomFilter, "check_hashes", count_checks)
    found = secure_bloom.find(people, "ssn", values, keys)
    assert found["ssn"].to_pylist() == ["2-399"]
    assert sum(hashed) <= MILLION and sum(ordered) == MILLION and sum(placed) == 0
    assert checked < 12 * 100_000  # 12 filters; each is asked until one value may be there


@pytest.mark.slow
def test_the_same_rows_are_found_with_few_and_with_many_values(people, keys):
    wanted = [f"{day}-{number:03}" for day in range(3) for number in random.sample(range(ROWS), 20)]
    one_by_one = pa.concat_tables([secure_bloom.find(people, "ssn", value, keys)
                                   for value in wanted])
    together = secure_bloom.find(people, "ssn", wanted, keys)
    assert together.sort_by("ssn") == one_by_one.sort_by("ssn")
    more = secure_bloom.find(people, "ssn", [*wanted, *map(str, range(10_000))], keys)
    assert more == together


@pytest.mark.parametrize(("column", "wanted"), [
    (pa.array([math.nan, 1.5]), math.nan), (pa.array([-0.0, 1.5]), 0.0),
    (pa.array([0.0, 1.5]), -0.0), (pa.array([5, 7]), 5.0)])
def test_long_lists_find_values_that_filters_cannot_or_can_hardly_answer_for(tmp_path, column,
                                                                             wanted):
    write(pa.table({"x": column}), tmp_path / "a.parquet", None, encryption=None,
          bloom_filters=True)
    assert secure_bloom.find(tmp_path, "x", [*range(100, 150), wanted]).num_rows == 1


@pytest.mark.slow
def test_long_lists_are_skipped_by_statistics_and_by_filters(people, keys):
    def explained(values) -> tuple[int, int, int]:
        groups = secure_bloom.dataset(people, keys).explain([("ssn", "in", values)]).row_groups
        return groups.read, groups.statistics, groups.bloom_filters

    assert explained([f"1-00{number}" for number in range(10)]) == (1, 11, 0)
    assert explained([f"1-05{number}x" for number in range(10)])[1:] == (11, 1)
    assert explained([f"z{number}" for number in range(MILLION)]) == (0, 12, 0)


def test_keyring_paths_are_accepted(tmp_path):
    keyring = Keyring.create(tmp_path / "keys.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    write(rows_of(0), tmp_path / "a.parquet", keyring)
    assert secure_bloom.find(tmp_path / "a.parquet", "ssn", "0-001",
                             tmp_path / "keys.json").num_rows == 1


def test_columns_whose_key_is_missing_are_null_if_asked_for(tmp_path):
    rows = pa.table({"ssn": ["a", "b"], "name": ["x", "y"], "n": [1, 2]})
    secure_bloom.write_table(rows, tmp_path / "a.parquet", bloom_filters=["n"], keys=InMemoryKms(
        {"footer": b"f" * 16, "pii": b"p" * 16}), encryption=secure_bloom.EncryptionConfiguration(
            "footer", {"pii": ["ssn"]}))
    some = InMemoryKms({"footer": b"f" * 16})
    with pytest.raises(KeyRetrievalError):
        secure_bloom.find(tmp_path, "n", 2, some)
    forget_warnings()
    with pytest.warns(MissingKeyWarning):
        found = secure_bloom.find(tmp_path, "n", 2, some, on_missing_key="null")
    assert found.drop_columns(["file", "row_group"]).to_pylist() \
        == [{"ssn": None, "name": "y", "n": 2}]
    assert found.schema.field("ssn").metadata == {b"secure_bloom.masked": b"true"}
    with pytest.raises(KeyRetrievalError):
        secure_bloom.find(tmp_path, "ssn", "a", some, on_missing_key="null")
