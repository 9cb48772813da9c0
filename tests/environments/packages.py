"""Tries the package in bare environments, as users install it: with each extra and each Python."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from release.building import export
from release.candidate import Candidate
from tests.environments.extras import OWN, PROGRAMS, VARIABLES
from tests.environments.interpreters import BUILD, ROOT, interpreter, packages
from tests.environments.platforms import PLATFORMS, without_wheel

PYTHONS = "3.11", "3.12", "3.13"
PIP = sys.executable, "-m", "pip"
_MIB = 1 << 20


def extras() -> list[str]:
    """Return the extras for users; the first one, "none", is the package alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return ["none", *(name for name in project["optional-dependencies"] if name not in OWN)]


def tried(extra: str, _results: dict[str, Any]) -> dict[str, Any]:
    """Install an extra for each Python and use it; returns by Python what was found."""
    return {python: _tried(extra, python, _wheel()) for python in PYTHONS}


@functools.cache
def _wheel() -> Path:
    """Build the wheel of the last commit as `pip install` does, in an environment of its own."""
    shutil.rmtree(BUILD / "wheels", ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        export(Candidate(ROOT, BUILD), Path(folder))
        subprocess.run([*PIP, "--quiet", "wheel", "--no-deps", "--build-constraint",
                        ROOT / "constraints.txt", "--wheel-dir", BUILD / "wheels", folder],
                       check=True)
    return next((BUILD / "wheels").glob("*.whl"))


def _tried(extra: str, python: str, wheel: Path) -> dict[str, Any]:
    """Install an extra in a bare environment and use it; returns what was found."""
    name = f"secure_bloom[{extra}], Python {python}"
    found = interpreter(python)
    if found is None:
        return {"missing": f"Python {python} is not installed"}
    with tempfile.TemporaryDirectory() as folder:
        print(f"{name}: installing", flush=True)
        bare = _environment(found, Path(folder),
                            [str(wheel) if extra == "none" else f"{wheel}[{extra}]"])
        if isinstance(bare, str):
            return {"failed": bare}
        print(f"{name}: using", flush=True)
        done = subprocess.run([bare, "-c", PROGRAMS[extra]], cwd=folder, text=True,
                              capture_output=True, env=os.environ | VARIABLES)
        if done.returncode:
            print(done.stderr, flush=True)
            return {"failed": done.stderr.strip().splitlines()[-1]}
        return {"versions": packages(*PIP, "--python", bare), "bytes": _size(bare)}


def without_wheels(results: dict[str, Any]) -> dict[str, list[str]]:
    """Return for each platform which of all packages have no wheel, for one of the Pythons."""
    found: dict[str, set[str]] = {platform: set() for platform in PLATFORMS}
    for python in PYTHONS:
        installed = {f"{name}=={version}" for extra in extras() for name, version
                     in results.get(extra, {}).get(python, {}).get("versions", {}).items()
                     if name.replace("-", "_") != "secure_bloom"}
        for platform in PLATFORMS:
            print(f"wheels for {platform}, Python {python}", flush=True)
            found[platform] |= {one.partition("==")[0] for one
                                in without_wheel(sorted(installed), platform, python)}
    return {platform: sorted(names) for platform, names in found.items()}


def _environment(python: str, folder: Path, requirements: list[str]) -> Path | str:
    """Make an environment with the tested versions; returns its interpreter, or what went wrong."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    bare = folder / "venv" / "bin" / "python"
    done = subprocess.run([*PIP, "--quiet", "--python", bare, "install", "--no-compile",
                           "--constraint", ROOT / "constraints.txt", *requirements],
                          capture_output=True, text=True)
    return bare if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _size(python: Path) -> int:
    """Return the bytes of all files that are installed in an environment: without bytecode."""
    [site] = python.parents[1].glob("lib/python*/site-packages")
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file())


def weight(_results: dict[str, Any]) -> dict[str, int]:
    """Return the sizes of the package with what it needs, and of pyarrow and numpy alone."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = {}
        for name, requirements in (("secure_bloom", [str(_wheel())]),
                                   ("pyarrow and numpy", ["pyarrow", "numpy"])):
            bare = _environment(sys.executable, Path(folder) / name, requirements)
            assert isinstance(bare, Path), bare
            sizes[name] = _size(bare)
    return sizes


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    columns = ["extra", *(f"Python {python}" for python in PYTHONS), "packages", "MiB",
               *PLATFORMS]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for extra in extras():
        found = results.get(extra, {})
        done = [one for one in found.values() if "versions" in one]
        cells = [extra if extra == "none" else f"`{extra}`",
                 *(_outcome(found.get(python, {})) for python in PYTHONS),
                 str(max(len(one["versions"]) for one in done)) if done else "",
                 str(max(one["bytes"] for one in done) // _MIB) if done else "",
                 *(_platform(done, results, platform) for platform in PLATFORMS)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _outcome(found: dict[str, Any]) -> str:
    if "versions" in found:
        return "works"
    return found.get("missing") or found.get("failed") or "not tried"


def _platform(done: list[dict[str, Any]], results: dict[str, Any], platform: str) -> str:
    """Return whether all packages of an extra have wheels, and otherwise which have none."""
    if not done or platform not in results.get("wheels", {}):
        return ""
    missing = {name for one in done for name in one["versions"]
               if name in results["wheels"][platform]}
    return f"no wheel: {', '.join(sorted(missing))}" if missing else "wheels"


def weight_text(sizes: dict[str, int]) -> str:
    """Return the sizes as a sentence."""
    own, other = sizes["secure_bloom"], sizes["pyarrow and numpy"]
    return (f"An installation takes {own / _MIB:.0f} MiB, with all packages that it "
            f"needs. pyarrow and numpy alone\ntake {other / _MIB:.0f} MiB: the ratio is "
            f"{own / other:.2f}.")
