"""Work on many items in threads, with only a few of them in memory at a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from threading import Lock
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.storage.forks import renewed_in_children

if sys.platform == "linux":
    import resource

_WAITING = 4  # queued tasks per thread
_WAITS = 0.02  # seconds; less says nothing
_MUCH = 0.001  # seconds of work on a file: reading and decrypting large filters, without the GIL
_MUCH_TO_CHANGE = 0.005  # seconds likewise where a small file takes one or two, with the GIL
_LONG = 0.05  # seconds after which a file is not small
_MAX_WAIT = 0.01  # seconds for a turn

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def in_threads(work: Callable[[Item], Outcome], items: Iterable[Item],
               threads: int) -> Iterator[Outcome]:
    """Yield the result of a function for each item, in order of completion.

    After the first error no further task is started; it is raised when the running ones have ended.
    One thread works as long as others would hardly save time: that is soon known.
    """
    items, pace = iter(items), _Pace(_MUCH_TO_CHANGE)
    started: list[Future[Outcome]] = []
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            started = [pool.submit(pace.measured, work, item)]
            if wait(started, _LONG).not_done:
                break
            yield started.pop().result()
            if pace.needs_help:
                break
        yield from _outcomes(pool, work, items, _WAITING * threads, lambda tasks: wait(
            tasks, return_when=FIRST_COMPLETED).done, started)


def in_order(pool: Executor, work: Callable[[Item], Outcome], items: Iterable[Item],
             ahead: int = 64) -> Iterator[Outcome]:
    """Yield the result of a function for each item, in order; a few items are submitted ahead.

    With :class:`LocalThreads`, the calling thread works as long as that rarely waits.
    """
    items = iter(items)
    if isinstance(pool, LocalThreads):
        yield from _in_this_thread(work, items)
    yield from _outcomes(pool, work, items, ahead, lambda tasks: tasks[:1])


def _in_this_thread(work: Callable[[Item], Outcome], items: Iterator[Item]) -> Iterator[Outcome]:
    """Yield results until other threads would save time."""
    pace = _Pace(_MUCH)
    for item in items:
        yield pace.measured(work, item)
        if pace.needs_help:
            return


class _Pace:
    """Whether work that a single thread has done so far would take less time in several.

    That is so once it has waited twice as long as it has worked, or if an item has turned out to be
    more work than ``much`` seconds, of which a large part does not need the GIL.
    """

    def __init__(self, much: float):
        self._much, self._number, self._worked, self._waited = much, 0, 0.0, 0.0

    def measured(self, work: Callable[[Item], Outcome], item: Item) -> Outcome:
        """Return the result for an item."""
        began, began_work, waits = time.perf_counter(), time.thread_time(), _waits()
        result = work(item)
        worked = time.thread_time() - began_work
        if _waits() != waits:  # otherwise it only had no core for a while
            self._waited += time.perf_counter() - began - worked
        self._worked += worked
        self._number += 1
        return result

    @property
    def needs_help(self) -> bool:
        """Whether other threads would save time."""
        return self._waited > max(_WAITS, 2 * self._worked) \
            or self._worked > max(_WAITS, self._number * self._much)


def _waits() -> float:
    """Return how often this thread has waited for something; only Linux counts that.

    Elsewhere a new number each time, as if it had waited.
    """
    if sys.platform == "linux":
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return time.perf_counter()


def _outcomes(pool: Executor, work: Callable[[Item], Outcome], items: Iterable[Item], ahead: int,
              choose: Callable[[list[Future[Outcome]]], Iterable[Future[Outcome]]],
              started: Iterable[Future[Outcome]] = ()) -> Iterator[Outcome]:
    """Yield the results of the tasks that are chosen next, from those that were submitted.

    Items are submitted gradually: a million queued tasks would take more than a gigabyte.
    ``started`` are tasks before them.
    """
    items = iter(items)
    tasks = list(started)
    try:
        while True:
            tasks += [pool.submit(work, item) for item in islice(items, ahead - len(tasks))]
            if not tasks:
                return
            for task in choose(tasks):
                tasks.remove(task)
                yield task.result()
    finally:
        for task in tasks:
            task.cancel()


def pool_for(filesystem: pa_fs.FileSystem) -> ThreadPoolExecutor:
    """Return a pool of as many threads as files are opened at a time."""
    if filesystem.type_name == "local":
        return LocalThreads(min(pa.cpu_count(), 4))
    return ThreadPoolExecutor(pa.io_thread_count())


class LocalThreads(ThreadPoolExecutor):
    """Threads for local files, which :func:`in_order` uses only if they save time.

    Files in memory involve no waiting, and threads would only pass the GIL on: for small files,
    that takes as long as the work.
    """


class Turns:
    """Lets threads work one after the other, but none waits long for its turn.

    Python runs one thread at a time. Threads that make many short system calls hand the GIL over at
    each of them, which takes more time than their work.
    """

    def __init__(self) -> None:
        self.renew()
        renewed_in_children(self)

    def renew(self) -> None:
        """Begin without waiting for the thread whose turn it is."""
        self._lock = Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a turn, but only some milliseconds: others may be waiting for a disk or a store.
        """
        lock = self._lock
        is_taken = lock.acquire(timeout=_MAX_WAIT)
        try:
            yield
        finally:
            if is_taken:
                lock.release()

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        return Turns, ()
