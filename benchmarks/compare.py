"""Run contestants back to back, and measure how many times faster each is than the first.

Machines are noisy, so a single time means little: contestants take turns in rounds, and each is
compared with the first contestant of the same round.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

FEWEST_ROUNDS, LONG = 2, 15.0  #: rounds that are always made, and seconds until others are


@dataclass(frozen=True)
class Comparison:
    """The times of several contestants for the same work.

    Attributes
    ----------
    work : str
    seconds : dict of str to list of float
        For each contestant, one time per round; the first contestant is the peer.
    """

    work: str
    seconds: dict[str, list[float]]

    @property
    def peer(self) -> str:
        """The contestant that the others are compared with."""
        return next(iter(self.seconds))

    def ratios(self, name: str) -> list[float]:
        """How many times faster than the peer, in each round."""
        return [peer / own for peer, own in
                zip(self.seconds[self.peer], self.seconds[name], strict=True)]

    def to_json(self) -> dict:
        """The result as a dictionary for JSON."""
        return {"work": self.work, "peer": self.peer, "seconds": self.seconds,
                "ratios": {name: spread(self.ratios(name)) for name in self.seconds}}


def compare(work: str, contestants: Mapping[str, Callable[[], object]], rounds: int,
            show: Callable[[str], None] = print,
            clock: Callable[[], float] = time.perf_counter) -> Comparison:
    """Let contestants take turns, after one uncounted warm-up run each.

    There are at least FEWEST_ROUNDS, and no more than LONG seconds allow: long times vary less.
    """
    begin = time.monotonic()
    for contestant in contestants.values():
        contestant()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        if number >= FEWEST_ROUNDS and time.monotonic() - begin > LONG:
            break
        for name, contestant in contestants.items():
            gc.collect()
            start = clock()
            contestant()
            seconds[name].append(clock() - start)
            show(f"{work}, round {number + 1}: {name} {seconds[name][-1]:.3f} s")
    return Comparison(work, seconds)


def median_time(work: Callable[[], object], rounds: int) -> float:
    """Return the median time of some rounds, in seconds, after one uncounted run."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cpu_time() -> float:
    """CPU seconds used by this process and all of its descendants, including ended ones.

    On a busy machine this is more meaningful than wall-clock time. Linux only.
    """
    ticks, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    mine, found = {os.getpid()}, {os.getpid()}
    while found:
        found = {process for process, parent in parents.items() if parent in found} - mine
        mine |= found
    return sum(ticks.get(process, 0) for process in mine) / os.sysconf("SC_CLK_TCK")


def table(comparisons: list[Comparison]) -> str:
    """Return a Markdown table: median, minimum and maximum ratio, and the median time."""
    lines = ["| work | contestant | speed relative to | ratio (min to max) | median time |",
             "|---|---|---|---|---|"]
    for comparison in comparisons:
        for name, times in comparison.seconds.items():
            ratio = spread(comparison.ratios(name))
            lines.append(f"| {comparison.work} | {name} | {comparison.peer} "
                         f"| {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}) "
                         f"| {statistics.median(times):.2f} s |")
    return "\n".join(lines)


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}
