"""Row filters applied to rows: one interface for lists of predicates and for Expressions.

pyarrow does not filter files. It would simplify a filter using row-group statistics, which do not
include NaN and in which it treats -0.0 and 0.0 as different, and it cannot compare every type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from secure_bloom.arrow.predicate_rows import PredicateRows
from secure_bloom.pruning.expressions import Alternatives, RowGroupFilter
from secure_bloom.pruning.predicates import Condition

if TYPE_CHECKING:
    from secure_bloom.arrow.expression_rows import ExpressionRows


class RowFilter(RowGroupFilter):
    """A filter for rows of a schema.

    Parameters
    ----------
    condition : list of list of Predicate, or pyarrow.compute.Expression
        As :func:`secure_bloom.pruning.predicates.condition_of` returns it.
    schema : pyarrow.Schema
        All columns of the table, with partition columns.

    Attributes
    ----------
    columns : list of str
        The top-level columns that it needs, each once.
    alternatives : list of list of Predicate, or None
        A filter for pruning that holds for every row that this filter selects, and maybe for
        others. None: no row group can be skipped. []: no row matches.

    Raises
    ------
    ColumnError
        If a column is not in the schema, or a row can hold several values of it.
    PredicateError
        If a value cannot be compared with its column.
    """

    def __init__(self, condition: Condition, schema: pa.Schema):
        self._rows: PredicateRows | ExpressionRows
        alternatives: Alternatives
        if isinstance(condition, list):
            self._rows, alternatives = PredicateRows(condition, schema), condition
        else:
            from secure_bloom.arrow.expression_rows import ExpressionRows
            self._rows = rows = ExpressionRows(condition, schema)
            alternatives = rows.alternatives
        super().__init__(self._rows.columns, alternatives, schema)

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether the filter holds; never null.

        The batch must have the ``columns``, with the types in the schema, and may have others.

        Raises
        ------
        PredicateError
            If Arrow cannot evaluate the filter on these values: it refuses to compare integers
            beyond 2^53 with floating-point numbers, for example.
        """
        return self._rows.holds(batch)
