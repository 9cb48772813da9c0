"""Work on many items, in the calling thread or in others."""

import multiprocessing
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from secure_bloom.storage import threads
from secure_bloom.storage.cache import Cache
from secure_bloom.storage.threads import LocalThreads, Turns, in_order, in_threads


class Clocks:
    """The time, and what the thread has worked, which each piece of work advances."""

    def __init__(self, works: float, waits: float):
        self._works, self._waits = works, waits
        self._now = self._worked = 0.0

    def perf_counter(self) -> float:
        return self._now

    def thread_time(self) -> float:
        return self._worked

    def work(self, number: int) -> tuple[int, bool]:
        self._now += self._works + self._waits
        self._worked += self._works
        return number, threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(("works", "waits", "here"), [
    (0.0005, 0, 20), (0.0005, 0.0009, 20), (0.0005, 0.0015, 14), (0.0001, 1, 1), (0.0015, 0, 14),
    (1, 0, 1)])
def test_other_threads_help_if_this_one_waits_or_a_file_is_much_work(
        monkeypatch, works, waits, here):
    clocks = Clocks(works, waits)
    monkeypatch.setattr(threads, "time", clocks)
    monkeypatch.setattr(threads, "_waits", clocks.perf_counter)
    with LocalThreads(2) as pool:
        found = list(in_order(pool, clocks.work, range(20)))
    assert [number for number, _ in found] == list(range(20))
    assert [is_here for _, is_here in found] == [True] * here + [False] * (20 - here)


def test_a_thread_that_had_no_core_for_a_while_has_not_waited(monkeypatch):
    clocks = Clocks(0.0001, 1)
    monkeypatch.setattr(threads, "time", clocks)
    monkeypatch.setattr(threads, "_waits", lambda: 7)
    with LocalThreads(2) as pool:
        assert all(is_here for _, is_here in in_order(pool, clocks.work, range(20)))


def test_an_error_comes_through_and_ends_the_work():
    done = []

    def work(number: int) -> None:
        done.append(number)
        if number == 3:
            raise ValueError("no")

    with LocalThreads(1) as pool, pytest.raises(ValueError, match="no"):
        list(in_order(pool, work, range(4)))
    assert done == [0, 1, 2, 3]


@pytest.mark.parametrize(("works", "waits", "alone"), [
    (0.004, 0, 20), (0.004, 0.007, 20), (0.004, 0.009, 3), (0.006, 0, 4)])
def test_small_files_are_changed_by_one_thread_unless_it_waits(monkeypatch, works, waits, alone):
    clocks, asked = Clocks(works, waits), []
    monkeypatch.setattr(threads, "time", clocks)
    monkeypatch.setattr(threads, "_waits", clocks.perf_counter)
    monkeypatch.setattr(threads, "_LONG", 60)
    results = in_threads(clocks.work, (asked.append(number) or number for number in range(20)), 2)
    for done in range(1, alone + 1):
        next(results)
        assert len(asked) == done
    rest = list(islice(results, 1))
    assert len(asked) > alone + 1 or not rest
    assert len([*rest, *results]) == 20 - alone


def test_other_threads_start_while_the_first_file_takes_long():
    second = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert second.wait(60)
        else:
            second.set()
        return number

    assert sorted(in_threads(work, range(5), 2)) == [0, 1, 2, 3, 4]


def test_only_a_few_tasks_wait_at_a_time():
    taken = 0

    def items():
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    for done, number in enumerate(in_threads(lambda number: number, items(), 3), 1):
        assert taken <= done + 12 and number < 1000
    assert taken == done == 1000


def test_queued_tasks_are_cancelled_when_the_caller_stops(monkeypatch):
    started, stopped = [], threading.Event()

    class Pool(threads.ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            stopped.set()
            super().shutdown()

    def work(number: int) -> int:
        started.append(number)
        assert number == 0 or stopped.wait(60)
        return number

    monkeypatch.setattr(threads, "ThreadPoolExecutor", Pool)
    results = in_threads(work, range(100), 1)
    assert next(results) == 0
    results.close()
    assert started in ([0], [0, 1])


def test_the_first_error_ends_it():
    started = []

    def work(number: int) -> int:
        started.append(number)
        if number == 5:
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="5"):
        list(in_threads(work, range(10_000), 2))
    assert len(started) < 50


def test_threads_go_one_after_the_other_and_none_waits_long(monkeypatch):
    monkeypatch.setattr(threads, "_MAX_WAIT", 60)
    turns, inside, most = pickle.loads(pickle.dumps(Turns())), [], []

    def work(seconds: float) -> None:
        with turns.taken():
            inside.append(1)
            most.append(len(inside))
            time.sleep(seconds)
            inside.pop()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, [0.0001] * 10))
        assert max(most) == 1
        monkeypatch.setattr(threads, "_MAX_WAIT", 0.01)
        with turns.taken():  # as by a thread that waits for a disk
            list(pool.map(work, [0]))
    assert len(most) == 11


def _use_in_child(cache, turns, results):
    with turns.taken():
        is_taken = turns._lock.locked()
    results.put((cache.get("key"), is_taken, turns._lock.locked()))


def test_a_forked_process_does_not_wait_for_threads_of_its_parent():
    context, cache, turns = multiprocessing.get_context("fork"), Cache(10), Turns()
    results = context.Queue()
    cache.put("key", "value")
    with cache._lock, turns.taken():  # as if another thread were in the middle of it
        child = context.Process(target=_use_in_child, args=(cache, turns, results))
        child.start()
        assert results.get(timeout=60) == (None, True, False)
        child.join()
    assert cache.get("key") == "value"
