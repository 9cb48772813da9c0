"""What the demo tells: printed while it happens, and kept for the page."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import click
import pyarrow as pa

from secure_bloom.keys import Keyring

_WIDTH = 98  # characters
_BAR = 40


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """What a user would write."""

    text: str


@dataclass(frozen=True)
class Output:
    """What a command would print."""

    text: str


@dataclass(frozen=True)
class Cells:
    """Row groups or files, and which of them were used.

    Attributes
    ----------
    what : str
        The noun, in plural.
    number : int
    used : set of int
        Their positions, from 0.
    verb : str
        What happened to these: ``"read"``.
    """

    what: str
    number: int
    used: Set[int]
    verb: str

    def __str__(self) -> str:
        return f"{len(self.used):,} of {self.number:,} {self.what} {self.verb}"


@dataclass(frozen=True)
class Bar:
    """A bar of a chart; ``state`` is one of the states of an audit, which have colours."""

    label: str
    value: float
    text: str
    state: str


@dataclass(frozen=True)
class Bars:
    """A chart of horizontal bars, with its title."""

    title: str
    bars: tuple[Bar, ...]

    @property
    def top(self) -> float:
        """The value of a full bar."""
        return max(bar.value for bar in self.bars) or 1


Part: TypeAlias = Text | Code | Output | Cells | Bars


@dataclass
class Chapter:
    """A part of the tour.

    Attributes
    ----------
    title : str
    parts : list of Part
    highlight : tuple of (str, str) or None
        The figure to remember, and what it says.
    seconds : float
        How long it took.
    """

    title: str
    parts: list[Part] = field(default_factory=list)
    highlight: tuple[str, str] | None = None
    seconds: float = 0.0


class Story:
    """The chapters of the tour; each is printed while it happens.

    Parameters
    ----------
    length : int
        The number of chapters to come.
    """

    def __init__(self, length: int):
        self._length = length
        self.chapters: list[Chapter] = []

    @contextmanager
    def chapter(self, title: str) -> Iterator[None]:
        """Begin a chapter, and measure how long the block takes."""
        self.chapters.append(Chapter(title))
        click.echo("\n" + click.style(f"{len(self.chapters)}/{self._length}  {title}", bold=True))
        start = time.monotonic()
        yield
        self.chapters[-1].seconds = time.monotonic() - start
        click.secho(f"  {self.chapters[-1].seconds:.1f} s", dim=True)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.add(Text(text))

    def highlight(self, figure: str, text: str) -> None:
        """Say what to remember of this chapter; shown on the page."""
        self.chapters[-1].highlight = figure, text

    def add(self, part: Part) -> None:
        """Add a part to the chapter, and print it."""
        self.chapters[-1].parts.append(part)
        click.echo(_on_terminal(part))


@dataclass
class Tour:
    """What the chapters share: the story, the data, and where files and keys are."""

    story: Story
    flights: pa.Table
    output: Path
    keyring: Keyring

    @property
    def file(self) -> Path:
        """All flights in one file."""
        return self.output / "flights.parquet"

    @property
    def table(self) -> Path:
        """All flights in one file for each day."""
        return self.output / "flights-by-day"


def _on_terminal(part: Part) -> str:
    match part:
        case Text(text):
            return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ",
                                 break_long_words=False, break_on_hyphens=False)
        case Code(text):
            return click.style(textwrap.indent(text, "  "), dim=True)
        case Output(text):
            return text
        case Cells():
            return _cells_on_terminal(part)
        case Bars():
            return _bars_on_terminal(part)


def _cells_on_terminal(cells: Cells) -> str:
    """One character for each cell, or for several if there are many."""
    step = -(-cells.number // (_WIDTH - 2))
    used = {position // step for position in cells.used}
    line = "".join(click.style("█", fg="green") if position in used else click.style("·", dim=True)
                   for position in range(-(-cells.number // step)))
    return f"  {line}\n  █ {cells}"


def _bars_on_terminal(chart: Bars) -> str:
    width = max(len(bar.label) for bar in chart.bars)
    lines = [f"  {bar.label:<{width}}  {'█' * round(bar.value / chart.top * _BAR)} {bar.text}"
             for bar in chart.bars]
    return "\n".join([f"  {chart.title}:", *lines])
