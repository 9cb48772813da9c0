"""Locks of objects, which other threads may hold for ever in a process that is forked."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """An object that can begin anew."""

    def renew(self) -> None: ...


_renewed: WeakSet[Renewable] = WeakSet()


def renewed_in_children(one: Renewable) -> None:
    """Call ``renew`` of an object, as long as it exists, in each process that is forked."""
    _renewed.add(one)


def _renew_all() -> None:
    for one in list(_renewed):
        one.renew()


os.register_at_fork(after_in_child=_renew_all)
