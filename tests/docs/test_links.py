"""Links from page to page lead somewhere, on a code host and on the site."""

import re

from tests.cases import for_each
from tests.docs.pages import PAGES, ROOT, anchors, links


@for_each("page", PAGES)
def test_every_link_leads_to_a_file_and_heading(page):
    broken = []
    for link in links(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_there = target.is_relative_to(ROOT) and target.exists()
        if not is_there or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert broken == []


def test_a_wrong_anchor_would_be_noticed():
    assert links("[a](b.md#c), ![d](e.svg)\n```sh\n[f](g.md)\n```\n") == ["b.md#c", "e.svg"]
    assert anchors("# `a.b`: C, d\n## Two words\n## Two words\n") == {
        "ab-c-d", "two-words", "two-words-1"}


def test_docstrings_name_pages_by_titles_that_exist():
    """The site links them; there is no folder docs where the package is installed."""
    titles = {re.match(r"# ([^:\n]*)", page.read_text())[1].replace("`", "")
              for page in (ROOT / "docs").glob("*.md")}
    named = set()
    for folder in ("secure_bloom", "keys"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            assert not re.search(r"\bdocs/[a-z-]+\.md\b", text), path
            named.update(" ".join(title.split())
                         for title in re.findall(r'the page "([^"]+)"', text))
    assert len(named) > 5 and named <= titles


def test_links_show_titles_instead_of_names_of_files():
    shown = {page.name: re.findall(r"\[`?[\w./-]+\.md`?\]\(", page.read_text()) for page in PAGES
             if page.name not in ("CONTRIBUTING.md", "CHANGELOG.md")}
    assert {page: found for page, found in shown.items() if found} == {}
