"""Which kernels hash values and fill filters: built ones, numpy, or numba on request.

The environment variable ``SECURE_BLOOM_KERNELS`` overrides the choice:

    built            the fastest built kernels that this CPU can execute
    x86-64-v3, ...   the built kernels of this level
    numpy            no compiled code
    numba            kernels that numba compiles at their first use, and caches
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

from secure_bloom.errors import KernelChoiceError, MissingExtraError, installation
from secure_bloom.kernels import vectorized

VARIABLE = "SECURE_BLOOM_KERNELS"
LEVELS = "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"
CHOICES = "built", "numpy", "numba", *LEVELS

_FEW = 64  #: values of a call up to which numpy is always used
_WORTH_LOADING = 4096  #: values of a process from which loading built kernels pays off
_worked = 0


@dataclass(frozen=True)
class Choice:
    """The kernels of this process.

    Attributes
    ----------
    name : str
        ``numpy``, ``numba``, or the level of built kernels.
    bulk : object
        Has the functions of :mod:`secure_bloom.kernels.vectorized`.
    raw : object or None
        The compiled functions, also those for footers; None for numpy.
    reason : str or None
        Why built kernels are not used although the environment requests nothing else.
    """

    name: str
    bulk: Any
    raw: Any
    reason: str | None = None


def kernels_for(count: int) -> Any:
    """Return the kernels for ``count`` values.

    Loading compiled kernels takes as long as hashing some thousand values with numpy, so a process
    with fewer values does without.
    """
    global _worked
    _worked += count
    if count <= _FEW or _worked < _WORTH_LOADING:
        return vectorized
    return chosen().bulk


@functools.cache
def chosen() -> Choice:
    """Return the kernels of this process.

    Raises
    ------
    KernelChoiceError
        If the environment requests kernels that do not exist or cannot be used here.
    MissingExtraError
        If it requests numba, which is not installed.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", *CHOICES):
        raise KernelChoiceError(f"{VARIABLE} is {wanted!r}; it can be {', '.join(CHOICES)}")
    if wanted == "numpy":
        return Choice("numpy", vectorized, None)
    if wanted == "numba":
        return _numba()
    from secure_bloom.kernels.bulk import Bulk
    from secure_bloom.kernels.native import NotUsableError, load
    try:
        native = load(wanted if wanted in LEVELS else None)
    except NotUsableError as error:
        if wanted:
            raise KernelChoiceError(f"{VARIABLE} is {wanted}, but these kernels cannot be used: "
                                   f"{error}") from None
        return Choice("numpy", vectorized, None, str(error))
    return Choice(native.level, Bulk(native), native)


def _numba() -> Choice:
    try:
        from secure_bloom.kernels import numba_kernels
    except ImportError:
        raise MissingExtraError(f"{VARIABLE} is numba, which is not installed: "
                                f"{installation('numba')}") from None
    from secure_bloom.kernels.bulk import Bulk
    return Choice("numba", Bulk(numba_kernels), numba_kernels)
