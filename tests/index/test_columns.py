"""Several columns of a table have an index each; operations can be limited to some of them."""

import base64
import json
import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom.errors import (
    AuthenticationError,
    ColumnError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.index import Index, build, column_segments, opened_indexes
from secure_bloom.index.manifest import StoredManifest
from secure_bloom.keys import NO_KEYS, InMemoryKms
from secure_bloom.storage import cache
from secure_bloom.storage.cache import Cache
from tests.index.helpers import KMS, age, folder_of, manifests_of, segments_of

ENCRYPTION = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn", "phone"]})


def write(path, value, **options):
    path.parent.mkdir(exist_ok=True)
    secure_bloom.write_table(pa.table({"ssn": [f"ssn-{value}"], "phone": [f"phone-{value}"]}),
                             path, encryption=ENCRYPTION, keys=KMS, **options)
    age(path.parent)


@pytest.fixture
def table(tmp_path):
    """One file that the indexes of two columns cover, and one that they do not cover."""
    write(tmp_path / "a.parquet", 0)
    build(tmp_path, ["ssn", "phone"], KMS)
    write(tmp_path / "b.parquet", 1)
    return tmp_path


def segments(table):
    return {column: len(Index.open(table, KMS).column(column).segments)
            for column in ("phone", "ssn")}


@pytest.mark.parametrize("columns", ["ssn", ["ssn"], ["ssn", "ssn"]])
def test_only_the_chosen_columns_are_updated(table, columns):
    result = Index.open(table, KMS).update(columns)
    assert (result.columns, result.indexed) == (["ssn"], 1)
    assert segments(table) == {"phone": 1, "ssn": 2}


def test_only_the_chosen_columns_are_compacted(table):
    index = Index.open(table, KMS)
    index.update()
    assert index.compact("phone") == 2
    assert segments(table) == {"phone": 1, "ssn": 2}
    assert index.compact() == 2
    assert segments(table) == {"phone": 1, "ssn": 1}


def test_only_the_files_of_the_chosen_columns_are_deleted(table):
    index = Index.open(table, KMS)
    index.update()
    index.compact()
    deleted = index.vacuum(0, columns=["phone"])
    assert sum(name.endswith(".seg") for name in deleted) == 2
    assert (len(segments_of(table, "phone")), len(segments_of(table, "ssn"))) == (1, 3)


@pytest.mark.parametrize("operation", ["update", "compact", "vacuum"])
def test_a_chosen_column_without_an_index_is_a_mistake(table, operation):
    index = Index.open(table, KMS)
    versions = folder_of(table).versions()
    with pytest.raises(ColumnError, match="indexed columns: phone, ssn"):
        getattr(index, operation)(columns=["ssn", "city"])
    with pytest.raises(ColumnError, match=r"no index \(did you mean 'ssn'\?\); indexed"):
        getattr(index, operation)(columns=["snn"])
    with pytest.raises(ValueError, match="at least one column"):
        getattr(index, operation)(columns=[])
    assert folder_of(table).versions() == versions and segments(table) == {"phone": 1, "ssn": 1}


def test_indexes_that_were_used_recently_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(opened_indexes, "_opened", Cache(2))
    opened = {}
    for name in ("first", "second", "third"):
        write(tmp_path / name / "a.parquet", 0)
        build(tmp_path / name, "ssn", KMS)
        opened[name] = Index.open(tmp_path / name, KMS).column("ssn")
        Index.open(tmp_path / "first", KMS).column("ssn")
    assert Index.open(tmp_path / "first", KMS).column("ssn") is opened["first"]
    assert Index.open(tmp_path / "second", KMS).column("ssn") is not opened["second"]


def test_an_unchanged_manifest_is_opened_once_but_its_key_is_asked_for_each_time(table,
                                                                                 monkeypatch):
    opened, original = [], StoredManifest.open
    monkeypatch.setattr(StoredManifest, "open", lambda self, *arguments: opened.append(
        self.version) or original(self, *arguments))
    index = Index.open(table, KMS)
    index.update()
    index.lookup("ssn", "ssn-0")
    opened.clear()
    for _ in range(3):
        assert index.lookup("ssn", "ssn-0").row_groups == [{"a.parquet": [0]}]
    assert opened == []
    for keys in (None, InMemoryKms({}), InMemoryKms({"pii": b"x" * 16})):
        with pytest.raises(KeyRetrievalError):
            Index.open(table, keys or NO_KEYS).lookup("ssn", "ssn-0")
    write(table / "c.parquet", 2)
    index.update()
    assert index.lookup("ssn", "ssn-2").row_groups == [{"c.parquet": [0]}]


def test_a_manifest_that_is_changed_in_place_is_noticed(table):
    index, [*_, manifest] = Index.open(table, KMS), manifests_of(table)
    index.lookup("ssn", "ssn-0")
    content = json.loads(manifest.read_bytes())
    sealed = bytearray(base64.b64decode(content["body"]))
    sealed[-1] ^= 1
    content["body"] = base64.b64encode(sealed).decode()
    manifest.write_text(json.dumps(content))
    with pytest.raises(AuthenticationError):
        index.lookup("ssn", "ssn-0")


def test_a_column_that_is_named_twice_is_built_once(tmp_path):
    write(tmp_path / "a.parquet", 0)
    assert build(tmp_path, ["ssn", "ssn"], KMS).columns == ["ssn"]
    assert len(segments_of(tmp_path)) == 1


def test_a_type_that_cannot_have_a_filter_leaves_the_file_uncovered(tmp_path):
    secure_bloom.write_table(pa.table({"n": [1, 2]}), tmp_path / "0.parquet")
    build(tmp_path, "n", encryption=None)
    secure_bloom.write_table(pa.table({"n": [True]}), tmp_path / "1.parquet")
    for _ in range(2):
        result = Index.open(tmp_path).update()
        assert result.failed == {} and list(result.uncovered) == ["1.parquet"]
        assert "cannot have" in result.uncovered["1.parquet"]


def test_open_indexes_are_closed_when_they_were_not_used_for_long(table, monkeypatch):
    index, now = Index.open(table, KMS), [1000.0]
    monkeypatch.setattr(cache.time, "monotonic", lambda: now[0])
    opened_indexes._opened.clear()
    known = {column: index.column(column) for column in ("ssn", "phone")}
    now[0] += opened_indexes.LIFETIME - 1
    assert index.column("ssn") is known["ssn"]
    now[0] += 2
    assert index.column("ssn") is known["ssn"]
    assert [opened.column_index.column for opened, *_ in opened_indexes._opened._values.values()] \
        == ["ssn"]
    assert index.column("phone") is not known["phone"]
    now[0] += opened_indexes.LIFETIME + 1
    assert index.column("ssn") is not known["ssn"]


def test_an_index_of_another_column_tells_of_files_that_the_first_does_not_cover(tmp_path):
    table = tmp_path / "t"
    write(table / "a.parquet", 0, write_statistics=False)
    build(table, ["ssn", "phone"], KMS)
    write(tmp_path / "other" / "b.parquet", 1, write_statistics=False)
    shutil.copy2(tmp_path / "other" / "b.parquet", table)
    Index.open(table, KMS).update("phone")
    data = secure_bloom.dataset(table, KMS, index="require")
    both = (pc.field("ssn") == "ssn-1") & (pc.field("phone") == "phone-0")
    assert data.count_rows(both) == 0 and data.report.files.index == 2
    assert data.count_rows(pc.field("ssn") == "ssn-1") == 1 and data.report.files.index == 1


def test_a_segment_is_not_written_if_its_only_file_could_not_be_read(table, monkeypatch):
    def hashes(file, column):
        raise OSError("the disk fails")
        yield

    monkeypatch.setattr(column_segments, "column_hashes", hashes)
    result = Index.open(table, KMS).update()
    assert (result.indexed, set(result.failed)) == (0, {"b.parquet"})
    assert segments(table) == {"phone": 1, "ssn": 1}
    assert len(segments_of(table, "ssn")) == 1


def test_an_index_of_a_single_file_is_refused(table):
    with pytest.raises(UnsupportedError, match="pass the folder") as caught:
        build(table / "a.parquet", "ssn", KMS)
    assert caught.value.file == str(table / "a.parquet")
