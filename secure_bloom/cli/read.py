"""The commands ``inspect`` and ``probe``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from secure_bloom.cli.shared import (
    BAD,
    echo,
    json_option,
    kms_options,
    line_from_stdin,
    print_json,
    reading_options,
)

if TYPE_CHECKING:
    from secure_bloom.encryption_requirement import RequireEncryption
    from secure_bloom.keys.kms import KmsClient


@click.command()
@click.argument("file", type=click.Path())
@kms_options
@reading_options
@json_option
def inspect(file: str, kms: KmsClient | None, require_encryption: RequireEncryption,
            as_json: bool) -> None:
    """Show columns, encryption and Bloom filters of a Parquet file."""
    from secure_bloom import ParquetFile
    from secure_bloom.cli import report
    with ParquetFile(file, kms, require_encryption=require_encryption) as parquet_file:
        result = report.inspect_file(parquet_file)
    if as_json:
        print_json(result)
    else:
        echo(report.render_inspection(result))


@click.command()
@click.argument("file", type=click.Path())
@click.option("--column", required=True, metavar="C", help="Dotted path of a leaf column.")
@click.option("--value", metavar="V",
              help="Value to look for; if absent, it is read from standard input, which keeps it "
                   "out of the process list.")
@kms_options
@reading_options
@json_option
@click.pass_context
def probe(ctx: click.Context, file: str, column: str, value: str | None, kms: KmsClient | None,
          require_encryption: RequireEncryption, as_json: bool) -> None:
    """Ask the Bloom filters whether a column may contain a value.

    Exit code 0: it may; 1: it certainly does not; 2 and up: errors.
    """
    from secure_bloom import ParquetFile
    from secure_bloom.cli import report
    from secure_bloom.parquet.schema import find_column
    from secure_bloom.sbbf.probes import parse_value
    text = line_from_stdin() if value is None else value
    with ParquetFile(file, kms, require_encryption=require_encryption) as parquet_file:
        column_type = find_column(parquet_file.columns, column).type
        result = report.probe_file(parquet_file, column, parse_value(text, column_type))
    if as_json:
        print_json(result)
    else:
        echo(report.render_probe(result))
    ctx.exit(0 if result["may_contain"] else BAD)
