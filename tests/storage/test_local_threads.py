"""Work on many local files, in the calling thread or in others."""

import threading

import pytest

from secure_bloom.storage import local_threads
from secure_bloom.storage.local_threads import LocalThreads


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
    monkeypatch.setattr(local_threads, "time", clocks)
    with LocalThreads(2) as pool:
        found = list(pool.map(clocks.work, range(20)))
    assert [number for number, _ in found] == list(range(20))
    assert [is_here for _, is_here in found] == [True] * here + [False] * (20 - here)


def test_an_error_comes_through_and_ends_the_work():
    done = []

    def work(number: int) -> None:
        done.append(number)
        if number == 3:
            raise ValueError("no")

    with LocalThreads(1) as pool, pytest.raises(ValueError, match="no"):
        list(pool.map(work, range(4)))
    assert done == [0, 1, 2, 3]


def test_several_iterables_end_with_the_shortest():
    with LocalThreads(2) as pool:
        assert list(pool.map(pow, [2, 3, 4], [2, 2])) == [4, 9]
        assert list(pool.map(pow, [], [2])) == []
