"""Process many files in threads, with only a few of them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar

_WAITING = 4  # queued tasks per thread

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def in_threads(work: Callable[[Item], Outcome], items: Iterable[Item],
               threads: int) -> Iterator[Outcome]:
    """Yield the result of a function for each item, in order of completion.

    Items are submitted gradually: a million queued tasks would take more than a gigabyte.
    After the first error no further task is started; it is raised when the running ones have ended.
    """
    items = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        tasks: set[Future[Any]] = set()
        try:
            while True:
                more = islice(items, _WAITING * threads - len(tasks))
                tasks.update(pool.submit(work, item) for item in more)
                if not tasks:
                    return
                done, tasks = wait(tasks, return_when=FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
