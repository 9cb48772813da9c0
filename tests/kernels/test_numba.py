"""Kernels that numba compiles at their first use: its threads, and where it keeps them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from xxhash import xxh64_intdigest

import secure_bloom
from secure_bloom.kernels import compiling, numba_kernels, pairs
from secure_bloom.parquet import footer_kernels

assert numba_kernels  # it defines kernels


def test_kernels_release_the_gil():
    assert {footer_kernels.struct_ends, pairs.narrow} <= set(compiling.KERNELS)
    assert all(kernel.targetoptions["nogil"] for kernel in compiling.KERNELS)


@pytest.mark.build  # numba compiles for seconds
@pytest.mark.parametrize(("environment", "kept"), [
    ({"XDG_CACHE_HOME": "home/cache"}, "home/cache/numba"),
    ({"NUMBA_CACHE_DIR": "chosen"}, "chosen"),
    ({"XDG_CACHE_HOME": "file/cache"}, None)])
def test_kernels_of_a_package_that_is_read_only(tmp_path, environment, kept):
    """A file in place of ``__pycache__`` stands for a folder that cannot be written to."""
    (tmp_path / "file").touch()
    package = Path(shutil.copytree(Path(secure_bloom.__file__).parent, tmp_path / "secure_bloom",
                                   ignore=shutil.ignore_patterns("__pycache__")))
    for folder in (package, package / "kernels"):
        (folder / "__pycache__").touch()
    code = ("import numpy as np; from secure_bloom.kernels import compiling, numba_kernels\n"
            "numba_kernels.hash_words(np.array([7], np.uint64), out := np.zeros(1, np.uint64))\n"
            "print(out[0], compiling.KERNELS[0].stats.cache_path)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=tmp_path, env={name: str(tmp_path / value)
                                             for name, value in environment.items()})
    digest, folder = done.stdout.strip().split(" ", 1)
    assert int(digest) == xxh64_intdigest((7).to_bytes(8, "little"))
    if kept is None:
        assert folder == "None"
    else:
        assert Path(folder).is_relative_to(tmp_path / kept)
        assert list(Path(folder).glob("*.nbc"))
