"""Whether the source tree is ready: its changelog, its state in git, its tests and its docs."""

from __future__ import annotations

import re

from release.candidate import Candidate, NotReady, run


def changelog(candidate: Candidate) -> str:
    """Check that the changelog has a dated entry for the version."""
    text = (candidate.root / "CHANGELOG.md").read_text(encoding="utf-8")
    title = f"## [{candidate.version}] - YYYY-MM-DD"
    found = re.search(rf"^## \[{re.escape(candidate.version)}\] - (\d{{4}}-\d\d-\d\d)\n(.*?)"
                      r"(?=^## \[|\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise NotReady(f"CHANGELOG.md has no entry '{title}'; rename '## [Unreleased]', and put "
                       "a new, empty '## [Unreleased]' above it")
    if not re.search(r"^- ", found[2], re.MULTILINE):
        raise NotReady(f"the entry of version {candidate.version} in CHANGELOG.md is empty")
    return f"version {candidate.version} of {found[1]}"


def tree(candidate: Candidate) -> str:
    """Check that everything is committed, and that a version tag names this version."""
    if changes := candidate.git("status", "--porcelain"):
        raise NotReady(f"these files are not committed:\n{changes.rstrip()}")
    tags = [tag for tag in candidate.git("tag", "--points-at", "HEAD").split()
            if re.match(r"v\d", tag)]
    if wrong := [tag for tag in tags if tag != f"v{candidate.version}"]:
        raise NotReady(f"this commit has the tag {wrong[0]}, but is version {candidate.version}; "
                       "correct __version__ in secure_bloom/__init__.py, or the tag")
    return f"commit {candidate.git('rev-parse', '--short', 'HEAD').strip()}, " + (
        f"tag {tags[0]}" if tags else "not tagged yet")


def tests(candidate: Candidate) -> str:
    """Run the tests that decide whether a change is merged."""
    run("make", "test", "test-build", folder=candidate.root)
    return "passed"


def docs(candidate: Candidate) -> str:
    """Build the documentation, which checks it."""
    run("make", "docs", folder=candidate.root)
    return "built"
