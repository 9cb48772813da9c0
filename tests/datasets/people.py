"""A folder of encrypted files, for tests of data sets."""

import pyarrow as pa

import secure_bloom
from secure_bloom.keys import InMemoryKms

KMS = InMemoryKms({"footer": b"f" * 16, "pii": b"p" * 16})
ENCRYPTION = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]})
ROW_GROUP = 50


def rows_of(file: int, rows: int = 200) -> pa.Table:
    """The rows of a file; ``ssn`` is unique, ``n`` grows from file to file."""
    first = file * rows
    numbers = range(first, first + rows)
    return pa.table({
        "ssn": [f"{number * 7919 % 1_000_003:06}" for number in numbers],
        "n": pa.array(numbers, pa.int64()),
        "part": pa.array([{"x": number % 5, "y": f"y{number % 3}"} for number in numbers]),
        "score": pa.array([number / 2 if number % 4 else None for number in numbers])})


def write_file(path, table: pa.Table, **options) -> None:
    """Write a file with filters on all columns that can have one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    secure_bloom.write_table(table, path, row_group_size=ROW_GROUP, **{
        "bloom_filters": True, "encryption": ENCRYPTION, "keys": KMS} | options)


def write_people(folder, files: int = 4) -> pa.Table:
    """Write some files below Hive folders, and return all rows with the partition column."""
    tables = []
    for file in range(files):
        table = rows_of(file)
        write_file(folder / f"day={file % 2}" / f"{file}.parquet", table)
        day = pa.array([file % 2] * table.num_rows, pa.int32())
        tables.append(table.append_column("day", day))
    order = sorted(range(files), key=lambda file: (file % 2, file))
    return pa.concat_tables([tables[file] for file in order])
