"""Polars over encrypted files: the rows, what is skipped, and which files Polars decrypts."""

import datetime as dt
import os
import pickle
import sys
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import secure_bloom
from secure_bloom import EncryptionConfiguration, ExplicitKeys, UniformKey
from secure_bloom.engines import polars_files
from secure_bloom.engines.polars_predicates import as_expression
from secure_bloom.errors import (
    AuthenticationError,
    ChangedMeanwhileError,
    MissingExtraError,
    UnsupportedError,
)
from secure_bloom.keys import NO_KEYS, InMemoryKms
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.reading.open_file import OpenFile
from tests.engines.conftest import ROW_GROUPS, ssn
from tests.engines.random_rows import COLUMNS, write_files
from tests.support import MASTER_KEYS, MODES, encryptions, kms
from tests.tiers import sweep_where

ENGINES = ["in-memory", "streaming"]


@pytest.fixture
def native(monkeypatch) -> list[str]:
    """The files that Polars reads itself, in order."""
    found = []
    scan_parquet = pl.scan_parquet

    def noted(path, **options):
        found.append(os.path.basename(os.readlink(path)))
        return scan_parquet(path, **options)

    monkeypatch.setattr(pl, "scan_parquet", noted)
    return found


@pytest.fixture
def by_arrow(monkeypatch) -> list[str]:
    """The files that pyarrow reads, in order."""
    found = []
    by_arrow = polars_files.FrameReader._by_arrow

    def noted(self, files):
        found.extend(os.path.basename(opened.dataset_file.path) for opened in files)
        return by_arrow(self, files)

    monkeypatch.setattr(polars_files.FrameReader, "_by_arrow", noted)
    return found


def without_native(monkeypatch):
    monkeypatch.setattr(polars_files.FrameReader, "_lazy_frame", lambda *_: None)


# --- rows and row groups -------------------------------------------------------------------------

@pytest.mark.parametrize("engine", ENGINES)
def test_a_lookup_reads_the_row_groups_that_may_have_the_value(people, engine):
    source = people.open()
    found = secure_bloom.scan(source).filter(pl.col("ssn") == ssn(123)).collect(engine=engine)
    assert found.rows() == [(123, ssn(123), "Lima", 123 / 4)]
    report = source.report
    assert report.row_groups.total == ROW_GROUPS and report.row_groups.read == 1
    assert report.row_groups.bloom_filters > 0
    assert report.condition == "ssn == ?"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("query", [
    lambda lazy: lazy,
    lambda lazy: lazy.select("score", "ssn"),
    lambda lazy: lazy.select(pl.len()),
    lambda lazy: lazy.head(7),
    lambda lazy: lazy.head(0),
    lambda lazy: lazy.tail(7),
    lambda lazy: lazy.slice(190, 20),
    lambda lazy: lazy.head(120).filter(pl.col("id") >= 110).select("ssn"),
    lambda lazy: lazy.filter(pl.col("id") >= 110).head(3),
    lambda lazy: lazy.filter(pl.col("ssn").is_in([ssn(1), ssn(599), "none"])),
    lambda lazy: lazy.filter(pl.col("ssn").str.starts_with("00"), pl.col("id") < 300),
    lambda lazy: lazy.filter(pl.col("id") == pl.col("id").max()),
    lambda lazy: lazy.filter(pl.col("ssn") == "none"),
    lambda lazy: lazy.group_by("city").agg(pl.col("score").sum()).sort("city"),
    lambda lazy: lazy.with_row_index().filter(pl.col("index") == 200),
    lambda lazy: lazy.join(lazy.filter(pl.col("id") < 5), on="ssn").sort("id"),
    lambda lazy: pl.concat([lazy.filter(pl.col("id") > at) for at in (100, 200, 300, 400)]),
])
def test_queries_return_what_they_return_in_memory(people, query, engine):
    wanted = query(pl.DataFrame(people.rows).lazy()).collect(engine=engine)
    assert_frame_equal(query(secure_bloom.scan(people.open())).collect(engine=engine), wanted)


def test_a_path_and_keys_are_enough(people):
    lazy = secure_bloom.scan(people.folder, people.kms)
    assert_frame_equal(lazy.collect(), pl.DataFrame(people.rows))


def test_a_limit_before_a_filter_skips_no_row_groups(people):
    source = people.open()
    lazy = secure_bloom.scan(source).head(60).filter(pl.col("ssn") == ssn(500))
    assert lazy.collect().height == 0
    assert source.report.row_groups.skipped == 0


def test_a_condition_that_arrow_cannot_express_skips_nothing(people):
    source = people.open()
    condition = pl.col("ssn").str.to_uppercase() == ssn(123)
    assert secure_bloom.scan(source).filter(condition).collect().height == 1
    assert source.report.row_groups.read == ROW_GROUPS
    assert as_expression(condition, source.schema) is None


def test_what_arrow_cannot_express_does_not_hinder_the_rest_of_a_condition(people):
    source = people.open()
    found = secure_bloom.scan(source).filter(
        pl.col("city").str.len_chars() == 4, pl.col("ssn") == ssn(123)).collect()
    assert found["id"].to_list() == [123]
    assert source.report.row_groups.read == 1


def test_values_of_a_join_are_not_pushed_down_but_a_filtered_data_set_is(people):
    wanted = pl.LazyFrame({"ssn": [ssn(5), ssn(6)]})
    source = people.open()
    assert secure_bloom.scan(source).join(wanted, on="ssn").collect().height == 2
    assert source.report.row_groups.read == ROW_GROUPS
    two = source.filter([("ssn", "in", [ssn(5), ssn(6)])])
    assert secure_bloom.scan(two).join(wanted, on="ssn").collect().height == 2
    assert two.report.row_groups.read == 1


def test_a_failing_translation_skips_nothing(people, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("another version of Polars")
    source = people.open()
    monkeypatch.setattr(pl, "scan_pyarrow_dataset", fail)
    found = secure_bloom.scan(source).filter(pl.col("ssn") == ssn(123)).collect()
    assert found["id"].to_list() == [123]
    assert source.report.row_groups.read == ROW_GROUPS


def test_zoned_timestamps_in_a_list_skip_no_rows(tmp_path):
    """Polars 2.1 shifts these values when it translates the condition."""
    at = dt.datetime(2020, 7, 1, tzinfo=dt.UTC)
    rows = pa.table({"at": pa.array([at], pa.timestamp("us", "Europe/Rome"))})
    secure_bloom.write_table(rows, tmp_path / "a.parquet", bloom_filters=True)
    source = secure_bloom.dataset(tmp_path)
    for condition in (pl.col("at").is_in([at]), pl.col("at").is_in([at]) | pl.col("at").is_null()):
        assert secure_bloom.scan(source).filter(condition).collect().height == 1
    later = pl.col("at") > at
    assert secure_bloom.scan(source).filter(later).collect().height == 0
    assert source.report.row_groups.statistics == 1  # comparisons are not shifted


@pytest.mark.parametrize("zone", ["Europe/Rome", "America/New_York"])
@pytest.mark.parametrize("bloom_filters", [False, True])
def test_zoned_timestamps_that_are_not_in_utc_skip_no_rows(tmp_path, zone, bloom_filters):
    """Polars 2.1 shifts these values, too."""
    at = dt.datetime(2020, 7, 1, tzinfo=dt.UTC)
    local = pl.lit(at.astimezone(ZoneInfo(zone)))
    rows = pa.table({"at": pa.array([at], pa.timestamp("us", zone))})
    secure_bloom.write_table(rows, tmp_path / "a.parquet", bloom_filters=bloom_filters)
    people = secure_bloom.scan(tmp_path)
    for condition in (pl.col("at") == local, pl.col("at") >= local, pl.col("at") <= local,
                      pl.col("at").is_between(local, local), pl.col("at").eq_missing(local),
                      (pl.col("at") == local) | pl.col("at").is_null(),
                      pl.col("at") == pl.lit(at).dt.convert_time_zone(zone)):
        assert people.filter(condition).collect().height == 1, condition


def test_a_column_with_an_empty_name_is_refused(tmp_path):
    """Polars renames such a column, so that no query would find its columns."""
    secure_bloom.write_table(pa.table({"id": [1], "": [2]}), tmp_path / "a.parquet",
                             bloom_filters={})
    with pytest.raises(UnsupportedError, match="empty name"):
        secure_bloom.scan(tmp_path)
    some = secure_bloom.scan(tmp_path, schema=pa.schema([("id", pa.int64())]))
    assert some.collect()["id"].to_list() == [1]


def test_enums_are_compared_in_the_order_of_their_categories(tmp_path):
    sizes = pl.Enum(["low", "mid", "high"])  # "high" is the first as text
    rows = pl.DataFrame({"size": pl.Series(["low", "mid", "high", None], dtype=sizes)})
    secure_bloom.write_table(rows, tmp_path / "a.parquet", row_group_size=1, bloom_filters=True)
    source = secure_bloom.dataset(tmp_path)
    scanned = secure_bloom.scan(source)
    assert scanned.collect_schema() == rows.schema
    size = pl.col("size")
    for condition in (size > "mid", size >= "low", size < "high", size <= "mid", ~(size > "low"),
                      size.is_between(pl.lit("low"), pl.lit("high"))):
        assert_frame_equal(scanned.filter(condition).collect(), rows.filter(condition))
    assert scanned.filter(size == "mid").collect().height == 1
    assert source.report.row_groups.read == 1


def test_filters_of_a_data_set_are_applied(people, native):
    some = people.open().filter([("ssn", "in", [ssn(5), ssn(6)])])
    assert secure_bloom.scan(some).collect()["id"].to_list() == [5, 6]
    assert secure_bloom.scan(some).filter(pl.col("id") > 5).collect()["id"].to_list() == [6]
    assert some.report.row_groups.read <= 3 and native == []


# --- the schema ----------------------------------------------------------------------------------

def types_of_polars() -> pa.Schema:
    return pa.schema([*(pa.field(name, t) for name, (t, _) in COLUMNS.items()
                        if "." not in name),
                      ("half", pa.float16()), ("ns", pa.time64("ns")), ("null", pa.null()),
                      ("utc", pa.timestamp("ns", "UTC")), ("map", pa.map_(pa.string(), pa.int8())),
                      ("list", pa.list_(pa.struct([("x", pa.large_binary())]))),
                      ("fixed", pa.list_(pa.int32(), 2)), ("number", pa.decimal128(38, 0))])


@pytest.mark.slow
@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("is_native", [True, False])
def test_frames_have_the_schema_of_the_lazy_frame(tmp_path, monkeypatch, is_native, filled):
    if not is_native:
        without_native(monkeypatch)
    schema = types_of_polars()
    rows = pa.table([pa.nulls(int(filled), t) for t in schema.types], schema)
    secure_bloom.write_table(rows, tmp_path / "a.parquet", bloom_filters={})
    lazy = secure_bloom.scan(tmp_path)
    assert lazy.collect().schema == lazy.collect_schema()
    for name in schema.names:
        frame = lazy.select(name).collect(engine="streaming")
        assert frame.schema == lazy.select(name).collect_schema() and frame.height == filled


def test_a_type_that_polars_lacks_is_named(tmp_path):
    rows = pa.table({"x": [1], "wide": pa.array([1], pa.decimal256(50, 0))})
    secure_bloom.write_table(rows, tmp_path / "a.parquet", bloom_filters={})
    with pytest.raises(UnsupportedError, match="column wide: Polars cannot hold type decimal256"):
        secure_bloom.scan(tmp_path)
    lazy = secure_bloom.scan(tmp_path, schema=pa.schema([("x", pa.int64())]))
    assert lazy.collect().to_dict(as_series=False) == {"x": [1]}


# --- files that Polars decrypts, and files that pyarrow decrypts ---------------------------------

def flat_rows(folder) -> pa.Table:
    """Return rows of all types without nesting."""
    import random
    write_files(folder, random.Random(1), kms(), files=1)
    return secure_bloom.read_table(folder, kms()).drop_columns(["st", "li"])


@sweep_where(lambda mode: mode == "single wrapping" or mode.startswith("key, "))
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_rows_are_the_same_whoever_decrypts_them(
        tmp_path, monkeypatch, native, by_arrow, mode):
    rows = flat_rows(tmp_path / "source")
    way, writing, reading = encryptions("s")[mode]
    secure_bloom.write_table(rows, tmp_path / "a.parquet", bloom_filters={"s": True},
                             encryption=way, keys=writing)
    lazy = secure_bloom.scan(tmp_path / "a.parquet", reading)
    frames = {name: lazy.select(name).collect() for name in rows.column_names}
    alike = [field for field in rows.schema
             if any(is_kind(field.type) for is_kind in polars_files._READ_ALIKE)]
    assert len(native) == (0 if mode == "ctr" else len(alike)) and len(alike) > 15
    assert len(by_arrow) == len(frames) - len(native)  # and what Polars began, it has finished
    without_native(monkeypatch)
    for name, frame in frames.items():
        assert_frame_equal(frame, lazy.select(name).collect())
        assert_frame_equal(frame, pl.DataFrame(rows.select([name])))


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_keys_of_all_sizes_are_read_those_of_192_bits_by_pyarrow(tmp_path, native, by_arrow, bits):
    way = EncryptionConfiguration("mf", {"mc": ["x"]}, data_key_length_bits=bits)
    secure_bloom.write_table(pa.table({"x": [1, 2], "y": [3, 4]}), tmp_path / "a.parquet",
                             bloom_filters={}, encryption=way, keys=kms())
    assert secure_bloom.scan(tmp_path, kms()).collect().rows() == [(1, 3), (2, 4)]
    assert (len(native), len(by_arrow)) == ((0, 1) if bits == 192 else (1, 0))


def test_files_of_which_row_groups_are_skipped_are_read_by_pyarrow(people, native, by_arrow):
    lazy = secure_bloom.scan(people.folder, people.kms)
    assert lazy.filter(pl.col("id") < 210).select(pl.len()).collect().item() == 210
    assert native == ["0.parquet"] and by_arrow == ["1.parquet"]


def test_polars_stops_reading_after_the_rows_that_are_needed(people, monkeypatch):
    heights = []
    collect_batches = pl.LazyFrame.collect_batches

    def noted(lazy):
        for frame in collect_batches(lazy):
            heights.append(frame.height)
            yield frame

    monkeypatch.setattr(pl.LazyFrame, "collect_batches", noted)
    assert secure_bloom.scan(people.open()).head(7).collect().height == 7
    assert sum(heights) == 7


def test_key_material_that_differs_between_row_groups_is_read_by_pyarrow(tmp_path, native):
    path = tmp_path / "a.parquet"
    way = EncryptionConfiguration("mf", {"mc": ["x"]}, double_wrapping=False)
    with secure_bloom.ParquetWriter(path, pa.schema([("x", pa.int64())]), bloom_filters={},
                                    encryption=way, keys=kms()) as writer:
        writer.write_table(pa.table({"x": [1]}))
        writer.write_table(pa.table({"x": [2]}))
    with OpenFile(path, kms()) as file:
        chunk = file.footer.row_groups[1][0]
        key = file.keys.column_key("x", chunk.key_metadata)
        chunk.set_key_metadata(KeyMaterial("mc", kms().wrap_key(key, "mc")).serialize())
        start, footer = file.footer.start, file.footer.to_bytes()
    path.write_bytes(path.read_bytes()[:start] + footer)
    assert secure_bloom.scan(tmp_path, kms()).collect()["x"].to_list() == [1, 2]
    assert native == []


def test_only_the_keys_of_the_columns_that_are_read_are_needed(people, native):
    some = InMemoryKms({"mf": MASTER_KEYS["mf"]})
    lazy = secure_bloom.scan(people.folder, some)
    assert lazy.select("id", "score").collect()["id"].to_list() == list(range(600))
    assert sorted(native) == ["0.parquet", "1.parquet", "2.parquet"]
    with pytest.raises(Exception, match=r"0\.parquet: there is no master key named 'mc'"):
        lazy.select("ssn").collect()


def test_partition_columns_other_types_and_missing_columns(tmp_path, native):
    parts = {"x=1": {"a": pa.array([1, 2], pa.int32()), "b": ["p", None]},
             "x=2": {"a": pa.array([3], pa.int64()), "c": [1.5]}}
    for name, columns in parts.items():
        (tmp_path / name).mkdir()
        secure_bloom.write_table(pa.table(columns), tmp_path / name / "a.parquet",
                                 bloom_filters=["a"], encryption=UniformKey(b"k" * 16))
    keys = ExplicitKeys(b"k" * 16)
    lazy = secure_bloom.scan(tmp_path, keys)
    wanted = pl.DataFrame({"a": [1, 2, 3], "b": ["p", None, None], "c": [None, None, 1.5],
                           "x": [1, 1, 2]}, {"a": pl.Int64, "b": pl.String, "c": pl.Float64,
                                             "x": pl.Int32})
    assert_frame_equal(lazy.collect(), wanted)
    assert native == []
    assert_frame_equal(lazy.select("a").collect(), wanted.select("a"))
    assert native == ["a.parquet"]  # that of x=2; the other has int32
    assert lazy.filter(pl.col("x") == 2, pl.col("a") == 3).collect().height == 1
    assert lazy.filter(pl.col("b").is_null()).collect()["a"].to_list() == [2, 3]


def test_the_source_of_each_row(people):
    lazy = secure_bloom.scan(people.folder, people.kms, with_source=True)
    found = lazy.filter(pl.col("ssn") == ssn(123)).collect()
    assert found.rows() == [(f"{people.folder}/0.parquet", 2, 123, ssn(123), "Lima", 123 / 4)]
    assert lazy.select("row_group").collect()["row_group"].to_list() == [
        group for _ in range(3) for group in range(4) for _ in range(50)]
    assert lazy.filter(pl.col("row_group") == 3).select(pl.len()).collect().item() == 150


def test_unencrypted_files_are_refused_where_encryption_is_required(tmp_path):
    secure_bloom.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet", bloom_filters={})
    with pytest.raises(AuthenticationError, match="encryption is required"):
        secure_bloom.scan(tmp_path, kms(), require_encryption=True)


def test_a_file_that_is_replaced_by_an_unencrypted_one_is_refused(people):
    lazy = secure_bloom.scan(people.folder, people.kms, require_encryption=["ssn"])
    os.remove(f"{people.folder}/1.parquet")
    secure_bloom.write_table(people.rows, f"{people.folder}/1.parquet", bloom_filters={})
    with pytest.raises(Exception, match=r"1\.parquet: the file is not encrypted"):
        lazy.collect()


@pytest.mark.parametrize("is_native", [True, False])
def test_a_file_that_is_replaced_during_a_scan_is_read_in_one_version(
        people, monkeypatch, is_native):
    """The open file stays as it was, under whatever name."""
    if not is_native:
        without_native(monkeypatch)
    source = people.open()
    frames = secure_bloom.engines.polars._DatasetSource(source)(None, None, None, 10)
    read = [next(frames), next(frames)]
    for name in range(3):
        secure_bloom.write_table(people.rows.slice(0, 1), f"{people.folder}/{name}.parquet",
                                 bloom_filters={}, encryption=UniformKey(b"k" * 16))
    assert_frame_equal(pl.concat([*read, *frames]), pl.DataFrame(people.rows), check_exact=True)


def test_a_file_that_is_overwritten_during_a_scan_is_noticed(people):
    frames = secure_bloom.engines.polars._DatasetSource(people.open())(None, None, None, 10)
    next(frames), next(frames)
    os.utime(f"{people.folder}/2.parquet", ns=(1, 1))
    with pytest.raises(ChangedMeanwhileError, match=r"2\.parquet"):
        list(frames)


def test_what_polars_cannot_read_is_read_by_pyarrow_from_there_on(people, monkeypatch):
    class Failing:
        def __init__(self, lazy):
            self.frames = lazy.collect().iter_slices(70)

        def __iter__(self):
            yield next(self.frames)
            yield next(self.frames)
            raise pl.exceptions.ComputeError("not supported")

    monkeypatch.setattr(polars_files, "_BYTES_TOGETHER", 0)
    monkeypatch.setattr(pl.LazyFrame, "collect_batches", lambda lazy: Failing(lazy))
    assert_frame_equal(secure_bloom.scan(people.open()).collect(), pl.DataFrame(people.rows))


def test_files_that_polars_cannot_read_together_are_read_by_pyarrow(people, monkeypatch, by_arrow):
    collect_all = pl.collect_all

    def failing(lazy_frames):
        collect_all(lazy_frames)
        raise pl.exceptions.ComputeError("not supported")

    monkeypatch.setattr(pl, "collect_all", failing)
    assert_frame_equal(secure_bloom.scan(people.open()).collect(), pl.DataFrame(people.rows))
    assert by_arrow == ["0.parquet", "1.parquet", "2.parquet"]


def test_only_files_that_are_small_together_are_in_memory_together(people, monkeypatch):
    sizes = []
    collect_all = pl.collect_all

    def noted(lazy_frames):
        sizes.append(len(lazy_frames))
        return collect_all(lazy_frames)

    monkeypatch.setattr(pl, "collect_all", noted)
    scanned = secure_bloom.scan(people.open())
    for num_bytes, expected in ((2**30, [3]), (0, [])):
        sizes.clear()
        monkeypatch.setattr(polars_files, "_BYTES_TOGETHER", num_bytes)
        assert_frame_equal(scanned.collect(), pl.DataFrame(people.rows))
        assert sizes == expected


# --- arguments -----------------------------------------------------------------------------------

def test_an_open_data_set_has_its_own_options(people):
    source = people.open()
    for options in ({"keys": NO_KEYS}, {"with_source": True}, {"schema": source.schema}):
        with pytest.raises(TypeError, match=next(iter(options))):
            secure_bloom.scan(source, **options)


def test_a_missing_polars_names_the_extra(people, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"needs Polars .*pip install 'polars"):
        secure_bloom.scan(people.folder, people.kms)


def test_the_source_of_a_lazy_frame_can_be_pickled(tmp_path):
    rows = pa.table({"x": [1, 2]})
    secure_bloom.write_table(rows, tmp_path / "a.parquet", bloom_filters={},
                             encryption=UniformKey(b"k" * 16))
    source = secure_bloom.engines.polars._DatasetSource(
        secure_bloom.dataset(tmp_path, ExplicitKeys(b"k" * 16)))
    frames = pickle.loads(pickle.dumps(source))(None, None, None, None)
    assert pl.concat(frames)["x"].to_list() == [1, 2]
