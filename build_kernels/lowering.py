"""From the numba functions of the kernels to LLVM code for any CPU.

numba infers types and generates LLVM code, which is the same for every CPU, since vectors are
explicit (:mod:`secure_bloom.kernels.simd`). Its optimisations for this CPU are switched off.
"""

from __future__ import annotations

import os
import re
import tempfile
import warnings

with tempfile.TemporaryDirectory() as _cache:  # what is compiled without optimisation is not kept
    os.environ |= {"NUMBA_OPT": "0", "NUMBA_CACHE_DIR": _cache}
    from numba import cfunc, types
    from numba.core.errors import NumbaWarning
    from numba.extending import intrinsic

    from secure_bloom.kernels import blocks, hashing, pairs, sorting
    from secure_bloom.kernels.interface import FUNCTIONS, PREFIX
    from secure_bloom.kernels.simd import array_at
    from secure_bloom.parquet import footer_kernels

_MODULES = hashing, blocks, sorting, pairs, footer_kernels


def lower() -> dict[str, str]:
    """Return the LLVM code of each exported function, with everything that it calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaWarning)  # that they cannot be cached
        return {name: _lower(name, arguments) for name, arguments in FUNCTIONS.items()}


def _lower(name: str, arguments: tuple[str, ...]) -> str:
    kinds, names, values = [], [], []
    helpers = {"kernel": _kernel(name)}
    for number, argument in enumerate(arguments):
        item, is_array, columns = argument.partition("*")
        kind, own = getattr(types, item), f"a{number}"
        names.append(own)
        if not is_array:
            kinds.append(kind)
            values.append(own)
            continue
        kinds += types.CPointer(kind), types.int64
        names.append(f"n{number}")
        helpers[f"array{number}"] = _array_of(kind, columns)
        values.append(f"array{number}({own}, n{number})")
    exec(f"def export({', '.join(names)}): return kernel({', '.join(values)})", helpers)
    compiled = cfunc(types.int64(*kinds), _nrt=False)(helpers["export"])
    text = compiled.inspect_llvm()
    own = re.escape(compiled._wrapper_name)
    return re.sub(rf'@"?{own}"?', f"@{PREFIX}{name}", text)


def _kernel(name: str):
    """Return the numba function: ``insert`` for ``insert_32``."""
    name = re.sub(r"_(32|64)$", "", name)
    [found] = [getattr(module, name) for module in _MODULES
               if hasattr(getattr(module, name, None), "py_func")]
    return found


def _array_of(item, columns: str):
    """Return a function that makes an array of an address and a length."""
    array_type = types.Array(item, 2 if columns else 1, "C")

    @intrinsic
    def make(typing_context, address, count):
        def generate(context, builder, signature, args):
            address, count = args
            shape = [count, *(count.type(int(size)) for size in columns)]
            return array_at(context, builder, array_type, address, shape)
        return array_type(address, count), generate
    return make
