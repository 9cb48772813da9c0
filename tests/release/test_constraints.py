"""constraints.txt states a version of everything that the project names."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines()
         if line and not line.startswith("#")]
VERSIONS = {canonicalize_name(name): version
            for name, version in (line.split("==") for line in LINES)}
REQUIREMENTS = {requirement for group in (
    PROJECT["build-system"]["requires"], PROJECT["project"]["dependencies"],
    PROJECT["dependency-groups"]["release"], *PROJECT["project"]["optional-dependencies"].values())
    for requirement in group if not requirement.startswith("secure_bloom[")}


def test_every_line_is_an_exact_version():
    assert [line for line in LINES if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert len(VERSIONS) == len(LINES)


@pytest.mark.parametrize("text", sorted(REQUIREMENTS))
def test_a_requirement_has_a_version_that_it_allows(text):
    """``make constraints`` adds what is missing."""
    requirement = Requirement(text)
    assert VERSIONS[canonicalize_name(requirement.name)] in requirement.specifier
