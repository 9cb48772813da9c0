"""Erasures of folders into which somebody else may write, who has no key."""

import json
import os
import shutil
from dataclasses import replace

import pytest

from secure_bloom import erase, find, index, reencrypt, write_dataset
from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.index import coverage
from secure_bloom.storage.commit import Job
from secure_bloom.storage.local_files import temporary_name
from secure_bloom.storage.rewrite import Rewrite
from secure_bloom.storage.table_names import job_of
from tests.erasing.helpers import ENCRYPTION, KMS, numbers_in, people, rows, ssn, write_people
from tests.index.helpers import LOCAL, age
from tests.index.planting import plant


def test_an_erasure_from_one_file_says_what_keeps_indexes_from_noticing_it(tmp_path):
    path = write_people(tmp_path / "a.parquet", range(8))
    (tmp_path / "_staging" / "generation").mkdir(parents=True)
    with pytest.raises(FormatError, match=r"not a regular file.* remove it"):
        erase(path, "ssn", ssn(3), KMS, max_share=1)
    assert numbers_in(path) == list(range(8))


def test_a_planted_index_hides_no_row(tmp_path, monkeypatch):
    """It denies the rows of an encrypted file; only the others would be compared with it."""
    write_people(tmp_path / "a.parquet", range(8), use_dictionary=False)  # which would tell
    write_people(tmp_path / "0.parquet", range(100, 104), encryption=None)
    for number in range(1, 5):
        shutil.copy(tmp_path / "0.parquet", tmp_path / f"{number}.parquet")
    monkeypatch.setattr(coverage.SystemRandom, "sample",
                        lambda self, paths, count: sorted(paths, reverse=True)[:count])
    plant(tmp_path, "ssn", KMS)
    result = erase(tmp_path, "ssn", ssn(3), KMS, max_share=1)
    assert (result.rows_removed, result.ok) == (1, True)
    assert 3 not in [number for path in tmp_path.glob("*.parquet") for number in numbers_in(path)]


def test_key_material_behind_a_link_is_not_copied(tmp_path):
    """It may be another file, which only the user who erases may read."""
    lake = tmp_path / "lake"
    encryption = replace(ENCRYPTION, internal_key_material=False)
    path = write_people(lake / "a.parquet", range(8), encryption=encryption)
    private = tmp_path / "private.json"
    material = lake / f"_KEY_MATERIAL_FOR_{path.name}.json"
    private.write_text(json.dumps(json.loads(material.read_text()) | {"password": "secret"}))
    material.unlink()
    material.symlink_to(private)
    with pytest.raises(UnsupportedError, match="a link leads from here out of the table"):
        erase(lake, "ssn", ssn(3), KMS, max_share=1)
    assert numbers_in(path) == list(range(8))
    assert not any("secret" in one.read_text() for one in lake.glob("_KEY*") if one != material)


def test_the_index_of_the_table_that_a_named_link_leads_into_forgets(tmp_path):
    path = write_people(tmp_path / "lake" / "a.parquet", range(8))
    age(path.parent)
    index.build(path.parent, "ssn", KMS)
    (link := tmp_path / "link.parquet").symlink_to(path)
    result = erase(link, "ssn", ssn(3), KMS, max_share=1)
    assert (result.indexes, numbers_in(path)) == (["ssn"], [0, 1, 2, 4, 5, 6, 7])
    assert index.Index.open(path.parent, KMS).lookup("ssn", ssn(3)).row_groups == [{}]


def test_the_index_of_a_table_in_a_subfolder_forgets(tmp_path):
    """It also goes on finding the other rows, although its table has seen no job."""
    table = tmp_path / "lake" / "people"
    write_dataset(people(*range(8)), table, encryption=ENCRYPTION, keys=KMS)
    age(table)
    index.build(table, "ssn", KMS, exclusive=True)
    result = erase(tmp_path / "lake", "ssn", ssn(3), KMS, max_share=1)
    assert (result.rows_removed, result.indexes) == (1, ["ssn"])
    assert index.Index.open(table, KMS).lookup("ssn", ssn(3)).row_groups == [{}]
    assert [find(table, "ssn", ssn(one), KMS).num_rows for one in (3, 4)] == [0, 1]


def test_what_a_link_led_to_is_out_of_reach(tmp_path):
    target = write_people(tmp_path / "other" / "a.parquet", range(8))
    lake = tmp_path / "lake"
    write_people(lake / "b.parquet", range(8, 16))
    (lake / "a.parquet").symlink_to(target)
    result = erase(lake, "ssn", [ssn(3), ssn(12)], KMS, max_share=1)
    assert result.ok and numbers_in(target) == list(range(8))
    assert [text for text in result.out_of_reach if "other names" in text] \
        == [f"{lake}/a.parquet has other names (links), which keep the rows"]


@pytest.mark.parametrize("by_link", [False, True])
def test_what_takes_the_place_of_a_file_after_the_search_is_searched_first(tmp_path, monkeypatch,
                                                                           by_link):
    """It has the values in another row group. Back again, a link is still reported."""
    lake = tmp_path / "lake"
    for name, numbers in (("lake/a", range(8)), ("other", [4, 5, 6, 7, 3])):
        write_people(tmp_path / f"{name}.parquet", numbers)
    start, write_to, searched = Job.start, Rewrite.write_to, []

    def start_late(job, **options):
        if not searched:
            os.rename(lake / "a.parquet", tmp_path / "a.parquet")
            if by_link:
                (lake / "a.parquet").symlink_to(tmp_path / "other.parquet")
            else:
                os.rename(tmp_path / "other.parquet", lake / "a.parquet")
        searched.append(job)
        start(job, **options)

    def restored(rewrite, path, parts):
        write_to(rewrite, path, parts)
        if by_link:
            os.rename(tmp_path / "a.parquet", lake / "a.parquet")
            monkeypatch.setattr(Rewrite, "write_to", write_to)

    monkeypatch.setattr(Job, "start", start_late)
    monkeypatch.setattr(Rewrite, "write_to", restored)
    result = erase(lake, "ssn", ssn(3), KMS, max_share=1)
    assert result.ok and len(searched) == 2 + by_link
    assert rows(lake) == ([0, 1, 2, 4, 5, 6, 7] if by_link else [4, 5, 6, 7])


def test_files_that_a_marker_hides_are_out_of_reach(tmp_path):
    """Whether a job is running, or somebody has put the marker there."""
    write_dataset(people(*range(8)), tmp_path, encryption=ENCRYPTION, keys=KMS)
    [path] = tmp_path.glob("*.parquet")
    marker = tmp_path / "_staging" / job_of(path.name) / "started"
    marker.parent.mkdir()
    marker.touch()
    write_people(tmp_path / "b.parquet", range(8, 16))
    for dry_run in (True, False):
        result = erase(tmp_path, "ssn", [ssn(3), ssn(12)], KMS, max_share=1, dry_run=dry_run)
        assert result.rows_removed == 1
        assert any("1 file of jobs that have not ended" in text for text in result.out_of_reach)
    marker.unlink()
    marker.parent.rmdir()
    result = erase(tmp_path, "ssn", ssn(3), KMS, max_share=1)
    assert result.rows_removed == 1 and len(result.out_of_reach) == 1


def test_what_a_killed_process_left_of_a_file_that_is_gone_is_out_of_reach(tmp_path):
    """An overwrite has deleted the file, so nothing else would find its rows."""
    write_people(tmp_path / "a.parquet", range(8))
    left = tmp_path / temporary_name("b.parquet")
    write_people(left, range(8))
    (tmp_path / temporary_name("_SUCCESS")).touch()
    assert left.name in erase(tmp_path, "ssn", ssn(3), KMS, max_share=1).out_of_reach[-1]
    assert left.name in reencrypt(tmp_path, KMS).out_of_reach[-1]
    left.unlink()
    assert len(erase(tmp_path, "ssn", ssn(4), KMS, max_share=1).out_of_reach) == 1


def test_a_running_job_does_not_hinder_an_erasure(tmp_path):
    folder = tmp_path / "day=1"
    write_people(folder / "a.parquet", range(8))
    job = Job(LOCAL, str(folder), False)
    job.start()
    shutil.copy(folder / "a.parquet", job.new_file(0))
    assert erase(folder, "ssn", ssn(3), KMS, max_share=1).ok
    for erased, count in ((folder, 1), (tmp_path / "day=2", 0), (tmp_path, 1)):
        write_people(tmp_path / "day=2" / "b.parquet", range(8, 12))
        texts = erase(erased, "ssn", "nobody", KMS).out_of_reach
        assert sum("of jobs that have not ended" in text for text in texts) == count


def test_names_of_folders_are_out_of_reach(tmp_path):
    write_people(tmp_path / "who=name 3" / "a.parquet", [3])
    write_people(tmp_path / f"who={ssn(5)}" / "a.parquet", [5, 6])
    write_people(tmp_path / "who=others" / "a.parquet", [1, 2])
    write_people(tmp_path / "who=others" / "b.parquet", [3])
    texts = erase(tmp_path, "ssn", [ssn(3), ssn(5)], KMS, max_share=1).out_of_reach[1:]
    assert texts == [
        "1 folder of partition columns with a value to erase in the name: rename or delete each",
        "1 folder of partition columns without any rows left: rename or delete each"]


@pytest.mark.parametrize("erased", ["lake", "lake/day=1", "lake/day=1/a.parquet"])
def test_no_summary_is_removed_outside_of_the_table(tmp_path, erased):
    write_people(tmp_path / "lake" / "day=1" / "a.parquet", range(8))
    precious = tmp_path / "precious" / "_metadata"
    precious.parent.mkdir()
    shutil.copy(tmp_path / "lake" / "day=1" / "a.parquet", precious)
    (tmp_path / "lake" / "_metadata").symlink_to(precious)  # of a link, the link is removed
    erase(tmp_path / erased, "ssn", ssn(3), KMS, max_share=1)
    assert not (tmp_path / "lake" / "_metadata").is_symlink()
    (tmp_path / "lake" / "day=1" / "link").symlink_to(precious.parent)
    if not erased.endswith(".parquet"):
        with pytest.raises(UnsupportedError, match="a link leads from here out of the table"):
            erase(tmp_path / erased, "ssn", ssn(4), KMS, max_share=1)
    assert precious.exists()
