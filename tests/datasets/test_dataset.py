"""A data set in the interface of pyarrow: the same rows as in memory, and few of them read."""

import gc
import os
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom.datasets import dataset_file, scan
from secure_bloom.errors import (
    AuthenticationError,
    ChangedMeanwhileError,
    ColumnError,
    KeyRetrievalError,
    PredicateError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms
from secure_bloom.storage import source
from tests.datasets.people import KMS, ROW_GROUP, rows_of, write_file, write_people

FILTERS = {
    "one value": (pc.field("ssn") == "007919", [("ssn", "==", "007919")]),
    "a partition": (pc.field("day") == 1, [("day", "==", 1)]),
    "a range": ((pc.field("n") >= 190) & (pc.field("n") < 210),
                [("n", ">=", 190), ("n", "<", 210)]),
    "alternatives": ((pc.field("n") == 3) | (pc.field("ssn") == "nothing"),
                     [[("n", "==", 3)], [("ssn", "==", "nothing")]]),
    "a field of structs": (pc.field("part", "x") == 2, [("part.x", "==", 2)]),
    "nulls": (pc.field("score").is_null(), [("score", "is null", None)]),
    "nothing": (pc.field("ssn") == "nothing", [("ssn", "==", "nothing")]),
}


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """The data set, and all its rows."""
    folder = tmp_path_factory.mktemp("people")
    rows = write_people(folder)
    return secure_bloom.dataset(folder, KMS), rows


@pytest.mark.parametrize("name", FILTERS)
def test_the_rows_are_those_of_the_same_filter_in_memory(people, name):
    dataset, rows = people
    expression, predicates = FILTERS[name]
    expected = rows.filter(expression)
    for filter_ in (expression, predicates):
        assert dataset.to_table(filter=filter_).equals(expected)
        assert dataset.scanner(filter=filter_).to_reader().read_all().equals(expected)
        assert dataset.count_rows(filter=filter_) == expected.num_rows
        assert dataset.head(2, filter=filter_).equals(expected.slice(0, 2))
        assert pa.table(dataset.filter(filter_)).equals(expected)
        assert dataset.to_table(["score"], filter_).equals(expected.select(["score"]))
        assert dataset.to_table([], filter_).num_rows == expected.num_rows
        parts = [part.to_table(filter=filter_) for part in dataset.get_fragments(filter_)]
        assert sum(part.num_rows for part in parts) == expected.num_rows


def test_without_a_filter_all_rows_are_read_in_order(people):
    dataset, rows = people
    assert isinstance(dataset, ds.FileSystemDataset)
    assert dataset.schema.equals(rows.schema)
    assert dataset.to_table().equals(rows)
    assert pa.table(dataset).equals(rows)
    assert dataset.take([3, 1]).equals(rows.take([3, 1]))
    assert sorted(map(os.path.basename, dataset.files)) == [f"{n}.parquet" for n in range(4)]


def test_expressions_as_columns(people):
    dataset, rows = people
    columns = {"double": pc.field("n") * 2, "x": pc.field("part", "x")}
    found = dataset.to_table(columns, pc.field("ssn") == "007919")
    assert found.to_pydict() == {"double": [2], "x": [1]}
    assert found.schema == pa.schema([("double", pa.int64()), ("x", pa.int64())])
    assert dataset.to_table(columns).num_rows == rows.num_rows


def test_filters_add_up(people):
    dataset, rows = people
    both = dataset.filter(pc.field("n") < 100).filter([("day", "==", 0)])
    expected = rows.filter((pc.field("n") < 100) & (pc.field("day") == 0))
    assert both.to_table().equals(expected)
    assert both.to_table(filter=pc.field("n") > 90).equals(expected.filter(pc.field("n") > 90))
    assert both.count_rows() == expected.num_rows
    assert pickle.loads(pickle.dumps(both)).to_table().equals(expected)


def test_in_order_and_joined(people):
    dataset, rows = people
    by_ssn = dataset.sort_by([("ssn", "descending")]).to_table()
    assert by_ssn["ssn"].to_pylist() == sorted(rows["ssn"].to_pylist(), reverse=True)
    others = pa.table({"ssn": ["007919", "none"], "extra": [1, 2]})
    flat = [dataset.replace_schema(rows.select(names).schema)
            for names in (["ssn", "n"], ["n", "score"])]
    joined = flat[0].join(ds.dataset(others), "ssn", join_type="inner").to_table()
    assert joined.select(["n", "extra"]).to_pydict() == {"n": [1], "extra": [1]}
    joined = flat[0].filter(pc.field("n") < 10).join(flat[1].filter(pc.field("n") < 3), "n",
                                                     join_type="inner").to_table()
    assert sorted(joined["score"].to_pylist(), key=str) == [0.5, 1.0, None]


# --- what is read --------------------------------------------------------------------------------

def test_the_report_says_what_was_skipped_for_which_reason(people):
    dataset, rows = people
    dataset.to_table(filter=(pc.field("ssn") == "007919") & (pc.field("day") == 0))
    report = dataset.report
    assert report.condition == "ssn == ? and day == ?"
    assert (report.files.read, report.files.partitions, report.files.total) == (1, 2, 4)
    assert report.row_groups.read == 1
    assert report.row_groups.partitions == 8
    assert report.row_groups.total == rows.num_rows // ROW_GROUP
    assert report.bytes.total > report.bytes.read > 0
    assert report.picture.count("█") == 1
    assert "007919" not in f"{report!r} {report} {report._repr_html_()}"


def test_each_reason_is_told_from_the_others(people):
    dataset, _ = people
    by_statistics = dataset.explain([("n", "==", 3)]).row_groups
    assert (by_statistics.read, by_statistics.statistics, by_statistics.bloom_filters) == (1, 15, 0)
    by_filters = dataset.explain([("part.y", "in", ["y00", "y10"])]).row_groups
    assert (by_filters.read, by_filters.statistics, by_filters.bloom_filters) == (0, 0, 16)
    everything = dataset.explain()
    assert everything.row_groups.read == 16
    assert everything.condition == "none"


def test_explaining_reads_no_pages(people, monkeypatch):
    dataset, _ = people
    monkeypatch.setattr(scan, "read_batches", None)
    assert dataset.explain([("n", "==", 3)]).row_groups.read == 1


def test_the_source_of_each_row(people):
    dataset, rows = people
    with_source = secure_bloom.dataset(os.path.commonpath(dataset.files), KMS, with_source=True)
    assert with_source.schema.names[:2] == ["file", "row_group"]
    everything = with_source.to_table()
    assert everything.drop_columns(["file", "row_group"]).equals(rows)
    for file, group, number in zip(*(everything[c].to_pylist() for c in ("file", "row_group", "n")),
                                   strict=True):
        assert file.endswith(f"/{number // 200}.parquet")
        assert group == number % 200 // ROW_GROUP
    found = with_source.to_table(["row_group", "n"], [("n", "in", [60, 61, 399])])
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) \
        == [(1, 60), (1, 61), (3, 399)]


@pytest.mark.parametrize("name, is_wanted, files, groups", [
    ("a row group", lambda row: row["row_group"] == 3, 4, 4),
    ("some row groups", lambda row: row["row_group"] in (0, 2) and row["n"] != 1, 4, 8),
    ("a file", lambda row: row["file"] == "2.parquet", 1, 4),
    ("either", lambda row: (row["file"] == "2.parquet" and row["row_group"] == 1)
        or row["n"] == 399, 2, 5),
    ("all files", lambda row: True, 4, 16),
    ("none", lambda row: False, 0, 0)])
@pytest.mark.parametrize("form", ["Expression", "list"])
def test_filters_on_the_source_of_the_rows(people, name, is_wanted, files, groups, form):
    path = next(file for file in people[0].files if file.endswith("/2.parquet"))
    with_source = secure_bloom.dataset(os.path.commonpath(people[0].files), KMS, with_source=True)
    filters = {"a row group": [("row_group", "==", 3)],
               "some row groups": [("row_group", "in", [0, 2]), ("n", "!=", 1)],
               "a file": [("file", "==", path)],
               "either": [[("file", "==", path), ("row_group", "==", 1)], [("n", "==", 399)]],
               "all files": [("file", "is not null", None), ("row_group", "<", 9)],
               "none": [("file", "is null", None)]}[name]
    if form == "Expression":
        filters = pq.filters_to_expression(filters) if name not in ("all files", "none") else \
            {"all files": pc.field("file").is_valid() & (pc.field("row_group") < 9),
             "none": pc.field("file").is_null()}[name]
    wanted = [row for row in with_source.to_table().to_pylist()
              if is_wanted(row | {"file": os.path.basename(row["file"])})]
    assert with_source.to_table(filter=filters).to_pylist() == wanted
    assert (with_source.report.files.read, with_source.report.row_groups.read) == (files, groups)
    assert with_source.count_rows(filters) == len(wanted)
    assert [row for fragment in with_source.get_fragments(filters)
            for row in fragment.to_table(filter=filters).to_pylist()] == wanted


def test_columns_named_as_the_source_are_refused(tmp_path):
    write_file(tmp_path / "a.parquet", pa.table({"file": [1]}), encryption=None, keys=None)
    with pytest.raises(ColumnError, match="with_source"):
        secure_bloom.dataset(tmp_path, with_source=True)
    assert secure_bloom.dataset(tmp_path).to_table().num_rows == 1


# --- fragments and pickles -----------------------------------------------------------------------

def test_fragments_can_be_read_in_another_process(people):
    dataset, rows = people
    [fragment] = dataset.get_fragments(pc.field("n") == 60)
    assert fragment.row_groups == [1]
    assert "1 row group" in repr(fragment)
    again = pickle.loads(pickle.dumps(fragment))
    expected = rows.filter((pc.field("n") >= 50) & (pc.field("n") < 100))
    assert again.to_table().equals(expected)
    assert again.count_rows() == 50
    assert again.count_rows(pc.field("n") == 60) == 1
    assert again.head(1).equals(expected.slice(0, 1))
    assert again.physical_schema.names == ["ssn", "n", "part", "score"]
    assert len(pickle.dumps(fragment)) < 4000


def test_a_fragment_of_a_replaced_file_is_refused(tmp_path):
    write_file(tmp_path / "a.parquet", rows_of(0))
    [fragment] = secure_bloom.dataset(tmp_path, KMS).get_fragments(pc.field("n") == 60)
    write_file(tmp_path / "a.parquet", rows_of(1))
    with pytest.raises(ChangedMeanwhileError, match="replaced"):
        fragment.to_table()


def test_arrow_cannot_scan_the_object_behind_our_back(people):
    dataset, _ = people
    with pytest.raises(UnsupportedError, match="to_table"):
        ds.dataset([dataset, dataset]).to_table()


def test_pyarrow_writes_it(people, tmp_path):
    dataset, rows = people
    ds.write_dataset(dataset, tmp_path, format="ipc")
    written = ds.dataset(tmp_path, format="ipc").to_table()  # pyarrow changes the order
    assert written.sort_by("n").equals(rows.sort_by("n"))


# --- errors --------------------------------------------------------------------------------------

def test_errors_of_the_caller_come_first(people):
    dataset, _ = people
    with pytest.raises(ColumnError, match="none"):
        dataset.scanner(["none"])
    with pytest.raises(ColumnError, match="none"):
        dataset.scanner(filter=[("none", "==", 1)])
    with pytest.raises(PredicateError):
        dataset.filter(pc.field("n") == "text")
    with pytest.raises(PredicateError):
        dataset.filter([("n", "==", "text")])


def test_without_keys_the_open_columns_are_read(people):
    dataset, rows = people
    folder = os.path.commonpath(dataset.files)
    with pytest.raises(KeyRetrievalError):
        secure_bloom.dataset(folder)
    wrong = InMemoryKms({"footer": b"f" * 16})
    some = secure_bloom.dataset(folder, wrong)
    assert some.to_table(["n"]).equals(rows.select(["n"]))
    with pytest.raises(KeyRetrievalError, match=r"\.parquet") as error:
        some.to_table()
    assert error.value.file.endswith(".parquet")


def test_a_damaged_file_is_named(tmp_path):
    write_people(tmp_path, 6)
    path = tmp_path / "day=1" / "3.parquet"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    dataset = secure_bloom.dataset(tmp_path, KMS)
    with pytest.raises(AuthenticationError) as error:
        dataset.to_table()
    assert error.value.file == str(path)
    assert dataset.to_table(filter=[("n", "==", 3)]).num_rows == 1  # elsewhere


@pytest.mark.slow
def test_few_files_are_open_at_a_time(tmp_path, monkeypatch):
    for file in range(40):
        write_file(tmp_path / f"{file:02}.parquet", rows_of(file, 10))
    monkeypatch.setattr(scan, "_OPEN_FILES", 3)
    dataset = secure_bloom.dataset(tmp_path, KMS)
    gc.collect()

    def handles() -> int:
        return sum(os.path.realpath(f"/proc/self/fd/{fd}").startswith(str(tmp_path))
                   for fd in os.listdir("/proc/self/fd"))

    assert handles() == 0
    most = max(handles() for _ in dataset.to_batches())
    assert 0 < most <= 2 * 3 + 4  # read, opened ahead, and being opened
    batches = dataset.to_batches()
    next(batches)
    del batches
    gc.collect()
    assert handles() == 0


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The names of the local files that are opened, in order."""
    found = []
    open_file = source.open_file

    def noted(filesystem, path):
        found.append(os.path.basename(path))
        return open_file(filesystem, path)

    monkeypatch.setattr(source, "open_file", noted)
    return found


def test_files_that_are_ruled_out_by_what_is_known_are_not_opened(tmp_path, opened):
    rows = write_people(tmp_path)
    dataset = secure_bloom.dataset(tmp_path, KMS)
    ssn = rows_of(1)["ssn"][60]
    expected = rows.filter(pc.field("ssn") == ssn)
    for _ in range(2):  # the first time filters are read
        opened.clear()
        assert dataset.to_table(filter=pc.field("ssn") == ssn).equals(expected)
    assert opened == ["1.parquet"]
    assert dataset.report.files.total == 4


def test_a_file_that_is_replaced_before_it_is_opened_is_read_in_its_new_version(
        tmp_path, monkeypatch):
    write_people(tmp_path)
    dataset = secure_bloom.dataset(tmp_path, KMS)
    path, new = tmp_path / "day=0" / "0.parquet", tmp_path / "_new.parquet"
    write_file(new, rows_of(7))
    current_version = dataset_file.current_version

    def then_replaced(filesystem, name):
        version = current_version(filesystem, name)
        if name == str(path) and new.exists():
            os.replace(new, path)
        return version

    monkeypatch.setattr(dataset_file, "current_version", then_replaced)
    found = dataset.to_batches(filter=[("n", ">=", 0), ("n", "<", 1600)])
    assert {60, 1460} & set(pa.Table.from_batches(found)["n"].to_pylist()) == {1460}


def test_if_a_file_fails_the_others_do_not_stay_open(people, opened, monkeypatch):
    dataset, _ = people
    one_pass = dataset.scanner()._pass()
    look, looked = one_pass.look, []

    def failing(file):
        if len(looked) == 2:
            raise KeyRetrievalError("no key")
        looked.append(file)
        return look(file)

    monkeypatch.setattr(one_pass, "look", failing)
    gc.collect()
    gc.disable()  # it would close them some time later
    try:
        with pytest.raises(KeyRetrievalError):
            next(one_pass.batches(None))
        links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    finally:
        gc.enable()
    assert len(opened) == 2
    assert not set(links) & {os.path.realpath(path) for path in dataset.files}


# --- files that change ---------------------------------------------------------------------------

def test_a_replaced_file_is_read_in_its_new_version(tmp_path):
    write_people(tmp_path)
    dataset = secure_bloom.dataset(tmp_path, KMS)
    assert dataset.to_table(filter=[("n", "==", 60)]).num_rows == 1
    write_file(tmp_path / "day=0" / "0.parquet", rows_of(7))
    assert dataset.to_table(filter=[("n", "==", 60)]).num_rows == 0
    assert dataset.to_table(filter=[("n", "==", 1460)]).num_rows == 1


def test_a_file_with_another_schema_or_none_is_an_error(tmp_path):
    write_people(tmp_path)
    dataset = secure_bloom.dataset(tmp_path, KMS)
    write_file(tmp_path / "day=0" / "0.parquet", pa.table({"other": [1]}), encryption=None,
               keys=None)
    with pytest.raises(ChangedMeanwhileError, match="another schema"):
        dataset.to_table()
    (tmp_path / "day=0" / "0.parquet").unlink()
    with pytest.raises(ChangedMeanwhileError, match="removed"):
        dataset.to_table()


@pytest.mark.parametrize("filters", [None, [("n", ">=", 0)]])
def test_the_first_rows_are_of_one_version_of_a_file(tmp_path, monkeypatch, filters):
    path = tmp_path / "a.parquet"
    old, new = (pa.table({"n": range(100_000), "version": [version] * 100_000})
                for version in (1, 2))
    pq.write_table(new, path, row_group_size=10_000, use_dictionary=False)
    new_bytes = path.read_bytes()
    pq.write_table(old, path, row_group_size=10_000, use_dictionary=False)
    dataset = secure_bloom.dataset(tmp_path)
    original, calls = scan.read_batches, []

    def overwriting(*arguments):
        calls.append(arguments)
        for batch in original(*arguments):
            if len(calls) == 1:
                path.write_bytes(new_bytes)
            yield batch

    monkeypatch.setattr(scan, "read_batches", overwriting)
    assert dataset.head(99_999, filter=filters)["version"].unique().to_pylist() == [2]
    assert len(calls) == 2


def test_the_number_of_first_rows_is_checked(people):
    assert people[0].head(0).equals(people[1].slice(0, 0))
    with pytest.raises(ValueError, match="num_rows"):
        people[0].head(-1)
