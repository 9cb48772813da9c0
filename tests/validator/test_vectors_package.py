"""The test vectors as a package of their own, and its reader."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import secure_bloom
import vectors
from secure_bloom.cli import main, validate
from secure_bloom.validator import LAYERS, load_cases
from secure_bloom.validator.cases import Case
from tests.doc_examples import run_examples

FOLDER = Path(__file__).parents[2] / "vectors"
FIELDS = ("layer", "name", "operation", "input", "outcome", "origin", "checked_by", "output",
          "fault", "comment")
#: prints every case of the installed package, with the digests of its files
DUMP = f"""
import json, parquet_bloom_vectors as vectors
from hashlib import sha256
print(json.dumps([{{**{{name: getattr(case, name) for name in {FIELDS!r}}},
                   "digests": [sha256(path.read_bytes()).hexdigest() for path in case.paths]}}
                  for case in vectors.cases()]))
"""


def fields_of(case) -> dict:
    return {name: getattr(case, name) for name in FIELDS}


def digests(case: Case) -> list[str]:
    """Return the digests of the files of a case, as the validator finds them."""
    paths = [case.path] if case.layer == "files" else sorted(
        set(case.folder.iterdir()) - {case.folder / "case.json"}) if case.layer == "index" else []
    return [sha256(path.read_bytes()).hexdigest() for path in paths]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_reader_returns_what_the_validator_reads(layer):
    assert [fields_of(case) for case in vectors.cases(layer)] \
        == [fields_of(case) for case in load_cases(FOLDER, [layer])] != []


def test_the_reader_knows_all_layers():
    assert list(vectors.LAYERS) == list(LAYERS)
    with pytest.raises(ValueError, match=r"'headings'.*xxh64"):
        vectors.cases("headings")


def test_the_differences_are_about_cases():
    names = {case.name for case in vectors.cases()}
    found = {name for difference in vectors.differences() for name in difference["cases"]}
    assert found and found <= names


def test_the_vectors_have_the_version_of_the_project():
    assert vectors.__version__ == secure_bloom.__version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy, since building writes into the sources."""
    folder = tmp_path_factory.mktemp("vectors")
    shutil.copytree(FOLDER, folder / "sources", ignore=shutil.ignore_patterns(
        "__pycache__", "build", "dist", "*.egg-info"))
    done = pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder,
               folder / "sources")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    done = pip("--python", folder / "bin" / "python", "install", wheel)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


def pip(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pip", "--no-input", *map(str, arguments)],
                          text=True, capture_output=True)


def output_of(python: Path, *arguments: object, folder: Path) -> str:
    done = subprocess.run([python, *map(str, arguments)], cwd=folder, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.sweep
def test_the_installed_package_has_every_case_and_its_files(python, tmp_path):
    found = json.loads(output_of(python, "-c", DUMP, folder=tmp_path))
    assert found == [{**fields_of(case), "digests": digests(case)} for case in load_cases(FOLDER)]


@pytest.mark.sweep
def test_the_validator_reads_the_installed_folder(python, tmp_path):
    folder = Path(output_of(python, "-m", "parquet_bloom_vectors", folder=tmp_path).strip())
    assert folder.is_relative_to(python.parents[1])
    assert len(load_cases(folder)) == len(load_cases(FOLDER))


@pytest.mark.sweep
def test_the_example_of_the_readme(python, tmp_path):
    output_of(python, "-m", "doctest", FOLDER / "README.md", folder=tmp_path)


@pytest.mark.sweep
def test_the_wheel_has_the_vectors_and_not_their_builder(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*")
                if path.is_file() and "__pycache__" not in path.parts}
    assert names == {f"parquet_bloom_vectors/{name}" for name in expected
                     if not name.startswith("builder/") and name != "pyproject.toml"}
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_page_of_the_package_has_no_links_into_the_sources():
    """A package index has no files next to the page."""
    assert "](" not in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def importable(monkeypatch, tmp_path):
    """The package as if it were installed; returns its folder."""
    folder = tmp_path / "site-packages" / "parquet_bloom_vectors"
    folder.parent.mkdir()
    folder.symlink_to(FOLDER)
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def test_the_command_finds_the_installed_vectors(monkeypatch, importable, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(validate, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    done = CliRunner().invoke(main, ["validate", "--layer", "aad", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["total"] == len(load_cases(FOLDER, ["aad"]))
    shutil.rmtree(importable.parent)
    done = CliRunner().invoke(main, ["validate"])
    assert done.exit_code == 2 and "pip install the folder vectors" in done.output


#: a program that computes no hash right
WRONG = shlex.join([sys.executable, "-c", "import sys\n"
                    "for line in sys.stdin: print('hashed\\thash=0000000000000000', flush=True)"])
HASHES = [case.name for case in load_cases(FOLDER, ["xxh64"])]


@pytest.mark.slow
@pytest.mark.parametrize(("known", "code", "message"), [
    (HASHES, 0, ""),
    (["# comment", "", *(f"{name}  # why" for name in HASHES)], 0, ""),
    (HASHES[1:], 1, f"fails, and is not known to: {HASHES[0]}"),
    (["no_such_case"], 2, "no_such_case")])
def test_failures_that_are_known(tmp_path, known, code, message):
    path = tmp_path / "known.txt"
    path.write_text("\n".join(known))
    done = CliRunner().invoke(main, ["validate", str(FOLDER), "--layer", "xxh64", "--against",
                                     WRONG, "--known-failures", str(path)])
    assert done.exit_code == code and message in done.output


@pytest.mark.slow
def test_a_known_failure_that_is_repaired(tmp_path):
    """Names of other layers do not count: their cases have not run."""
    path = tmp_path / "known.txt"
    path.write_text(f"{HASHES[0]}\n{load_cases(FOLDER, ['aad'])[0].name}\n")
    done = CliRunner().invoke(main, ["validate", str(FOLDER), "--layer", "xxh64",
                                     "--known-failures", str(path)])
    assert done.exit_code == 1
    assert done.stderr.strip() == f"known to fail, but does not: {HASHES[0]}"


@pytest.mark.slow
def test_the_page_for_other_projects(importable, monkeypatch, tmp_path):
    page = (FOLDER.parent / "docs" / "vectors.md").read_text(encoding="utf-8")
    adapter = re.search(r"```python\n(import sys\n.*?)```", page, re.DOTALL)[1]
    known = re.search(r"```python\n(import parquet_bloom_vectors\n.*?)```", page, re.DOTALL)[0]
    command = re.search(r"```sh\n.*?```", page, re.DOTALL)[0]
    (tmp_path / "adapter.py").write_text(adapter)
    (tmp_path / "vectors").symlink_to(FOLDER)
    path = {"PYTHONPATH": str(importable.parent)}
    listed, validated = run_examples(f"{known}\n{command}\n", tmp_path, **path)
    names = {line.partition("#")[0].strip() for line in listed.stdout.splitlines()}
    assert len(names) > 20 and names <= {case.name for case in vectors.cases()}
    assert re.search(r"^ *xxh64 +\d+ +[1-9]\d* +0 +[1-9]", validated.stdout, re.MULTILINE)
    job = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    assert job["bloom-filter-vectors"]["permissions"] == {"contents": "read"}
    assert re.findall(r"```(\w+)", page) == ["text", "python", "sh", "text", "python", "yaml"]
