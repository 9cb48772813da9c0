"""What is to be released: a version, at a commit of a source tree."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path


class NotReady(Exception):
    """A step has found why this cannot be released; the message says what to do."""


@dataclass(frozen=True)
class Candidate:
    """The source tree whose last commit is to be released.

    Attributes
    ----------
    root : path
        The folder of the repository.
    dist : path
        The folder for what is built.
    """

    root: Path
    dist: Path

    @property
    def version(self) -> str:
        """The version, from the only place that states it."""
        text = (self.root / "secure_bloom" / "__init__.py").read_text(encoding="utf-8")
        return re.findall(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)[0]

    @property
    def date(self) -> int:
        """The time of the commit, in seconds since 1970: the time of all files that are built."""
        return int(self.git("log", "-1", "--format=%ct"))

    @property
    def packages(self) -> list[Path]:
        """The wheels and source distributions that were built.

        Raises
        ------
        NotReady
        """
        found = sorted(path for pattern in ("*.whl", "*.tar.gz")
                       for path in (self.dist / "packages").glob(pattern))
        if not found:
            raise NotReady("there are no packages; see the step 'build'")
        return found

    def git(self, *arguments: str) -> str:
        """Run git in the source tree; returns what it prints."""
        return run("git", *arguments, folder=self.root, quiet=True)


def run(*command: object, folder: Path, quiet: bool = False, **variables: str) -> str:
    """Run a program; returns what it prints if ``quiet``, or else shows it.

    Raises
    ------
    NotReady
        If it fails or is not installed.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=folder, env=os.environ | variables, text=True,
                              capture_output=quiet)
    except OSError as error:
        raise NotReady(f"{words[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise NotReady(f"`{' '.join(words)}` ended with exit code {done.returncode}"
                       + (f":\n{done.stderr.strip()}" if quiet else "; see above"))
    return done.stdout or ""
