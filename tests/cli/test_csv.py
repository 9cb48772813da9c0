"""CSV files: types that lose no character, compression, delimiters, and errors without values."""

import csv
import datetime
import gzip
import math
import os
import string
from decimal import Decimal
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.cli import convert, csv_file, main
from secure_bloom.cli.csv_file import CsvFile
from secure_bloom.errors import ColumnError, FormatError, UnsupportedError
from secure_bloom.storage.rewrite import ChangedMeanwhileError
from tests.cases import for_each
from tests.support import examples


def read(path, **options) -> pa.Table:
    file = CsvFile(str(path), **options)
    return pa.Table.from_batches(file.batches(), file.schema)


def of(tmp_path, texts, *, more_columns=0) -> pa.ChunkedArray:
    """What becomes of a column with these texts."""
    path = tmp_path / "in.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b"])
        writer.writerows([text, "x"] for text in texts)
    return read(path)["a"]


@for_each("texts", [
    ["078051120"], ["+1"], ["1.10"], ["1e3"], ["1E5"], ["NaN"], ["NULL"], ["null"], ["NA"], ["N/A"],
    ["Infinity"], ["Inf"], ["-nan"], ["1,5"], ["0x10"], ["1_000"], [".5"], ["5."],
    ["00"], ["01"], ["-01"], ["1.0", "1"], ["0.5", "1e-05", "0.00001"], ["1.5e-05x"],
    ["9223372036854775808"], ["-9223372036854775809"], ["0.1000000000000000055511151231257827"],
    ["123456789.123456789123"], ["1e400"], ["1e-400"], ["1.23456789e-320"], ["1e+0016"],
    ["True"], ["TRUE"], ["true", "True"], ["true", "1"], ["yes"],
    ["2020-1-1"], ["20200101", "2020-01-01"], ["01/02/2020"], ["2020-02-30"], ["10000-01-01"],
    ["2020-01-01", "2020-01-01 00:00:00"], ["2020-01-01 00:00"], ["2020-01-01 00:00:00.5"],
    ["2020-01-01 00:00:00", "2020-01-01T00:00:00"],
    ["2020-01-01 00:00:00.500", "2020-01-01 00:00:00"],
    ["2020-01-01T00:00:00+01:00"], ["2020-01-01T00:00:00+00:00"], ["2020-01-01T00:00:00z"],
    ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00"], ["2020-01-01 24:00:00"],
    ["2400-01-01 00:00:00.000000001"],
    ["12:30"], ["12:30:00.5"], ["24:00:00"], ["12:30:60"], ["1:30:00"],
    [" 1"], ["1 "], [" "], ["\t1"], ["1\n"], [" true"], [" 2020-01-01"], ["1", "x"], ["1", "", "y"],
])
def test_what_would_not_come_back_as_the_same_characters_stays_text(tmp_path, texts):
    column = of(tmp_path, texts)
    assert column.type == pa.string()
    assert column.to_pylist() == texts


@pytest.mark.parametrize(("texts", "type_", "values"), [
    (["0", "-12", "", "9223372036854775807"], pa.int64(), [0, -12, None, 2**63 - 1]),
    (["2.0", "0.25", "1e-05", "-0.0", "1.7976931348623157e+308", "5e-324", "", "nan", "inf"],
     pa.float64(),
     [2, 0.25, 1e-05, -0.0, 1.7976931348623157e308, 5e-324, None, math.nan, math.inf]),
    (["2", "0.25", "0.00001", "-0", "12345678901.5"], pa.float64(),
     [2, 0.25, 0.00001, -0.0, 12345678901.5]),
    (["0.1", "0.30000000000000004", "123456789012345.6"], pa.float64(),
     [0.1, 0.30000000000000004, 123456789012345.6]),
    (["true", "", "false"], pa.bool_(), [True, None, False]),
    (["", ""], pa.null(), [None, None]),
    (["text", ""], pa.string(), ["text", ""]),
], ids=repr)
def test_what_comes_back_as_the_same_characters_has_a_type(tmp_path, texts, type_, values):
    column = of(tmp_path, texts)
    assert column.type == type_
    assert str(column.to_pylist()) == str([float(value) if type_ == pa.float64() and value is not
                                           None else value for value in values])


@pytest.mark.parametrize(("text", "type_"), [
    ("2020-02-29", pa.date32()), ("12:30:00", pa.time32("s")),
    ("2020-02-29 12:30:00", pa.timestamp("s")), ("2020-02-29T12:30:00", pa.timestamp("s")),
    ("2020-02-29T12:30:00Z", pa.timestamp("s", "UTC")),
    ("2020-02-29 12:30:00.120", pa.timestamp("ms")),
    ("2020-02-29T12:30:00.000120", pa.timestamp("us")),
    ("1999-02-28 12:30:00.000000120Z", pa.timestamp("ns", "UTC"))])
def test_dates_and_times_as_iso_writes_them(tmp_path, text, type_):
    column = of(tmp_path, [text, "", text])
    assert column.type == type_
    assert column.cast(pa.int64() if type_.bit_width == 64 else pa.int32())[1].as_py() is None
    assert column[0] == column[2] and column.null_count == 1


def test_a_contradiction_far_behind_the_first_block_makes_the_column_text(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK", 4096)
    texts = [str(number) for number in range(20_000)] + ["007"]
    column = of(tmp_path, texts)
    assert column.type == pa.string() and column.to_pylist() == texts
    numbers = [*texts[:-1], "0.5"]
    assert of(tmp_path, numbers).to_pylist() == [float(text) for text in numbers]


def test_integers_that_a_double_would_round_stay_text_beside_fractions(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK", 64)
    texts = ["9007199254740993", *["1"] * 100, "0.5"]
    assert of(tmp_path, texts).to_pylist() == texts
    exact = ["9007199254740992", *["1"] * 100, "0.5"]
    assert of(tmp_path, exact).type == pa.float64()


# --- any text ------------------------------------------------------------------------------------

def _positional(value: float) -> str:
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _formats(column: pa.ChunkedArray):
    """The ways to write a column, as Python, not pyarrow, does."""
    if pa.types.is_timestamp(column.type):
        stored = np.array(column.cast(pa.timestamp(column.type.unit)).to_numpy())
        for unit in ("s", "ms", "us", "ns"):
            for separator in "T ":
                yield ["" if np.isnat(value) else np.datetime_as_string(value, unit).replace(
                    "T", separator) + ("Z" if column.type.tz else "")
                    for value in stored.astype(f"datetime64[{column.type.unit}]")]
        return
    formats = {pa.float64(): [repr, _positional], pa.bool_(): [lambda value: str(value).lower()]}
    for format_ in formats.get(column.type, [str]):
        with_null = ["" if value is None else format_(value) for value in column.to_pylist()
                     if value is None or format_ is not _positional or math.isfinite(value)]
        yield with_null


_NUMBERS = st.one_of(
    st.integers().map(str), st.integers(-2**63, 2**63 - 1).map(str), st.floats().map(repr),
    st.floats(-1e6, 1e6).map(lambda x: repr(round(x, 3))),
    st.decimals(-10**9, 10**9, places=2).map(str), st.floats(0, 1).map(lambda x: f"{x:g}"))
_TIMES = st.one_of(
    st.dates().map(str), st.datetimes().map(str), st.times().map(str),
    st.datetimes().map(lambda t: t.isoformat(timespec="milliseconds") + "Z"),
    st.datetimes().map(lambda t: t.isoformat(timespec="seconds")),
    st.times().map(lambda t: t.isoformat(timespec="seconds")))
_WORDS = st.one_of(st.sampled_from(["true", "false", "True", "nan", "inf", "NULL", "", " ", "007"]),
                   st.text(string.printable, max_size=8),
                   st.text(st.characters(codec="utf-8"), max_size=5),
                   st.text("0123456789.-+eE", max_size=6))
_KINDS = [_WORDS, _NUMBERS, _TIMES, st.just(""), st.integers(-9, 9).map(str),
          st.floats().map(repr), st.dates().map(str), st.booleans().map(lambda x: str(x).lower()),
          st.datetimes().map(lambda t: t.isoformat(timespec="microseconds")),
          st.integers(0, 10**6).map(lambda x: f"{x / 1000:g}"),
          st.one_of(st.just(""), st.times().map(lambda t: t.isoformat(timespec="seconds")))]


@st.composite
def _columns(draw):
    rows = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=4))
    return [draw(st.lists(kind | st.just("") if draw(st.booleans()) else kind,
                          min_size=rows, max_size=rows)) for kind in kinds]


@pytest.mark.slow
@examples(60)
@given(columns=_columns(), delimiter=st.sampled_from(",;\t|"), block=st.sampled_from([600, 2**20]),
       quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), data=st.data())
def test_whatever_the_csv_module_writes_comes_back_as_the_same_characters(
        tmp_path_factory, columns, delimiter, block, quoting, data):
    names = [f"c{number}" for number in range(len(columns))]
    folder = tmp_path_factory.mktemp("any")
    with open(folder / "in.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting)
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))
    with mock.patch.object(csv_file, "_BLOCK", block):
        convert.convert_file(str(folder / "in.csv"), str(folder / "out.parquet"),
                             delimiter=delimiter, bloom_filters={})
    table = pq.read_table(folder / "out.parquet")
    for name, texts in zip(names, columns, strict=True):
        assert texts in list(_formats(table[name])), (name, table[name].type)


# --- what a CSV file can look like ---------------------------------------------------------------

def test_text_stays_text_though_it_looks_like_numbers(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a,b\n1,2\n")
    assert read(path, text_columns=["a"]).to_pylist() == [{"a": "1", "b": 2}]
    with pytest.raises(ColumnError, match="no such column") as caught:
        read(path, text_columns=["A"])
    assert "column A: there is no such column (did you mean 'a'?)" in str(caught.value)
    assert caught.value.file == str(path)
    assert caught.value.column == "A"




def compressed(data: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


CODECS = pytest.mark.parametrize("codec", ["gzip", "bz2", "zstd", "lz4"])


@CODECS
def test_a_compressed_file_is_told_by_its_first_bytes(tmp_path, codec):
    path = tmp_path / "in.csv"
    rows = "a,b\n" + "".join(f"{number:05d},{number}\n" for number in range(50_000))
    data = compressed(rows.encode(), codec)
    fractions = []
    for content in (data, compressed(rows[:1000].encode(), codec)
                    + compressed(rows[1000:].encode(), codec)):
        path.write_bytes(content)
        table = read(path, advance=fractions.append)
        assert table["a"].to_pylist() == [f"{number:05d}" for number in range(50_000)]
        assert table["b"].to_pylist() == list(range(50_000))
    assert all(0 <= fraction <= 1 for fraction in fractions)
    path.write_bytes(compressed(b"a\n", codec))
    assert read(path).num_rows == 0


@CODECS
def test_damaged_compressed_data_is_an_error_that_names_the_file(tmp_path, codec):
    path = tmp_path / "in.csv"
    data = compressed(b"a,b\n" + os.urandom(30_000).hex(",").encode() + b"\n", codec)
    for damaged in (data[:len(data) // 2], data + b"SECRET junk at the end"):
        path.write_bytes(damaged)
        with pytest.raises((FormatError, ColumnError)) as caught:
            read(path)
        assert caught.value.file == str(path)
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " ", "\x01"])
def test_values_are_separated_by_the_delimiter(tmp_path, delimiter):
    path = tmp_path / "in.csv"
    path.write_text(f"a{delimiter}b\n1{delimiter}01\n")
    assert read(path, delimiter=delimiter).to_pylist() == [{"a": 1, "b": "01"}]


@pytest.mark.parametrize("delimiter", ["", ",,", "ä", '"', "\n", "\r", "\0"])
def test_what_cannot_separate_values_is_refused(tmp_path, delimiter):
    path = tmp_path / "in.csv"
    path.write_text("a\n1\n")
    with pytest.raises(ValueError, match="delimiter"):
        CsvFile(str(path), delimiter=delimiter)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_byte_order_mark_and_line_breaks_in_quotes(tmp_path, line_end):
    path = tmp_path / "in.csv"
    rows = ["\ufeffid,text", '1,"two', 'lines, and ""quotes"""', "2,"]
    path.write_bytes(line_end.join(rows).encode())
    assert read(path).to_pylist() == [
        {"id": 1, "text": f'two{line_end}lines, and "quotes"'}, {"id": 2, "text": ""}]


def test_a_line_break_in_quotes_at_the_end_of_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK", 64)
    texts = ["x" * number + "\n" + "y" * (20 - number) for number in range(20)]
    assert of(tmp_path, texts).to_pylist() == texts


def test_empty_fields_are_nulls_but_in_text(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('n,t,none\n1,x,\n"","",""\n,,\n')
    assert read(path).to_pylist() == [{"n": 1, "t": "x", "none": None},
                                      {"n": None, "t": "", "none": None},
                                      {"n": None, "t": "", "none": None}]


def test_columns_of_the_same_name_have_the_type_that_fits_both(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a,a\n1,07\n")
    assert [column.to_pylist() for column in read(path).columns] == [["1"], ["07"]]


def test_what_is_not_utf8_is_binary(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes("a,b\nMünchen,1\nRome,2\n".encode("latin-1"))
    assert read(path)["a"].to_pylist() == [b"M\xfcnchen", b"Rome"]
    with pytest.raises(ColumnError, match="not UTF-8") as caught:
        read(path, text_columns=["a"])
    assert caught.value.column == "a"
    path.write_bytes("Größe\n1\n".encode("latin-1"))
    with pytest.raises(ColumnError, match="header line is not UTF-8"):
        read(path)


@pytest.mark.parametrize(("content", "message"), [
    ("", "no rows"), ("id,ssn\n1,2\n3,SECRET,5\n", "row 3 has 3 values, but the header has 2"),
    ("id,ssn\n1,2\nSECRET\n", "row 3 has 1 values"), ('id,ssn\n"SECRET,1\n', "row 2 has 1 values"),
    ("id,ssn\n1," + "SECRET" * 5000, "longer than 4,096"),
    ('id,ssn\n1,"SECRET\n' + "2,3\n" * 5000, "quotation mark is not closed")])
def test_errors_say_which_row_and_no_value(tmp_path, monkeypatch, content, message):
    monkeypatch.setattr(csv_file, "_BLOCK", 4096)
    path = tmp_path / "in.csv"
    path.write_text(content)
    with pytest.raises((ColumnError, UnsupportedError), match=message) as caught:
        read(path)
    assert caught.value.file == str(path)
    assert "SECRET" not in str(caught.value) and caught.value.__suppress_context__


@pytest.mark.parametrize("line", ["07,1", "x,1", "10,1", "1"])
def test_a_file_that_changes_between_the_passes_is_noticed(tmp_path, line):
    path = tmp_path / "in.csv"
    path.write_text("a,b\n10,2\n")
    file = CsvFile(str(path))
    os.utime(path, ns=(0, 0))
    path.write_text(f"a,b\n{line}\n")
    os.utime(path, ns=(1, 1))
    with pytest.raises(ChangedMeanwhileError, match="changed while it was being read"):
        list(file.batches())


def test_what_can_be_read_only_once_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsupportedError, match="regular file"):
        convert.convert_file(str(tmp_path / "pipe"), str(tmp_path / "out"), bloom_filters={})
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.slow
def test_a_large_file_is_read_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK", 64 * 1024)
    path = tmp_path / "in.csv"
    with open(path, "w") as file:
        file.write("a,b,c\n")
        for start in range(0, 600_000, 10_000):
            file.write("".join(f"{number},{number / 7},text {number}\n"
                               for number in range(start, start + 10_000)))
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0

    def advance(_):
        nonlocal most
        most = max(most, pool.bytes_allocated() - before)

    rows = sum(batch.num_rows for batch in CsvFile(str(path), advance=advance).batches())
    assert rows == 600_000 and path.stat().st_size > 20 * 2**20 > 4 * most > 0


# --- the command ---------------------------------------------------------------------------------

def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(("shown", "delimiter"), [(";", ";"), (r"\t", "\t"), ("\t", "\t")])
def test_the_command_reads_compressed_files_with_another_delimiter(tmp_path, shown, delimiter):
    source, target = tmp_path / "in.csv.gz", tmp_path / "out.parquet"
    source.write_bytes(gzip.compress(f"id{delimiter}ssn\n1{delimiter}078051120\n".encode()))
    result = run("write", source, target, "--delimiter", shown, "--bloom", "ssn", "--plaintext")
    assert result.exit_code == 0, result.stderr
    assert pq.read_table(target).to_pylist() == [{"id": 1, "ssn": "078051120"}]
    assert run("probe", target, "--column", "ssn", "--value", "078051120").exit_code == 0
    assert run("probe", target, "--column", "ssn", "--value", "78051120").exit_code == 1


def test_the_command_refuses_what_is_no_delimiter_and_shows_no_value(tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.parquet"
    source.write_text("id,ssn\n1,SECRET,2\n")
    for delimiter in ("", ",,", '"', r"\n"):
        result = run("write", source, target, "--plaintext", "--delimiter", delimiter)
        assert result.exit_code == 2 and "--delimiter" in result.stderr
    result = run("write", source, target, "--plaintext")
    assert result.exit_code == 2 and "row 2" in result.stderr and "SECRET" not in result.output
    assert not target.exists()


def test_progress_goes_over_both_passes(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_BLOCK", 4096)
    path, fractions = tmp_path / "in.csv", []
    path.write_text("a\n" + "1\n" * 300_000)
    read(path, advance=fractions.append)
    assert fractions == sorted(fractions) and fractions[0] < 0.3 and fractions[-1] == 1
    assert any(0.45 < fraction < 0.55 for fraction in fractions)


def test_columns_get_the_types_that_are_named(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('price,born,zip,a:b,n\n1.15,2024-01-31,007,1,5\n,,008,2,6\n')
    target = tmp_path / "x.parquet"

    def write(*options):
        return CliRunner().invoke(main, ["write", str(path), str(target), "--plaintext",
                                         "--overwrite", *options])

    done = write("--types", "price:decimal(10, 2), born:DATE,zip:bigint,a:b:double")
    assert done.exit_code == 0 and "decimal128(10, 2)" in done.output
    assert pq.read_table(target).to_pylist() == [
        {"price": Decimal("1.15"), "born": datetime.date(2024, 1, 31), "zip": 7, "a:b": 1.0,
         "n": 5}, {"price": None, "born": None, "zip": 8, "a:b": 2.0, "n": 6}]
    target.unlink()
    done = write("--types", "price:decimal(3,1)")
    assert done.exit_code == 2 and "column price: not all of its values" in done.stderr
    assert "1.15" not in done.stderr and not target.exists()
    for types, words in (("prise:date", "did you mean 'price'"), ("price:money", "types are"),
                         ("price", "expected"), ("n:int,n:date", "two types"),
                         ("n:decimal(39,1)", "no type"), ("n:decimal(2,3)", "no type")):
        done = write("--types", types)
        assert done.exit_code == 2 and words in done.stderr, types
    assert "omit one" in write("--types", "n:int", "--text", "n").stderr
