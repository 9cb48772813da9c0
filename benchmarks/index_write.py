"""What an index costs while files are written: ``write_dataset`` with an index, and without one.

The table is narrow: an id, a social security number, an amount and a city. The number is encrypted,
has a Bloom filter, and the index. Each write goes to a new folder, so it also creates the index.
Contestants take turns. CPU time is that of all threads of the process; on a busy machine, it says
more than elapsed time.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import time
from pathlib import Path

import pyarrow as pa

import secure_bloom
from benchmarks.compare import spread
from benchmarks.people import FILTERS, encryption, keyring, people
from benchmarks.section import Plan, Section
from secure_bloom.keys import Keyring

SIZES = (100_000, 1), (1_000_000, 1), (1_000_000, 10), (10_000_000, 20)  #: rows, files
FEW = 1_000_000  #: rows up to which there are twice as many rounds
WITHOUT, WITH = "without", "with"
CLOCKS = {"elapsed": time.perf_counter, "CPU": time.process_time}


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    ring = keyring(plan.folder / "keyring.json")
    found = {(rows, files): _write(plan, ring, plan.size(rows, 1000), files)
             for rows, files in SIZES}
    lines = ["| rows, files | without | with | times (min to max) | CPU time without | with "
             "| times (min to max) |", "|---|---|---|---|---|---|---|"]
    for (rows, files), times in found.items():
        cells = [f"{rows:,} in {files}"]
        for clock in CLOCKS:
            without, with_ = times[WITHOUT][clock], times[WITH][clock]
            ratio = spread([own / peer for own, peer in zip(with_, without, strict=True)])
            cells += [*(f"{1000 * statistics.median(one):.0f} ms" for one in (without, with_)),
                      f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"]
        lines.append(f"| {' | '.join(cells)} |")
    return Section("\n".join(lines), {"writes": [{"rows": rows, "files": files, "seconds": times}
                                                  for (rows, files), times in found.items()]})


def _write(plan: Plan, ring: Keyring, rows: int, files: int) -> dict[str, dict[str, list[float]]]:
    """Write in turns; return seconds by contestant and clock."""
    data = people(rows)
    found: dict[str, dict[str, list[float]]] = {
        name: {clock: [] for clock in CLOCKS} for name in (WITHOUT, WITH)}
    rounds = plan.rounds * (2 if rows <= FEW else 1)
    for number in range(-1, rounds):  # the first one is not counted
        for name, times in found.items():
            before = _one(data, plan.folder / name, ring, files, "ssn" if name == WITH else ())
            for clock, seconds in before.items() if number >= 0 else ():
                times[clock].append(seconds)
    print(f"{rows:,} rows in {files} files: {found}")
    return found


def _one(data: pa.Table, folder: Path, ring: Keyring, files: int,
         index: str | tuple[()]) -> dict[str, float]:
    """Write once, and return the seconds by clock."""
    gc.collect()
    start = {name: clock() for name, clock in CLOCKS.items()}
    secure_bloom.write_dataset(data, folder, bloom_filters=FILTERS, encryption=encryption(),
                               keys=ring, index_columns=index,
                               max_rows_per_file=-(-data.num_rows // files))
    seconds = {name: clock() - start[name] for name, clock in CLOCKS.items()}
    shutil.rmtree(folder)
    return seconds
