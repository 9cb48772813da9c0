"""Measure how times grow with rows, row groups, columns and files."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.compare import median_time
from benchmarks.section import Plan, Section
from secure_bloom import (
    ParquetFile,
    SplitBlockBloomFilter,
    UniformKey,
    read_table,
    write_table,
)
from secure_bloom.keys import ExplicitKeys

KEY = bytes(range(16))
ABSENT = -1


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    folder, rounds = plan.folder, max(2, plan.rounds // 2)
    works = {
        "rows: build a filter": (
            _steps(plan, 2**18, 2, 8), lambda n: _build(n)),
        "row groups: write": (
            _steps(plan, 1, 10, 4), lambda n: partial(_write, folder, 1, n)),
        "row groups: look up": (
            _steps(plan, 1, 10, 4), lambda n: _lookup(folder, 1, n)),
        "columns: write a filter on each": (
            _steps(plan, 1, 10, 4), lambda n: partial(_write, folder, n, 1)),
        "columns: look up in one": (
            _steps(plan, 1, 10, 4), lambda n: _lookup(folder, n, 1)),
        "files: look up": (
            _steps(plan, 1, 10, 5), lambda n: _lookup_in_files(folder, n)),
    }
    found = {name: [(n, median_time(make(n), rounds)) for n in sizes]
             for name, (sizes, make) in works.items()}
    lines = ["| dimension: work | sizes | time | last step: size, time |", "|---|---|---|---|"]
    for name, points in found.items():
        (n1, t1), (n2, t2) = points[-2:]
        lines.append(f"| {name} | {points[0][0]:,} to {n2:,} | {_shown(points[0][1])} to "
                     f"{_shown(t2)} | x {n2 / n1:g}, x {t2 / t1:.1f} |")
    return Section("\n".join(lines), found, {"growth.svg": partial(_draw, found)})


def _steps(plan: Plan, first: int, factor: int, count: int) -> list[int]:
    steps = [first * factor**i for i in range(count)]
    return steps if plan.scale >= 1 else steps[:2]


def _build(rows: int) -> Callable[[], object]:
    values = np.random.default_rng(1).integers(0, 2**63, rows)

    def build() -> None:
        SplitBlockBloomFilter.sized(ndv=rows).insert(values)
    return build


def _write(folder: Path, columns: int, row_groups: int) -> Path:
    """Write a file with 1,000 rows per row group, uniform encryption and a filter per column."""
    rows = pa.table({f"c{i}": (np.arange(1000 * row_groups) + i) * 7919 % (1 << 31)
                     for i in range(columns)})
    path = folder / "growth.parquet"
    write_table(rows, path, row_group_size=1000, encryption=UniformKey(KEY),
                bloom_filters=dict.fromkeys(rows.column_names, True))
    return path


def _lookup(folder: Path, columns: int, row_groups: int) -> Callable[[], object]:
    path = _write(folder, columns, row_groups)

    def look_up() -> None:
        with ParquetFile(path, ExplicitKeys(footer_key=KEY)) as file:
            file.might_contain("c0", ABSENT)
    return look_up


def _lookup_in_files(folder: Path, files: int) -> Callable[[], object]:
    one, target = _write(folder, 1, 1), folder / f"{files} files"
    target.mkdir()
    for number in range(files):
        shutil.copyfile(one, target / f"{number}.parquet")

    def look_up() -> None:
        read_table(target, keys=ExplicitKeys(footer_key=KEY), filters=[("c0", "=", 3)])
    return look_up


def _shown(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms" if seconds < 1 else f"{seconds:.2g} s"


def _draw(found: dict, figure) -> None:
    figure.set_size_inches(9, 5.5)
    for place, (name, points) in enumerate(found.items()):
        axes = figure.add_subplot(2, math.ceil(len(found) / 2), place + 1)
        sizes, times = zip(*points, strict=True)
        axes.loglog(sizes, times, "o-", label="measured")
        axes.loglog(sizes, [times[-1] * n / sizes[-1] for n in sizes], ":", color="grey",
                    label="linear")
        axes.set_title(name, fontsize=9)
        axes.set_ylabel("seconds", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7)
    figure.tight_layout()
