"""What all layers of small cases share: building a case, one fault at a time."""

from __future__ import annotations

from importlib.metadata import version

SPECIFICATION = "Parquet format specification"
OURS = f"secure_bloom {version('secure_bloom')}"


class Layer:
    """Collects the cases of a layer.

    Parameters
    ----------
    name : str
    origin : str
        What makes the inputs, unless a case says otherwise.
    """

    def __init__(self, name: str, origin: str):
        self.name = name
        self.cases: list[dict] = []
        self._origin = origin

    def add(self, name: str, operation: str, inputs: dict, outcome: str, output: dict | None = None,
            *, fault: str | None = None, comment: str | None = None,
            checked_by: list[str] | None = None) -> None:
        """Add a case; bytes become hex, what is None is left out."""
        case = {"name": name, "operation": operation, "origin": self._origin,
                "checked_by": checked_by or [], "comment": comment, "fault": fault,
                "input": _json(inputs), "outcome": outcome,
                "output": None if output is None else _json(output)}
        self.cases.append({field: value for field, value in case.items() if value is not None})


def _json(value):
    if isinstance(value, bytes | memoryview):
        return value.hex()
    if isinstance(value, dict):
        return {name: _json(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_json(item) for item in value]
    return value


def flipped(data: bytes, bit: int) -> bytes:
    """The bytes with one bit changed; bit 0 is the lowest of the first byte."""
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)
