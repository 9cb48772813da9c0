"""The code of the README and of the docs runs as it stands there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

README = (Path(__file__).parent.parent / "README.md").read_text()
PYTHON, ENGINES, SPARK = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = next(block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
             if "keyring create" in block)


def _run(command, folder):
    # As in an activated virtual environment: its programs come first on the path.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240,
                          env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python(tmp_path):
    out = _run([sys.executable, "-c", PYTHON], tmp_path)
    assert "[[ True False]]" in out
    assert "{'ssn': '078-05-1120', 'city': 'Rome'}" in out


def test_engines(tmp_path):
    _run([sys.executable, "-c", PYTHON], tmp_path)  # makes keyring and file
    out = _run([sys.executable, "-c", ENGINES], tmp_path)
    assert out.splitlines() == re.findall(r"^print.*  # (.*)$", ENGINES, re.MULTILINE) != []


@pytest.mark.spark
def test_spark(tmp_path):
    _run([sys.executable, "-c", PYTHON], tmp_path)  # makes the keyring
    out = _run([sys.executable, "-c", SPARK], tmp_path)
    assert "078-05-1120" in out and "Oslo" in out


def test_command_line(tmp_path):
    out = _run([shutil.which("bash"), "-euc", SHELL], tmp_path)
    assert "1 encrypted" in out and "1 plain" in out
    assert "may be in 1 of 1 row groups" in out


def test_a_kms_client_of_ones_own(tmp_path):
    text = (Path(__file__).parent.parent / "docs" / "kms.md").read_text()
    code = re.search(r"## Other KMS.*?```python\n(.*?)```", text, re.DOTALL)[1]
    out = _run([sys.executable, "-c", code], tmp_path)
    assert "[{'ssn': '078-05-1120', 'city': 'Rome'}]" in out


def test_row_filters_find_what_the_page_says(tmp_path):
    text = (Path(__file__).parent.parent / "docs" / "filters.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    out = _run([sys.executable, "-c", code], tmp_path)
    assert out.splitlines() == re.findall(r"^print.*# (.*)$", code, re.MULTILINE) != []


def test_requiring_encryption(tmp_path):
    _run([sys.executable, "-c", PYTHON], tmp_path)  # makes keyring and file
    text = (Path(__file__).parent.parent / "docs" / "keys.md").read_text()
    code = re.search(r"## Requiring encryption.*?```python\n(.*?)```", text, re.DOTALL)[1]
    assert _run([sys.executable, "-c", code], tmp_path) == "[]\n"


def test_columns_whose_key_is_missing(tmp_path):
    _run([sys.executable, "-c", PYTHON], tmp_path)  # makes keyring and file
    text = (Path(__file__).parent.parent / "docs" / "keys.md").read_text()
    code = re.search(r"## Columns whose key is missing.*?```python\n(.*?)```", text, re.DOTALL)[1]
    out = _run([sys.executable, "-c", code], tmp_path)
    assert out.splitlines() == re.findall(r"# ([\[{].*)$", code, re.MULTILINE) != []


def test_the_two_commands_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    assert "make demo" in README and "make test" in README
    assert re.search(r"^demo:", makefile, re.M) and re.search(r"^test:", makefile, re.M)
