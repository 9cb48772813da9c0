"""Filter sizes at the same false-positive rate, without a hint about distinct values.

Each peer writes 1 M integers with its defaults; its rate is measured with absent values.
secure_bloom is then configured with the measured or the configured rate of the peer, whichever is
larger, and its own rate is measured too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.section import Plan, Section
from secure_bloom import BloomFilterOptions, ParquetFile, write_table
from tests.peers.parquet_java import ParquetJava

ROWS = 1_000_000
DISTINCT = (1, 10, 50, 100)  #: percent
PROBES = 1_000_000
DEFAULT_FPP = {"pyarrow": 0.05, "parquet-java": 0.01}


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    rows = plan.size(ROWS, 1000)
    with ParquetJava() as java:
        found = [_compare(peer, percent, rows, plan.folder, java)
                 for peer in DEFAULT_FPP for percent in DISTINCT]
    lines = ["| peer | distinct values | peer's bytes | peer's rate | secure_bloom's bytes "
             "| secure_bloom's rate | ratio of bytes |", "|---|---|---|---|---|---|---|"]
    for f in found:
        lines.append(f"| {f['peer']} | {f['percent']} % | {f['peer_bytes']:,} "
                     f"| {f['peer_rate']:.4f} | {f['bytes']:,} | {f['rate']:.4f} "
                     f"| {f['bytes'] / f['peer_bytes']:.3f} |")
    shares = [f["bytes"] / f["peer_bytes"] for f in found]
    lines += ["", f"On average {np.mean(shares):.2f} times the peer's bytes (target 0.6), at most "
              f"{max(shares):.2f} times (target 1.0)."]
    return Section("\n".join(lines), found)


def _compare(peer: str, percent: int, rows: int, folder: Path, java: ParquetJava) -> dict:
    distinct = max(1, rows * percent // 100)
    values = np.random.default_rng(1).permutation(np.arange(rows) % distinct) * 7919
    path = folder / "peer.parquet"
    if peer == "pyarrow":
        pq.write_table(pa.table({"x": values}), path, row_group_size=rows,
                       bloom_filter_options={"x": True})
    else:
        java.write(path, "message m { required int64 x; }", ({"x": int(v)} for v in values),
                   bloom=["x"])
    peer_bytes, peer_rate = _measured(path)
    write_table(pa.table({"x": values}), path, row_group_size=rows, bloom_filters={
        "x": BloomFilterOptions(fpp=max(peer_rate, DEFAULT_FPP[peer]))})
    own_bytes, own_rate = _measured(path)
    return {"peer": peer, "percent": percent, "rows": rows, "peer_bytes": peer_bytes,
            "peer_rate": peer_rate, "bytes": own_bytes, "rate": own_rate}


def _measured(path: Path) -> tuple[int, float]:
    """The size of the bitset in bytes, and its share of absent values reported present."""
    absent = np.arange(PROBES) * 7919 + 1
    with ParquetFile(path) as file:
        filters = [file.read_bloom_filter(group, "x") for group in range(file.num_row_groups)]
        return (sum(f.num_bytes for f in filters),
                float(np.mean([f.check(absent).mean() for f in filters])))
