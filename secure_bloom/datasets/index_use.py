"""Whether an index may be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secure_bloom.arrow.masking import OnMissingKey

if TYPE_CHECKING:
    from secure_bloom.index.planning import IndexUse


def index_use(index: IndexUse, on_missing_key: OnMissingKey) -> IndexUse:
    """Return how to use indexes if columns may be masked: which are, only their files tell.

    Raises
    ------
    ValueError
        If ``index`` has another value, or is "require" although it cannot be used.
    """
    if index not in ("auto", "off", "require"):
        raise ValueError(f'index must be "auto", "off" or "require", not {index!r}')
    if on_missing_key == "error":
        return index
    if index == "require":
        raise ValueError('index must not be "require" together with on_missing_key="null", for '
                         'which every file is opened')
    return "off"
