"""Segments in several files: the answers are the same, and nothing is missed if one is lost."""

import contextlib
import json
import shutil

import numpy as np
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom.errors import (
    AuthenticationError,
    ChangedMeanwhileError,
    FormatError,
    IndexWarning,
    SecureBloomError,
)
from secure_bloom.index import Index, build, geometry, opened_indexes, segment_writer
from secure_bloom.index.compaction import compact
from secure_bloom.index.geometry import Geometry
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.segment_writer import write_after_parts
from secure_bloom.index.table import Table
from secure_bloom.keys.cache import cached
from tests.index import format_reader, helpers
from tests.index.helpers import KMS, LOCAL, age, folder_of, in_parts, segments_of, write
from tests.index.test_format import listing_of, unwrap

FILES, ROWS = 3, 400
CLIENT = cached(KMS)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Files whose index has three segments of several small pages."""
    monkeypatch.setattr(geometry, "_PAGE_BITS", 5)
    for number in range(FILES):
        write(tmp_path / f"{number}.parquet", values_of(number), rows=100)
        age(tmp_path)
        build(tmp_path, "ssn", KMS)
    assert len(segments_of(tmp_path)) == FILES
    return tmp_path


def values_of(number):
    return [f"v{number}-{place % 390}" for place in range(ROWS)]


def merged(table, parts=4):
    """Merge the segments into one of several parts; return the files of the parts, in order."""
    folder = folder_of(table)
    assert compact(Table(LOCAL, str(table)), folder, CLIENT, merge=in_parts(parts)) >= 1
    return parts_of(table)


def parts_of(table):
    [info] = Index.open(table, KMS).column("ssn").manifest.body.segments
    return [table / "_index" / "ssn" / part.name for part in info.parts]


def check_answers(table):
    """All values are found where they are; the rows are those without the index."""
    index = Index.open(table, KMS)
    for number in range(FILES):
        values = values_of(number)
        lookup = index.lookup("ssn", values)
        assert lookup.uncovered == []
        for place, found in enumerate(lookup.row_groups):
            assert place // 100 in found[f"{number}.parquet"] and len(found) == 1
    assert index.lookup("ssn", [f"absent {n}" for n in range(1000)]).row_groups == [{}] * 1000


def pairs_of(segment):
    return [np.stack(one) for one in segment.decode(0, segment.geometry.num_pages)]


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 4, 16])
def test_the_pairs_are_those_of_a_segment_in_one_file(table, parts, tmp_path_factory):
    other = shutil.copytree(table, tmp_path_factory.mktemp("x") / "other")
    Index.open(other, KMS).update()  # copies are other files
    Index.open(other, KMS).compact()
    assert len(merged(table, parts)) == parts
    [one], [several] = (Index.open(at, KMS).column("ssn").segments for at in (other, table))
    assert several.pairs == one.pairs and several.geometry == one.geometry
    assert several.files.entry(2)._replace(tag="") == one.files.entry(2)._replace(tag="")
    for left, right in zip(pairs_of(one), pairs_of(several), strict=True):
        np.testing.assert_array_equal(left, right)
    check_answers(table)
    assert Index.open(table, KMS).verify(sample=None).ok


def test_how_many_parts_a_segment_gets():
    """Their number is bounded, as the manifest lists them."""
    found = [1 << segment_writer._part_bits(Geometry.of(10**power, 10**5))
             for power in (0, 6, 7, 8, 9, 10)]
    assert found == [1, 1, 4, 32, 64, 64]


def test_an_independent_reader_finds_everything(table):
    merged(table)
    reader = format_reader.Index(folder_of(table).path, "ssn", unwrap)
    for number in range(FILES):
        for place in (0, 99, 100, 399):
            value = values_of(number)[place]
            found, uncovered = reader.lookup(listing_of(table), value.encode())
            assert place // 100 in found[f"{number}.parquet"] and uncovered == set()


def test_a_segment_in_parts_is_merged_again_and_its_parts_are_vacuumed(table):
    old = merged(table)
    write(table / "3.parquet", ["new"])
    age(table)
    index = Index.open(table, KMS)
    index.update()
    new = merged(table, 2)
    check_answers(table)
    assert index.lookup("ssn", "new").row_groups == [{"3.parquet": [0]}]
    assert {path.name for path in old} <= {*index.vacuum(grace=0)}
    assert all(path.exists() for path in new) and len(segments_of(table)) == 1
    check_answers(table)


def test_purge_deletes_the_parts_of_erased_values_at_once(table):
    old = merged(table)
    (table / "0.parquet").unlink()
    Index.open(table, KMS).purge()
    assert not any(path.exists() for path in old)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["missing", "truncated", "empty", "exchanged", "older"])
def test_a_damaged_part_is_an_error_and_readers_search_the_files(table, fault):
    older = [path.read_bytes() for path in merged(table)]
    write(table / "3.parquet", ["new"])
    age(table)
    Index.open(table, KMS).update()
    parts = merged(table)
    if fault == "missing":
        parts[1].unlink()
    elif fault == "truncated":
        parts[1].write_bytes(parts[1].read_bytes()[:-1])
    elif fault == "empty":
        parts[1].write_bytes(b"")
    elif fault == "exchanged":
        first, second = (path.read_bytes() for path in parts[1:3])
        size = max(len(first), len(second))  # the sizes in the manifest are those of the others
        parts[1].write_bytes(second.ljust(size, b"\0"))
        parts[2].write_bytes(first.ljust(size, b"\0"))
    else:
        parts[1].write_bytes(older[1].ljust(parts[1].stat().st_size, b"\0"))
    values = [*values_of(0), *values_of(1), *values_of(2)]
    opened_indexes._opened.clear()
    errors = 0
    for value in sorted({*values})[::3]:
        try:
            found = Index.open(table, KMS).lookup("ssn", value).row_groups[0]
        except (ChangedMeanwhileError, FormatError, AuthenticationError) as error:
            errors += 1
            assert error.column == "ssn" and error.file.endswith((".part", ".seg"))
        else:
            assert f"{value[1]}.parquet" in found  # it is in a page of another part
    assert 0 < errors < len({*values})
    with pytest.raises(SecureBloomError):
        Index.open(table, KMS).lookup("ssn", values)
    check_rows(table, values, warns=fault != "missing")
    assert {one.kind for one in Index.open(table, KMS).verify().findings} == {"segment"}


def check_rows(table, values, warns):
    def rows(index):
        wanted = pc.field("ssn").isin([*values, "new", "absent"])
        found = secure_bloom.read_table(table, KMS, filters=wanted, index=index)
        return sorted(found["ssn"].to_pylist())

    opened_indexes._opened.clear()
    expected = rows("off")
    if warns:
        with pytest.warns(IndexWarning, match="is not used"):
            assert rows("auto") == expected
    else:
        assert rows("auto") == expected
    with pytest.raises(SecureBloomError):
        rows("require")


def test_an_update_repairs_a_lost_part(table):
    merged(table)[2].unlink()
    opened_indexes._opened.clear()
    assert Index.open(table, KMS).update().indexed == FILES
    assert [*(table / "_index" / "ssn").glob("*.part")] != []
    check_answers(table)


@pytest.mark.slow
def test_a_lookup_reads_one_page_of_one_part_which_is_opened_then(table):
    parts = merged(table)
    opened = Index.open(table, KMS)
    opened.lookup("ssn", [])
    page = opened.column("ssn").segments[0].reads(
        opened.column("ssn").manifest.key.fingerprints(np.array([7], np.uint64)))
    assert len(page) == 1
    for path in parts[1:]:
        path.unlink()
    found = 0
    for value in values_of(0):
        with contextlib.suppress(ChangedMeanwhileError):
            found += "0.parquet" in opened.lookup("ssn", value).row_groups[0]
    assert 0 < found < ROWS


def test_parts_without_all_pages_are_refused(table, monkeypatch):
    def without_the_first(*arguments):
        *before, parts, files = arguments
        return write_after_parts(*before, parts[1:], files)

    version = Index.open(table, KMS).column("ssn").manifest.version
    monkeypatch.setattr(helpers, "write_after_parts", without_the_first)
    with pytest.raises(ValueError, match="the parts have"):
        merged(table)
    assert Index.open(table, KMS).column("ssn").manifest.version == version
    check_answers(table)


GOOD = {"id": "0" * 32, "tail": 90, "size": 100, "pairs": 1, "files": 1, "row_groups": 1}
PART = {"id": "1" * 32, "size": 40}


@pytest.mark.parametrize("parts", [
    5, "x", [5], ["x"], {"id": 1}, [PART | {"id": "../x"}], [PART | {"id": "0" * 32}],
    [PART, PART], [PART | {"size": -1}], [PART | {"size": 1.0}], [PART | {"size": 91}],
    [PART | {"new": 1}], [{"id": "1" * 32}], [PART, PART | {"id": "2" * 32, "size": 60}]])
def test_parts_that_cannot_be_are_refused(parts):
    assert SegmentInfo.from_json(GOOD | {"parts": [PART]}).parts_size == 40
    with pytest.raises(FormatError):
        SegmentInfo.from_json(GOOD | {"parts": parts})


@pytest.mark.parametrize("number", [2**63, -1, 1.0, True, "1", None])
@pytest.mark.parametrize("field", ["tail", "size", "pairs", "files", "row_groups"])
def test_numbers_that_cannot_be_are_refused(field, number):
    largest = {"tail": 2**63 - 1, "size": 2**63 - 1}
    assert SegmentInfo.from_json(GOOD | largest).size == 2**63 - 1
    with pytest.raises(FormatError):
        SegmentInfo.from_json(GOOD | largest | {field: number})


def test_a_segment_in_one_file_is_recorded_as_before(table):
    """Releases that know no parts refuse unknown fields."""
    [info, *_] = Index.open(table, KMS).column("ssn").manifest.body.segments
    assert set(info.to_json()) == set(GOOD)
    merged(table)
    [info] = Index.open(table, KMS).column("ssn").manifest.body.segments
    assert set(info.to_json()) == {*GOOD, "parts"}
    assert SegmentInfo.from_json(json.loads(json.dumps(info.to_json()))) == info
    with pytest.raises(FormatError):
        SegmentInfo.from_json(GOOD | {"slices": []})
