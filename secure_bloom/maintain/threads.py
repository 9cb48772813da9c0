"""Work on many files in threads, with memory for a few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar

_WAITING = 4  # tasks for each thread

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def in_threads(work: Callable[[Item], Outcome], items: Iterable[Item],
               threads: int) -> Iterator[Outcome]:
    """What a function returns for each item, in the order in which they are done.

    Not all items are taken at once: a million waiting tasks would take more than a gigabyte.
    After the first error no more tasks begin; it is raised when those that run have ended.
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
