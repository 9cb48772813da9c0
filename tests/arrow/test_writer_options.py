"""Options of pyarrow's writer that this package checks."""

import io

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.arrow.writer_options import MIN_PAGE_SIZE
from secure_bloom.errors import UnsupportedError

ENCODINGS = {
    "DELTA_BINARY_PACKED": 7, "DELTA_LENGTH_BYTE_ARRAY": "abc", "DELTA_BYTE_ARRAY": b"abc",
    "RLE": True, "PLAIN": 1.5}
NESTED = {"list": lambda value: [value] * 3, "empty": lambda value: [],
          "map": lambda value: [("k", value)], "struct": lambda value: [{"x": value}]}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_small_pages_of_lists_are_refused_or_keep_their_rows(version):
    """A row group of one row, which pyarrow loses behind an empty page."""
    refused = written = 0
    for encoding, value in ENCODINGS.items():
        t = pa.scalar(value).type
        for kind, nest in NESTED.items():
            of_kind = {"map": pa.map_(pa.string(), t),
                       "struct": pa.list_(pa.struct([("x", t)]))}.get(kind, pa.list_(t))
            table = pa.table({"c": pa.array([nest(value), nest(value), None], of_kind)})
            for size in (1, 6, 32, 64, 69, MIN_PAGE_SIZE - 1, MIN_PAGE_SIZE):
                for options in ({}, {"use_dictionary": False},
                                {"use_dictionary": False, "column_encoding": encoding}):
                    if kind == "map" and "column_encoding" in options and encoding != "PLAIN":
                        continue  # the keys cannot have all of these encodings
                    file = io.BytesIO()
                    try:
                        secure_bloom.write_table(table, file, row_group_size=1,
                                                 data_page_size=size, data_page_version=version,
                                                 **options)
                    except UnsupportedError as error:
                        assert size < MIN_PAGE_SIZE and error.column.startswith("c.")
                        refused += 1
                        continue
                    written += 1
                    found = secure_bloom.read_table(io.BytesIO(file.getvalue()))
                    assert found.equals(table), (encoding, kind, size, options)
    assert refused > 100 and written > 50


def test_every_way_to_write_refuses_them(tmp_path):
    table = pa.table({"c": [[1]]})
    for write in (lambda: secure_bloom.write_dataset(table, tmp_path / "d", data_page_size=1),
                  lambda: secure_bloom.ParquetWriter(tmp_path / "x", table.schema,
                                                     data_page_size=1)):
        with pytest.raises(UnsupportedError, match=r"column c\.list.*data_page_size=1"):
            write()
    assert not list(tmp_path.glob("**/*.parquet")) and not (tmp_path / "x").exists()
    secure_bloom.write_table(pa.table({"c": [1]}), tmp_path / "flat", data_page_size=1)
