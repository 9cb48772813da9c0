"""Peak memory of streaming a table through :class:`ParquetWriter`, and bytes read by a lookup.

A process receives a table as an Arrow stream, row group by row group, and writes each one. The
figure is its peak memory minus its memory after imports, relative to one row group in memory with
its filters. For comparison: a process that only reads the stream; pyarrow's writer without filters;
and both writers with a dictionary only for the column whose values repeat, because by default
pyarrow tries a dictionary for every column, and keeps a hash table of its values until it gives up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from benchmarks.lookup import write_files
from benchmarks.people import FILTERS, arrow_properties, encryption, keyring, people
from benchmarks.section import Plan, Section
from secure_bloom import ParquetFile, ParquetWriter, read_table
from secure_bloom.keys import Keyring
from secure_bloom.sbbf.kernel_choice import chosen
from tests.counting import CountingHandler

BYTES, ROW_GROUP = 10**9, 1_000_000
DISTINCT = 4  # row groups, which repeat
FILES = 10
OURS, OURS_PLAIN = "secure_bloom, 2 filters", "secure_bloom, 2 filters, one dictionary"


def _pyarrow(path: Path, schema: pa.Schema, ring: Keyring, **options) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, encryption_properties=arrow_properties(ring), **options)


def _ours(path: Path, schema: pa.Schema, ring: Keyring, **options) -> ParquetWriter:
    return ParquetWriter(path, schema, bloom_filters=FILTERS, encryption=encryption(), keys=ring,
                         **options)


WRITERS = {
    "reading the row groups": lambda *_: nullcontext(),
    "pyarrow, no filters": _pyarrow,
    OURS: _ours,
    "pyarrow, no filters, one dictionary": partial(_pyarrow, use_dictionary=["city"]),
    OURS_PLAIN: partial(_ours, use_dictionary=["city"])}


def run(plan: Plan) -> Section:
    """Run the benchmark."""
    keyring(plan.folder / "keyring.json")
    streamed = {name: _in_a_process(name, plan) for name in WRITERS}
    unit = streamed[OURS]["row_group"] + streamed[OURS]["filters"]
    lookup = _bytes_of_a_lookup(plan)
    lines = ["| process | row groups | peak memory | relative to a row group with filters |",
             "|---|---|---|---|"]
    lines += [f"| {name} | {found['groups']} x {found['row_group'] / 1e6:.0f} MB "
              f"| {found['peak'] / 1e6:.0f} MB | {found['peak'] / unit:.2f} |"
              for name, found in streamed.items()]
    lines += ["", f"Target for secure_bloom: 2. A lookup in {FILES} files read "
              f"{lookup['read']:,} bytes, "
              f"{lookup['read'] / lookup['needed']:.3f} times the {lookup['needed']:,} bytes of "
              "footers and requested filters (target 1.05)."]
    return Section("\n".join(lines), {"streaming": streamed, "lookup": lookup})


def _in_a_process(name: str, plan: Plan) -> dict:
    rows = [people(ROW_GROUP, seed=number).combine_chunks() for number in range(DISTINCT)]
    groups = plan.size(BYTES // rows[0].nbytes, 3)
    code = ("from pathlib import Path; from benchmarks.memory import stream; "
            f"stream({name!r}, Path({str(plan.folder)!r}))")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent) as process:
        with ipc.new_stream(process.stdin, people(1).schema) as sink:
            for number in range(groups):
                sink.write_table(rows[number % DISTINCT])
        process.stdin.close()
        return json.loads(process.stdout.read())


def stream(name: str, folder: Path) -> None:
    """Write the row groups from standard input, and print the peak memory as JSON."""
    path, groups = folder / "streamed.parquet", 0
    chosen()  # loads the kernels
    keys = Keyring(folder / "keyring.json")
    with WRITERS[name](path, people(1).schema, keys):
        pass  # imports all that is needed
    before = memory("VmRSS")
    with ipc.open_stream(sys.stdin.buffer) as source, \
            WRITERS[name](path, source.schema, keys) as writer:
        for batch in source:
            if writer is not None:
                writer.write_batch(batch, ROW_GROUP)
            size = batch.nbytes
            groups += 1
            del batch
    filters = writer.filter_totals.bytes // groups if name in (OURS, OURS_PLAIN) else 0
    print(json.dumps({"groups": groups, "row_group": size, "filters": filters,
                      "peak": memory("VmHWM") - before}))
    path.unlink(missing_ok=True)


def memory(kind: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {kind}")


def _bytes_of_a_lookup(plan: Plan) -> dict:
    ring = Keyring(plan.folder / "keyring.json")
    folder = plan.folder / "files"
    write_files(folder, FILES, plan.size(ROW_GROUP, 1000), ring)
    handler = CountingHandler()
    read_table(str(folder), keys=ring, filters=[("ssn", "=", "5000000000")],
               filesystem=pa_fs.PyFileSystem(handler))
    return {"read": handler.bytes_read.total(),
            "needed": sum(_needed(path, ring) for path in folder.iterdir())}


def _needed(path: Path, ring: Keyring) -> int:
    with ParquetFile(path, ring) as file:
        return path.stat().st_size - file.footer.start + sum(
            info.length for info in file.bloom_filters if info.column == "ssn")
