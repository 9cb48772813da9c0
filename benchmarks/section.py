"""The parameters and the result of a benchmark."""

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
        Folder for files; empty at the start.
    rounds : int
        Number of rounds for each contestant.
    scale : float
        1 for the figures in the documentation; less for a quick run.
    large : bool
        Whether files of several GB are measured, too.
    """

    folder: Path
    rounds: int = 5
    scale: float = 1.0
    large: bool = False

    def size(self, full: int, least: int = 1) -> int:
        """Scale a number of rows, files or rounds."""
        return max(least, int(full * self.scale))


@dataclass(frozen=True)
class Section:
    """The outcome of one benchmark.

    Attributes
    ----------
    text : str
        Markdown with tables.
    data : object
        All times and counts, for JSON.
    charts : dict of str to callable
        File name -> function that draws on a matplotlib figure.
    """

    text: str
    data: object
    charts: dict[str, Callable] = field(default_factory=dict)
