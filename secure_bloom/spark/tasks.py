"""Call a function for each of some items, each in a Spark task."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from secure_bloom.spark.worker_python import fitting_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_TASKS = 10_000

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def run_tasks(spark: SparkSession, work: Callable[[Item], Outcome], items: Sequence[Item]) \
        -> list[Outcome]:
    """Return the result of a function for each item, in tasks, in order.

    The function, all items and all results are pickled.
    """
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            result = pickle.dumps(work(items[number]))
            yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]})

    numbers = spark.range(0, len(items), 1, max(1, min(len(items), _MAX_TASKS)))
    with fitting_python(spark):
        rows = numbers.mapInArrow(run, "number long, result binary").collect()
    return [pickle.loads(row["result"]) for row in sorted(rows)]
