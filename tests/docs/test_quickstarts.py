"""The quick starts, and other pages with short examples, run as they stand there."""

import pytest

from tests.doc_examples import check_examples
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", [
    "quickstart-python", "quickstart-platform", "troubleshooting",
    pytest.param("quickstart-spark", marks=pytest.mark.spark)])
def test_the_examples_print_what_the_page_shows(page, tmp_path):
    check_examples((ROOT / "docs" / f"{page}.md").read_text(), tmp_path)
