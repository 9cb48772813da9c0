"""What pyarrow writes its files to."""

from __future__ import annotations

from typing import Any

from secure_bloom.storage.files import Output


class Sink:
    """The sink for pyarrow's output: passes bytes on, holds them back, or drops them."""

    closed = False

    def __init__(self, output: Output):
        self._output: Output | None = output
        self.position = 0
        self._held: bytearray | None = None

    def write(self, data: Any) -> int:
        """Write bytes, or keep them; returns how many."""
        if self._held is not None:
            self._held += data
        elif self._output is not None and self._output.is_own:  # pyarrow's closes itself in a fork
            self._output.write(data)
            self.position += len(data)
        return len(data)

    def close(self) -> None:
        """Do nothing: pyarrow calls this when the stream before the sink ends."""

    def hold(self) -> None:
        """Keep what is written from now on."""
        self._held = bytearray()

    def release(self) -> tuple[bytes, int]:
        """Return what was held back, and the position where it belongs."""
        held, self._held, self._output = bytes(self._held or b""), None, None
        return held, self.position

    def discard(self) -> None:
        """Drop what was held back, and what is written from now on."""
        self._held = self._output = None
