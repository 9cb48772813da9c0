"""Build the test vectors again: ``python -m vectors.builder [LAYER ...]`` in the project's folder.

Without arguments all layers. The seed is fixed, so the same libraries give the same bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vectors.builder import filters, hashes, headers, material, modules
from vectors.builder.small import Layer

FOLDER = Path(__file__).parents[1]
SMALL = [hashes.xxh64, filters.blocks, filters.bitsets, filters.fold_merge, filters.sizing,
         headers.headers, modules.aad, modules.modules, material.key_material]


def render(layer: Layer) -> str:
    """The JSON of a layer, a line for each field of a case."""
    cases = ",\n".join(render_case(case) for case in layer.cases)
    return f'{{"layer": {json.dumps(layer.name)}, "cases": [\n{cases}\n]}}\n'


def render_case(case: dict) -> str:
    """A case on a few lines: one for each of its fields."""
    lines = ",\n ".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
                        for name, value in case.items())
    return "{" + lines + "}"


def main(wanted: list[str]) -> None:
    """Write the layers."""
    for build in SMALL:
        layer = build()
        if not wanted or layer.name in wanted:
            (FOLDER / f"{layer.name}.json").write_text(render(layer), encoding="utf-8")
            print(f"{layer.name}: {len(layer.cases)} cases")


if __name__ == "__main__":
    main(sys.argv[1:])
