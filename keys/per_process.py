"""A connection that each process opens for itself: one that a fork copied must not be used."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class PerProcess:
    """Makes a value when a process first needs it, and keeps it. Pickled without the value."""

    def __init__(self) -> None:
        self._made: tuple[int, Any] | None = None

    def get(self, make: Callable[[], Any]) -> Any:
        """Return this process's value.

        Two threads may get here at once; each makes its own value, and one is kept.
        """
        made = self._made
        if made is None or made[0] != os.getpid():
            made = self._made = os.getpid(), make()
        return made[1]

    def __reduce__(self) -> tuple[type[PerProcess], tuple[()]]:
        return PerProcess, ()
