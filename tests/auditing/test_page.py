"""The page of an audit, in a real browser without a display."""

import pytest

from secure_bloom import audit, seal
from secure_bloom.auditing.page import render_page
from secure_bloom.auditing.result import AuditResult, ColumnAudit, FileAudit, new_finding
from secure_bloom.cli.report import render_audit
from secure_bloom.policy import Policy
from tests.browser import is_in_order
from tests.maintain.helpers import KMS, leaking
from tests.tiers import sweep_where

pytestmark = pytest.mark.slow

HOSTILE = "<script>document.title='owned'</script>\"'&<img src=http://x/ onerror=alert(1)>"


@pytest.fixture
def show(open_page):
    """Opens the page of an audit."""
    return lambda result, width=1200: open_page(render_page(result), width)


@sweep_where(lambda width: width == 360)
@pytest.mark.parametrize("width", [360, 1200])
def test_a_leak(show, tmp_path, width):
    (tmp_path / "data").mkdir()
    path = leaking(tmp_path / "data" / "a.parquet")
    page = show(audit(tmp_path / "data", policy=Policy(("ssn", "city")), guesses=["1", "2"]), width)
    assert is_in_order(page)
    assert "3 errors" in page.inner_text("#verdict")
    assert page.locator(".finding.error").count() == 3
    assert page.locator(".finding[data-kind=leak]").count() == 2
    shown = page.inner_text(".finding[data-kind=leak] >> nth=0")
    assert "ssn" in shown and "of 2 guessed values, 0 are" in shown and str(path) in shown
    cells = page.locator("#columns tbody td").all_inner_texts()
    assert [cell.split()[1] for cell in cells] == ["leaking"] * 3
    bars = page.locator("svg rect:not(.track)")
    assert page.locator("svg").count() == 3 and bars.count() == 9
    boxes = [bar.bounding_box() for bar in bars.all()]
    assert all(box["height"] > 10 for box in boxes)
    assert all(box["width"] > 1 for box in boxes[:6])  # hardly any false positives for two values
    red = page.evaluate("getComputedStyle(document.querySelector('td.leaking')).color")
    assert red == "rgb(194, 38, 38)"


def test_a_good_file(show, tmp_path):
    seal(leaking(tmp_path / "a.parquet"), KMS)
    page = show(audit(tmp_path / "a.parquet", KMS))
    assert is_in_order(page) and "everything was checked" in page.inner_text("#verdict")
    assert page.locator(".finding").count() == 0 and page.locator("#not-checked").count() == 0
    assert [cell.split()[1] for cell in page.locator("#columns tbody td").all_inner_texts()] \
        == ["protected", "protected", "open"]
    page = show(audit(tmp_path / "a.parquet"))
    assert "not everything could be checked" in page.inner_text("#verdict")
    assert "signature" in page.inner_text("#not-checked")


def test_names_from_files_are_text(show):
    finding = new_finding("leak", HOSTILE, HOSTILE, HOSTILE, HOSTILE, (0,), (HOSTILE,))
    file = FileAudit(HOSTILE, "none", [ColumnAudit(HOSTILE, "leaking", True, True, 1, 10, .5, .1)],
                     [HOSTILE])
    page = show(AuditResult(HOSTILE, [file], [finding]))
    assert len(page.requests) == 1 and not page.complaints
    assert page.title() == f"Audit of {HOSTILE}"
    assert page.locator("script, img").count() == 0
    assert HOSTILE in page.inner_text("#columns th[scope=row]")


def test_many_files(show):
    files = [FileAudit(f"part-{i}.parquet", "signed footer",
                       [ColumnAudit("ssn", "leaking", True, True, 2, 100, 0.3, 0.01)])
             for i in range(1000)]
    findings = [new_finding("leak", "m", "r", file.file, "ssn") for file in files]
    page = show(AuditResult("data", files, findings))
    assert is_in_order(page)
    assert page.locator(".finding").count() == 1 and "and 980 more" in page.inner_text(".finding")
    assert page.locator("#columns tbody tr").count() == 500
    assert "500 more files" in page.inner_text("body")


def test_nothing_that_was_found_is_left_out():
    places = ["in the footer", "in a column index"]
    page = render_page(AuditResult("a", [FileAudit("f"), FileAudit("g")], [
        new_finding("statistics", f"it stands {place}", "write it again", file, "ssn")
        for file in "fg" for place in places]))
    assert [page.count(f"It stands {place}.") for place in places] == [1, 1]


def test_the_text_tells_of_every_file_that_was_not_checked():
    files = [FileAudit(f"{i}") for i in range(300)] + [FileAudit("last", not_checked=["filters"])]
    assert "not checked in last: filters" in render_audit(AuditResult("a", files))
    files = [FileAudit(f"{i}", not_checked=["filters"]) for i in range(1000)]
    assert "more files: see --json" in render_audit(AuditResult("a", files))
