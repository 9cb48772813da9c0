"""Build the test vectors again: ``python -m vectors.builder [LAYER ...]`` in the project's folder.

Without arguments all layers. The seed is fixed, so the same libraries give the same bytes. Then
every implementation is asked, and who agrees is written into the cases.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from secure_bloom.validator import LAYERS
from tests.peers.parquet_java import ParquetJava
from vectors.builder import checks, filters, footers, hashes, headers, material, modules
from vectors.builder.faulty_files import bad_files
from vectors.builder.vector import FileVector
from vectors.builder.writers_java import by_java
from vectors.builder.writers_ours import ours
from vectors.builder.writers_plain import plain
from vectors.builder.writers_rust import rust

FOLDER = Path(__file__).parents[1]
SMALL = [hashes.xxh64, filters.blocks, filters.bitsets, filters.fold_merge, filters.sizing,
         headers.headers, footers.footers, modules.aad, modules.modules, material.key_material]


def file_vectors() -> Iterator[FileVector]:
    """All whole files."""
    with ParquetJava(seeded=True) as java:
        yield from by_java(java)
    yield from ours()
    yield from plain()
    yield from rust()
    yield from bad_files()


# --- how cases look in files ---------------------------------------------------------------------

def render(layer: str, cases: list[dict]) -> str:
    """The JSON of a layer."""
    return f'{{"layer": {json.dumps(layer)}, "cases": [\n' \
        + ",\n".join(map(render_case, cases)) + "\n]}\n"


def render_case(case: dict) -> str:
    """A line for each field of a case, and for each filter of a file."""
    lines = ",\n ".join(f"{json.dumps(name)}: {_json(value)}" for name, value in case.items())
    return "{" + lines.replace('{"row_group"', '\n  {"row_group"') + "}"


def _json(value) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- building ------------------------------------------------------------------------------------

def main(wanted: list[str]) -> None:
    """Write the layers, then who has checked them."""
    unknown = set(wanted) - LAYERS.keys()
    if unknown:
        raise SystemExit(f"there is no layer {', '.join(unknown)}; there are {', '.join(LAYERS)}")
    layers = [layer for layer in (build() for build in SMALL) if layer.name in (wanted or LAYERS)]
    for layer in layers:
        _write(FOLDER / f"{layer.name}.json", render(layer.name, layer.cases))
    files = [vector.to_json() for vector in _write_files()] \
        if "files" in (wanted or LAYERS) else []
    results = checks.ask_all(FOLDER, wanted)
    checked = checks.checked_by(results)
    for case in [*files, *(case for layer in layers for case in layer.cases)]:
        case["checked_by"] = checked[case["name"]]
    for layer in layers:
        _write(FOLDER / f"{layer.name}.json", render(layer.name, layer.cases))
    for case in files:
        _write(FOLDER / "files" / f"{case['name']}.json", render_case(case) + "\n")
    if not wanted:
        _write_differences(checks.differences(results))
    print(f"{sum(len(layer.cases) for layer in layers) + len(files)} cases")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _write_files() -> list[FileVector]:
    folder = FOLDER / "files"
    folder.mkdir(exist_ok=True)
    vectors = list(file_vectors())
    for old in folder.iterdir():
        old.unlink()
    for vector in vectors:
        (folder / f"{vector.name}.parquet").write_bytes(vector.data)
        _write(folder / f"{vector.name}.json", render_case(vector.to_json()) + "\n")
    return vectors


def _write_differences(groups: list[dict]) -> None:
    _write(FOLDER / "differences.json", json.dumps(groups, indent=1, ensure_ascii=False) + "\n")
    readme = FOLDER / "README.md"
    text = re.sub(r"(?<=<!-- differences -->\n).*?(?=<!-- end -->)",
                  lambda _: f"\n{checks.table(groups)}\n\n",
                  readme.read_text(encoding="utf-8"), flags=re.DOTALL)
    _write(readme, text)


if __name__ == "__main__":
    main(sys.argv[1:])
