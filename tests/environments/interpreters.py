"""Interpreters of other Python versions, and what is installed for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "environments"


def interpreter(version: str) -> str | None:
    """Return a Python of this version: from PYTHONS, a list of paths, PATH, or pyenv."""
    name = f"python{version}"
    folders = [*os.environ.get("PYTHONS", "").split(os.pathsep), *os.environ["PATH"].split(":"),
               *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin"))]
    for folder in filter(None, folders):
        path = shutil.which(name, path=folder)
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


def packages(*pip: object) -> dict[str, str]:
    """Return the versions of all packages that ``pip``, a command line, sees."""
    shown = subprocess.run([*map(str, pip), "list", "--format", "json"], check=True,
                           capture_output=True).stdout
    return {one["name"].lower(): one["version"] for one in json.loads(shown)}
