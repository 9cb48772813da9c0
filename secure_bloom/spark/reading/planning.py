"""A lookup of few values is done while the query is planned, so that only matches take tasks.

A task costs more than looking at dozens of small files. So the driver looks at files itself while
that rules most of them out, and takes little time. The tasks get the other files. They check that
the files that they open are of the version that was listed, as the driver does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow.fs as pa_fs

from secure_bloom.spark.options.row_filters import ColumnPredicate
from secure_bloom.spark.reading.metrics import log
from secure_bloom.spark.reading.splits import DataFile, Looked

MAX_SECONDS = 2.0  # that looking may take, at the pace so far, before all is left to tasks
_FIRST_FILES = 32  # too few to tell the pace, or how many files match
_AHEAD = 16  # files that threads look at meanwhile


@dataclass
class Planned:
    """The files to read, and how many files and bytes the driver has ruled out for which reason."""

    files: list[DataFile]
    by_statistics: tuple[int, int] = (0, 0)
    by_filters: tuple[int, int] = (0, 0)

    def report(self, tasks: int, listed: Sequence[DataFile], in_partitions: Sequence[DataFile],
               by_index: Sequence[DataFile]) -> None:
        """Write the driver's log line, given the files that remained after each earlier step."""
        total, after_partitions, after_index = (
            (len(some), sum(file.size for file in some))
            for some in (listed, in_partitions, by_index))
        skipped = {"partition": _difference(total, after_partitions),
                   "index": _difference(after_partitions, after_index),
                   "statistics": self.by_statistics, "filters": self.by_filters}
        log(f"{tasks} tasks read {len(self.files)} files of {total[0]} files, {total[1]} bytes; "
            "of the others, "
            + ", ".join(f"{files} are skipped by {reason}"
                        for reason, (files, _) in skipped.items()),
            {"tasks": tasks, "total_files": total[0], "total_bytes": total[1],
             **{f"skipped_by_{reason}_{what}": amount for reason, amounts in skipped.items()
                for what, amount in zip(("files", "bytes"), amounts, strict=True)}})


def names_values(alternatives: Iterable[Iterable[ColumnPredicate]],
                 in_paths: Container[str]) -> bool:
    """Whether Bloom filters may rule files out, if one list of predicates must hold.

    ``in_paths`` are the columns that files do not have.
    """
    return all(any(predicate.on("").candidates is not None
                   for predicate in all_of if predicate.path[0] not in in_paths)
               for all_of in alternatives)


def look_up(files: list[DataFile], look: Callable[[DataFile], DataFile],
            filesystem: pa_fs.FileSystem) -> Planned:
    """Look at files for as long as it pays, and leave out those in which nothing can match.

    ``look`` returns the file with what it found. What cannot be looked at is left to the tasks,
    whose errors name the file. Perhaps they have a key that the driver lacks.
    """
    from secure_bloom.storage.threads import in_order, pool_for
    # Tasks on a busy machine would wait for its cores as well, so that time does not count.
    clock = time.process_time if filesystem.type_name == "local" else time.monotonic
    planned = Planned([])
    done, matching, start = 0, 0, clock()
    with pool_for(filesystem) as pool:
        for file in in_order(pool, partial(_try, look), files, _AHEAD):
            if file is None or file.looked is None:
                break
            matching += _add(planned, file, file.looked)
            done += 1
            if done == _FIRST_FILES:  # which include what is done only once
                start = clock()
            if done >= _FIRST_FILES and 2 * matching > done:
                break
            if done == 2 * _FIRST_FILES:
                pace = (clock() - start) / _FIRST_FILES
                if pace * (len(files) - done) > MAX_SECONDS:
                    break
        pool.shutdown(cancel_futures=True)
    planned.files += files[done:]
    return planned


def _try(look: Callable[[DataFile], DataFile], file: DataFile) -> DataFile | None:
    try:
        return look(file)
    except Exception:
        return None


def _add(planned: Planned, file: DataFile, looked: Looked) -> bool:
    if looked.after_filters:
        planned.files.append(file)
        return True
    if looked.after_statistics:
        planned.by_filters = _sum(planned.by_filters, (1, file.size))
    else:
        planned.by_statistics = _sum(planned.by_statistics, (1, file.size))
    return False


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _difference(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] - other[0], one[1] - other[1]
