"""Servers from registries of packages, built once and kept in ``build/servers``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build" / "servers"


class NotBuilt(Exception):
    """A server cannot be had here; the message says why."""


def from_go(module: str, version: str) -> Path:
    """Return the program of a Go module, which is compiled unless it was before."""
    program = BUILD / f"{Path(module).name}-{version}" / Path(module).name
    if not program.exists():
        _run(["go", "install", f"{module}@{version}"], BUILD, GOBIN=str(program.parent),
             GOFLAGS="-mod=mod")
    return program


def go_module(module: str, version: str) -> dict[str, str]:
    """Download a Go module; return where its parts are: ``Dir``, ``GoMod``."""
    return json.loads(_run(["go", "mod", "download", "-json", f"{module}@{version}"], BUILD))


def in_go(folder: Path, *arguments: str) -> None:
    """Run the command ``go`` in the folder of a module, whose go.mod may be completed."""
    _run(["go", *arguments], folder, GOFLAGS="-mod=mod")


def from_npm(package: str, version: str, script: str) -> list[str]:
    """Return the command line of a script of an npm package, which is installed if need be."""
    folder = BUILD / f"{package}-{version}"
    if not (folder / ".ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent",
              f"{package}@{version}"], folder)
        (folder / ".ready").touch()
    return ["node", str(folder / "node_modules" / package / script)]


def from_pip(package: str, version: str) -> Path:
    """Return a folder with a package of Python and all that it needs."""
    folder = BUILD / f"{package}-{version}"
    if not (folder / ".ready").exists():
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder),
              f"{package}=={version}"], BUILD)
        (folder / ".ready").touch()
    return folder


def _run(command: list[str], folder: Path, **environment: str) -> str:
    if shutil.which(command[0]) is None:
        raise NotBuilt(f"{command[0]} is not installed")
    BUILD.mkdir(parents=True, exist_ok=True)
    print("$", *command, flush=True)
    result = subprocess.run(command, cwd=folder, env={**os.environ, **environment},
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode:
        raise NotBuilt(f"{' '.join(command[:3])} failed: {result.stderr.strip()[-500:]}")
    return result.stdout
