"""An erasure takes pairs out of the pages that had them, and leaves the rest of an index alone."""

import os

import numpy as np
import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import erase
from secure_bloom.erasing.table_indexes import TableIndexes
from secure_bloom.errors import SecureBloomError
from secure_bloom.index import Index, build, file_table, patching, segment_patch, segment_writer
from secure_bloom.index.geometry import MAX_GROUP_BITS
from secure_bloom.index.sealing import IndexKey
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.sbbf.probes import value_hashes
from tests.cases import for_each
from tests.index.helpers import ENCRYPTION, KMS, age, segments_of, write
from tests.reading.ways import by_pages, with_ranges

FILES, ROWS = 4, 6000
ERASED = "2-000123"


def values_of(number: int) -> list[str]:
    return [f"{number}-{row:06}" for row in range(ROWS)]


def write_files(folder, **options):
    for number in range(FILES):
        write(folder / f"{number}.parquet", values_of(number), rows=ROWS // 2, **options)
    age(folder)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table whose index has one segment of four pages, in four parts, and two pages of files."""
    monkeypatch.setattr(segment_writer, "PART", 8192)
    monkeypatch.setattr(file_table, "PAGE_FILES", 2)
    write_files(tmp_path)
    build(tmp_path, "ssn", KMS, budget=2**16)
    return tmp_path


def opened(table):
    return Index.open(table, KMS).column("ssn")


def erase_one(table, value=ERASED, **options):
    result = erase(table, "ssn", value, KMS, **options)
    assert result.ok and result.indexes == ["ssn"]
    return result


def stored(table) -> dict[str, tuple[int, bytes]]:
    """Return inode and content of the files of segments."""
    return {path.name: (path.stat().st_ino, path.read_bytes())
            for path in (table / "_index" / "ssn").iterdir()
            if path.suffix in (".seg", ".part")}


def check(table, gone=(ERASED,)):
    """The index has every value of every file, and none of those that are gone."""
    index = Index.open(table, KMS)
    found = index.verify(sample=None)
    assert found.ok and found.compared == FILES, found.findings
    wanted = [value for number in range(FILES) for value in values_of(number)]
    for value, one in zip(wanted, index.lookup("ssn", wanted).row_groups, strict=True):
        assert bool(one) == (value not in gone), value
    assert index.lookup("ssn", ERASED).uncovered == []


def test_one_part_and_the_tail_are_written_again(table):
    before, old = stored(table), opened(table)
    [segment] = old.segments
    assert len(segment.info.parts) == 4 == segment.geometry.num_pages
    fingerprints = old.manifest.key.fingerprints(
        value_hashes([ERASED], segment.column_type).hashes)
    [read] = segment.reads(fingerprints)
    sealed = segment.read_pages(read)
    erase_one(table)
    after, [new] = stored(table), opened(table).segments
    assert new.info.id == segment.info.id and new.info.pairs == segment.info.pairs - 1
    kept = before.keys() & after.keys()
    assert len(kept) == 3 and all(before[name] == after[name] for name in kept)
    assert len(after) == 5
    for _, content in after.values():
        assert sealed not in content
    [read] = new.reads(fingerprints)
    assert new.find(fingerprints, [read], [new.read_pages(read)]).groups.size == 0
    check(table)


def test_a_small_segment_has_one_file(tmp_path):
    write_files(tmp_path)
    build(tmp_path, "ssn", KMS)
    [segment] = opened(tmp_path).segments
    for gone in ([ERASED], [ERASED, "2-005999"]):  # the second time from a file with another name
        erase_one(tmp_path, gone[-1])
        assert [one.info.id for one in opened(tmp_path).segments] == [segment.info.id]
        assert len(segments_of(tmp_path)) == 1
        check(tmp_path, gone)


@pytest.mark.slow
def test_a_value_that_goes_may_have_the_fingerprint_of_one_that_stays(table, monkeypatch):
    original = IndexKey.fingerprints
    monkeypatch.setattr(IndexKey, "fingerprints", lambda self, hashes: original(self, hashes)
                        & np.uint64(0xFFF << 52))  # 4096 different ones
    build_again(table)
    [segment] = opened(table).segments
    erase_one(table)
    assert [one.info.id for one in opened(table).segments] == [segment.info.id]
    index = Index.open(table, KMS)
    assert index.verify(sample=None).ok
    assert all(index.lookup("ssn", values_of(2)).row_groups)


def build_again(table):
    for path in (table / "_index" / "ssn").iterdir():
        path.unlink()
    build(table, "ssn", KMS, budget=2**16)


def test_values_in_lists_and_in_other_row_groups(tmp_path):
    """A value goes from the row groups that lost it, and stays where other columns have it."""
    people = pa.table({"ssn": ["a", "b", "c", "d"],
                       "seen": [["x", "y"], ["y"], ["x", None], None]})
    encryption = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn", "seen"]})
    secure_bloom.write_table(people, tmp_path / "0.parquet", encryption=encryption, keys=KMS,
                             row_group_size=2)
    age(tmp_path)
    build(tmp_path, ["ssn", "seen.list.element"], KMS)
    ids = {column: [one.id for one in Index.open(tmp_path, KMS).column(column)
                    .manifest.body.segments] for column in ("ssn", "seen.list.element")}
    result = erase(tmp_path, "ssn", "a", KMS, max_share=1)
    assert result.ok and sorted(result.indexes) == ["seen.list.element", "ssn"]
    index = Index.open(tmp_path, KMS)
    [new] = [path.name for path in tmp_path.glob("*.parquet")]
    assert index.lookup("seen.list.element", ["x", "y"]).row_groups == [{new: [1]}, {new: [0]}]
    assert index.lookup("ssn", ["a", "b"]).row_groups == [{}, {new: [0]}]
    assert index.verify(sample=None).ok
    assert ids == {column: [one.id for one in index.column(column).manifest.body.segments]
                   for column in ids}


@pytest.mark.slow
def test_rows_move_so_ranges_do_not_count(tmp_path):
    with with_ranges():
        write(tmp_path / "0.parquet", [f"{row:06}" for row in range(ROWS)])
        age(tmp_path)
        build(tmp_path, "ssn", KMS)
        [segment] = opened(tmp_path).segments
        assert segment.geometry.range_bits
        erase_one(tmp_path, [f"{row:06}" for row in range(ROWS // 30)], max_share=1)
        [new] = opened(tmp_path).segments
        assert new.info.id == segment.info.id and not new.files.entry(0).has_ranges
        data = secure_bloom.dataset(tmp_path, KMS, index="require")
        with by_pages():
            for row in range(ROWS // 30, ROWS, ROWS // 60):  # in other parts of the file now
                assert data.to_table(filter=[("ssn", "=", f"{row:06}")]).num_rows == 1
        assert Index.open(tmp_path, KMS).verify(sample=None).ok


def test_an_exclusive_index_stays_trusted(tmp_path):
    for number in range(2):
        secure_bloom.write_dataset(pa.table({"ssn": values_of(number)}), tmp_path / "t",
                                   encryption=ENCRYPTION, keys=KMS, mode="append")
    build(tmp_path / "t", "ssn", KMS, exclusive=True)
    before = opened(tmp_path / "t")
    erase_one(tmp_path / "t", "1-000007")
    index = opened(tmp_path / "t")
    assert [one.id for one in index.manifest.body.segments] \
        == [one.id for one in before.manifest.body.segments]
    table = Index.open(tmp_path / "t", KMS)
    assert index.is_of(table._table.generation())
    found = table.lookup("ssn", ["1-000006", "1-000007", "0-000007"])
    assert [len(one) for one in found.row_groups] == [1, 0, 1] and not found.uncovered
    listed = index.manifest.body.listed
    assert listed is not None and listed.files == 2 and listed.bytes == sum(
        path.stat().st_size for path in (tmp_path / "t").glob("*.parquet"))


# --- whatever else has changed: all segments are merged ------------------------------------------

def an_entry_of_a_file_that_is_gone(table, patch):
    write(table / "x.parquet", ["x", "y"])
    age(table)
    Index.open(table, KMS).update()
    (table / "x.parquet").unlink()


def a_file_that_is_not_covered(table, patch):
    write(table / "x.parquet", ["x", "y"])


def another_version_of_the_file(table, patch):
    write(table / "2.parquet", [*values_of(2)[1:], "x"], rows=ROWS // 2)


def another_name(table, patch):
    (table / "2.parquet").rename(table / "another.parquet")


def another_update_meanwhile(table, patch):
    original = patching.patch_segment

    def patched(*arguments):
        found = original(*arguments)
        Index.open(table, KMS).update()  # which covers the new file
        return found

    patch.setattr(patching, "patch_segment", patched)


def another_name_meanwhile(table, patch):
    original = TableIndexes.purge

    def renamed(self, *arguments):
        [path] = [path for path in table.glob("*.parquet") if len(path.stem) > 1]
        path.rename(table / f"another-{path.name}")
        return original(self, *arguments)

    patch.setattr(TableIndexes, "purge", renamed)


def many_pages(table, patch):
    patch.setattr(segment_patch, "MOST_BYTES", 1000)


def another_index(table, patch):
    original = patching.open_column

    def built_again(*arguments):
        build_again(table)
        return original(*arguments)

    patch.setattr(patching, "open_column", built_again)


def links_to_its_files(table, patch):
    """Bytes that are copied as they are would become readable for others."""
    elsewhere = table.parent / "elsewhere"
    elsewhere.mkdir()
    for name in stored(table):
        path = table / "_index" / "ssn" / name
        path.rename(elsewhere / name)
        path.symlink_to(elsewhere / name)


def a_full_disk(table, patch):
    def fail(*arguments):
        raise OSError("no space left on device")

    patch.setattr(segment_writer.SegmentFile, "add_tail", once(
        fail, segment_writer.SegmentFile.add_tail))


def once(first, then):
    """Return a function that calls one function the first time, and then another one."""
    waiting = [first]
    return lambda *arguments: (waiting.pop() if waiting else then)(*arguments)


@pytest.mark.slow
@for_each("change", [an_entry_of_a_file_that_is_gone, a_file_that_is_not_covered,
                     another_version_of_the_file, another_name, another_update_meanwhile,
                     another_name_meanwhile, many_pages, another_index,
                     links_to_its_files, a_full_disk])
def test_anything_else_merges_the_segments(table, change):
    folder = table / change.__name__
    folder.mkdir()
    write_files(folder)
    build(folder, "ssn", KMS, budget=2**16)
    before, old = stored(folder), opened(folder)
    fingerprint = old.manifest.key.fingerprints(
        value_hashes([ERASED], old.segments[0].column_type).hashes)
    with pytest.MonkeyPatch.context() as patch:
        change(folder, patch)
        erase_one(folder)
    after, index = stored(folder), opened(folder)
    assert not before.keys() & after.keys()
    assert after.keys() == index.manifest.body.file_names
    for segment in index.segments:
        assert index.manifest.key != old.manifest.key \
            or not has_pair(segment, int(fingerprint[0]))
    found = Index.open(folder, KMS).lookup("ssn", [*values_of(2), *values_of(0)])
    missing = [number for number, one in enumerate(found.row_groups) if not one]
    erased = [123] if change is not another_version_of_the_file else [0, 123]
    assert missing == erased or change is another_name_meanwhile
    is_there = {path.name for path in folder.glob("*.parquet")}
    assert is_there == {*found.uncovered, *(path for one in found.row_groups for path in one)} \
        | {path for path in is_there if path.startswith(("1", "3", "x"))}


def has_pair(segment, fingerprint: int) -> bool:
    return any(int(fingerprint >> MAX_GROUP_BITS) in top.tolist()
               for top, *_ in segment.decode(0, segment.geometry.num_pages))


def test_a_plaintext_file_that_was_replaced_before(tmp_path):
    """Its footer may be that of the version that the index knows, but its values are others."""
    plain = {"encryption": None, "use_dictionary": False, "write_statistics": False,
             "write_page_index": False, "compression": "none", "bloom_filters": False}
    write(tmp_path / "0.parquet", ["a", "b", "c"], **plain)
    age(tmp_path)
    build(tmp_path, "ssn", encryption=None)
    first = OpenFile(tmp_path / "0.parquet").stored_footer
    time = os.stat(tmp_path / "0.parquet").st_mtime_ns
    write(tmp_path / "0.parquet", ["a", "y", "z"], **plain)
    os.utime(tmp_path / "0.parquet", ns=(time, time))
    assert OpenFile(tmp_path / "0.parquet").stored_footer == first
    assert erase(tmp_path, "ssn", "a", max_share=1).ok
    found = Index.open(tmp_path).lookup("ssn", ["y", "z", "a", "b"])
    assert [bool(one) or bool(found.uncovered) for one in found.row_groups][:2] == [True, True]
    assert found.row_groups[2:] == [{}, {}]


def test_modules_of_an_older_version_hide_nothing(table):
    """Whoever can write to the folder may mix them; all of them authenticate."""
    folder = table / "_index" / "ssn"
    before, old = stored(table), opened(table).manifest.body.segments[0]
    erase_one(table)
    after, new = stored(table), opened(table).manifest.body.segments[0]
    [changed] = [number for number, part in enumerate(new.parts) if part not in old.parts]
    for earlier, later in ((old.parts[changed], new.parts[changed]), (old, new)):
        (folder / later.name).write_bytes(before[earlier.name][1])
        try:
            found = Index.open(table, KMS).lookup("ssn", values_of(2))
        except SecureBloomError:
            pass  # of another size, so it cannot be read
        else:
            assert all(one or value == ERASED
                       for value, one in zip(values_of(2), found.row_groups, strict=True))
        (folder / later.name).write_bytes(after[later.name][1])
    check(table)
