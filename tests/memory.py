"""How much memory this process takes, as Linux counts it, and what is in that of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


class Peak:
    """The most memory since this was made, beside what the process had before, in bytes."""

    def __init__(self) -> None:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak starts again
        self._before = status("VmRSS")

    def bytes(self) -> int:
        """Return it."""
        return status("VmHWM") - self._before


def status(name: str) -> int:
    """Return a size from the status of this process, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{name}:"))


def buffers_of(array: Any) -> Iterator[bytes]:
    """Yield all memory of an Arrow array, with dictionaries."""
    if isinstance(array, pa.ExtensionArray):
        yield from buffers_of(array.storage)
    elif isinstance(array, pa.DictionaryArray):
        yield from buffers_of(array.indices)
        yield from buffers_of(array.dictionary)
    else:
        yield from (buffer.to_pybytes() for buffer in array.buffers() if buffer is not None)
        if isinstance(array, pa.StructArray):
            for number in range(array.type.num_fields):
                yield from buffers_of(array.field(number))
        elif pa.types.is_nested(array.type):
            yield from buffers_of(array.values)
