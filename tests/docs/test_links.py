"""Links from page to page lead somewhere, on a code host and on the site."""

import re

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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


def test_docstrings_name_pages_that_exist():
    named = set()
    for folder in ("secure_bloom", "keys"):
        for path in (ROOT / folder).rglob("*.py"):
            named.update(re.findall(r"\bdocs/[a-z-]+\.md\b", path.read_text()))
    assert named
    assert {name for name in named if not (ROOT / name).exists()} == set()
