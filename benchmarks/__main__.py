"""Run the benchmarks.

    python -m benchmarks [NAME ...] [--scale S] [--rounds N] [--large] [--json FILE] [--docs]

Without names, all benchmarks run, one after the other, in some 20 minutes. ``--docs`` writes their
tables to ``docs/performance.md`` and draws its charts, which requires matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.section import Plan, Section
from secure_bloom.sbbf.kernel_choice import chosen

NAMES = ("costs", "kernels", "write", "small_files", "wide", "filter_sizes", "lookup", "pages",
         "footers", "startup", "memory", "growth", "attach", "encrypt", "encrypt_memory", "erase",
         "engines", "index", "index_write", "index_growth", "index_erase",
         "spark_lookup", "spark_write", "spark_native")
PACKAGES = "numpy", "pyarrow", "pyspark", "cryptography"
DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "performance.md"


def main() -> None:
    """Run the benchmarks that the command line names."""
    arguments = _arguments()
    names = [name for name in NAMES if not arguments.names or name in arguments.names]
    results = {"machine": machine(), "sections": {}}
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        start = time.monotonic()
        section = _run(name, arguments)
        seconds = time.monotonic() - start
        print(f"\n## {name}, {seconds:.0f} s\n\n{section.text}\n", flush=True)
        results["sections"][name] = {"seconds": round(seconds), "data": section.data}
        if arguments.docs:
            _document(name, section)
        if arguments.json:  # after each benchmark, because they take long
            arguments.json.write_text(json.dumps(results, indent=1))
    if arguments.docs:
        _put("machine", "\n".join(f"- {key}: {value}" for key, value in machine().items()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", action="store_true",
                        help="encrypt and encrypt_memory: also files of up to 10 GB, "
                             "which needs 20 GB of disk")
    parser.add_argument("--json", type=Path, help="write all results to this file, too")
    parser.add_argument("--docs", action="store_true", help="bring docs/performance.md up to date")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return arguments


def _run(name: str, arguments: argparse.Namespace) -> Section:
    module = importlib.import_module(f"benchmarks.{name}")
    with tempfile.TemporaryDirectory() as folder:
        return module.run(Plan(Path(folder), arguments.rounds, arguments.scale,
                               arguments.large))


def machine() -> dict[str, str]:
    """Describe the machine and the software versions of the measurement."""
    names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    return {"CPU": f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores",
            "kernels": chosen().name,
            "memory": f"{memory / 2**30:.0f} GiB",
            "Python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
            "Java": java.splitlines()[0] if java else "none"}


# --- the page ------------------------------------------------------------------------------------

def _document(name: str, section: Section) -> None:
    _put(name, section.text)
    for file, draw in section.charts.items():
        from matplotlib.figure import Figure
        figure = Figure()
        draw(figure)
        folder = DOCS / "charts"
        folder.mkdir(exist_ok=True)
        figure.savefig(folder / file, metadata={"Date": None})


def _put(name: str, text: str) -> None:
    """Replace the text between the two markers of this name on the page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    page, count = pattern.subn(lambda _: f"{begin}\n{text}\n{end}", PAGE.read_text())
    if count != 1:
        raise ValueError(f"{PAGE} has {count} places for {name}; it must have one")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
