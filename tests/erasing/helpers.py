"""Files and comparisons of these tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from secure_bloom import EncryptionConfiguration, ParquetFile, attach, write_table
from secure_bloom.errors import ChangedMeanwhileError
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet import thrift
from secure_bloom.parquet.page_format import PageFormat
from secure_bloom.parquet.thrift import Struct
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.visibility import data_files
from tests.index.helpers import LOCAL
from tests.test_nested_tables import comparable

KEYS = {"footer": b"f" * 16, "pii": b"p" * 16, "other": b"o" * 16}
KMS = InMemoryKms(KEYS)
ENCRYPTION = EncryptionConfiguration("footer", {"pii": ["ssn"]})


def people(*numbers: int) -> pa.Table:
    """Return a table with one person for each number."""
    return pa.table({"ssn": [f"{n:09d}" for n in numbers], "name": [f"name {n}" for n in numbers],
                     "number": pa.array(numbers, pa.int64())})


def ssn(number: int) -> str:
    return f"{number:09d}"


def write_people(path: Path, numbers, *, encryption=ENCRYPTION, rows: int = 4,
                 bloom_filters=("ssn",), **options) -> Path:
    """Write people to a file, in row groups of so many rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(people(*numbers), path, encryption=encryption, keys=KMS if encryption else None,
                row_group_size=rows, bloom_filters=list(bloom_filters), **options)
    return path


def numbers_in(path, keys=KMS) -> list[int]:
    """Return the numbers of the people in a file."""
    return ParquetFile(path, keys).read(["number"])["number"].to_pylist()


def rows(folder) -> list[int]:
    """Return the numbers of the people in a table, sorted."""
    return sorted(number for path in data_files(LOCAL, str(folder)) for number in numbers_in(path))


def filters(folder) -> tuple[list[int], list[int]]:
    """Add a filter to a file beside another job; return which rows that removes and adds."""
    if attach(str(folder / "a.parquet"), {"name": True}, KMS).failed:
        raise ChangedMeanwhileError("while it was attached")
    return [], []


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


# --- what a file says besides its rows -----------------------------------------------------------

def read_rows(file: OpenFile) -> list[str]:
    """Return all rows in a form that can be compared, whatever their types."""
    reader = file.open_in_pyarrow()  # by row group: dictionaries in structs cannot be put together
    return [row for number in range(file.num_row_groups)
            for row in rows_of(reader.read_row_group(number))]


def rows_of(table: pa.Table) -> list[str]:
    """Return rows in a form that can be compared, whatever their types."""
    columns = [list(map(comparable, column.to_pylist())) for column in table.columns]
    return [" | ".join(row) for row in zip(*columns, strict=True)] if columns else []


def of_file(file: OpenFile) -> dict:
    """Return what an erasure keeps of a file as a whole."""
    footer = file.footer
    kept = thrift.encode(Struct([field for field in footer._file_meta.fields
                                 if field[0] not in (3, 4, 8, 9)]))  # rows, and encryption
    algorithm = footer.algorithm
    return {"magic": file.magic, "algorithm": algorithm and replace(algorithm, aad_file_unique=b""),
            "aad_prefix": algorithm and footer.file_aad[:-len(algorithm.aad_file_unique)],
            "master_key": file.keys and file.keys.master_key(footer.footer_key_metadata),
            "meta": kept}


def of_chunk(file: OpenFile, chunk, where: int) -> dict:
    """Return what an erasure keeps of a column chunk that still has rows."""
    format_ = PageFormat.of(chunk)
    encodings = format_.encodings - {0, 2, 3, 4, 8}  # of levels, and of dictionaries
    filter_ = file.read_bloom_filter(where, chunk.column.path) if chunk.bloom_filter else None
    return {"encryption": chunk.encryption, "codec": format_.codec,
            "master_key": file.keys and file.keys.master_key(chunk.key_metadata),
            "encodings": encodings, "dictionary": format_.has_dictionary,
            "v2": format_.has_pages_v2, "statistics": format_.has_statistics,
            "column_index": chunk.column_index is not None,
            "offset_index": chunk.offset_index is not None,
            "filter": None if filter_ is None else filter_.num_blocks}


def sorting_columns(file: OpenFile) -> list:
    struct = [thrift.decode(group.encode(), {})[0] for group in file.footer.row_groups]
    return [repr(one.get(4)) for one in struct]
