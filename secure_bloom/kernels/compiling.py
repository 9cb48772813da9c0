"""How kernels are compiled, and where numba caches them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit

MODULES = ("kernels/blocks", "kernels/compiling", "kernels/hashing", "kernels/scalar",
           "kernels/simd", "kernels/xxh64", "parquet/footer_kernels", "parquet/thrift/protocol")
part_of_kernel = njit(forceinline=True)
KERNELS: list[Any] = []  #: all kernels, for the command ``warmup``


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that needs no Python while it runs and therefore releases the GIL.

    Numba caches the machine code in ``__pycache__`` next to the module, in the user's cache folder
    if that is read-only, or in ``NUMBA_CACHE_DIR`` if that is set. Without a writable folder, each
    process compiles the kernels again.
    """
    function.__qualname__ += _VERSION  # part of the name of numba's cache file
    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba's "no locator available"
        compiled = njit(nogil=True)(function)
    KERNELS.append(compiled)
    return compiled


def compiled() -> tuple[int, str | None]:
    """Return the number of compiled kernels, one per argument type, and their cache folder.

    The folder is None if none is writable.
    """
    return sum(len(one.signatures) for one in KERNELS), KERNELS[0].stats.cache_path


def _version() -> str:
    """Return a digest of all modules that kernels use; numba checks only a kernel's own module."""
    folder, digest = Path(__file__).parent.parent, sha256()
    for module in MODULES:
        digest.update((folder / f"{module}.py").read_bytes())
    return "_" + digest.hexdigest()[:16]


_VERSION = _version()
