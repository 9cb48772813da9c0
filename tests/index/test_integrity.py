"""``Index.verify`` finds planted faults of an index, and what was done to files behind its back."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.errors import KeyNotFoundError, KmsUnavailableError
from secure_bloom.index import Index, build, column_segments, integrity, opened_indexes
from secure_bloom.index import table as index_table
from secure_bloom.index.publishing import publish
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.operations.rotation import rotate_master_keys
from secure_bloom.storage import local_listing
from tests.index.helpers import KEYS, KMS, age, folder_of, segments_of, write
from tests.support import WatchedKms


@pytest.fixture(params=["column", None])
def table(request, tmp_path):
    """Four files in two segments, of which one has no values."""
    options = {} if request.param else {"encryption": None}
    for number in range(4):
        values = [f"v{number}-{place}" for place in range(20)] if number else []
        write(tmp_path / f"{number}.parquet", np.array(values, "U"), rows=10, **options)
        if number in (1, 3):
            build(tmp_path, "ssn", KMS, encryption=request.param)
    age(tmp_path, 1000)
    build(tmp_path, "ssn", KMS, encryption=request.param)
    return tmp_path


def verify(table, **options):
    return Index.open(table, KMS).verify(**options)


def kinds(result):
    return sorted((one.kind, os.path.basename(one.file)) for one in result.findings)


def overwrite(table, name, value):
    write(table / name, [value] * 20, rows=10, **({} if is_encrypted(table) else
                                                  {"encryption": None}))


def is_encrypted(table):
    return secure_bloom.ParquetFile(table / "0.parquet", KMS).footer.algorithm is not None


def test_an_intact_index(table):
    fractions = []
    result = verify(table, integrity=True, advance=fractions.append)
    assert result.ok and result.findings == [] and result.columns == ["ssn"]
    assert (result.compared, result.values, result.identified) == (4, 60, 4)
    assert result.pages == result.segments == len(Index.open(table, KMS).column("ssn").segments)
    assert result.pairs >= 60 and fractions == sorted(fractions) and fractions[-1] == 1
    assert repr(result).startswith("<IndexVerification ") and "4 files compared" in repr(result)
    assert result.to_dict()["ok"] is True and result.to_dict()["findings"] == []


def test_a_sample_of_files(table):
    assert verify(table, sample=2).compared == 2
    assert verify(table, sample=0).compared == 0
    assert verify(table, sample=None).compared == 4
    with pytest.raises(ValueError, match="sample"):
        verify(table, sample=-1)


def test_a_planted_omission_is_found(tmp_path, monkeypatch):
    original = column_segments.column_hashes

    def hashes(file, column):
        for portion in original(file, column):
            yield portion._replace(hashes=portion.hashes[1:]) \
                if (file.name[-9:], portion.row_group) == ("1.parquet", 1) else portion

    for number in range(3):
        write(tmp_path / f"{number}.parquet", [f"secret-{number}-{n}" for n in range(20)], rows=10)
    monkeypatch.setattr(column_segments, "column_hashes", hashes)
    build(tmp_path, "ssn", KMS)
    result = verify(tmp_path)
    [finding] = result.findings
    assert (finding.kind, finding.file, finding.row_groups, finding.column) == \
        ("omission", "1.parquet", (1,), "ssn")
    assert "1 of 10 values" in finding.message and not result.ok
    assert "secret-" not in str(finding) + repr(finding) + str(result.to_dict())
    assert result._repr_html_().count("omission") == 1


def test_a_row_group_that_was_skipped_is_found(tmp_path, monkeypatch):
    original = column_segments.column_hashes
    monkeypatch.setattr(column_segments, "column_hashes", lambda file, column: (
        part for part in original(file, column) if part[0] != 1))
    write(tmp_path / "0.parquet", [f"{n}" for n in range(20)], rows=10)
    build(tmp_path, "ssn", KMS)
    assert [(one.kind, one.row_groups) for one in verify(tmp_path).findings] == [("omission", (1,))]


def test_a_damaged_segment_is_found_and_the_others_are_still_checked(table):
    for path in segments_of(table):
        content = path.read_bytes()
        changes = {"page": 20, "first byte": 0, "end": len(content) - 1}
        for where in changes.values():
            path.write_bytes(content[:where] + bytes([content[where] ^ 1]) + content[where + 1:])
            result = verify(table)
            assert kinds(result) == [("segment", path.name)]
            assert result.segments == len(segments_of(table)) - 1
            assert "update the index" in result.findings[0].message
        path.write_bytes(content)
    assert verify(table).ok


def test_a_missing_segment_is_found(table):
    path = segments_of(table)[0]
    path.unlink()
    assert kinds(verify(table)) == [("segment", path.name)]


def test_wrong_totals_in_the_manifest_are_found(table):
    def change(body):
        first, *others = body.segments
        return replace(body, segments=(replace(first, pairs=first.pairs + 1), *others))

    publish(folder_of(table), CachedKms(KMS), change)
    [finding] = verify(table).findings
    assert finding.kind == "segment" and "totals" in finding.message


@pytest.mark.parametrize("fault, message", [("order", "not in order"), ("count", "says")])
def test_wrong_pages_are_found(table, monkeypatch, fault, message):
    original = integrity.Segment.decode

    def decode(self, first, last):
        for parts in original(self, first, last):
            yield tuple(part[::-1] if fault == "order" else part[1:] for part in parts)

    monkeypatch.setattr(integrity.Segment, "decode", decode)
    found = [one for one in verify(table).findings if one.kind == "segment"]
    assert found and all(message in one.message for one in found)


@pytest.fixture
def without_tags(monkeypatch):
    """As on a filesystem whose listings show size and time only."""
    monkeypatch.setattr(local_listing, "_tag", lambda found: "")
    opened_indexes._opened.clear()


def test_files_that_were_added_removed_and_replaced(table):
    (table / "1.parquet").unlink()
    shutil.copy(table / "2.parquet", table / "new.parquet")
    stamp = (table / "3.parquet").stat().st_mtime_ns
    overwrite(table, "3.parquet", "other")
    assert verify(table).ok  # the index answers rightly: it does not cover these files
    expected = [("added", "new.parquet"), ("removed", "1.parquet"), ("replaced", "3.parquet")]
    assert kinds(verify(table, integrity=True)) == expected
    os.utime(table / "3.parquet", ns=(stamp, stamp))
    assert kinds(verify(table, integrity=True)) == expected
    index = Index.open(table, KMS)
    index.update()
    index.compact()
    os.utime(table / "3.parquet", ns=(stamp + 1, stamp + 1))
    index.update()
    assert verify(table, integrity=True).ok


def test_a_file_that_was_replaced_with_its_size_and_time_kept(tmp_path, without_tags):
    """The listing cannot tell, but the stored footer can."""
    for number in range(2):
        write(tmp_path / f"{number}.parquet", [f"v{number}"])
    build(tmp_path, "ssn", KMS)
    before = (tmp_path / "1.parquet").stat()
    shutil.copy(tmp_path / "0.parquet", tmp_path / "1.parquet")
    os.utime(tmp_path / "1.parquet", ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert (tmp_path / "1.parquet").stat().st_size == before.st_size
    result = verify(tmp_path, integrity=True)
    assert set(kinds(result)) == {("omission", "1.parquet"), ("replaced", "1.parquet")}


def test_a_file_that_was_rolled_back(table):
    shutil.copy2(table / "2.parquet", table / ".kept")
    overwrite(table, "2.parquet", "newer")
    Index.open(table, KMS).update()
    assert verify(table, integrity=True).ok
    shutil.copy2(table / ".kept", table / "2.parquet")  # with its time
    (table / ".kept").unlink()
    assert kinds(verify(table, integrity=True)) == [("rolled-back", "2.parquet")]


def test_rotation_attaching_and_touching_are_not_findings(table):
    secure_bloom.attach(table / "2.parquet", ["ssn"], KMS)
    os.utime(table / "1.parquet")
    if is_encrypted(table):
        rotate_master_keys(table, KMS, old="footer", new="new")
        assert verify(table, integrity=True).ok
    index = Index.open(table, KMS)
    index.update()
    assert verify(table, integrity=True).ok
    index.compact()
    assert verify(table, integrity=True).ok
    assert verify(table, integrity=True).identified == 4


def test_a_file_that_cannot_be_read_is_named(without_tags, table):
    path = table / "2.parquet"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[5:60] = bytes(55)
    path.write_bytes(content)
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    [finding] = verify(table).findings
    assert finding.kind in ("data", "omission") and finding.file == "2.parquet"


def test_the_key_is_required(tmp_path):
    write(tmp_path / "0.parquet", ["v"])
    build(tmp_path, "ssn", KMS)
    with pytest.raises(KeyNotFoundError):
        Index.open(tmp_path, InMemoryKms({"footer": b"f" * 16})).verify()


def test_large_segments_are_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(integrity, "_BATCH_BYTES", 1)
    write(tmp_path / "0.parquet", [f"{n}" for n in range(20_000)])
    build(tmp_path, "ssn", KMS)
    result = verify(tmp_path)
    assert result.ok and result.pages == 4 and result.pairs == result.values == 20_000


# --- what changes meanwhile, or cannot be read ---------------------------------------------------

def before_opening(monkeypatch, name, change):
    """Change a file between the listing and each time that it is opened."""
    original = index_table.Source

    def opened(path, filesystem):
        if path.endswith(name):
            change(path)
        return original(path, filesystem)

    monkeypatch.setattr(index_table, "Source", opened)


def test_a_file_that_changes_meanwhile_is_not_a_finding(table, monkeypatch):
    def touch(path):
        changed = os.stat(path).st_mtime_ns - 10**9
        os.utime(path, ns=(changed, changed))

    before_opening(monkeypatch, "2.parquet", touch)
    result = verify(table, integrity=True)
    assert result.ok and (result.compared, result.identified) == (3, 3)


def test_a_file_that_is_removed_meanwhile(table, monkeypatch):
    """It is no fault of the index; those who ask for the integrity of the table are told."""
    before_opening(monkeypatch, "2.parquet", lambda path: os.path.exists(path) and os.unlink(path))
    result = verify(table)
    assert result.ok and result.compared == 3
    shutil.copy(table / "1.parquet", table / "2.parquet")
    Index.open(table, KMS).update()
    assert kinds(verify(table, sample=0, integrity=True)) == [("removed", "2.parquet")]


def test_an_index_that_is_deleted_meanwhile(table):
    index = Index.open(table, KMS)
    shutil.rmtree(table / "_index")
    with pytest.raises(FileNotFoundError, match="no index of column 'ssn'"):
        index.verify()


def test_a_file_whose_column_has_another_type_now(tmp_path, without_tags):
    """Of the same size and time: hashes of another type would not say what is missing."""
    path = tmp_path / "0.parquet"

    def size(type_, padding):
        columns = {"ssn": pa.array([1, 2]).cast(type_), "padding": ["x" * padding] * 2}
        secure_bloom.write_table(pa.table(columns), path, encryption=None, bloom_filters={},
                                 compression="none", write_statistics=False)
        return path.stat().st_size

    covered = size(pa.int64(), 500)
    age(tmp_path)
    before = path.stat()
    build(tmp_path, "ssn", encryption=None)
    assert size(pa.string(), 500 + covered - size(pa.string(), 500)) == covered
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    [finding] = Index.open(tmp_path).verify().findings
    assert (finding.kind, finding.file) == ("omission", "0.parquet")
    assert "another type" in finding.message


@pytest.mark.parametrize("options", [{}, {"sample": 0, "integrity": True}])
def test_a_kms_that_fails_is_not_a_finding(tmp_path, options):
    write(tmp_path / "0.parquet", ["v"])
    build(tmp_path, "ssn", KMS)
    with pytest.raises(KmsUnavailableError):
        Index.open(tmp_path, WatchedKms(KEYS, "footer", error=KmsUnavailableError)) \
            .verify(**options)


def test_a_file_without_its_end_is_named(without_tags, table):
    path = table / "2.parquet"
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    result = verify(table, integrity=True)
    assert [finding.kind for finding in result.findings] == ["data", "data"]
    assert [finding.message.partition(":")[0] for finding in result.findings] == \
        ["the file was not compared", "the file was not identified"]
    assert (result.compared, result.identified) == (3, 3)


def test_a_file_that_could_not_be_covered_counts_as_added(tmp_path, monkeypatch):
    """It was overwritten while it was read, so the index has no version of it."""
    original = column_segments.column_hashes

    def hashes(file, column):
        for portion in original(file, column):
            if portion.row_group == 1 and file.name.endswith("1.parquet"):
                shutil.copy(tmp_path / "other", tmp_path / "1.parquet")
            yield portion

    for number in range(2):
        write(tmp_path / f"{number}.parquet", range(100 * number, 100 * number + 20), rows=10)
    write(tmp_path / "other", range(500, 600), rows=10)
    monkeypatch.setattr(column_segments, "column_hashes", hashes)
    assert set(build(tmp_path, "ssn", KMS).failed) == {"1.parquet"}
    monkeypatch.undo()
    assert kinds(verify(tmp_path, integrity=True)) == [("added", "1.parquet")]
