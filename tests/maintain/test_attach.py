"""Attaching, stripping and sealing as operations on files and folders."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secure_bloom
from secure_bloom import (
    BloomFilterOptions,
    EncryptionConfiguration,
    ExplicitKeys,
    ParquetFile,
    attach,
    seal,
    strip,
    verify_file,
    write_table,
)
from secure_bloom.errors import (
    ColumnError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms, rotate_master_keys
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.maintain import change
from secure_bloom.parquet.header import encode_header
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage import rewrite
from secure_bloom.storage.claims import Claim, claim
from secure_bloom.storage.commit import Job
from secure_bloom.storage.commit_record import CommitRecord, signature
from secure_bloom.storage.local_files import Replacement
from secure_bloom.storage.rewrite import Rewrite
from secure_bloom.storage.visibility import data_files
from secure_bloom.verify.measure import ColumnHashes
from tests.counting import CountingHandler
from tests.maintain.helpers import COLUMNS, ENCRYPTED, KEYS, KMS, SIGNED, TABLE, WAYS, without
from tests.support import examples

NAMES = dict.fromkeys(TABLE.column_names, True)


def written(path, encryption=SIGNED, filters=(), **options) -> Path:
    write_table(TABLE, path, bloom_filters=dict.fromkeys(filters, True), keys=KMS,
                encryption=encryption, row_group_size=40, **options)
    return Path(path)


def stored(path) -> dict[tuple[int, str], bytes]:
    """The bytes of each filter, by row group and column."""
    file = OpenFile(path, KMS)
    return {(one.row_group, one.column): file.read_at(one.length, one.offset)
            for one in file.bloom_filters}


def with_filters(path, keys=KMS) -> dict[str, int]:
    counts: dict[str, int] = {}
    for info in ParquetFile(path, keys).bloom_filters:
        counts[info.column] = counts.get(info.column, 0) + 1
    return counts


# --- which filters -------------------------------------------------------------------------------

@pytest.mark.parametrize("asked", [True, ["b", "a"], iter(["a", "b"]),
                                   {"a": {"max_bytes": 64}, "b": True, "none": False}])
def test_ways_to_ask_for_filters_of_a_folder(tmp_path, asked):
    for name in ("x", "y"):
        pq.write_table(pa.table({"flag": [True], "a": [1], "b": ["c"]}), tmp_path / name)
    result = attach(tmp_path, asked)
    assert len(result.changed) == 2 and not result.failed
    for name in ("x", "y"):
        assert with_filters(tmp_path / name, None) == {"a": 1, "b": 1}


def test_filters_that_exist_stay(tmp_path):
    path = written(tmp_path / "a.parquet", filters=["ssn"])
    old = stored(path)
    body = path.read_bytes()[:ParquetFile(path, KMS).bloom_filters[0].offset]
    change = attach(path, {"ssn": True, "name": True}, KMS).changed[0]
    assert (change.columns, change.built, change.removed) == (("name",), 3, 0)
    assert with_filters(path) == {"ssn": 3, "name": 3} and path.read_bytes().startswith(body)
    assert old.items() <= stored(path).items()
    assert attach(path, {"ssn": True, "name": True}, KMS).unchanged == 1


@pytest.mark.parametrize("way", ["encrypted footer", "signed footer"])
def test_filters_are_ordered_by_row_group_and_column(tmp_path, way):
    """Also those that were there before: they are moved without a gap."""
    path = written(tmp_path / "a.parquet", WAYS[way], ["ssn", "city"])
    before = stored(path)
    start = min(one.offset for one in ParquetFile(path, KMS).bloom_filters)
    attach(path, {"name": {"max_bytes": 64}}, KMS)
    infos = ParquetFile(path, KMS).bloom_filters
    assert [(one.row_group, one.column) for one in sorted(infos, key=lambda one: one.offset)] \
        == [(group, column) for group in range(3) for column in ("ssn", "name", "city")]
    ends = [start, *(one.offset + one.length for one in infos)]
    assert [one.offset for one in infos] == ends[:-1] and ends[-1] \
        == ParquetFile(path, KMS).footer.start
    assert before.items() <= stored(path).items()  # the same bytes, at other places
    assert verify_file(path, KMS).ok and ParquetFile(path, KMS).read().equals(TABLE)


def test_a_filter_whose_key_is_missing_stays_where_it_is(tmp_path):
    path = written(tmp_path / "a.parquet", SIGNED, ["name"])
    old = [(one.offset, one.length) for one in ParquetFile(path).bloom_filters]
    attach(path, ["ssn"], without("other"))
    assert [(one.offset, one.length) for one in ParquetFile(path).bloom_filters
            if one.column == "name"] == old
    assert verify_file(path, KMS).ok


def test_replace(tmp_path):
    path = written(tmp_path / "a.parquet", filters=["ssn", "city"])
    size = path.stat().st_size
    change = attach(path, {"ssn": BloomFilterOptions(ndv=40, fpp=0.0001)}, KMS,
                    replace=True).changed[0]
    assert (change.columns, change.built, change.removed) == (("ssn",), 3, 3)
    assert path.stat().st_size > size and verify_file(path, KMS).ok
    info = {i.column: i.num_bytes for i in ParquetFile(path, KMS).bloom_filters}
    assert info["ssn"] > 2 * info["city"]
    for _ in range(3):  # what was replaced leaves no room behind when it stood at the end
        attach(path, NAMES, KMS, replace=True)
    before = path.stat().st_size
    attach(path, NAMES, KMS, replace=True)
    assert abs(path.stat().st_size - before) < 50


def test_a_nonce_is_never_used_twice(tmp_path):
    """The same values, the same place, the same key: other bytes each time."""
    path = written(tmp_path / "a.parquet")
    seen = set()
    for _ in range(5):
        attach(path, {"ssn": True}, KMS, replace=True)
        file = OpenFile(path, KMS)
        for info in file.bloom_filters:
            data = file.read_at(info.length, info.offset)
            header = 4 + int.from_bytes(data[:4], "little")
            seen |= {data[4:16], data[header + 4:header + 16]}
        for chunk in (chunks[0] for chunks in file.footer.row_groups):
            seen.add(chunk._struct.get_binary(9)[4:16])
    assert len(seen) == 5 * 3 * 3


def test_sizes(tmp_path):
    table = pa.table({"few": [i % 7 for i in range(50_000)], "many": range(50_000)})
    pq.write_table(table, tmp_path / "a.parquet")
    write_table(table, tmp_path / "b.parquet", bloom_filters={"few": True, "many": True})
    attach(tmp_path / "a.parquet", {"few": True, "many": True})
    ours, written_with = (ParquetFile(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    for column in ("few", "many"):
        assert ours.read_bloom_filter(0, column) == written_with.read_bloom_filter(0, column)
    attach(tmp_path / "a.parquet", {"many": BloomFilterOptions(max_bytes=1024)}, replace=True)
    assert ParquetFile(tmp_path / "a.parquet").read_bloom_filter(0, "many").num_bytes == 1024


@pytest.mark.parametrize("way", WAYS)
def test_strip_gives_the_file_without_filters(tmp_path, way):
    path = written(tmp_path / "a.parquet", WAYS[way])
    size, before = path.stat().st_size, path.read_bytes()
    body = before[:ParquetFile(path, KMS).footer.start]
    attach(path, NAMES, KMS)
    assert strip(path, KMS).changed[0].removed == 12
    assert path.read_bytes().startswith(body) and path.stat().st_size == size
    assert with_filters(path) == {} and strip(path, KMS).unchanged == 1
    attach(path, NAMES, KMS)
    assert strip(path, KMS, columns=["ssn"]).changed[0].removed == 3
    assert with_filters(path) == {"name": 3, "city": 3, "number": 3}
    assert verify_file(path, KMS).ok


@pytest.mark.slow
@given(st.lists(st.sampled_from(["ssn", "name", "city", "number"]), max_size=4),
       st.lists(st.tuples(st.sampled_from(["attach", "replace", "strip", "seal"]),
                          st.sets(st.sampled_from(["ssn", "name", "city", "number"]), min_size=1)),
                max_size=5), st.sampled_from(list(WAYS)))
@examples(40)
def test_any_row_of_operations(tmp_path_factory, first, steps, way):
    path = written(tmp_path_factory.mktemp("any") / "a.parquet", WAYS[way], filters=first)
    expected = set(first)
    for operation, columns in steps:
        if operation == "seal":
            result = seal(path, KMS)
        elif operation == "strip":
            result = strip(path, KMS, columns=columns)
            expected -= columns
        else:
            result = attach(path, dict.fromkeys(columns, True), KMS,
                            replace=operation == "replace")
            expected |= columns
        assert not result.failed
    assert with_filters(path) == dict.fromkeys(expected, 3)
    result = verify_file(path, KMS)
    assert not result.findings and len(result.filters) == 3 * len(expected)
    assert ParquetFile(path, KMS).read().equals(TABLE)


# --- errors: the file stays as it is -------------------------------------------------------------

def failed(path, *arguments, **options) -> str:
    before = path.read_bytes()
    result = attach(path, *arguments, **options)
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]
    assert not result.changed and list(result.failed) == [str(path)]
    return result.failed[str(path)]


def failed_early(path, *arguments) -> str:
    """The same, and a dry run knows it too."""
    message = failed(path, *arguments)
    assert failed(path, *arguments, dry_run=True) == message
    return message


def test_keys_that_are_missing(tmp_path):
    path = written(tmp_path / "a.parquet")
    assert "column ssn" in failed_early(path, {"ssn": True})
    assert "footer key" in failed_early(path, {"city": True})  # it has to be signed again
    assert "pii" in failed_early(path, {"ssn": True}, without("pii"))
    assert "footer" in failed_early(path, {"ssn": True}, without("footer"))
    keys, footer = KmsKeys(KMS), ParquetFile(path, KMS).footer
    ssn = footer.row_groups[0][0]
    only_column = ExplicitKeys(column_keys={"ssn": keys.column_key("ssn", ssn.key_metadata)})
    assert "footer key" in failed_early(path, {"ssn": True}, only_column)
    result = attach(path, {"ssn": True, "city": True}, without("other"))  # of another column
    assert result.changed and with_filters(path) == {"ssn": 3, "city": 3}


def test_wrong_keys_and_changed_files(tmp_path):
    path = written(tmp_path / "a.parquet")
    assert failed(path, {"ssn": True}, InMemoryKms({**KEYS, "pii": b"x" * 16}))
    data = bytearray(path.read_bytes())
    data[ParquetFile(path, KMS).footer.row_groups[1][0].pages[0] + 60] ^= 1
    path.write_bytes(data)
    assert "column ssn" in failed(path, {"ssn": True}, KMS)
    path.write_bytes(data[:-1])
    assert failed(path, {"city": True}, KMS)


def test_columns_that_cannot_have_filters(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"flag": [True], "n": [1]}), path)
    assert "BOOLEAN" in failed(path, {"flag": True})
    assert "no such column" in failed(path, {"m": True})
    for wrong in ({}, {"n": False}, [], None, False):
        with pytest.raises(ValueError):
            attach(path, wrong)
    for wrong in ([5], {"n": 0.01}, {"n": {"size": 1}}, "n"):
        with pytest.raises(TypeError):
            attach(path, wrong)
    with pytest.raises(TypeError):
        strip(path, columns="n")
    with pytest.raises(FileNotFoundError):
        attach(tmp_path / "nothing", {"n": True})
    assert issubclass(ColumnError, ValueError)


@pytest.mark.slow
def test_places_that_hold_something_else(tmp_path):
    """A filter whose place is that of pages is not removed, for the pages would be lost."""
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, bloom_filters=NAMES, row_group_size=40, write_page_index=True)
    good = path.read_bytes()
    rows = pq.read_table(path)

    def pointing_to(offset: int, length: int | None) -> None:
        file = ParquetFile(good)
        file.footer.row_groups[0][0].set_bloom_filter(offset, length)
        path.write_bytes(good[:file.footer.start] + file.footer.to_bytes())

    file = ParquetFile(good)
    chunk, other = file.footer.row_groups[0][0], file.footer.row_groups[0][1]
    for offset in (chunk.pages[0], chunk.column_index[0], 2, len(good) * 2, file.footer.start - 1):
        pointing_to(offset, 47)
        strip(path, columns=["ssn"])  # no filter stands there; what does is left alone
        assert pq.read_table(path).equals(rows) and "ssn" not in [
            i.column for i in ParquetFile(path).bloom_filters if i.row_group == 0]
        assert verify_file(path, columns=["name", "city", "number"]).ok
    pointing_to(*other.bloom_filter)  # the filter of another column
    result = strip(path, columns=["ssn"])
    assert "shares bytes" in result.failed[str(path)]
    assert strip(path).changed and with_filters(path) == {}


def test_a_filter_within_pages_is_left_there(tmp_path):
    """What looks like a filter, within the pages of a column that stays."""
    fake = encode_header(32) + bytes(32)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [fake], "b": [1]}), path, compression="none",
                   use_dictionary=False)
    data = path.read_bytes()
    file = ParquetFile(data)
    file.footer.row_groups[0][1].set_bloom_filter(data.index(fake), len(fake))
    path.write_bytes(data[:file.footer.start] + file.footer.to_bytes())
    before = path.read_bytes()
    assert "shares bytes" in strip(path).failed[str(path)] and path.read_bytes() == before


def test_a_file_that_a_job_has_replaced_stays_invisible(tmp_path):
    """It is about to be deleted; in another size it would count as a later one of that name."""
    filesystem = pa_fs.LocalFileSystem()
    (tmp_path / "day=1").mkdir()
    old, new = (written(tmp_path / "day=1" / f"{name}.parquet") for name in ("old", "new"))
    [info] = [info for info in filesystem.get_file_info(pa_fs.FileSelector(str(old.parent)))
              if info.path == str(old)]
    job = tmp_path / "_staging" / ("0" * 32)
    job.mkdir(parents=True)
    record = CommitRecord(["day=1/new.parquet"], {"day=1/old.parquet": signature(info)})
    (job / "committed").write_bytes(record.to_bytes())
    assert "changed in the meantime" in attach(old, {"ssn": True}, KMS).failed[str(old)]
    assert attach(new, {"ssn": True}, KMS).changed
    assert data_files(filesystem, str(tmp_path)) == [str(new)]


@pytest.mark.parametrize("change", [
    lambda folder: attach(folder, {"ssn": True}, KMS),
    lambda folder: secure_bloom.reencrypt(folder, KMS),
    lambda folder: rotate_master_keys(folder, KMS, old="footer", new="footer")])
def test_jobs_of_the_table_replace_files_in_folders_that_are_no_partitions(tmp_path, change):
    """Here, one has just claimed a file that was listed before."""
    (tmp_path / "old").mkdir()
    path = written(tmp_path / "old" / "a.parquet")
    before = path.read_bytes()
    job = Job(pa_fs.LocalFileSystem(), str(tmp_path), True)
    job.start()
    claim(job, Claim(folder=job.name))
    result = change(tmp_path)
    assert path.read_bytes() == before
    assert "changed in the meantime" in result.failed[str(path)]


@pytest.mark.parametrize("name", ["_delta_log", ".hoodie", "_spark_metadata", "metadata"])
def test_tables_whose_logs_hold_sizes_are_refused(tmp_path, name):
    (tmp_path / "part=1").mkdir()
    path = written(tmp_path / "part=1" / "a.parquet")
    (tmp_path / name).mkdir()
    if name == "metadata":
        assert attach(tmp_path, {"ssn": True}, KMS).changed  # any folder may have that name
        (tmp_path / name / "00000-1234.metadata.json").write_text("{}")
    for place in (path, path.parent, tmp_path):
        with pytest.raises(UnsupportedError, match="table"):
            attach(place, {"city": True}, KMS)


@pytest.mark.parametrize("log", ["_delta_log", "metadata/0.metadata.json"])
def test_tables_below_a_folder_and_behind_links_are_refused(tmp_path, log):
    (tmp_path / "lake" / "table" / "part=1").mkdir(parents=True)
    path = written(tmp_path / "lake" / "table" / "part=1" / "a.parquet")
    (tmp_path / "lake" / "table" / log).mkdir(parents=True)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "folder").symlink_to(path.parent)
    (tmp_path / "links" / "file.parquet").symlink_to(path)
    for place in ("lake", "links", "links/folder", "links/file.parquet"):
        with pytest.raises(UnsupportedError, match="table"):
            attach(tmp_path / place, {"city": True}, KMS)


# --- files and folders ---------------------------------------------------------------------------

def test_a_folder_is_gone_on_with(tmp_path):
    for number in range(6):
        written(tmp_path / f"{number}.parquet", [SIGNED, ENCRYPTED][number % 2])
    (tmp_path / "5.parquet").write_bytes(b"no Parquet")
    attach(tmp_path / "3.parquet", {"ssn": True}, KMS)
    (tmp_path / ".2.parquet.0123456789abcdef.tmp").write_bytes(b"left over")
    fractions = []
    result = attach(tmp_path, {"ssn": True}, KMS, files_at_once=3, advance=fractions.append)
    assert [Path(change.file).name for change in result.changed] \
        == [f"{number}.parquet" for number in (0, 1, 2, 4)]
    assert result.unchanged == 1 and [*result.failed] == [str(tmp_path / "5.parquet")]
    assert sorted(os.listdir(tmp_path)) == [f"{number}.parquet" for number in range(6)]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    result = attach(tmp_path, {"ssn": True}, KMS)
    assert not result.changed and result.unchanged == 5


def test_dry_run(tmp_path):
    path = written(tmp_path / "a.parquet", filters=["city"])
    before = path.read_bytes()
    for operation in (lambda **o: attach(path, NAMES, KMS, replace=True, **o),
                      lambda **o: strip(path, KMS, **o)):
        would = operation(dry_run=True)
        assert would.dry_run and path.read_bytes() == before and len(os.listdir(tmp_path)) == 1
        did = operation()
        [a], [b] = would.changed, did.changed
        assert (a.columns, a.built, a.removed, a.bytes) == (b.columns, b.built, b.removed, None)
        path.write_bytes(before)


def test_files_of_a_folder_behind_links_out_of_it_are_not_changed(tmp_path):
    (tmp_path / "victim").mkdir()
    real = written(tmp_path / "victim" / "real.parquet")
    (tmp_path / "victim" / f".real.parquet.{'0' * 16}.tmp").touch()  # what a killed process left
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file.parquet").symlink_to(real)
    (tmp_path / "data" / "folder").symlink_to(real.parent)
    before = {path: path.read_bytes() for path in real.parent.iterdir()}
    failed = attach(tmp_path / "data", {"ssn": True}, KMS).failed
    assert len(failed) == 2 and all("out of the table" in text for text in failed.values())
    assert {path: path.read_bytes() for path in real.parent.iterdir()} == before


@pytest.mark.parametrize("way", ["a link to a file", "a link to a folder"])
@pytest.mark.parametrize("change", [
    lambda folder: attach(folder, {"ssn": True}, KMS),
    lambda folder: secure_bloom.decrypt(folder, KMS, plaintext=True),
    lambda folder: rotate_master_keys(folder, KMS, old="footer", new="footer")])
def test_links_that_come_when_files_are_opened_lead_nowhere(tmp_path, monkeypatch, way, change):
    for name in ("victim", "data/day=1"):
        (tmp_path / name).mkdir(parents=True)
        written(tmp_path / name / "a.parquet")
    path, victim = tmp_path / "data/day=1/a.parquet", tmp_path / "victim/a.parquet"
    before, original = victim.read_bytes(), rewrite.Source

    def late(*arguments):
        place, target = path, victim
        if way == "a link to a folder":
            place, target = path.parent, victim.parent
        os.rename(place, tmp_path / "away")
        place.symlink_to(target)
        return original(*arguments)

    monkeypatch.setattr(rewrite, "Source", late)
    assert change(tmp_path / "data").failed.keys() == {str(path)}
    assert victim.read_bytes() == before


def test_links_that_come_when_files_are_renamed_lead_nowhere(tmp_path, monkeypatch):
    for name in ("victim", "data/day=1"):
        (tmp_path / name).mkdir(parents=True)
        written(tmp_path / name / "a.parquet")
    place, victim = tmp_path / "data/day=1", tmp_path / "victim"
    before, check = (victim / "a.parquet").read_bytes(), Rewrite._before_renaming
    store = Rewrite._store

    def swap():
        (tmp_path / "link").symlink_to(victim)
        os.rename(place, tmp_path / "away")
        os.rename(tmp_path / "link", place)

    def swapped_while_it_is_written(self, *arguments):
        swap()
        store(self, *arguments)

    def swapped_back_for_the_check(self):
        place.unlink()
        os.rename(tmp_path / "away", place)
        check(self)
        swap()

    monkeypatch.setattr(Rewrite, "_store", swapped_while_it_is_written)
    monkeypatch.setattr(Rewrite, "_before_renaming", swapped_back_for_the_check)
    [failed] = attach(tmp_path / "data", {"ssn": True}, KMS).failed.values()
    assert "meantime" in failed
    assert (victim / "a.parquet").read_bytes() == before and len(os.listdir(victim)) == 1


def test_permissions_are_those_of_the_file_that_was_read(tmp_path, monkeypatch):
    path, finish = written(tmp_path / "a.parquet"), Replacement.finish
    path.chmod(0o600)

    def in_place_of_another_file(self):
        os.rename(path, tmp_path / "away")
        path.touch(0o666)
        finish(self)
        os.rename(tmp_path / "away", path)

    monkeypatch.setattr(Replacement, "finish", in_place_of_another_file)
    assert attach(path, {"ssn": True}, KMS).changed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_mode_links_and_checksums(tmp_path):
    real = written(tmp_path / "real.parquet")
    os.chmod(real, 0o640)
    (tmp_path / "link.parquet").symlink_to(real)
    (tmp_path / ".real.parquet.crc").write_bytes(b"of the old bytes")
    attach(tmp_path / "link.parquet", {"ssn": True}, KMS)
    assert (tmp_path / "link.parquet").is_symlink() and with_filters(real) == {"ssn": 3}
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert not (tmp_path / ".real.parquet.crc").exists()
    os.link(real, tmp_path / "other.parquet")
    [change] = attach(real, {"city": True}, KMS).changed
    assert "other names" in change.notes[0]
    assert with_filters(tmp_path / "other.parquet") == {"ssn": 3}


def test_other_filesystems(tmp_path):
    written(tmp_path / "a.parquet")
    place = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    assert attach("a.parquet", {"ssn": True}, KMS, filesystem=place).changed
    assert with_filters(tmp_path / "a.parquet") == {"ssn": 3}
    assert os.listdir(tmp_path) == ["a.parquet"]


def test_key_material_beside_the_file(tmp_path):
    path = written(tmp_path / "a.parquet", EncryptionConfiguration(
        "footer", COLUMNS, internal_key_material=False))
    assert not attach(tmp_path, {"ssn": True, "city": True}, KMS).failed
    assert verify_file(path, KMS).ok and with_filters(path) == {"ssn": 3, "city": 3}


# --- what it costs -------------------------------------------------------------------------------

def test_only_these_columns_and_the_footer_are_read(tmp_path):
    """And 64 KiB, which pyarrow reads to find the footer."""
    random = np.random.default_rng(0)
    table = pa.table({f"c{i}": random.integers(0, 2**62, 200_000) for i in range(10)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=50_000)
    file = ParquetFile(path)
    column = sum(chunks[3].pages[1] for chunks in file.footer.row_groups)
    footer = path.stat().st_size - file.footer.start
    handler = CountingHandler()
    counting = OpenFile(str(path), filesystem=pa_fs.PyFileSystem(handler))
    hashes = ColumnHashes(counting)
    for chunks in counting.footer.row_groups:
        change.build_filter(hashes, chunks[3], 50_000, BloomFilterOptions())
    read = handler.bytes_read[str(path)]
    assert column <= read <= column + 2**16 + 4 * footer < path.stat().st_size / 5


@pytest.mark.slow
def test_memory_is_bounded(tmp_path):
    """One row group of 8 million values: 64 MB as Arrow has them, 64 MB of hashes."""
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, pa.schema([("n", pa.int64())]), compression="none",
                          use_dictionary=False) as writer:
        writer.write_table(pa.table({"n": np.arange(8_000_000)}), row_group_size=2**26)
    code = f"""
import resource, secure_bloom, pyarrow.parquet
from secure_bloom import attach, BloomFilterOptions
from secure_bloom.sbbf.kernel_choice import chosen
chosen()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
attach({str(path)!r}, {{"n": BloomFilterOptions(ndv=8_000_000)}})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                               text=True).stdout)
    assert grown * 1024 < 16 * 2**20 + 50 * 2**20  # the filter, and some pages
    assert secure_bloom.ParquetFile(path).bloom_filters[0].num_bytes == 16 * 2**20
