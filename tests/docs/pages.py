"""The pages of the site, and what is in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "vectors" / "README.md"])
#: modules whose names are public, and the page of the reference that lists them
PUBLIC = {"secure_bloom": "secure-bloom", "secure_bloom.keys": "keys",
          "secure_bloom.policy": "policy", "secure_bloom.index": "table-index",
          "secure_bloom.spark": "spark", "secure_bloom.spark.native": "spark",
          "secure_bloom.lance": "lance", "secure_bloom.errors": "errors"}

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)
_LINK = re.compile(r"\]\(\s*([^)\s]+)\s*\)")


def prose(text: str) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", text)


def section(page: str, heading: str) -> str:
    """Return the text below a heading of the second level of a page in docs."""
    _, found, rest = (ROOT / "docs" / page).read_text().partition(f"\n## {heading}\n")
    assert found, f"{page} has no section {heading}"
    return rest.partition("\n## ")[0]


def links(text: str) -> list[str]:
    """Return the targets of the links and pictures of a page."""
    return _LINK.findall(prose(text))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as code hosts and MyST make them."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(text)):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number, name = 0, slug
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


def documented(page: str) -> set[str]:
    """Return the full names that a page of the reference takes from docstrings."""
    names, module = set(), ""
    for directive, name in re.findall(r"^\.\. (\w+):: ([\w.]+)$", page, re.MULTILINE):
        if directive == "currentmodule":
            module = name
        elif directive.startswith("auto"):
            names.add(name if directive == "automodule" else f"{module}.{name}")
    return names
