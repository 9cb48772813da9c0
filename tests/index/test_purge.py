"""What an index forgets at once, also after a process that died while it did so."""

import os

import pyarrow as pa
import pytest

from secure_bloom import erase, write_dataset
from secure_bloom.erasing.table_indexes import TableIndexes
from secure_bloom.index import Index, build, patching
from tests.index.helpers import ENCRYPTION, KMS, age, manifests_of, segments_of, write


def test_segments_that_an_interrupted_purge_has_left_are_deleted(tmp_path):
    for number in range(3):
        write(tmp_path / f"{number}.parquet", [f"v{number}"])
        build(tmp_path, "ssn", KMS)
    (tmp_path / "1.parquet").unlink()
    old = set(segments_of(tmp_path))
    index = Index.open(tmp_path, KMS)
    index.update()
    index.compact()  # and then the process dies
    assert old < set(segments_of(tmp_path))
    Index.open(tmp_path, KMS).purge()
    assert not old & set(segments_of(tmp_path))
    assert Index.open(tmp_path, KMS).lookup("ssn", ["v0", "v1"]).row_groups \
        == [{"0.parquet": [0]}, {}]


def test_manifests_are_deleted_after_the_segments_that_they_list(tmp_path, monkeypatch):
    """So a purge that dies in between is finished by the next one."""
    for number in range(3):
        write(tmp_path / f"{number}.parquet", [f"v{number}"])
        build(tmp_path, "ssn", KMS)
    index = Index.open(tmp_path, KMS)
    index.compact()
    deleted = index.vacuum(0)
    kinds = [name.rpartition(".")[2] for name in deleted]
    assert set(kinds) == {"seg", "manifest"} and kinds == sorted(kinds, reverse=True)
    assert len(segments_of(tmp_path)) == len(manifests_of(tmp_path)) == 1


def test_files_that_a_store_dates_to_the_next_fraction_of_a_second(tmp_path):
    """Its lists may be exact to milliseconds, while its answers about one file are to seconds."""
    for number in range(2):
        write(tmp_path / f"{number}.parquet", [f"v{number}"])
        build(tmp_path, "ssn", KMS)
    for path in (tmp_path / "_index" / "ssn").iterdir():
        later = path.stat().st_mtime_ns + 10**9
        os.utime(path, ns=(later, later))
    index = Index.open(tmp_path, KMS)
    assert not index.vacuum(1) and index.vacuum(0)


def test_rows_erased_from_a_single_file_are_forgotten(tmp_path):
    for number in range(2):
        write(tmp_path / f"{number}.parquet", [f"v{number}", f"w{number}"])
        build(tmp_path, "ssn", KMS)
    age(tmp_path)
    Index.open(tmp_path, KMS).update()
    old = set(segments_of(tmp_path))
    result = erase(tmp_path / "0.parquet", "ssn", "w0", KMS, max_share=1)
    assert result.ok and result.indexes == ["ssn"]
    assert not old & set(segments_of(tmp_path))


def test_row_groups_that_moved_are_found_after_an_erasure_that_died(tmp_path, monkeypatch):
    """Only jobs write to the table, so lookups would not look at the file."""
    write_dataset(pa.table({"ssn": ["v0", "v1", "v2"]}), tmp_path / "t", keys=KMS,
                  encryption=ENCRYPTION, row_group_size=1)
    build(tmp_path / "t", "ssn", KMS, exclusive=True)
    [file] = (tmp_path / "t").glob("*.parquet")
    monkeypatch.setattr(TableIndexes, "purge", _die)
    with pytest.raises(KeyboardInterrupt):
        erase(file, "ssn", "v0", KMS, max_share=1)
    found = Index.open(tmp_path / "t", KMS).lookup("ssn", "v1")
    assert found.uncovered == [file.name] or found.row_groups == [{file.name: [0]}]


def test_what_an_update_has_published_is_deleted_as_soon_as_it_is_replaced(tmp_path):
    """Also what this purge has published itself, on the way to one segment."""
    for number in range(2):
        write(tmp_path / f"{number}.parquet", [f"v{number}", f"w{number}"])
    age(tmp_path)
    build(tmp_path, "ssn", KMS)
    erase(tmp_path, "ssn", "v0", KMS, max_share=1)
    index = Index.open(tmp_path, KMS)
    needed = {name for info in index.column("ssn").manifest.body.segments
              for name in info.file_names}
    assert {path.name for path in segments_of(tmp_path)} == needed


def test_an_erasure_tells_of_segments_that_an_earlier_one_did_not_publish(tmp_path, monkeypatch):
    """They have the values of later erasures, too, but another process may be writing them."""
    folder = tmp_path / "table"
    write_dataset(pa.table({"ssn": [f"v{number}" for number in range(300)]}), folder, keys=KMS,
                  encryption=ENCRYPTION, max_rows_per_file=100, index_columns="ssn")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(patching, "publish", _die)
        erase(folder, "ssn", "v1", KMS)
    result = erase(folder, "ssn", "v150", KMS)
    assert result.ok and result.indexes == ["ssn"]
    assert any("1 unpublished file of segments" in one for one in result.out_of_reach)
    assert len(Index.open(folder, KMS).vacuum(0)) > 0
    result = erase(folder, "ssn", "v250", KMS)
    assert not any("segments" in one for one in result.out_of_reach)


def _die(*_):
    raise KeyboardInterrupt
