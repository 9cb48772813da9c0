"""Tries combinations of versions: of Python, and of the packages that pyproject.toml allows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.environments.cells import CELLS, Cell
from tests.environments.interpreters import BUILD, ROOT, interpreter, packages

_TESTS = {"quick": ["--tier", "check", "-n", "2", "--dist", "loadgroup"],
          "Spark": ["--tier", "all", "-n", "0", "tests/spark/test_write.py",
                    "tests/spark/test_read.py"]}
_SHOWN = "pyarrow", "numpy", "cryptography", "numba", "pyspark", "pandas"
_COUNTS = re.compile(r"^=* ?(\d+ (?:failed|passed|errors?)(?:, \d+ (?:passed|errors?|skipped))*)",
                     re.MULTILINE)
_PASSED, _FAILED = 0, 1  #: exit codes of pytest


def tried(cell: Cell, _results: dict[str, Any]) -> dict[str, Any]:
    """Return the versions of a cell, and how its tests ended."""
    python = interpreter(cell.python)
    if python is None:
        return {"quick": f"not tried: Python {cell.python} is not installed"}
    folder = BUILD / cell.name
    tree, binaries = folder / "tree", folder / "venv" / "bin"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(
        "build", "built", ".venv", ".git", ".hypothesis", "__pycache__", "*.egg-info"))
    print(f"{cell.name}: packages, to {folder / 'install.log'}", flush=True)
    if not _installed(cell, python, folder):
        return {"failed": True, "quick": "the packages cannot be installed"}
    result: dict[str, Any] = {"versions": _versions(binaries / "python")}
    for name, arguments in _TESTS.items():
        log = folder / f"{name}.log"
        print(f"{cell.name}: {name} tests, to {log}", flush=True)
        with log.open("wb") as file:
            done = subprocess.run([binaries / "python", "-m", "pytest", "-q", *arguments],
                                  cwd=tree, stdout=file, stderr=subprocess.STDOUT)
        result[name] = outcome(done.returncode, log.read_text(errors="replace"))
        if done.returncode:
            result["failed"] = True
    return result


def _installed(cell: Cell, python: str, folder: Path) -> bool:
    """Make the environment of a cell; returns whether all packages could be installed."""
    constraints, build = folder / "constraints.txt", folder / "build-constraints.txt"
    constraints.write_text(_lines(cell.packages))
    build.write_text(_lines({name: cell.packages[name] for name in ("numba", "numpy", "xxhash")
                             if name in cell.packages}))
    venv = folder / "venv"
    pip = [venv / "bin" / "python", "-m", "pip", "--quiet"]
    with (folder / "install.log").open("wb") as log:
        return all(subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode == 0
                   for command in (
            [python, "-m", "venv", venv],
            [*pip, "install", "--upgrade", "pip"],
            [*pip, "install", "--constraint", constraints, "--build-constraint", build,
             "--editable", f"{folder / 'tree'}[all,test]"]))


def _lines(requirements: dict[str, str]) -> str:
    return "".join(f"{name}{version}\n" for name, version in requirements.items())


def _versions(python: Path) -> dict[str, str]:
    """Return the versions of Python and of all packages in an environment."""
    version = subprocess.run([python, "-c", "import platform; print(platform.python_version())"],
                             check=True, capture_output=True, text=True).stdout.strip()
    return {"Python": version, **packages(python, "-m", "pip")}


def outcome(code: int, printed: str) -> str:
    """Return how tests ended, from the exit code of pytest and what it has printed."""
    counts = _COUNTS.findall(printed)
    text = re.sub(r"\d{4,}", lambda number: f"{int(number[0]):,}", counts[-1]) if counts else ""
    if code in (_PASSED, _FAILED) and text:
        return text
    return f"pytest ended with exit code {code}{text and ': ' + text}"


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [f"| cell | Python | {' | '.join(_SHOWN)} | {' | '.join(_TESTS)} |",
             "|" + "---|" * (len(_SHOWN) + len(_TESTS) + 2)]
    for cell in CELLS:
        result = results.get(cell.name, {"quick": "not tried"})
        versions = result.get("versions", {})
        shown = [versions.get(name, "") for name in ("Python", *_SHOWN)]
        outcomes = [result.get(name, "") for name in _TESTS]
        lines.append(f"| {' | '.join([cell.name, *shown, *outcomes])} |")
    return "\n".join(lines)
