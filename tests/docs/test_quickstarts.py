"""The quick starts, and other pages with short examples, run as they are written."""

import re

import pytest

from tests.doc_examples import run_examples
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow
_BLOCK = re.compile(r"(```(?:sh|python)\n.*?```)(?:\n\n```text\n(.*?)```)?", re.DOTALL)
_JAVA = re.compile(r"```java\n(.*?)```\n\nSave it as `(\w+\.java)`", re.DOTALL)


@pytest.mark.parametrize("page", [
    "quickstart-python", "troubleshooting", "errors",
    pytest.param("quickstart-platform", marks=pytest.mark.sweep),
    pytest.param("encrypt", marks=pytest.mark.sweep),
    pytest.param("rolling-out", marks=pytest.mark.sweep),
    pytest.param("nightly-job", marks=pytest.mark.sweep),
    pytest.param("lost-keys", marks=pytest.mark.sweep),
    pytest.param("leaving", marks=[pytest.mark.spark, pytest.mark.sweep]),
    pytest.param("quickstart-spark", marks=[pytest.mark.spark, pytest.mark.sweep])])
def test_the_output_has_what_the_page_shows(page, tmp_path):
    """The path of the folder is ``…`` there."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for code, name in _JAVA.findall(text):
        (tmp_path / name).write_text(code)
    blocks = _BLOCK.findall(text)
    assert any(shown for _, shown in blocks)
    for block, shown in blocks:
        [done] = run_examples(block, tmp_path)
        printed = done.stdout.replace(str(tmp_path), "…")
        assert shown in printed, f"{block}\n{printed}"


@pytest.mark.parametrize("page", [
    "index", "api/secure-bloom",
    *(pytest.param(f"api/{page}", marks=pytest.mark.sweep) for page in (
        "keys", "policy", "table-index", "results", "commands", "lance")),
    pytest.param("api/spark", marks=[pytest.mark.spark, pytest.mark.sweep])])
def test_the_first_example_of_a_page_runs(page, tmp_path):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    block = next(block for block, _ in _BLOCK.findall(text) if "pip install" not in block)
    [done] = run_examples(block, tmp_path)
    assert done.stdout
