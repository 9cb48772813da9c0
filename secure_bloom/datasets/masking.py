"""Masked columns of several files: each file has its own keys, and the result one schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from secure_bloom.arrow.few_row_groups import Each
from secure_bloom.arrow.predicate_rows import remaining
from secure_bloom.datasets.dataset_file import DatasetFile, OpenedFile, OutdatedError
from secure_bloom.pruning.expressions import RowGroupFilter


class MaskedColumns(NamedTuple):
    """Which columns a pass over the files of a data set masks.

    Attributes
    ----------
    candidates : list of str
        The columns that are only read, and neither compared nor computed with.
    num_files : dict of str to int
        Of these, the columns that are masked, each with the number of files in which it is.
    computed : list of str
        Columns that may not be masked, because the result is computed from them.
    """

    candidates: list[str]
    num_files: dict[str, int]
    computed: list[str]

    def of_file(self, opened: OpenedFile) -> frozenset[str]:
        """Return the columns that are masked in the version of a file that is open.

        Raises
        ------
        KeyRetrievalError
            If the key of a computed column is not available.
        OutdatedError
            If a column is masked that was not before, so that the schema of the result is wrong.
        """
        from_path = opened.dataset_file.partition_values
        opened.file.check_filtered(name for name in self.computed if name not in from_path)
        masked = frozenset(opened.file.masked_columns(
            name for name in self.candidates if name not in from_path))
        if not masked <= self.num_files.keys():
            opened.dataset_file.forget_keys()
            raise OutdatedError("a key of this file was available before and is missing now; start "
                                "again with the data set", file=opened.dataset_file.path)
        return masked


NOT_MASKED = MaskedColumns([], {}, [])


def find_masked(files: Iterable[DatasetFile], filters: Sequence[RowGroupFilter],
                candidates: list[str], computed: list[str],
                each: Each) -> MaskedColumns:
    """Find the masked columns, which requests the keys of the candidates.

    Files that partition values rule out are left out. ``each`` is like ``map``.
    """
    def masked(file: DatasetFile) -> Collection[str]:
        if not all(_is_possible(file, one) for one in filters):
            return []
        return file.masked_columns([name for name in candidates
                                    if name not in file.partition_values])

    num_files = Counter(chain.from_iterable(each(masked, files)))
    return MaskedColumns(candidates, dict(sorted(num_files.items())), computed)


def nullable_schema(schema: pa.Schema, files: Iterable[DatasetFile]) -> pa.Schema:
    """Return the schema of a data set; every column whose key may be missing is nullable."""
    names = frozenset[str]().union(*{file.maskable for file in files})
    return pa.schema([field.with_nullable(True) if field.name in names else field
                      for field in schema], schema.metadata)


def _is_possible(file: DatasetFile, row_filter: RowGroupFilter) -> bool:
    alternatives = row_filter.alternatives_for(file.schema)
    return alternatives is None or remaining(alternatives, file.partition_values) != []
