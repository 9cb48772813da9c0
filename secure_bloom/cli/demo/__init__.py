"""The command ``demo``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Write, inspect and search real data.")
@click.option("--output", type=click.Path(file_okay=False), default="demo-output",
              show_default=True, help="Folder for the files of the demo.")
@click.option("--spark/--no-spark", default=True, help="Also run the Spark part.")
def demo(output: str, spark: bool) -> None:
    """Write, inspect and search the flights of New York 2013, with secret tail numbers."""
    from secure_bloom.cli.demo_steps import run
    run(Path(output), with_spark=spark)
