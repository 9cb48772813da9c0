"""Whole files with one fault each, and odd ones that are right: one after another."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from vectors.builder import filter_faults, footer_faults
from vectors.builder.faults import Base, Fault, base
from vectors.builder.odd_files import odd_files
from vectors.builder.reseal import seeded_random
from vectors.builder.small import OURS
from vectors.builder.vector import FileVector, Seeded

ORIGIN = f"{OURS}, pyarrow {version('pyarrow')}"


def bad_files() -> Iterator[FileVector]:
    """Files with one fault each, then odd files that are right."""
    for table in (*filter_faults.TABLES, *footer_faults.TABLES):
        for fault in table():
            for mode in fault.modes.split():
                yield _vector(fault, base(mode))
    yield from odd_files(ORIGIN)


def _vector(fault: Fault, good: Base) -> FileVector:
    name = f"{good.mode}-{fault.name}"
    with seeded_random(Seeded(name)):
        data = fault.data(good)
    keys = fault.keys(good)
    if (data, keys) == (good.data, good.keys):
        raise AssertionError(f"{name} has no fault")
    lost = [filter_ for filter_ in good.filters if fault.footer or fault.lost(filter_)]
    return FileVector(
        name, data, ORIGIN, keys, [filter_ for filter_ in good.filters if filter_ not in lost],
        fault.outcome, "footer" if fault.footer else f"{lost[0].row_group}:{lost[0].column}",
        fault.text)
