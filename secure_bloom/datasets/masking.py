"""Masked columns of several files: each file has its own keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def count_masked(files: Iterable[Iterable[str]]) -> dict[str, int]:
    """Return in how many files each column is masked, from the masked columns of each file."""
    return dict(sorted(Counter(name for masked in files for name in masked).items()))
