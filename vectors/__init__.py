"""Test vectors for Bloom filters in Parquet files, especially encrypted ones.

>>> import parquet_bloom_vectors
>>> for case in parquet_bloom_vectors.cases("aad"):
...     assert build_aad(case.input) == case.output            # doctest: +SKIP

``README.md``, next to this file, describes the layers, the operations and the fields of a case.
Nothing but the standard library is needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__version__ = "0.1.0"
__all__ = ["FOLDER", "LAYERS", "Case", "cases", "differences"]

FOLDER = Path(__file__).resolve().parent  #: all files, as README.md describes them
LAYERS = ("xxh64", "blocks", "bitsets", "fold-merge", "sizing", "headers", "footers", "aad",
          "modules", "key-material", "files", "index")
_IN_OWN_FILES = {"files": "files/*.json", "index": "index/*/case.json"}


@dataclass(frozen=True)
class Case:
    """One test vector.

    Attributes
    ----------
    layer, name, operation : str
    input : dict
        The inputs. Bytes are hex digits: ``bytes.fromhex`` reads them.
    outcome : str
        What a correct implementation answers.
    output : dict
        The outputs of this outcome; often empty.
    fault : str or None
        What is wrong, if the input must be refused.
    comment : str or None
    origin : str
        What made the input, with its version.
    checked_by : list of str
        Other implementations that gave the same answer.
    paths : list of Path
        The Parquet file of the layer ``files``; the files of an index; otherwise empty.
    """

    layer: str
    name: str
    operation: str
    input: dict[str, Any]
    outcome: str
    origin: str
    checked_by: list[str]
    output: dict[str, Any] = field(default_factory=dict)
    fault: str | None = None
    comment: str | None = None
    paths: list[Path] = field(default_factory=list)


def cases(layer: str | None = None) -> list[Case]:
    """Return the cases of a layer, or of all layers.

    Raises
    ------
    ValueError
        If there is no such layer.
    """
    if layer is None:
        return [case for each in LAYERS for case in cases(each)]
    if layer not in LAYERS:
        raise ValueError(f"there is no layer {layer!r}; the layers are {', '.join(LAYERS)}")
    if layer not in _IN_OWN_FILES:
        return [Case(layer, **case) for case in _content(FOLDER / f"{layer}.json")["cases"]]
    return [Case(layer, **content, paths=_paths(path, content))
            for path in sorted(FOLDER.glob(_IN_OWN_FILES[layer]))
            for content in [_content(path)]]


def differences() -> list[dict[str, Any]]:
    """Return where known implementations answer differently, and why.

    Each item has ``implementation``, ``why`` and ``cases``: the answer by the name of the case.
    """
    found: list[dict[str, Any]] = _content(FOLDER / "differences.json")
    return found


def _paths(path: Path, content: dict[str, Any]) -> list[Path]:
    """Return the files that a case is about, given the file of the case."""
    if "file" in content["input"]:
        return [path.parent / content["input"]["file"]]
    return sorted(other for other in path.parent.iterdir() if other != path)


def _content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
