"""Whoever can write to a folder cannot make a reader miss a row by what is put into ``_index``."""

import contextlib
import os
import shutil
import warnings

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, Policy
from secure_bloom.errors import IndexWarning, SecureBloomError, UnsupportedError
from secure_bloom.index import Index, build, opened_indexes
from secure_bloom.index.manifest import Listed
from secure_bloom.index.table import Table
from secure_bloom.keys import InMemoryKms
from secure_bloom.storage import local_listing
from tests.index.planting import LOCAL, plant

KMS = InMemoryKms({name: name.encode().ljust(16) for name in ("footer", "pii", "other")})
SSN, FILES = "00000003", 4
POLICY = Policy(columns={"ssn": {"key": "pii"}}, footer_key="footer")
REQUIREMENTS = [True, ["ssn"], {"ssn": "pii"}, POLICY]


@pytest.fixture(autouse=True)
def nothing_is_known(settled):
    opened_indexes._opened.clear()


@pytest.fixture
def people(tmp_path):
    folder = tmp_path / "people"
    folder.mkdir()
    for number in range(FILES):
        write(folder / f"{number}.parquet", number)
    return folder


def write(path, number, keys=("pii", "other")):
    rows = pa.table({"ssn": [f"{number:08}"], "city": ["Rome"]})
    encryption = None if keys is None else \
        EncryptionConfiguration("footer", {keys[0]: ["ssn"], keys[1]: ["city"]})
    secure_bloom.write_table(rows, path, encryption=encryption,
                             keys=KMS if keys else None)


def by_read_table(folder, options):
    return secure_bloom.read_table(folder, KMS, filters=[("ssn", "==", SSN)], **options).num_rows


def by_dataset(folder, options):
    people = secure_bloom.dataset(folder, KMS, **options)
    return people.to_table(filter=pc.field("ssn") == SSN).num_rows


def by_duckdb(folder, options):
    people = secure_bloom.dataset(folder, KMS, **options)
    with duckdb.connect() as connection:
        connection.register("people", people)
        return len(connection.sql(f"SELECT * FROM people WHERE ssn = '{SSN}'").fetchall())


def by_find(folder, options):
    return secure_bloom.find(folder, "ssn", [SSN], keys=KMS, **options).num_rows


WAYS_AND_INDEXES = [(by_read_table, "auto"), (by_dataset, "auto"), (by_duckdb, "auto"),
                    (by_find, "auto"), (by_read_table, "off"), (by_find, "require")]


def check_nothing_is_missed(folder, requirements=REQUIREMENTS, rows=1):
    """With an index, there are as many rows as without; or an error if it is required."""
    for requirement in requirements:
        for way, index in WAYS_AND_INDEXES:
            refusals = [SecureBloomError] if index == "require" else []
            name = "policy" if requirement is POLICY else "require_encryption"
            options = {"index": index, name: requirement}
            opened_indexes._opened.clear()
            with warnings.catch_warnings(), contextlib.suppress(*refusals):
                warnings.simplefilter("ignore", IndexWarning)
                assert way(folder, options) == rows, (way, options)


@pytest.mark.slow
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("master_key", [None, "other"])
def test_an_index_under_another_key_than_the_column_is_not_used(people, master_key, over):
    """Nor one without encryption; also in the place of a good one."""
    if over:
        secure_bloom.index.build(people, "ssn", KMS)
    plant(people, "ssn", KMS, master_key)
    check_nothing_is_missed(people, [None, *REQUIREMENTS])
    with pytest.warns(IndexWarning, match="another master key"):
        assert by_read_table(people, {}) == 1
    with pytest.raises(UnsupportedError, match="another master key"):
        by_read_table(people, {"index": "require"})
    with pytest.warns(IndexWarning, match="another master key"):
        found = Index.open(people, KMS).lookup("ssn", [SSN])
    assert "1.parquet" in found.uncovered and found.row_groups == [{}]


@pytest.mark.slow
@pytest.mark.parametrize("master_key", [None, "other"])
def test_files_of_an_attacker_do_not_vouch_for_an_index(people, master_key):
    """They are where listings look, and where they do not."""
    for number in range(10, 60):
        write(people / f"{number}.parquet", number, ("other", "pii"))
    (people / "_h").mkdir()
    write(people / "_h" / "p.parquet", 9, None)

    def with_hidden(entries):
        return [*entries, entries[0]._replace(path="_h/p.parquet")]

    plant(people, "ssn", KMS, master_key, change=with_hidden)
    check_nothing_is_missed(people, [["ssn"]])


@pytest.mark.slow
def test_no_index_is_believed_which_files_there_are_if_all_must_be_encrypted(people):
    """An exclusive one says so; it may be an old one, with the generation of its time."""
    secure_bloom.write_dataset(pa.table({"ssn": ["00000077"], "city": ["Oslo"]}), people,
                               encryption=EncryptionConfiguration(
                                   "footer", {"pii": ["ssn"], "other": ["city"]}),
                               keys=KMS, mode="append")
    secure_bloom.index.build(people, "ssn", KMS, exclusive=True)
    write(people / "late.parquet", int(SSN))
    check_nothing_is_missed(people, rows=2)


@pytest.mark.slow
@pytest.mark.parametrize("master_key", [None, "other"])
def test_an_index_of_one_column_cannot_say_that_files_lack_another(people, master_key):
    column = "city"
    lies = pa.schema([("city", pa.string())]).serialize().to_pybytes()
    plant(people, column, KMS, master_key,
          change=lambda entries: [one._replace(schema=lies) for one in entries])
    check_nothing_is_missed(people)


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("tags", [True, False])
def test_files_that_exchange_their_content_are_not_covered(people, monkeypatch, overwrite, tags):
    """They have the same size, and get the times of each other; also without a requirement.

    Where listings show nothing else, the footers tell, if a requirement lets them be read.
    """
    if not tags:
        monkeypatch.setattr(local_listing, "_tag", lambda found: "")
    one, other = people / "0.parquet", people / f"{int(SSN)}.parquet"
    size = max(one.stat().st_size, other.stat().st_size)
    assert size == min(one.stat().st_size, other.stat().st_size)
    secure_bloom.index.build(people, "ssn", KMS)
    times = {path: (path.stat().st_atime_ns, path.stat().st_mtime_ns) for path in (one, other)}
    if overwrite:
        contents = one.read_bytes(), other.read_bytes()
        other.write_bytes(contents[0])
        one.write_bytes(contents[1])
    else:
        one.rename(people / "_x")
        other.rename(one)
        (people / "_x").rename(other)
    for path, time in times.items():
        os.utime(path, ns=time)
    check_nothing_is_missed(people, [None, *REQUIREMENTS] if tags else REQUIREMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["retimed", "padded", "overwritten"])
@pytest.mark.parametrize("tags", [True, False])
def test_an_older_index_put_back_misses_no_value_of_a_newer_file(people, tmp_path, monkeypatch, how,
                                                                 tags):
    """The file gets the size and the time that it had when the older index was made."""
    if not tags:
        monkeypatch.setattr(local_listing, "_tag", lambda found: "")
    path = people / "0.parquet"
    write(path, 10**9)  # longer than the newer one
    if how != "padded":
        write(path, 0)
    secure_bloom.index.build(people, "ssn", KMS)
    shutil.copytree(people / "_index", tmp_path / "older")
    before = path.stat()
    (people / f"{int(SSN)}.parquet").unlink()
    write(people / "_new", int(SSN))
    data = (people / "_new").read_bytes()
    footer = 8 + int.from_bytes(data[-8:-4], "little")
    data = data[:-footer] + bytes(before.st_size - len(data)) + data[-footer:]
    if how == "overwritten":
        path.write_bytes(data)  # the same inode
    else:
        (people / "_new").write_bytes(data)
        os.replace(people / "_new", path)
    Index.open(people, KMS).update()
    shutil.rmtree(people / "_index")
    shutil.copytree(tmp_path / "older", people / "_index")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    check_nothing_is_missed(people, [None, *REQUIREMENTS] if tags else REQUIREMENTS)
    assert bool(Index.open(people, KMS).lookup("ssn", [SSN]).uncovered) == tags


@pytest.mark.parametrize("schema", [b"", b"no schema",
                                    pa.schema([("ssn", pa.int32())]).serialize().to_pybytes()
                                    .replace(b"ssn", b"\xff\xff\xff")])
def test_a_schema_that_is_none_is_a_reason_not_to_use_an_index(tmp_path, schema):
    """It is in an index without encryption, which anyone can write."""
    write(tmp_path / "0.parquet", 3, keys=None)
    plant(tmp_path, "ssn", None,
          change=lambda entries: [one._replace(schema=schema) for one in entries])
    for way in (by_read_table, by_dataset, by_find):
        with pytest.warns(IndexWarning, match="schema of a file"):
            assert way(tmp_path, {}) == 1


def test_the_number_of_row_groups_that_an_index_claims_is_not_allocated(tmp_path):
    rows = pa.table({"ssn": [SSN]})
    secure_bloom.write_dataset(rows, tmp_path / "people", plaintext=True)
    folder = tmp_path / "people"
    generation = Table(LOCAL, str(folder)).generation()
    plant(folder, "ssn", None, is_exclusive=True, generation=generation,
          listed=Listed(1, 2**62, 1, ("",)))
    assert secure_bloom.find(folder, "ssn", "another").num_rows == 0  # which counts what it skips


def test_an_index_that_claims_to_cover_no_file_is_compared_with_those_that_it_does(people):
    (people / "_staging").mkdir()
    (people / "_staging" / "generation").write_bytes(b"1")
    plant(people, "ssn", KMS, "other", is_exclusive=True, listed=Listed(0, 0, 0, ("",)),
          generation=Table(LOCAL, str(people)).generation())
    with pytest.warns(IndexWarning, match="another master key"):
        found = Index.open(people, KMS).lookup("ssn", SSN)
    assert len(found.uncovered) == FILES


@pytest.mark.slow
def test_files_are_chosen_of_those_that_are_there(tmp_path):
    """Where nearly all entries of an exclusive index are of files that were overwritten."""
    folder = tmp_path / "people"
    for mode, number in (("append", 300), ("overwrite", 1)):
        secure_bloom.write_dataset(pa.table({"ssn": list(map(str, range(number)))}), folder,
                                   plaintext=True, max_rows_per_file=1, mode=mode)
        build(folder, "ssn", encryption=None, exclusive=True)
    for _ in range(8):
        opened_indexes._opened.clear()
        found = secure_bloom.read_table(folder, filters=[("ssn", "=", "0")], index="require")
        assert found.num_rows == 1
