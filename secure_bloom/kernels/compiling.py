"""How kernels are compiled, and where numba caches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from secure_bloom.kernels.interface import sources_digest

_VERSION = f"_{sources_digest()[:16]}"  #: numba checks only a kernel's own module
#: Kernels allocate nothing, and no C code calls them, so they need less code.
_LEAN: dict[str, Any] = {"_nrt": False, "no_cfunc_wrapper": True}
_PART: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, **_LEAN}
part_of_kernel = njit(**_PART)
KERNELS: list[Any] = []  #: all kernels, for the command ``warmup``


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that needs no Python while it runs and therefore releases the GIL.

    It returns an integer: 0 unless it says otherwise.

    Numba caches the machine code in ``__pycache__`` next to the module, in the user's cache folder
    if that is read-only, or in ``NUMBA_CACHE_DIR`` if that is set. Without a writable folder, each
    process compiles the kernels again.
    """
    function.__qualname__ += _VERSION  # part of the name of numba's cache file
    try:
        compiled = njit(cache=True, nogil=True, **_LEAN)(function)
    except RuntimeError:  # numba's "no locator available"
        compiled = njit(nogil=True, **_LEAN)(function)
    KERNELS.append(compiled)
    return compiled


def compiled() -> tuple[int, str | None]:
    """Return the number of compiled kernels, one per argument type, and their cache folder.

    The folder is None if none is writable.
    """
    return sum(len(one.signatures) for one in KERNELS), KERNELS[0].stats.cache_path
