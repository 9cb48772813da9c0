"""Built kernels: which are loaded, and what prevents it."""

import ctypes
import json
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from secure_bloom import kernels
from secure_bloom.errors import KernelChoiceError, MissingExtraError
from secure_bloom.kernels import cpu, native, verification
from secure_bloom.kernels.checks import filter_words
from secure_bloom.kernels.interface import BUILT, FUNCTIONS, MANIFEST, SOURCES
from secure_bloom.kernels.native import NotUsableError, load
from secure_bloom.parquet.compiled_footers import ROOM, CompiledFooters
from secure_bloom.sbbf import kernel_choice
from tests.support import COMPILED, EACH_COMPILED, footer_kernels, implementation, run_python

LEVELS = COMPILED[:-1]
needs_build = pytest.mark.skipif(not LEVELS, reason="the kernels are not built, or not current")


@pytest.fixture
def build(tmp_path) -> Path:
    """A copy of the built kernels, to be damaged."""
    return Path(shutil.copytree(BUILT, tmp_path / "built"))


@pytest.fixture
def choose(monkeypatch):
    """Choose kernels as a new process does, with this variable."""
    def choose(value: str | None = None) -> kernel_choice.Choice:
        if value is None:
            monkeypatch.delenv(kernel_choice.VARIABLE, raising=False)
        else:
            monkeypatch.setenv(kernel_choice.VARIABLE, value)
        return kernel_choice.chosen.__wrapped__()
    return choose


def test_the_kernels_are_built_where_tests_decide_about_a_merge():
    """``make setup`` builds them; here ``python -m build_kernels`` does."""
    assert LEVELS, "run python -m build_kernels"


@needs_build
def test_the_fastest_level_is_chosen(choose):
    assert choose().name == choose("built").name == load().level == LEVELS[0]
    assert choose("").name == LEVELS[0]


@needs_build
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_can_be_chosen(choose, level):
    assert choose(level).name == level


def test_numpy_and_numba_can_be_chosen(choose):
    assert choose("numpy").raw is None and choose("numpy").reason is None
    assert choose("numba").name == "numba"
    assert footer_kernels("numpy") is None


def test_numba_may_be_missing(choose, monkeypatch):
    monkeypatch.delattr(kernels, "numba_kernels", raising=False)
    monkeypatch.setitem(sys.modules, "secure_bloom.kernels.numba_kernels", None)
    with pytest.raises(MissingExtraError, match="numba, which is not installed: "):
        choose("numba")


@pytest.mark.parametrize("value", ["fast", "BUILT", "x86-64-v9", "numpy ", "../x86-64"])
def test_an_unknown_choice_is_an_error_that_names_the_others(choose, value):
    with pytest.raises(KernelChoiceError, match=r"SECURE_BLOOM_KERNELS.*built, numpy, numba"):
        choose(value)


def test_a_level_that_this_cpu_does_not_have_is_an_error(choose):
    other = next(level for level in kernel_choice.LEVELS if level not in LEVELS)
    with pytest.raises(KernelChoiceError, match=f"{other}.*this CPU can execute|without them"):
        choose(other)


# --- builds that cannot be used ------------------------------------------------------------------

def spoil_manifest(folder, **changes):
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | changes))


def no_build(folder):
    shutil.rmtree(folder)


def no_manifest(folder):
    (folder / MANIFEST).unlink()


def stale(folder):
    spoil_manifest(folder, sources="0" * 64)


def truncated(folder):
    for path in folder.glob("*.so"):
        path.write_bytes(path.read_bytes()[:300])


def one_bit_changed(folder):
    for path in folder.glob("*.so"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def missing_library(folder):
    for path in folder.glob("*-v*.so"):
        path.unlink()
    (folder / "aarch64.so").unlink()


def damaged_manifest(folder):
    (folder / MANIFEST).write_bytes(b"\xff{")


def another_manifest(folder):
    (folder / MANIFEST).write_text("[1]")


@needs_build
@pytest.mark.parametrize(("spoil", "reason"), [
    (no_build, "built without them"), (no_manifest, "built without them"),
    (stale, "built from other sources"), (truncated, "damaged"),
    (one_bit_changed, "damaged"), (missing_library, "cannot be loaded"),
    (damaged_manifest, "damaged"), (another_manifest, "damaged")])
def test_a_build_that_is_not_right_is_not_used(build, choose, monkeypatch, spoil, reason):
    spoil(build)
    with pytest.raises(NotUsableError, match=reason):
        load(folder=build)
    monkeypatch.setattr(native, "load", lambda level: load(level, build))
    fallback = choose()
    assert fallback.name == "numpy" and reason in fallback.reason
    with pytest.raises(KernelChoiceError, match=f"SECURE_BLOOM_KERNELS is built.*{reason}"):
        choose("built")


@pytest.mark.slow
@needs_build
def test_a_changed_source_makes_a_build_stale(tmp_path):
    package = shutil.copytree(Path(native.__file__).parents[1], tmp_path / "secure_bloom")
    paths = [str(package / f"{name}.py") for name in SOURCES]
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from pathlib import Path
from secure_bloom.kernels import native
print(native.load().level)
for path in map(Path, {paths!r}):
    source = path.read_bytes()
    path.write_bytes(source + b"# another\\n")
    try:
        native.load()
    except native.NotUsableError as error:
        print(error)
    path.write_bytes(source)
print(native.load().level)
"""
    first, *stale, last = run_python(code).splitlines()
    assert first == last == LEVELS[0]
    assert len(stale) == len(SOURCES) and all("from other sources" in line for line in stale)


@needs_build
def test_a_folder_from_which_nothing_may_be_executed_means_numpy(choose, monkeypatch):
    """As on a file system that is mounted with noexec."""
    def refuse(path):
        raise OSError(f"{path}: failed to map segment from shared object: Operation not permitted")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert choose().name == "numpy"
    assert "Operation not permitted" in choose().reason


@needs_build
@pytest.mark.parametrize("function", ["hash_words", "hash_fixed", "hash_binary", "insert", "check",
                                      "struct_ends", "fields", "with_bloom_filters"])
def test_the_test_at_loading_finds_a_wrong_function(monkeypatch, function):
    """It writes one wrong byte to its output."""
    right = getattr(native.Native, function)

    def wrong(self, *arguments):
        result = right(self, *arguments)
        output = [one for one in arguments if isinstance(one, np.ndarray)]
        target = output[0] if function == "insert" else output[-1]
        target.view(np.uint8).reshape(-1)[0] ^= 1
        return result

    monkeypatch.setattr(native.Native, function, wrong)
    with pytest.raises(NotUsableError, match=r"the test of \w+ failed"):
        load()


# --- the CPU -------------------------------------------------------------------------------------

class FakeCpu:
    """A CPU with every feature but one."""

    def __init__(self, leaf=None, register=None, bit=None, saved=0xFF):
        self.missing, self._saved = (leaf, register, bit), saved

    def registers(self, leaf):
        found = [0xFFFFFFFF] * 4
        if leaf == self.missing[0]:
            found[self.missing[1]] ^= 1 << self.missing[2]
        return tuple(found)

    def saved(self):
        return self._saved


FEATURES = [(level, leaf, register, bit) for level, (features, _) in cpu._NEEDED.items()
            for (leaf, register), bits in features.items() for bit in bits]


@pytest.mark.parametrize(("level", "leaf", "register", "bit"), FEATURES)
def test_a_level_needs_every_feature(level, leaf, register, bit):
    found = cpu._levels_of(FakeCpu(leaf, register, bit))
    assert found == [name for name in ("x86-64-v4", "x86-64-v3", "x86-64-v2") if name < level]


@pytest.mark.parametrize(("saved", "best"), [
    (0xE7, "x86-64-v4"), (0x67, "x86-64-v3"), (7, "x86-64-v3"), (3, "x86-64-v2")])
def test_a_level_needs_registers_that_the_system_saves(saved, best):
    assert cpu._levels_of(FakeCpu(saved=saved))[0] == best


@needs_build
@pytest.mark.skipif(not LEVELS[0].startswith("x86") if LEVELS else True, reason="not x86-64")
def test_the_features_of_the_cpu_are_those_that_linux_reports():
    flags = set(next(line for line in Path("/proc/cpuinfo").read_text().splitlines()
                     if line.startswith("flags")).split())
    v3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"} <= flags
    v4 = v3 and {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags
    assert ("x86-64-v3" in LEVELS, "x86-64-v4" in LEVELS) == (v3, v4)


@pytest.mark.parametrize(("system", "machine"), [
    ("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64"), ("linux", "s390x")])
def test_other_machines_use_numpy(monkeypatch, system, machine):
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(NotUsableError, match="operating system and CPU"):
        load()


# --- arguments -----------------------------------------------------------------------------------

U64, U32, U8 = np.zeros(10, np.uint64), np.zeros(10, np.uint32), np.zeros(100, np.uint8)
FILTER, OFFSETS = np.zeros((4, 8), np.uint32), np.zeros(11, np.int32)
LOCKED = np.zeros(10, np.uint64)
LOCKED.flags.writeable = False
ODD = np.zeros(81, np.uint8)[1:].view(np.uint64)  # not aligned
WRONG = [
    ("hash_words", U64, U64[:9]), ("hash_words", U64, np.zeros(11, np.uint64)),
    ("hash_words", U64.astype(np.int64), U64), ("hash_words", U64.astype(">u8"), U64),
    ("hash_words", U64, U32), ("hash_words", U64, LOCKED), ("hash_words", U64, ODD),
    ("hash_words", U64[:5], U64[::2]), ("hash_words", U64.reshape(5, 2), U64),
    ("hash_words", U64.astype(np.float64), U64),
    ("hash_fixed", U8, 11, U64), ("hash_fixed", U8, -1, U64), ("hash_fixed", U8, 2**62, U64),
    ("hash_fixed", U64, 8, U64), ("hash_fixed", U8, 10, LOCKED),
    ("hash_binary", OFFSETS[:10], U8, U64), ("hash_binary", OFFSETS[:0], U8, U64[:0]),
    ("hash_binary", np.arange(11) * 11, U8, U64), ("hash_binary", np.arange(11) - 1, U8, U64),
    ("hash_binary", np.arange(11)[::-1], U8, U64),
    ("hash_binary", np.array([0, 5, 3] + [90] * 8), U8, U64),
    ("hash_binary", np.array([0] * 10 + [2**62]), U8, U64),
    ("hash_binary", np.array([-2**63] + [0] * 10), U8, U64),
    ("hash_binary", OFFSETS.astype(np.uint32), U8, U64), ("hash_binary", OFFSETS, U8, LOCKED),
    ("insert_words", FILTER, U8), ("insert_words", FILTER[:0], U64),
    ("insert_words", FILTER.reshape(-1), U64), ("insert_words", FILTER.reshape(8, 4), U64),
    ("insert_words", FILTER.view(np.int32), U64), ("insert_words", FILTER[::2], U64),
    ("insert_hashes", FILTER, U32), ("insert_hashes", FILTER[:0], U64),
    ("check_hashes", FILTER[:0], U64, np.zeros(10, bool)),
    ("check_hashes", FILTER, U64, np.zeros(9, bool)), ("check_hashes", FILTER, U64, U8[:10]),
    ("check_hashes", FILTER.view(np.uint64), U64, np.zeros(10, bool)),
]


@pytest.mark.parametrize("name", [*COMPILED[:1], EACH_COMPILED[-1]])
def test_wrong_arrays_never_reach_compiled_code(name):
    for number, (function, *arguments) in enumerate(WRONG):
        with pytest.raises(ValueError):
            getattr(implementation(name).bulk, function)(*arguments)
            pytest.fail(f"call {number} of {function} was accepted")
        assert not any(one.any() for one in (U64, U32, U8, FILTER, OFFSETS, LOCKED)), number


def test_a_filter_of_too_many_blocks_is_refused():
    """Half a terabyte, which only seems to exist."""
    huge = np.lib.stride_tricks.as_strided(np.zeros(8, np.uint32), (2**32, 8), (0, 4))
    with pytest.raises(ValueError, match="4294967296 blocks"):
        filter_words(huge)


@pytest.mark.slow  # numba compiles
@pytest.mark.parametrize("values", [U64[::2], ODD, U64[::-1]], ids=["strided", "odd", "reversed"])
def test_input_may_be_anywhere_in_memory(values):
    values[:] = np.arange(values.size)
    try:
        found, expected = np.zeros((2, values.size), np.uint64)
        for name in COMPILED:
            implementation(name).bulk.hash_words(values, found)
            implementation("numpy").bulk.hash_words(values.copy(), expected)
            assert np.array_equal(found, expected)
    finally:
        values[:] = 0


@pytest.mark.parametrize("offsets", [
    [0, 5, 3] + [90] * 400, [0] * 400 + [101], [-1] + [0] * 400, [0] * 5 + [-7] + [50] * 400,
    [5, 2], [0, 101], [-1, 0]], ids=lambda value: str(value[:3]))
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_invalid_offsets_are_an_error_with_numpy_too(offsets, kind):
    offsets = np.array(offsets, kind)
    with pytest.raises(ValueError, match="offsets"):
        implementation("numpy").bulk.hash_binary(offsets, U8, np.zeros(len(offsets) - 1, np.uint64))


@pytest.mark.slow  # numba compiles
def test_a_fault_in_a_part_of_another_thread_is_an_error(monkeypatch):
    before = pa.cpu_count()
    pa.set_cpu_count(3)
    monkeypatch.setattr("secure_bloom.kernels.bulk.STRINGS", 10)
    offsets = np.array([0] * 300 + [101])
    try:
        for name in COMPILED:
            with pytest.raises(ValueError, match="offsets"):
                implementation(name).bulk.hash_binary(offsets, U8, np.zeros(300, np.uint64))
    finally:
        pa.set_cpu_count(before)


def test_wrong_arguments_for_footers_are_refused():
    footers = CompiledFooters(None)
    ends, out = np.zeros(1, np.int64), np.zeros(4 + ROOM, np.uint8)
    bounds, places = np.array([0, 4]), np.zeros((1, 2), np.int64)
    for call in (lambda: footers.struct_ends(b"\0", 2, ends),
                 lambda: footers.struct_ends(b"\0", -1, ends),
                 lambda: footers.struct_ends(b"\0", 0, ends.astype(np.int32)),
                 lambda: footers.fields(b"\0", np.zeros((4, 3), np.int64)),
                 lambda: footers.fields(b"\0", np.zeros((8, 8), np.int64)[:, :4]),
                 lambda: footers.with_bloom_filters(bytes(3), bounds, places, out, ends),
                 lambda: footers.with_bloom_filters(bytes(4), bounds[::-1], places, out, ends),
                 lambda: footers.with_bloom_filters(bytes(4), bounds - 1, places, out, ends),
                 lambda: footers.with_bloom_filters(bytes(4), bounds, places, out[:-1], ends),
                 lambda: footers.with_bloom_filters(bytes(4), bounds, places[:0], out, ends),
                 lambda: footers.with_bloom_filters(bytes(4), bounds[:1], places, out, ends)):
        with pytest.raises(ValueError):
            call()


# --- threads, processes, imports -----------------------------------------------------------------

@needs_build
def test_several_threads_use_the_same_kernels():
    """Each has its own stack, and nothing else."""
    values = np.arange(300_000, dtype=np.uint64)
    expected, kernels = np.zeros_like(values), implementation(LEVELS[0]).raw
    kernels.hash_words(values, expected)
    outs = [np.zeros_like(values) for _ in range(4)]

    def work(out):
        for _ in range(20):
            kernels.hash_words(values, out)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(out, expected) for out in outs)


@needs_build
def test_calls_release_the_gil():
    """ctypes keeps it only for functions of PyDLL."""
    function = native._bound(ctypes.CDLL(str(BUILT / f"{LEVELS[0]}.so")), "check",
                             FUNCTIONS["check"])
    assert not function._flags_ & ctypes._FUNCFLAG_PYTHONAPI


@needs_build
@pytest.mark.slow
def test_a_forked_process_goes_on_with_the_kernels_of_its_parent():
    code = """
import os, numpy as np
from secure_bloom.sbbf.kernel_choice import chosen
def digest():
    out = np.zeros(1000, np.uint64)
    chosen().bulk.hash_words(np.arange(1000, dtype=np.uint64), out)
    return int(out.sum())
expected = digest()
child = os.fork()
if child == 0:
    os._exit(digest() != expected)
print(chosen().name, os.waitpid(child, 0)[1])
"""
    assert run_python(code) == f"{LEVELS[0]} 0\n"


@pytest.mark.slow
def test_the_kernels_are_loaded_when_they_pay_off_and_numba_never():
    code = """
import sys
import secure_bloom
assert not [name for name in sys.modules if name.startswith(("secure_bloom.kernels", "numpy"))]
filter = secure_bloom.SplitBlockBloomFilter(64)
filter.insert(list(range(100)))
assert "secure_bloom.kernels.native" not in sys.modules
filter.insert(list(range(100_000)))
assert "secure_bloom.kernels.native" in sys.modules
print("numba" in sys.modules, "llvmlite" in sys.modules)
"""
    assert run_python(code) == "False False\n"


@pytest.mark.slow  # numba compiles
def test_the_test_at_loading_names_no_fault_of_numpy_itself():
    """Every function of it runs with numba as well."""
    raw = implementation("numba").raw
    from secure_bloom.parquet import footer_kernels as footers

    class Numba:
        hash_words, hash_fixed, hash_binary = raw.hash_words, raw.hash_fixed, raw.hash_binary
        insert, check, sort = raw.insert, raw.check, raw.sort
        distribute, unite, narrow = raw.distribute, raw.unite, raw.narrow
        gather, scatter, encode_pages = raw.gather, raw.scatter, raw.encode_pages
        struct_ends, fields = footers.struct_ends, footers.fields
        with_bloom_filters = footers.with_bloom_filters

    assert verification.verify(Numba) is None
