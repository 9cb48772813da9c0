"""The extras that are tried in bare environments, and the page that shows them."""

import os
import subprocess
import sys

import pytest

from tests.environments import packages, platforms
from tests.environments.__main__ import ATTEMPTS, PAGE, failed
from tests.environments.extras import PROGRAMS, VARIABLES
from tests.environments.platforms import PLATFORMS, without_wheel


def test_every_extra_for_users_is_tried():
    assert PROGRAMS.keys() == set(packages.extras())


@pytest.mark.parametrize("extra", PROGRAMS)
def test_a_program_can_be_compiled(extra):
    compile(PROGRAMS[extra], extra, "exec")


@pytest.mark.parametrize(("extra", "module"), [
    ("spark", "pyspark"), ("aws", "botocore"), ("azure", "azure.keyvault.keys"),
    ("gcp", "google.cloud.kms_v1"), ("vault", "urllib3"), ("pkcs11", "pkcs11"), ("numba", "numba"),
    ("lance", "lance"), ("polars", "polars")])
def test_a_program_fails_without_its_extra(extra, module, tmp_path):
    """Otherwise it would show nothing."""
    hidden = f"import sys\nsys.modules[{module!r}] = None\n"
    done = subprocess.run([sys.executable, "-c", hidden + PROGRAMS[extra]], cwd=tmp_path,
                          capture_output=True, text=True, env=os.environ | VARIABLES)
    assert done.returncode == 1
    assert "MissingExtraError" in done.stderr or "ModuleNotFoundError" in done.stderr, done.stderr


@pytest.mark.parametrize("missing", [[], ["b"], ["a", "e"], ["a", "b", "c", "d", "e"]])
def test_packages_without_a_wheel_are_found(monkeypatch, missing):
    asked = []

    def has_wheels(requirements, platform, python):
        asked.append(requirements)
        return not set(requirements) & set(missing)

    monkeypatch.setattr(platforms, "_has_wheels", has_wheels)
    assert without_wheel(["a", "b", "c", "d", "e"], "Linux, aarch64", "3.12") == missing
    assert len(asked) == 1 if not missing else len(asked) <= 9


def test_the_table_shows_what_was_tried():
    results = {
        "none": {"3.11": {"versions": {"a": "1"}, "bytes": 3 << 20},
             "3.12": {"missing": "Python 3.12 is not installed"},
             "3.13": {"failed": "ImportError: a"}},
        "spark": {"3.11": {"versions": {"a": "1", "pyspark": "4"}, "bytes": 9 << 20}},
        "wheels": {platform: [] for platform in PLATFORMS}
        | {"macOS 14, arm64": ["pyspark"]}}
    assert failed(results["none"]) and not failed(results["spark"])
    assert results.keys() <= ATTEMPTS.keys()
    lines = packages.table(results).splitlines()
    assert lines[2] == ("| none | works | Python 3.12 is not installed | ImportError: a | 1 | 3 "
                        "| wheels | wheels | wheels | wheels |")
    assert lines[3] == ("| `spark` | works | not tried | not tried | 2 | 9 "
                        "| wheels | wheels | no wheel: pyspark | wheels |")
    assert lines[4] == "| `aws` | not tried | not tried | not tried |  |  |  |  |  |  |"


def test_the_weight_is_stated_with_its_ratio():
    text = packages.weight_text({"secure_bloom": 130 << 20, "pyarrow and numpy": 100 << 20})
    assert "130 MiB" in text and text.endswith("the ratio is 1.30.")
    page = PAGE.read_text()
    assert "<!-- extras -->\n| extra |" in page and "the ratio is" in page
