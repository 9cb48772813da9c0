"""The command ``demo``: a tour on real data, on the terminal and as a page."""

from __future__ import annotations

from pathlib import Path

import click

from secure_bloom.cli.shared import write_report


@click.command(short_help="Take a tour of real data: write, search, encrypt, index, erase.")
@click.option("--output", type=click.Path(file_okay=False), default="demo-output",
              show_default=True, help="Folder for the files of the demo.")
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE",
              help="Also write the tour as one HTML page with charts.")
@click.option("--spark/--no-spark", default=True, help="Also run the Spark part.")
def demo(output: str, html: str | None, spark: bool) -> None:
    """Take a tour of the flights from New York in 2013, with secret tail numbers.

    Python, DuckDB and Spark, a leak that is made and found, existing files that are encrypted, an
    index, and an erasure. Parts that need something that is not installed are skipped.
    """
    from secure_bloom.cli.demo.tour import run
    story = run(Path(output), with_spark=spark)
    if html is not None:
        from secure_bloom.cli.demo.page import render_page
        write_report(html, render_page(story))
        click.echo(f"\nwrote {html}: open it in a browser")
