"""``docs/reliability.md``: what was tried, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.pages import put
from tests.soak.checks import CHECKS
from tests.soak.runner import Tried

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
STATE = Path(__file__).parent / "tried.json"  #: what all runs have tried


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
    versions = ", ".join(f"{name} {version}" for name, version in about.items())
    return "\n".join([*lines, "", f"The last run: {versions}. What was counted in each check is in "
                      f"[{STATE.name}](../tests/soak/{STATE.name})."])
