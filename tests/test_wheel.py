"""The wheel holds the whole package, and it works in an environment in which nothing else is."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath

import pytest

import secure_bloom
from tests.support import COMPILED

pytestmark = pytest.mark.build

ROOT = Path(__file__).parent.parent
#: folders of the sources -> where the wheel has them
PACKAGES = {"secure_bloom": "secure_bloom", "keys": "secure_bloom/keys"}
#: what git ignores
NOT_SOURCES = ".git", ".venv*", "build", "built", "dist", "demo-output", "__pycache__", \
    "*.egg-info", ".*_cache", ".hypothesis"
#: kernels, compiled when the wheel is built
BUILT = {f"secure_bloom/kernels/built/{name}" for name in (
    "manifest.json", "x86-64.so", "x86-64-v2.so", "x86-64-v3.so", "x86-64-v4.so", "aarch64.so")}
KINDS = ".py", ".java", ".typed"  # of files that belong to a package


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources as they are now, since building writes into them."""
    sources = tmp_path_factory.mktemp("sources") / "secure_bloom"
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(*NOT_SOURCES))
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
    python = environment(tmp_path_factory.mktemp("installed") / "venv")
    done = run_pip("--python", python, "install", "--no-deps", wheel)
    assert done.returncode == 0, done.stderr
    return python.parent


def environment(folder: Path) -> Path:
    """Make a virtual environment with the dependencies of the tests; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    # The lines of other .pth files do not count there, so editable installs are not seen.
    (site / "dependencies.pth").write_text(
        "".join(f"{path}\n" for path in sys.path if path.endswith("-packages")))
    return folder / "bin" / "python"


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
    assert "pip install 'numba>=" in run([installed / "python", "-c", code], tmp_path)


@pytest.fixture(scope="module")
def source_distribution(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    code = ("import setuptools.build_meta as backend, sys\n"
            "print(backend.build_sdist(sys.argv[1]))")
    return folder / run([sys.executable, "-c", code, folder], sources).splitlines()[-1]


def test_a_source_distribution_has_every_file_of_the_repository(source_distribution):
    """Also tests, test vectors and docs. What setuptools adds is the metadata."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        cannot("git does not know the files of the repository")
    with tarfile.open(source_distribution) as archive:
        found = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    metadata = {name for name in found if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert found - metadata == {name for name in listed.stdout.splitlines()
                                if (ROOT / name).is_file()}  # not the link to keys/


def unpacked(source_distribution: Path, folder: Path) -> Path:
    with tarfile.open(source_distribution) as archive:
        archive.extractall(folder, filter="data")
    [sources] = folder.iterdir()
    return sources


@pytest.fixture(scope="module")
def editable(source_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources that are installed in the environment ``venv`` next to them."""
    folder = tmp_path_factory.mktemp("editable")
    sources = unpacked(source_distribution, folder)
    shutil.copytree(ROOT / "secure_bloom" / "kernels" / "built",
                    sources / "secure_bloom" / "kernels" / "built")  # saves their compilation
    done = run_pip("--python", environment(folder / "venv"), "install", "--no-deps",
                   "--no-build-isolation", "--editable", sources)
    assert done.returncode == 0, done.stderr
    return sources


def test_tests_run_from_a_source_distribution(editable):
    shown = run([editable.parent / "venv/bin/python", "-m", "pytest", "-q", "-p",
                 "no:cacheprovider", "tests/keys/test_uri.py", "tests/test_layers.py"], editable)
    assert " passed" in shown


def test_an_editable_install_shows_types_to_mypy(editable, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import secure_bloom\n"
                       "from secure_bloom.keys import Keyring\n"
                       "secure_bloom.ParquetFile(Keyring('a'))\n")
    done = subprocess.run([editable.parent / "venv/bin/python", "-m", "mypy", "--config-file=",
                           "--ignore-missing-imports", "--follow-imports=silent", program],
                          cwd=tmp_path, capture_output=True, text=True)
    assert "program.py:3: error" in done.stdout and "Keyring" in done.stdout, done.stdout


def test_a_source_distribution_builds_the_same_wheel(source_distribution, wheel, tmp_path):
    """Down to the last byte of the compiled kernels."""
    sources = unpacked(source_distribution, tmp_path)
    done = run_pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, sources)
    assert done.returncode == 0, done.stderr
    [built] = tmp_path.glob("*.whl")
    assert built.name == wheel.name
    assert contents(built) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata_of(wheel: Path) -> Message:
    [name] = [name for name in contents(wheel) if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(contents(wheel)[name])


def test_the_version_of_the_wheel_is_that_of_the_package(wheel):
    assert metadata_of(wheel)["Version"] == secure_bloom.__version__


def test_the_page_of_the_wheel_is_the_readme_without_links_that_lead_nowhere(wheel):
    """A package index has no files next to the page."""
    page = str(metadata_of(wheel).get_payload(decode=True), "utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]*)\)|(?:src|href|srcset)=\"([^\"]*)\"", page)
    assert [target for pair in targets for target in pair
            if target and not target.startswith("https://")] == []
    blocks = re.findall(r"```.*?```", readme, re.DOTALL)
    assert blocks and all(block in page for block in blocks)
    links = re.findall(r"(?<!!)\[([^\]]+)\]\(([^#)]+)\)", readme)
    assert links and all(text in page and target in page for text, target in links)


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
