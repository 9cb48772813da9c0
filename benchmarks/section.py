"""What a benchmark gives back, and how all of them are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes
    ----------
    folder : Path
        For files; empty at first.
    rounds : int
        How often each contestant does its work.
    scale : float
        1 for what the documentation shows; less for a glance.
    """

    folder: Path
    rounds: int = 5
    scale: float = 1.0

    def size(self, full: int, least: int = 1) -> int:
        """A number of rows, files or rounds, scaled."""
        return max(least, int(full * self.scale))


@dataclass(frozen=True)
class Section:
    """The outcome of one benchmark.

    Attributes
    ----------
    text : str
        Markdown: tables.
    data : object
        All times and counts, for JSON.
    charts : dict of str to callable
        File name -> a function that draws on a matplotlib figure.
    """

    text: str
    data: object
    charts: dict[str, Callable] = field(default_factory=dict)
