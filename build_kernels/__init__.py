"""Compiles the kernels when the package is built, so that nothing is compiled when it is used.

``python -m build_kernels`` does this for the source tree, if its libraries are not current. numba
and llvmlite do the work: there is no C compiler, and no linker.
"""
