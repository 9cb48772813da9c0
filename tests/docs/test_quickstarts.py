"""The quick starts, and other pages with short examples, run as they stand there."""

import re

import pytest

from tests.doc_examples import run_examples
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow
_BLOCK = re.compile(r"(```(?:sh|python)\n.*?```)(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize("page", [
    "quickstart-python", "quickstart-platform", "troubleshooting", "errors",
    pytest.param("quickstart-spark", marks=pytest.mark.spark)])
def test_the_output_has_what_the_page_shows(page, tmp_path):
    blocks = _BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())
    assert any(shown for _, shown in blocks)
    for block, shown in blocks:
        [done] = run_examples(block, tmp_path)
        assert shown in done.stdout, f"{block}\n{done.stdout}"
