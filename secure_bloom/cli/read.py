"""The commands ``inspect`` and ``probe``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from secure_bloom.cli.shared import (
    BAD,
    echo,
    json_option,
    kms_options,
    line_from_stdin,
    reading_options,
    show,
)

if TYPE_CHECKING:
    from secure_bloom.cli.many_files import FoundFiles
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.policy.requirement import Requirement
    from secure_bloom.reading.open_file import OpenFile


@click.command(short_help="Show columns, encryption and Bloom filters of Parquet files.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@kms_options
@reading_options
@click.option("--details", is_flag=True, help="Show the columns of each of several files.")
@json_option
@click.pass_context
def inspect(ctx: click.Context, paths: tuple[str, ...], kms: KmsClient | None,
            require_encryption: Requirement | None, details: bool, as_json: bool) -> None:
    """Show columns, encryption and Bloom filters of Parquet files.

    PATH is a file, a folder, a glob pattern, or a URI of one. Several files are shown in one line
    each, with their totals; --details shows their columns. A file that cannot be read is reported,
    and the others are shown.

    Exit code 0: all files were read; 3: a file could not be read, 4: a key is missing, 5: encrypted
    data does not authenticate; the highest one counts; 2: other errors.
    """
    from secure_bloom.cli import report
    from secure_bloom.cli.many_files import JsonFiles, Results, files_of
    from secure_bloom.cli.totals import Totals, inspected, inspection_text
    from secure_bloom.reading.open_file import OpenFile
    found = files_of(paths)
    if found.is_single:
        with OpenFile(paths[0], kms, require_encryption=require_encryption) as file:
            result = report.inspect_file(file)
        show(as_json, result, lambda: report.render_inspection(result))
        return
    results = Results(found, "inspecting", kms, require_encryption, report.inspect_file)
    printer, totals = JsonFiles(), Totals()
    for result in results:
        totals.add(inspected(result))
        if as_json:
            printer.add(result)
        elif "error" not in result:
            echo(report.render_inspection(result) + "\n" if details
                 else report.inspection_line(result))
    if as_json:
        printer.finish({"totals": totals})
    else:
        echo(inspection_text(totals))
    ctx.exit(results.code)


@click.command(short_help="Ask Bloom filters whether a column may contain a value.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option("--column", required=True, metavar="C", help="Dotted path of a leaf column.")
@click.option("--value", metavar="V",
              help="Value to look for; if absent, it is read from standard input, which keeps it "
                   "out of the process list.")
@kms_options
@reading_options
@json_option
@click.pass_context
def probe(ctx: click.Context, paths: tuple[str, ...], column: str, value: str | None,
          kms: KmsClient | None, require_encryption: Requirement | None, as_json: bool) -> None:
    """Ask the Bloom filters whether a column may contain a value.

    PATH is a file, a folder, a glob pattern, or a URI of one. A file that cannot be read is
    reported, and the others are asked.

    Exit code 0: it may; 1: it certainly does not; 2 and up: errors, such as 3: a file could not be
    read, 4: a key is missing, 5: encrypted data does not authenticate; the highest one counts.
    """
    from secure_bloom.cli import report
    from secure_bloom.cli.many_files import files_of
    from secure_bloom.parquet.schema import find_column
    from secure_bloom.reading.open_file import OpenFile
    from secure_bloom.sbbf.parsing import parse_value
    text = line_from_stdin() if value is None else value

    def ask(file: OpenFile) -> dict[str, Any]:
        column_type = find_column(file.columns, column).type
        return report.probe_file(file, column, parse_value(text, column_type))

    found = files_of(paths)
    if not found.is_single:
        ctx.exit(_probe_many(found, kms, require_encryption, column, ask, as_json))
    with OpenFile(paths[0], kms, require_encryption=require_encryption) as file:
        result = ask(file)
    show(as_json, result, lambda: report.render_probe(result))
    ctx.exit(0 if result["may_contain"] else BAD)


def _probe_many(found: FoundFiles, kms: KmsClient | None, require_encryption: Requirement | None,
                column: str, ask: Callable[[OpenFile], dict[str, Any]], as_json: bool) -> int:
    """Show what the filters of several files say; return the exit code."""
    from secure_bloom.cli import report
    from secure_bloom.cli.many_files import JsonFiles, Results
    from secure_bloom.cli.totals import Totals, probe_text, probed
    from secure_bloom.errors import UnknownColumnError
    from secure_bloom.maintain.mistakes import Mistakes
    mistakes = Mistakes()

    def ask_or_note(file: OpenFile) -> dict[str, Any]:
        try:
            return {**ask(file), "has_column": True}
        except UnknownColumnError as error:  # the other files may have this column
            mistakes.add(file.name, error)
            return report.probe_without_column(file, column)

    results = Results(found, "probing", kms, require_encryption, ask_or_note)
    printer, totals = JsonFiles(), Totals()
    for result in results:
        totals.add(probed(result))
        is_answer = "error" not in result and result["has_column"]
        if as_json:
            printer.add(result, hold=not is_answer)
        elif is_answer:
            echo(report.render_probe(result))
    if totals["without_column"] + totals["failed"] == totals["files"] \
            and (mistake := mistakes.error(totals["failed"])):
        raise mistake
    may_contain = totals["may_contain"] > 0
    if as_json:
        printer.finish({"column": column, "may_contain": may_contain, "totals": totals})
    else:
        echo(probe_text(totals))
    return results.code or (0 if may_contain else BAD)
