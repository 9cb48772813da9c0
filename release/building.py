"""Wheels and source distributions whose bytes depend on the commit and on nothing else."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from release.candidate import Candidate, NotReady, run

PROJECTS = ".", "vectors"  #: folders with a pyproject.toml


def build(candidate: Candidate) -> str:
    """Build every package twice, and keep what is equal, byte for byte.

    The first build makes the wheels from the source distributions, the second one from the source
    tree. So equal wheels also show that the source distributions are complete.

    Raises
    ------
    NotReady
        If a build fails, or the two differ.
    """
    packages = candidate.dist / "packages"
    shutil.rmtree(candidate.dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        first = _built(candidate, Path(folder) / "first", [])
        second = _built(candidate, Path(folder) / "the second one", ["--sdist", "--wheel"])
        if differing := [name for name in first.keys() | second.keys()
                         if first.get(name) != second.get(name)]:
            raise NotReady(f"two builds of {', '.join(sorted(differing))} differ")
    packages.mkdir(parents=True)
    for name, data in first.items():
        (packages / name).write_bytes(data)
    return f"{', '.join(sorted(first))}; two builds are equal"


def _built(candidate: Candidate, folder: Path, options: list[str]) -> dict[str, bytes]:
    """Build the committed files of all projects in a new folder; returns the packages by name."""
    sources, packages = folder / "sources", folder / "packages"
    sources.mkdir(parents=True)
    export(candidate, sources)
    umask = os.umask(0o022)  # packages store the modes of files
    try:
        for project in PROJECTS:
            # Without isolation: the kernels are compiled by the versions that the tests have used.
            run(sys.executable, "-m", "build", "--no-isolation", "--outdir", packages, *options,
                sources / project, folder=folder, quiet=True, SOURCE_DATE_EPOCH=f"{candidate.date}")
    finally:
        os.umask(umask)
    return {path.name: repacked(path.read_bytes(), candidate.date)
            if path.name.endswith(".tar.gz") else path.read_bytes()
            for path in packages.iterdir()}


def export(candidate: Candidate, folder: Path) -> None:
    """Write the committed files of the source tree to a folder."""
    archive = subprocess.run(["git", "archive", "--format=tar", "HEAD"], cwd=candidate.root,
                             check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def repacked(sdist: bytes, date: int) -> bytes:
    """Return a source distribution with the same files, sorted, without the builder's traces.

    setuptools stores the time of the build and the builder's user there.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(sdist)) as old, \
            tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, date
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(archive.getvalue(), mtime=date)
