"""``make docs`` builds the site without a warning."""

import subprocess
import sys
import zlib

import pytest

from tests.docs.pages import ROOT, documented

pytestmark = pytest.mark.sweep


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("sphinx", "furo", "myst_parser", "sphinx_click", "sphinx_copybutton"):
        pytest.importorskip(package, reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet",
         "--conf-dir", "docs", "--doctree-dir", folder / "doctrees", ".", folder / "html"],
        cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_start_page_is_where_servers_look(site):
    assert "url=docs/index.html" in (site / "index.html").read_text()
    start = (site / "docs" / "index.html").read_text()
    for page in ("quickstart-python", "quickstart-spark", "quickstart-platform"):
        assert f'href="{page}.html"' in start


def test_every_name_of_the_reference_has_an_entry(site):
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    listed = set().union(*(documented(path.read_text())
                           for path in (ROOT / "docs" / "api").glob("*.md")))
    assert listed - entries == set()
    assert {"secure_bloom.ParquetFile.might_contain", "secure_bloom.errors.FormatError"} <= entries


@pytest.mark.parametrize(("width", "colors"), [(390, "dark"), (1400, "light")])
def test_pages_fit_the_window(site, browser, width, colors):
    """Wide tables scroll by themselves. Every picture is there."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=colors)
    for path in (site / "docs").rglob("*.html"):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert page.evaluate("[...document.images].every(one => one.naturalWidth > 0)"), path
    page.close()


def test_code_is_not_cut_off_on_a_usual_screen(site, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    for path in (site / "docs").rglob("*.html"):
        page.goto(path.as_uri())
        assert page.evaluate("""[...document.querySelectorAll('pre')].filter(
            one => one.scrollWidth > one.clientWidth).map(one => one.textContent)""") == [], path
    page.close()


def test_reports_to_other_projects_are_not_in_the_sidebar(site):
    start = (site / "docs" / "index.html").read_text()
    assert "Rolling out" in start and "peers/" not in start
    assert (site / "docs" / "peers" / "delta-log.html").exists()


def test_pages_of_the_reference_begin_with_an_example(site, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    for path in (site / "docs" / "api").glob("*.html"):
        if path.stem != "index":
            page.goto(path.as_uri())
            assert page.locator("pre").first.bounding_box()["y"] < 600, path
    page.close()


def test_docstrings_link_to_pages(site):
    text = (site / "docs" / "api" / "secure-bloom.html").read_text()
    assert '../keys.html"' in text and '<span class="doc">Row filters</span>' in text


def test_pictures_are_on_the_site(site):
    text = (site / "docs" / "concepts.html").read_text()
    for name in ("protected", "leak", "modules", "keys", "commit", "index"):
        assert f"_images/{name}.svg" in text
        assert (site / "_images" / f"{name}.svg").exists()
