"""The build of the kernels: what it needs, what it writes, and when it works again."""

import json
import re
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from build_kernels import building, linking
from secure_bloom.kernels import interface
from secure_bloom.kernels.interface import BUILT, FUNCTIONS, MANIFEST, PREFIX
from secure_bloom.sbbf.kernel_choice import LEVELS

ROOT = Path(__file__).parents[2]
X86_64, AARCH64 = 62, 183
ARCHITECTURES = {"x86-64": X86_64, "x86-64-v2": X86_64, "x86-64-v3": X86_64, "x86-64-v4": X86_64,
                 "aarch64": AARCH64}
needs_build = pytest.mark.skipif(not (BUILT / MANIFEST).exists(),
                                 reason="the kernels are not built")


@pytest.mark.build
def test_the_build_needs_only_what_pyproject_names():
    """When pip builds a wheel, no other requirement of the package is installed."""
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {re.split("[<>=]", one)[0] for one in requires} == {
        "setuptools", "numba", "numpy", "xxhash"}
    code = """
import importlib.abc, sys
class OnlyThese(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        first = name.split(".")[0]
        allowed = {"numpy", "numba", "llvmlite", "xxhash", "secure_bloom", "build_kernels"}
        if first not in allowed | sys.stdlib_module_names and path is None:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, OnlyThese())
from build_kernels import building, emitting, linking, lowering
print(len(lowering.FUNCTIONS))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(FUNCTIONS)


def test_the_libraries_are_those_of_this_source_tree():
    assert building.is_current(BUILT), "run python -m build_kernels"


@pytest.mark.slow
def test_all_sources_of_the_kernels_make_a_build_stale():
    """All modules that the numba functions import, apart from those that only raise errors."""
    code = ("import sys; from secure_bloom.parquet import footer_kernels\n"
            "from secure_bloom.kernels import blocks, hashing\n"
            "print(*(name for name, module in sys.modules.items() if module and\n"
            "        name.startswith(('secure_bloom.kernels.', 'secure_bloom.parquet.'))))")
    loaded = {name.removeprefix("secure_bloom.").replace(".", "/") for name in subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()}
    numba = {name for name in loaded if not (ROOT / "secure_bloom" / name).is_dir()
             and re.search("^from numba", (ROOT / f"secure_bloom/{name}.py").read_text(), re.M)}
    assert len(numba) == 6
    assert numba | {"kernels/scalar", "parquet/thrift/protocol"} <= set(interface.SOURCES)


@needs_build
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_library_needs_nothing_and_asks_for_no_executable_stack(name):
    data = (BUILT / f"{name}.so").read_bytes()
    assert struct.unpack_from("<4sBB", data) == (b"\x7fELF", 2, 1)
    assert struct.unpack_from("<HH", data, 16) == (3, ARCHITECTURES[name])
    offset, = struct.unpack_from("<Q", data, 32)
    count, = struct.unpack_from("<H", data, 56)
    segments = [struct.unpack_from("<IIQQQQQQ", data, offset + 56 * i) for i in range(count)]
    assert all(flags in (5, 6) for _, flags, *_ in segments)  # never writable and executable
    assert [flags for kind, flags, *_ in segments if kind == 0x6474E551] == [6]
    [(start, size)] = [(segment[2], segment[5]) for segment in segments if segment[0] == 2]
    tags = dict(struct.iter_unpack("<qQ", data[start:start + size]))
    assert not tags.keys() & {1, 7, 17, 23}  # needs no library, no relocation
    for function in FUNCTIONS if name != "x86-64" else ("cpuid", "xgetbv"):
        assert data.count(f"{PREFIX}{function}\0".encode()) == 1


@needs_build
def test_the_build_has_every_level_and_says_what_built_it():
    manifest = json.loads((BUILT / MANIFEST).read_text())
    assert manifest["libraries"].keys() == {"x86-64", *LEVELS}
    assert manifest["tools"].keys() == {"numba", "llvmlite"}


@needs_build
def test_what_is_current_is_not_built_again(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "build", lambda folder: pytest.fail("built again"))
    assert building.is_current(BUILT)
    assert not building.is_current(tmp_path)
    monkeypatch.setattr(building, "_builder", lambda: "another")
    assert not building.is_current(BUILT)


def test_a_reference_to_something_else_is_refused():
    """An object whose code calls a function that it does not have."""
    from build_kernels.emitting import TARGETS, emit
    text = ("declare i64 @getpid()\n"
            f"define i64 @{PREFIX}test() {{\n  %a = call i64 @getpid()\n  ret i64 %a\n}}\n")
    for name in ("x86-64-v2", "aarch64"):
        with pytest.raises(ValueError, match="'getpid' from elsewhere"):
            linking.link(emit([text], TARGETS[name], PREFIX), PREFIX)


def test_variables_are_refused():
    """Kernels have no state; it would be shared by threads."""
    from build_kernels.emitting import TARGETS, emit
    text = (f"@{PREFIX}count = global i64 7\n"
            f"define i64 @{PREFIX}test() {{\n  %a = load i64, ptr @{PREFIX}count\n"
            f"  %b = add i64 %a, 1\n  store i64 %b, ptr @{PREFIX}count\n  ret i64 %a\n}}\n")
    with pytest.raises(ValueError, match="writable data"):
        linking.link(emit([text], TARGETS["x86-64-v2"], PREFIX), PREFIX)
