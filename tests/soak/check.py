"""What a check is, and one case of it."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass
class Case:
    """One case, which its seed determines.

    Attributes
    ----------
    random : random.Random
    numpy : numpy.random.Generator
    folder : Path
        Empty, and removed afterwards.
    seconds : float
        How long to try what has no end of its own.
    tried : int
        How much the case has tried, in the unit of its check.
    counts : Counter
        What else is worth a line in the report, such as outcomes.
    """

    random: random.Random
    numpy: np.random.Generator
    folder: Path
    seconds: float
    tried: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, check: str, seed: int, folder: Path, seconds: float) -> Case:
        """Return a case of a check."""
        text = f"{check}:{seed}"
        return cls(random.Random(text), np.random.default_rng(list(text.encode())), folder,
                   seconds)


@dataclass(frozen=True)
class Check:
    """Something that must never happen, and how it is tried.

    Attributes
    ----------
    name : str
    promise : str
        What must hold, in one sentence.
    unit : str
        What is counted.
    target : int
        How many of them to try before a release.
    try_case : callable
        Tries one case, of seconds; raises if the promise does not hold.
    is_extra : bool
        Whether it is tried only if it is named, because a case takes long.
    """

    name: str
    promise: str
    unit: str
    target: int
    try_case: Callable[[Case], None]
    is_extra: bool = False


@contextmanager
def in_memory(case: Case) -> Iterator[Path]:
    """Make a folder for files that are synced again and again, which a disk would make slow."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield case.folder
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)
