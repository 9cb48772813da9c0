"""Reading everything that can be by pages, or nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from secure_bloom.parquet import row_ranges
from secure_bloom.reading import matching_rows


def by_pages():
    """A block in which row groups of any size are read by pages, however many rows match."""
    return mock.patch.multiple(matching_rows, _SMALL=0, _MANY_ROWS=2, _MOST_ROWS=2, _MOST_BYTES=2,
                               _SMALL_COLUMN=0, _SMALL_COLUMN_FAR_AWAY=0, _MOST_INDEX=1e9,
                               _MOST_PREDICATES=1e9, _LEAST_ROWS=500)


def with_ranges():
    """A block in which indexes say where values are in row groups of any size."""
    return mock.patch.object(row_ranges, "LEAST_ROWS", 1)


def by_row_groups():
    """A block in which pyarrow reads whole row groups."""
    return mock.patch.multiple(matching_rows, _SMALL=1 << 60)


@contextmanager
def counted() -> Iterator[list[int]]:
    """A block that counts the row groups whose rows were found by pages."""
    found, whole = [], matching_rows.MatchingRows.of

    def of(self, *arguments, **options):
        batches = whole(self, *arguments, **options)
        if batches is not None:
            found.append(1)
        return batches

    with mock.patch.object(matching_rows.MatchingRows, "of", of):
        yield found
