"""What became of the mutants: figures for the page, and survivors that are explained."""

from __future__ import annotations

import functools
import json
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.pages import put

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
ROOMS = "crypto", "sbbf", "parquet", "storage", "index"
EXPLAINED = Path(__file__).with_name("explained.toml")


@dataclass(frozen=True)
class Tried:
    """A mutant, and what became of it."""

    file: str
    line: int
    source: str
    operator: str
    before: str
    after: str
    outcome: str
    test: str | None
    tests: int
    seconds: float

    @property
    def room(self) -> str:
        """The room of its module."""
        return self.file.split("/")[1]

    def text(self) -> str:
        """Return it in one line."""
        before = " ".join(self.before.split())
        return f"{self.file}:{self.line}: {self.operator}: {before} -> {self.after}"


def load(path: Path) -> dict[str, Tried]:
    """Return what earlier runs have tried."""
    stored = json.loads(path.read_text()) if path.exists() else {}
    return {key: Tried(**one) for key, one in stored.items()}


@functools.cache
def explained() -> dict[tuple[str, str, str], str]:
    """Return why mutants change nothing that a test could notice, by file, source and new text."""
    entries = tomllib.loads(EXPLAINED.read_text())["mutant"]
    return {(one["file"], one["line"], after): one["reason"]
            for one in entries for after in one["after"]}


def explanation(one: Tried) -> str | None:
    """Return why a mutant changes nothing that a test could notice; None if that is not known."""
    return explained().get((one.file, one.source, one.after))


def summary(tried: dict[str, Tried], existing: Counter[str]) -> list[str]:
    """Return the table of the page as Markdown; ``existing`` is how many mutants a room has."""
    lines = ["| room | mutants | tried | killed | survived, explained | survived | killed of those "
             "that are not explained |", "|---|---|---|---|---|---|---|"]
    total: Counter[str] = Counter()
    for room in ROOMS:
        counts = Counter(_outcome(one) for one in tried.values() if one.room == room)
        total += counts
        lines.append(_row(f"`{room}`", existing[room], counts))
    return [*lines, _row("all", existing.total(), total)]


def _outcome(one: Tried) -> str:
    if one.outcome != "survived":
        return "killed"
    return "explained" if explanation(one) else "survived"


def _row(name: str, existing: int, counts: Counter[str]) -> str:
    unexplained = counts["killed"] + counts["survived"]
    share = f"{100 * counts['killed'] / unexplained:.1f}%" if unexplained else ""
    numbers = [existing, counts.total(), *(counts[what] for what in ("killed", "explained",
                                                                     "survived"))]
    return f"| {' | '.join([name, *(f'{number:,}' for number in numbers), share])} |"


def survivors(tried: dict[str, Tried]) -> list[str]:
    """Return a line of Markdown for each mutant that survived without a known reason."""
    return sorted(f"- `{one.text()}`" for one in tried.values() if _outcome(one) == "survived")


def write_page(tried: dict[str, Tried], existing: Counter[str]) -> None:
    """Replace the table of the page, and the list of survivors."""
    put(PAGE, "mutants", "\n".join(summary(tried, existing)))
    put(PAGE, "survivors", "\n".join(survivors(tried)) or "None.")
