"""Tables of which an index knows all files: lookups list none, and answer as without an index."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom.errors import AuthenticationError, ColumnError, IndexWarning, PredicateError
from secure_bloom.index import Index, build, file_table, opened_indexes
from tests.index.helpers import KMS

ENCRYPTION = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]})
ROWS = 100


def write(folder, first=0, **options):
    rows = pa.table({"ssn": [f"s{number}" if number % 11 else None
                             for number in range(first, first + ROWS)],
                     "twice": [number // 2 for number in range(ROWS)],
                     "day": [None if number % 50 == 7 else number % 3 for number in range(ROWS)]})
    secure_bloom.write_dataset(rows, folder, keys=KMS, encryption=ENCRYPTION,
                               bloom_filters=["ssn"], max_rows_per_file=9, mode="append", **options)


def make(folder, partition_by, exclusive=True):
    """Make a table of two writes, in some 24 files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_table, "PAGE_FILES", 5)
        write(folder, partition_by=partition_by)
        build(folder, "ssn", KMS, exclusive=exclusive)
        write(folder, ROWS, partition_by=partition_by)
        Index.open(folder, KMS).update()
    return folder


@pytest.fixture(scope="module", params=[(), ("day",)], ids=["flat", "partitioned"])
def lake(request, tmp_path_factory):
    """A table that only our jobs write to, which tests do not change."""
    return make(tmp_path_factory.mktemp("exclusive") / "lake", request.param)


@pytest.fixture(scope="module", params=[True, False], ids=["exclusive", "listed"])
def each_lake(request, lake, tmp_path_factory):
    """The same table, also without this promise."""
    return lake if request.param else make(
        tmp_path_factory.mktemp("listed") / "lake", ("day",) if [*lake.glob("day=*")] else (),
        exclusive=False)


def conditions():
    rng = random.Random(1)
    for _ in range(4):
        some = [f"s{rng.randrange(-5, 2 * ROWS)}" for _ in range(rng.choice([1, 1, 2, 30]))]
        yield [("ssn", "in", some), ("twice", "<", rng.randrange(ROWS))]
        yield [[("ssn", "==", some[0])], [("ssn", "==", some[-1]), ("day", "=", 1)]]
        yield pc.field("ssn").isin(some) & (pc.field("day") == rng.randrange(4))
        yield (pc.field("ssn") == some[0]) | (pc.field("ssn") == "none of them")


@pytest.mark.slow
def test_answers_are_those_without_an_index_and_nothing_is_listed(each_lake, listings, request):
    is_exclusive = "exclusive" in request.node.callspec.id
    lake = each_lake
    for condition in conditions():
        listings.clear()
        found = secure_bloom.read_table(lake, KMS, filters=condition, index="require")
        assert len(listings) == (0 if is_exclusive else 1)
        whole = secure_bloom.read_table(lake, KMS, filters=condition, index="off")
        assert found.schema.equals(whole.schema, check_metadata=True)
        assert found.sort_by("ssn").equals(whole.sort_by("ssn"))
        listings.clear()
        given = secure_bloom.read_table(lake, KMS, schema=whole.schema, filters=condition,
                                        index="require")
        assert len(listings) == (0 if is_exclusive else 1)
        assert given.sort_by("ssn").equals(whole.sort_by("ssn"))


def test_conditions_that_an_index_cannot_answer_alone_are_answered(lake):
    for condition in ([[("ssn", "==", "s1")], [("twice", "==", 3)]], [("twice", "==", 3)],
                      [("ssn", "!=", "s1")], pc.field("ssn").is_null(), [("day", "==", 2)]):
        found = secure_bloom.read_table(lake, KMS, filters=condition, index="auto")
        whole = secure_bloom.read_table(lake, KMS, filters=condition, index="off")
        assert found.num_rows == whole.num_rows > 0


@pytest.mark.parametrize("columns", [None, ["twice"], ["day", "ssn"], []])
def test_find_returns_the_same(each_lake, columns):
    for folder in (each_lake, *([] if columns and "day" in columns else each_lake.glob("day=1"))):
        for wanted in (["s1"], ["absent"], ["s1", "s78", "s150", "absent"], "s3"):
            found = secure_bloom.find(folder, "ssn", wanted, KMS, columns=columns, index="require")
            whole = secure_bloom.find(folder, "ssn", wanted, KMS, columns=columns, index="off")
            assert found.equals(whole, check_metadata=True)


def test_errors_are_those_without_an_index(lake):
    for index in ("require", "off"):
        with pytest.raises(ColumnError, match="nothing"):
            secure_bloom.find(lake, "ssn", ["s1"], KMS, columns=["nothing"], index=index)
        with pytest.raises(PredicateError):
            secure_bloom.find(lake, "ssn", [1.5], KMS, index=index)
        with pytest.raises(ColumnError, match="nothing"):
            secure_bloom.read_table(lake, KMS, filters=[("ssn", "=", "s1"), ("nothing", "=", 1)],
                                    index=index)


@pytest.mark.parametrize("partition_by", [(), ("day",)], ids=["flat", "partitioned"])
def test_a_write_makes_the_table_listed_until_the_next_update(tmp_path, partition_by, listings):
    lake = make(tmp_path / "lake", partition_by)
    write(lake, 2 * ROWS, partition_by=partition_by)
    new = [("ssn", "==", f"s{2 * ROWS + 1}")]
    assert secure_bloom.read_table(lake, KMS, filters=new, index="require").num_rows == 1
    assert listings
    Index.open(lake, KMS).update()
    listings.clear()
    assert secure_bloom.read_table(lake, KMS, filters=new, index="require").num_rows == 1
    assert listings == []


def test_few_pages_of_files_are_read(lake, monkeypatch):
    """So that nothing grows with the number of files."""
    read, original = [], file_table._parsed
    monkeypatch.setattr(file_table, "_parsed", lambda directory, number, content: read.append(
        number) or original(directory, number, content))
    opened_indexes._opened.clear()  # which keeps pages
    Index.open(lake, KMS).lookup("ssn", "s1")  # compares some files with the index
    read.clear()
    found = secure_bloom.read_table(lake, KMS, filters=[("ssn", "==", f"s{ROWS + 1}")],
                                    index="require")
    assert found.num_rows == 1 and len(read) <= 1


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_damaged_page_of_files_is_a_reason_to_read_without_the_index(tmp_path, exclusive):
    """These pages are read when they are needed, and not when the index is opened."""
    lake = make(tmp_path / "lake", (), exclusive)
    index = Index.open(lake, KMS).column("ssn")
    for segment in index.segments:
        path = lake / "_index" / "ssn" / segment.info.name
        content = bytearray(path.read_bytes())
        for at in segment.file_bounds[:-1].tolist():
            content[at + 20] ^= 1
        path.write_bytes(content)
    reads = [lambda **options: secure_bloom.read_table(
                 lake, KMS, filters=[("ssn", "==", "s1")], **options),
             lambda **options: secure_bloom.find(lake, "ssn", "s1", KMS, **options)]
    for read in reads:
        opened_indexes._opened.clear()
        with pytest.warns(IndexWarning, match="is not used"):
            assert read().num_rows == 1
        with pytest.raises(AuthenticationError, match="column ssn"):
            read(index="require")
