"""Work on many local files: in the calling thread, unless the files are slow to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_WAITS = 0.02  # seconds; less says nothing
_MUCH = 0.001  # seconds of work on a file: reading and decrypting large filters, without the GIL

_Result = TypeVar("_Result")


class LocalThreads(ThreadPoolExecutor):
    """A pool whose :meth:`map` works in the calling thread as long as that rarely waits.

    Files in memory involve no waiting, and threads would only pass the GIL on: for small files,
    that takes as long as the work. Once the calling thread has waited twice as long as it has
    worked, or if a file is much work, other threads do the rest.
    """

    def map(self, work: Callable[..., _Result], *iterables: Iterable[Any],
            timeout: float | None = None, chunksize: int = 1) -> Iterator[_Result]:
        """Yield the results in order; see :class:`ThreadPoolExecutor`."""
        items = zip(*iterables, strict=False)
        worked = waited = 0.0
        for number, item in enumerate(items, 1):
            began, began_work = time.perf_counter(), time.thread_time()
            result = work(*item)
            worked_now = time.thread_time() - began_work
            worked += worked_now
            waited += time.perf_counter() - began - worked_now
            yield result
            if waited > max(_WAITS, 2 * worked) or worked > max(_WAITS, number * _MUCH):
                break
        rest = list(items)
        if rest:
            yield from super().map(work, *zip(*rest, strict=True), timeout=timeout)
