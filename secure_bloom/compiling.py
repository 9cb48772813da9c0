"""How kernels are compiled, and where numba keeps them."""

from __future__ import annotations

from numba import njit

part_of_kernel = njit(inline="always")
KERNELS = []  #: all of them, for the command ``warmup``


def kernel(function):
    """Compile a function that needs no Python while it runs, and so releases the GIL.

    Numba keeps the machine code in ``__pycache__`` beside the module, or in the user's cache
    folder where that is read-only, or in ``NUMBA_CACHE_DIR`` where that is set. Without any
    writable folder each process compiles anew.
    """
    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba's "no locator available"
        compiled = njit(nogil=True)(function)
    KERNELS.append(compiled)
    return compiled
