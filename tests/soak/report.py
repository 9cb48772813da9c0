"""``docs/reliability.md``: what was tried, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.pages import put
from tests.soak.checks import CHECKS
from tests.soak.runner import Tried

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def write_page(tried: dict[str, Tried], about: dict[str, Any]) -> None:
    """Replace the table of the page."""
    put(PAGE, "tried", table(tried, about))


def table(tried: dict[str, Tried], about: dict[str, Any]) -> str:
    """Return what was tried as Markdown."""
    lines = ["| check | promise | tried | goal | failures |", "|---|---|---|---|---|"]
    for name, check in CHECKS.items():
        one = tried[name]
        lines.append(f"| `{name}` | {check.promise} | {one.tried:,} {check.unit} | "
                     f"{check.target:,} | {len(one.failures)} |")
    seconds = sum(one.seconds for one in tried.values())
    versions = ", ".join(f"{name} {version}" for name, version in about.items())
    return "\n".join([*lines, "", f"In {seconds:,.0f} seconds, summed over all processes; "
                      f"{versions}.", "", "What was counted in each check:", "",
                      *(_counted(name, tried[name]) for name in CHECKS if tried[name].counts)])


def _counted(name: str, one: Tried) -> str:
    """Return a section that is closed until a reader opens it."""
    rows = [f"| {what} | {number:,} |" for what, number in sorted(one.counts.items())]
    return "\n".join(["<details>", f"<summary><code>{name}</code></summary>", "",
                      "| counted | number |", "|---|---:|", *rows, "", "</details>", ""])
