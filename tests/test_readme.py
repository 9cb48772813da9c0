"""The code of the README and of the docs runs as it stands there."""

import re
import shutil
from pathlib import Path

import pytest

from tests.doc_examples import check_outputs, run

pytestmark = pytest.mark.slow

README = (Path(__file__).parent.parent / "README.md").read_text()
PYTHON, CONFIGURATION, ENGINES, SPARK = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder in which the first example has made a keyring and a file, and what it prints."""
    folder = tmp_path_factory.mktemp("readme")
    return folder, run("python", PYTHON, folder).stdout


@pytest.fixture
def folder(first, tmp_path):
    return shutil.copytree(first[0], tmp_path / "readme")


def test_python(first):
    expected = re.findall(r"^print.*  # (.*)$", PYTHON, re.MULTILINE)
    assert first[1].splitlines() == expected != []


def test_the_whole_configuration(tmp_path):
    run("python", PYTHON + CONFIGURATION + """
read_table("people.parquet", "keyring.json", require_encryption=True)
""", tmp_path)


def test_engines(folder):
    out = run("python", ENGINES, folder).stdout
    assert out.splitlines() == re.findall(r"^print.*  # (.*)$", ENGINES, re.MULTILINE) != []


@pytest.mark.sweep
@pytest.mark.spark
def test_spark(folder):
    out = run("python", SPARK, folder).stdout
    assert "078-05-1120" in out and "Rome" in out


def test_a_kms_client_of_ones_own(tmp_path):
    text = (Path(__file__).parent.parent / "docs" / "kms.md").read_text()
    code = re.search(r"## Other KMS.*?```python\n(.*?)```", text, re.DOTALL)[1]
    out = run("python", code, tmp_path).stdout
    assert "[{'ssn': '078-05-1120', 'city': 'Rome'}]" in out


def test_row_filters_find_what_the_page_says(tmp_path):
    text = (Path(__file__).parent.parent / "docs" / "filters.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    out = run("python", code, tmp_path).stdout
    assert out.splitlines() == re.findall(r"^print.*# (.*)$", code, re.MULTILINE) != []


def test_requiring_encryption(folder):
    text = (Path(__file__).parent.parent / "docs" / "keys.md").read_text()
    code = re.search(r"## Requiring encryption.*?```python\n(.*?)```", text, re.DOTALL)[1]
    assert run("python", code, folder).stdout == "[]\n"


def test_an_aad_prefix(tmp_path):
    text = (Path(__file__).parent.parent / "docs" / "keys.md").read_text()
    code = re.search(r"## An AAD prefix.*?```python\n(.*?)```", text, re.DOTALL)[1]
    other = """
print(people.to_pylist())
for keys in (ExplicitKeys(key, aad_prefix=b"people/2026-10"), ExplicitKeys(key)):
    try:
        secure_bloom.read_table("people.parquet", keys)
    except secure_bloom.errors.SecureBloomError as error:
        print(type(error).__name__)
"""
    out = run("python", code + other, tmp_path).stdout
    assert out.splitlines() == ["[{'ssn': '078-05-1120'}]", "AuthenticationError",
                                "KeyNotFoundError"]


def test_columns_whose_key_is_missing(folder):
    text = (Path(__file__).parent.parent / "docs" / "keys.md").read_text()
    code = re.search(r"## Columns whose key is missing.*?```python\n(.*?)```", text, re.DOTALL)[1]
    out = run("python", code, folder).stdout
    assert out.splitlines() == re.findall(r"# ([\[{].*)$", code, re.MULTILINE) != []


def test_reading(tmp_path):
    check_outputs((Path(__file__).parent.parent / "docs" / "reading.md").read_text(), tmp_path)


def test_it_fits_on_one_screen():
    assert len(README.splitlines()) <= 85


def test_the_two_commands_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    assert "make demo" in README and "make test" in README
    assert re.search(r"^demo:", makefile, re.M) and re.search(r"^test:", makefile, re.M)
