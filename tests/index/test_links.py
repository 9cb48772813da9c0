"""What other users put into the folder of an index, or in its place, is neither deleted nor
written to."""

import contextlib
import os
import shutil
from functools import partial

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.errors import FormatError, SecureBloomError, UnsupportedError
from secure_bloom.index import Index, build
from secure_bloom.storage import inside, versions
from tests.index.helpers import ENCRYPTION, KMS, age, write

HEX = "0123456789abcdef"


@pytest.fixture
def table(tmp_path):
    table = tmp_path / "table"
    write(table / "a.parquet", ["v1", "v2"])
    age(table)
    build(table, "ssn", KMS)
    return table


def test_only_files_that_this_library_makes_are_vacuumed(table):
    folder = table / "_index" / "ssn"
    others = {"people.parquet", "id_rsa", ".bashrc", "7.manifest", f"{HEX}.seg", "x.seg",
              f"{HEX * 2}.seg.bak", f"{HEX * 2}.parquet", "clock-", f".people.csv.{HEX}.tmp"}
    own = {f"{HEX * 2}.seg", f"{HEX * 2}.part", f"clock-{HEX * 2}", f".{HEX * 2}.seg.{HEX}.tmp",
           f".000000000001.manifest.{HEX}.unlocked"}
    for name in others | own:
        (folder / name).touch()
    deleted = Index.open(table, KMS).vacuum(0)
    assert own <= set(deleted) and others <= set(os.listdir(folder))
    assert others.isdisjoint(deleted) and own.isdisjoint(os.listdir(folder))


def test_names_that_are_not_utf8_belong_to_nobody(table):
    os.mkdir(os.fsencode(table / "_index") + b"/\xff\xfe")
    os.close(os.open(os.fsencode(table / "_index" / "ssn") + b"/\xff", os.O_CREAT))
    assert Index.open(table, KMS).columns == ["ssn"]
    Index.open(table, KMS).vacuum(0)
    with pytest.raises(UnsupportedError, match="not valid UTF-8: rename"):
        secure_bloom.find(table, "ssn", "v1", KMS)


def test_what_is_not_an_index_is_left_alone(table):
    (planted := table / "_index" / "zz").mkdir()
    for name in ("foreign", "nested/00", "segments"):
        (table / "_index" / name).mkdir(parents=True)
    for path in ("foreign/people.csv", "nested/00/000000000001.manifest", f"segments/{HEX * 2}.seg",
                 "a file", "000000000001.manifest"):
        (table / "_index" / path).touch()
    for name, target in (("circle", "circle"), ("nothing", "missing"), ("to a folder", planted),
                         ("to a file", table / "a.parquet")):
        (table / "_index" / name).symlink_to(target)
    os.mkfifo(table / "_index" / "pipe")
    for name in ("ä", "é" * 120):  # no names of indexes: those would be other ones
        (table / "_index" / name).mkdir()
    (table / "_index" / "%C3%A4").touch()
    write(table / "b.parquet", ["v3"])
    age(table)
    index = Index.open(table, KMS)
    assert (index.columns, index.update().indexed) == (["ssn"], 1)
    assert index.purge() and index.verify().ok and len(index.inspect()) == 1
    shutil.rmtree(table / "_index" / "ssn")
    with pytest.raises(FileNotFoundError, match="has no index"):
        secure_bloom.find(table, "ssn", "v1", KMS, index="require")


@pytest.mark.parametrize("name", ["aa", "zz"])
@pytest.mark.parametrize("kind", ["garbage", "of another column", "link"])
def test_a_damaged_index_does_not_keep_others_from_being_changed(table, tmp_path, name, kind):
    """Its error is raised at the end."""
    planted, error = table / "_index" / name, FormatError
    if kind == "link":
        shutil.copytree(table / "_index" / "ssn", tmp_path / "elsewhere")
        planted.symlink_to(tmp_path / "elsewhere")
        error = (FormatError, UnsupportedError)
    else:
        planted.mkdir()
        own = next((table / "_index" / "ssn").glob("*.manifest")).read_bytes()
        (planted / "000000000001.manifest").write_bytes(own[:99] if kind == "garbage" else own)
    write(table / "b.parquet", ["v3"])
    age(table)
    index = Index.open(table, KMS)
    assert index.columns == sorted(["ssn", name])
    with pytest.raises(error, match=name):
        index.update()
    assert index.lookup("ssn", "v3").row_groups == [{"b.parquet": [0]}]
    result = index.verify()
    assert [(one.kind, one.column) for one in result.findings] == [("manifest", name)]
    assert result.compared == 2
    write(table / "b.parquet", ["v4"])
    for change in (index.purge,) if kind == "garbage" else (
            index.compact, partial(index.vacuum, 0), index.purge):
        before = set(os.listdir(table / "_index" / "ssn"))
        age(table)
        with pytest.raises(error, match=name):
            change()
        assert set(os.listdir(table / "_index" / "ssn")) != before, change


@pytest.mark.parametrize("place", ["_index", "_index/ssn"])
def test_nothing_changes_behind_a_link_in_place_of_an_index(table, tmp_path, place, caplog):
    """The folder behind it has an index, too, so everything but its place is as it should be."""
    write(table / "b.parquet", ["v3"])
    age(table)
    Index.open(table, KMS).update()
    os.rename(table / place, victim := tmp_path / "victim")
    (table / place).symlink_to(victim)
    (table / "_index" / "ssn" / f"{HEX * 2}.seg").touch()
    write(table / "c.parquet", ["v4"])
    age(table)
    before = {path: path.read_bytes() for path in victim.rglob("*.*")}
    index = Index.open(table, KMS)
    for change in (partial(index.vacuum, 0), index.update, index.compact, index.purge):
        with pytest.raises(UnsupportedError, match="a link leads from here out of the table"):
            change()
    assert "out of the table" in str(index.rotate(old="pii", new="new").failed)
    secure_bloom.write_dataset(pa.table({"ssn": ["v5"]}), table, mode="append",
                               encryption=ENCRYPTION, keys=KMS, index_columns="ssn")
    assert "out of the table" in caplog.text
    assert {path: path.read_bytes() for path in victim.rglob("*.*")} == before
    for value in ("v1", "v3", "v4", "v5"):  # reading goes on
        assert secure_bloom.read_table(table, KMS, filters=[("ssn", "=", value)]).num_rows == 1


@pytest.mark.skipif(not versions.DESCRIPTORS, reason="paths are opened again on this system")
def test_an_update_writes_nothing_behind_a_link_that_comes_after_any_check(table, tmp_path,
                                                                           monkeypatch):
    write(table / "b.parquet", ["v3"])
    age(table)
    checked, checks = inside._real_paths, []

    def then_exchanged(filesystem, root, path):
        found = checked(filesystem, root, path)
        own = os.path.join(root, "_index", "ssn")
        checks.append(path)
        if path.startswith(own) and len(checks) == at:
            os.rename(own, f"{root}/away")
            os.symlink(victim, own)
        return found

    monkeypatch.setattr(inside, "_real_paths", then_exchanged)
    for at in range(1, 100):
        copy = shutil.copytree(table, tmp_path / f"copy{at}")
        (victim := tmp_path / f"victim{at}").mkdir()
        checks.clear()
        with contextlib.suppress(OSError, SecureBloomError):
            Index.open(copy, KMS).update()
        assert os.listdir(victim) == [], at
        if len(checks) < at:
            break
    assert 3 < at < 99


def test_links_that_no_path_can_lead_to_are_not_there(table):
    for folder in ("", "_index", "_index/ssn", "_staging"):
        (table / folder).mkdir(exist_ok=True)
        (table / folder / "000000000009.manifest").symlink_to("a" * 300)
    write(table / "b.parquet", ["v3"])
    age(table)
    index = Index.open(table, KMS)
    index.update()
    index.vacuum(0)
    assert index.lookup("ssn", ["v1", "v3"]).row_groups == [{"a.parquet": [0]}, {"b.parquet": [0]}]
    secure_bloom.write_dataset(pa.table({"ssn": ["v5"]}), table, mode="append",
                               encryption=ENCRYPTION, keys=KMS, index_columns="ssn")
    assert secure_bloom.find(table, "ssn", ["v1", "v3", "v5"], KMS, index="require").num_rows == 3
    assert index.lookup("ssn", "v5").uncovered == []


def test_a_file_that_a_link_leads_to_is_not_replaced_unnoticed(tmp_path):
    """The jobs that write to an exclusive table are not the only programs that change it."""
    ours, store = tmp_path / "ours", tmp_path / "store"
    secure_bloom.write_dataset(pa.table({"ssn": ["v1"]}), ours, encryption=ENCRYPTION, keys=KMS)
    store.mkdir()
    write(store / "people.parquet", ["v2"])
    [own] = ours.glob("*.parquet")
    (ours / "own.parquet").symlink_to(own)
    age(tmp_path)
    build(ours, "ssn", KMS, exclusive=True)
    assert Index.open(ours, KMS).column("ssn").manifest.body.generation is not None
    (ours / "people.parquet").symlink_to(store / "people.parquet")
    Index.open(ours, KMS).update()
    assert secure_bloom.find(ours, "ssn", "v2", KMS).num_rows == 1
    write(store / "new", ["v3"])
    os.replace(store / "new", store / "people.parquet")
    assert secure_bloom.find(ours, "ssn", "v3", KMS).num_rows == 1


@pytest.mark.parametrize("way", ["has a link", "is a link", "contains it"])
def test_jobs_of_another_table_with_the_same_files_add_no_row_unnoticed(tmp_path, way):
    """They leave no trace in the ``_staging`` of a table with an exclusive index."""
    def append(value, folder, **options):
        secure_bloom.write_dataset(pa.table({"ssn": [value], **options}), folder, mode="append",
                                   encryption=ENCRYPTION, keys=KMS, partition_by=[*options])

    ours, lake = tmp_path / "ours", tmp_path / "lake"
    append("v1", ours)
    if way == "has a link":
        append("v2", lake, day=[1])
        (ours / "year=1").symlink_to(lake / "day=1")
    if way == "contains it":
        append("v2", lake := ours / "lake", day=[1])
    age(tmp_path)
    build(ours, "ssn", KMS, exclusive=True)
    if way == "is a link":
        lake.mkdir()
        os.rename(ours, lake / "day=1")
        ours.symlink_to(lake / "day=1")
    append("v3", lake, day=[1])
    assert secure_bloom.find(ours, "ssn", "v3", KMS).num_rows == 1
    assert len(Index.open(ours, KMS).lookup("ssn", "v3").uncovered) == 1
