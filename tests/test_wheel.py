"""The wheel holds the whole package, and it works in an environment in which nothing else is."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from tests.support import COMPILED

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
#: folders of the sources -> where the wheel has them
PACKAGES = {"secure_bloom": "secure_bloom", "keys": "secure_bloom/keys"}
OTHER_SOURCES = "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"
BUILDER = "build_kernels"
#: kernels, compiled when the wheel is built
BUILT = {f"secure_bloom/kernels/built/{name}" for name in (
    "manifest.json", "x86-64.so", "x86-64-v2.so", "x86-64-v3.so", "x86-64-v4.so", "aarch64.so")}
KINDS = ".py", ".java", ".typed"  # of files that belong to a package


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources as they are now, since building writes into them."""
    sources = tmp_path_factory.mktemp("sources")
    for name in (*PACKAGES, BUILDER):
        shutil.copytree(ROOT / name, sources / name,
                        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "built"))
    for name in OTHER_SOURCES:
        shutil.copy(ROOT / name, sources)
    return sources


@pytest.fixture(scope="module")
def wheel(sources: Path) -> Path:
    """A wheel of the sources."""
    found = run_pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir",
                    sources / "wheels", sources)
    if found.returncode != 0:
        cannot(f"the wheel cannot be built: {found.stderr.strip().splitlines()[-1:]}")
    [path] = (sources / "wheels").iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment with the wheel. Dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    done = run_pip("--python", python, "install", "--no-deps", wheel)
    assert done.returncode == 0, done.stderr
    [site] = folder.glob("lib/python*/site-packages")
    # The lines of other .pth files do not count there, so editable installs are not seen.
    (site / "dependencies.pth").write_text(
        "".join(f"{path}\n" for path in sys.path if path.endswith("-packages")))
    return python.parent


def run_pip(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs pip without network."""
    offline = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run([sys.executable, "-m", "pip", *map(str, arguments)], text=True,
                          capture_output=True, env=os.environ | offline)


def cannot(reason: str) -> None:
    """The test is skipped, but under CI=true it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def run(command: list[object], folder: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def source_files() -> set[str]:
    """Files of the package in the source tree, by their names in a wheel."""
    return {f"{target}/{path.relative_to(ROOT / name).as_posix()}"
            for name, target in PACKAGES.items() for path in (ROOT / name).rglob("*")
            if path.suffix in KINDS}


def test_every_package_of_the_source_tree_is_in_the_wheel(wheel):
    """A new package is lost where the list in pyproject.toml does not name it."""
    packages = {str(PurePosixPath(name).parent) for name in source_files()
                if name.endswith("/__init__.py")}
    found = {str(PurePosixPath(name).parent) for name in names_in(wheel)
             if name.endswith("/__init__.py")}
    assert found == packages and len(found) > 20


def test_the_wheel_has_the_files_of_the_source_tree_and_no_others(wheel):
    names = names_in(wheel)
    assert names == source_files() | BUILT
    assert "secure_bloom/py.typed" in names
    assert [name for name in names if name.endswith(".java")]
    assert not [name for name in names if "test" in name.split("/")[-1].lower()
                or name.split("/")[0] != "secure_bloom"]


def test_the_package_works_from_the_wheel(installed, tmp_path):
    out = run([installed / "python", "-c",
               "import secure_bloom, secure_bloom.keys.operations, secure_bloom.parquet.thrift\n"
               "from secure_bloom import keys\n"
               "print(secure_bloom.__file__, keys.__file__, keys.operations.__file__,\n"
               "      secure_bloom.parquet.thrift.__file__, sep='\\n')"], tmp_path)
    assert len(out.splitlines()) == 4
    assert all(Path(line).is_relative_to(installed.parent) for line in out.splitlines())


def test_the_wheel_is_for_every_machine(wheel):
    """It has kernels for several, and numpy serves the others."""
    assert wheel.name.endswith("-py3-none-any.whl")


#: Runs in the environment of the wheel, as if numba were not installed.
WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
"""


@pytest.mark.skipif(not COMPILED[:-1], reason="no kernels are built for this machine")
def test_the_kernels_of_the_wheel_are_used_without_numba(installed, tmp_path):
    code = WITHOUT_NUMBA + """
import secure_bloom
filter = secure_bloom.SplitBlockBloomFilter(4096)
filter.insert(list(range(10_000)))
assert filter.check(list(range(10_000))).all()
from secure_bloom.sbbf.kernel_choice import chosen
print(chosen().name, chosen().reason)
"""
    assert run([installed / "python", "-c", code], tmp_path) == f"{COMPILED[0]} None\n"
    shown = run([installed / "secure-bloom", "warmup"], tmp_path)
    assert shown == f"{COMPILED[0]}: built kernels, tested on this machine\n"


def test_numba_without_its_package_is_an_error_that_names_the_extra(installed, tmp_path):
    code = WITHOUT_NUMBA + """
import os
os.environ["SECURE_BLOOM_KERNELS"] = "numba"
from secure_bloom.errors import MissingExtraError
from secure_bloom.sbbf.kernel_choice import chosen
try:
    chosen()
except MissingExtraError as error:
    print(error)
"""
    assert "secure_bloom[numba]" in run([installed / "python", "-c", code], tmp_path)


def test_a_source_distribution_builds_the_same_wheel(sources, wheel, tmp_path):
    """It has everything that the build needs."""
    code = ("import setuptools.build_meta as backend, sys\n"
            "print(backend.build_sdist(sys.argv[1]))")
    name = run([sys.executable, "-c", code, tmp_path], sources).splitlines()[-1]
    with tarfile.open(tmp_path / name) as archive:
        found = {member.split("/", 1)[1] for member in archive.getnames() if "/" in member}
    needed = {f"{BUILDER}/{path.name}" for path in (ROOT / BUILDER).glob("*.py")}
    assert needed | {"setup.py", "pyproject.toml", "keys/__init__.py"} <= found
    assert not [name for name in found if name.endswith(".so")]


def test_the_command_works_from_the_wheel(installed, tmp_path):
    assert "Usage: secure-bloom" in run([installed / "secure-bloom", "--help"], tmp_path)


def test_a_table_is_written_and_read_by_the_package_of_the_wheel(installed, tmp_path):
    code = ("import pyarrow as pa, secure_bloom\n"
            "from secure_bloom import UniformKey\n"
            "secure_bloom.write_table(pa.table({'a': [1, 2]}), 'a.parquet', bloom_filters=['a'],\n"
            "                         encryption=UniformKey(bytes(range(16))))\n"
            "from secure_bloom import ExplicitKeys, ParquetFile\n"
            "with ParquetFile('a.parquet', ExplicitKeys(bytes(range(16)))) as file:\n"
            "    print(file.might_contain('a', [2, 77]).tolist())\n")
    assert run([installed / "python", "-c", code], tmp_path) == "[[True, False]]\n"
