"""Work on many files in threads, with memory for a few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

_WAITING = 4  # tasks for each thread

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def in_threads(work: Callable[[Item], Outcome], items: Iterable[Item],
               threads: int) -> Iterator[Outcome]:
    """What a function returns for each item, as they are done.

    Not all items are taken at once: a million of tasks that wait would take more than a gigabyte.
    The first error ends it; what runs then is waited for.
    """
    items = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        tasks: set[Future] = set()
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
