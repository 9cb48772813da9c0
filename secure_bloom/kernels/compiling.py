"""How kernels are compiled, and where numba keeps them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from numba import njit

MODULES = ("kernels/blocks", "kernels/compiling", "kernels/hashing", "kernels/scalar",
           "kernels/simd", "kernels/xxh64", "parquet/footer_kernels", "parquet/thrift/protocol")
part_of_kernel = njit(forceinline=True)
KERNELS = []  #: all of them, for the command ``warmup``


def kernel(function):
    """Compile a function that needs no Python while it runs, and so releases the GIL.

    Numba keeps the machine code in ``__pycache__`` beside the module, or in the user's cache
    folder where that is read-only, or in ``NUMBA_CACHE_DIR`` where that is set. Without any
    writable folder each process compiles anew.
    """
    function.__qualname__ += _VERSION  # part of the name of numba's file
    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba's "no locator available"
        compiled = njit(nogil=True)(function)
    KERNELS.append(compiled)
    return compiled


def compiled() -> tuple[int, str | None]:
    """How many kernels are compiled, counting each type of argument, and where they are kept.

    The folder is None if there is none to write to.
    """
    return sum(len(one.signatures) for one in KERNELS), KERNELS[0].stats.cache_path


def _version() -> str:
    """A digest of all modules that kernels are made of; numba only looks at a kernel's own."""
    folder, digest = Path(__file__).parent.parent, sha256()
    for module in MODULES:
        digest.update((folder / f"{module}.py").read_bytes())
    return "_" + digest.hexdigest()[:16]


_VERSION = _version()
