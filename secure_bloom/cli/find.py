"""The command ``find``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TextIO

import click

from secure_bloom.cli.shared import (
    BAD,
    UNREADABLE,
    echo,
    exit_code,
    given_values,
    index_option,
    json_option,
    kms_options,
    names,
    progress,
    reading_options,
    refuse_given,
    values_options,
)
from secure_bloom.display import count, is_terminal

if TYPE_CHECKING:
    from secure_bloom.datasets.search import FailedFile
    from secure_bloom.index.planning import IndexUse
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.policy.requirement import Requirement

_FORMATS = ("table", "csv", "json", "parquet")


@click.command(short_help="Find the rows that have any of the given values.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option("--column", required=True, metavar="C",
              help="Column, or dotted path of a field of structs.")
@values_options
@click.option("--columns", metavar="col,col", help="Columns to show. Default: all.")
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write the rows to this file, which is not encrypted.")
@click.option("--overwrite", is_flag=True, help="Replace an existing output file.")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Format of the rows. Default: "
              "by the suffix of the output file, or table. json is one object per line.")
@click.option("--files", "of_files", is_flag=True,
              help="Show only files and row groups, with their number of rows.")
@click.option("--count", "only_count", is_flag=True, help="Show only the number of rows.")
@click.option("--all-files", is_flag=True, help="Search the folder of a Delta Lake, Iceberg or "
              "Hudi table as plain files, which may hold deleted rows.")
@index_option
@kms_options
@reading_options
@json_option
@click.pass_context
def find(ctx: click.Context, paths: tuple[str, ...], column: str, given: tuple[str, ...],
         file: TextIO | None, columns: str | None, output: str | None, overwrite: bool,
         form: str | None, of_files: bool, only_count: bool, all_files: bool,
         index: IndexUse, kms: KmsClient | None, require_encryption: Requirement | None,
         as_json: bool) -> None:
    """Find the rows in which a column has any of the given values.

    PATH is a file, a folder, a glob pattern, or a URI of one. The rows are shown with their file
    and row group. With --json, the result also says what was searched.

    Values are written as for probe: numbers in decimal, dates and times in ISO 8601, with an offset
    or Z if the column has a time zone, UUIDs in their usual form; text and bytes as they are,
    including spaces.

    A file that cannot be read is reported, and the search goes on.

    Exit code 0: rows were found; 1: no row was found, and everything was searched; 3: a file could
    not be read, 4: a key is missing, 5: encrypted data does not authenticate, whether or not rows
    were found in other files; 2: other errors.
    """
    from secure_bloom.cli.found_rows import PLACES, ROWS, FoundRows, values_for
    from secure_bloom.datasets.search import Search
    from secure_bloom.storage.files import check_absent, resolve
    if of_files or only_count:
        refuse_given(ctx, ["columns"], "says what is shown of the rows, and --files and --count "
                                       "show none of them;")
    if output is None:
        refuse_given(ctx, ["overwrite"], "is for the file that --output names;")
    form = _format(output, form, of_files, only_count, as_json)
    if output is not None and not overwrite:
        with _refusing_to_replace():
            check_absent(*resolve(output))
    texts = given_values(given, file)
    shown = [] if of_files or only_count else None if columns is None else names(columns)
    what = PLACES if of_files else ROWS
    is_on_screen = output is None and is_terminal(sys.stdout)  # a bar would be between rows
    failed: list[FailedFile] = []
    try:
        with progress("searching", hidden=is_on_screen) as advance:
            search = Search(list(paths) if len(paths) > 1 else paths[0], column, shown, kms,
                            all_files=all_files, require_encryption=require_encryption,
                            on_error=failed.append, advance=advance, index=index,
                            # An output file must be none of the searched files.
                            values_for=None if output is not None
                            else partial(values_for, texts, column))
            with closing(FoundRows(search, failed, texts)) as found:
                if output is not None:
                    with _refusing_to_replace():
                        found.write_file(what, form, output, overwrite=overwrite)
                elif as_json:
                    found.print_json(with_rows=not of_files and not only_count)
                elif only_count:
                    click.echo(found.finish().num_rows)
                else:
                    found.print(what, form)
    finally:
        for one in failed:
            echo(f"secure-bloom: error: {one.message}", err=True)
    if output is not None and as_json:
        found.print_json(with_rows=False)
    if failed:
        echo(f"secure-bloom: error: {len(failed):,} of {count(search.num_files, 'file')} could not "
             "be searched completely, so there may be more rows", err=True)
        ctx.exit(max(UNREADABLE, *(exit_code(one.error) for one in failed)))
    ctx.exit(0 if found.num_rows else BAD)


def _format(output: str | None, form: str | None, of_files: bool, only_count: bool,
            as_json: bool) -> str:
    """Return the format of the rows, after checking the options that contradict each other."""
    from secure_bloom.cli.row_formats import SUFFIXES
    from secure_bloom.storage.files import resolve
    if only_count and (of_files or output is not None or form is not None):
        raise click.UsageError("--count contradicts --files, --output and --format")
    if output is None and as_json and form is not None:
        raise click.UsageError("specify either --json or --format, or --output for the rows")
    if output is None and form == "parquet":
        raise click.UsageError("--format parquet needs --output")
    if form is None:
        suffix = ".txt" if output is None else os.path.splitext(resolve(output)[1])[1].lower()
        if (form := SUFFIXES.get(suffix)) is None:
            raise click.UsageError("the suffix of the output file does not say its format: "
                                   "specify --format")
    return form


@contextmanager
def _refusing_to_replace() -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise click.UsageError(f"{error}; specify another output file, or --overwrite to replace "
                               "it") from None
