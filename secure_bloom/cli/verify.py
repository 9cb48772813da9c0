"""The command ``verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from secure_bloom.cli.shared import (
    check_exit_code,
    echo,
    json_option,
    kms_options,
    print_json,
    progress,
    reading_options,
)

if TYPE_CHECKING:
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.policy.requirement import Requirement


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@kms_options
@reading_options
@click.option("--column", "columns", multiple=True, metavar="NAME",
              help="Dotted path of a leaf column to check; may be repeated. Default: all.")
@json_option
@click.pass_context
def verify(ctx: click.Context, paths: tuple[str, ...], kms: KmsClient | None,
           require_encryption: Requirement | None, columns: tuple[str, ...], as_json: bool) -> None:
    """Check Bloom filters against the data of their Parquet files.

    PATH is a file, a folder, a glob pattern, or a URI of one.

    Checks that each filter can be read, is stored at a valid location, and is encrypted if its
    column is; that it contains every value of its column; and that it has no more false positives
    than its size implies.

    Exit code 0: everything was checked and no errors were found (there may be warnings); 1: errors
    were found; 4: no errors were found, but not everything was checked because keys are missing;
    3: some files were not checked; 2: no file has such a column, or other errors.
    """
    from secure_bloom import verify_file
    from secure_bloom.cli import report
    from secure_bloom.cli.many_files import JsonFiles, files_of, progress_of_many
    from secure_bloom.cli.tables import by_message
    from secure_bloom.cli.totals import Totals, verification_text, verified
    from secure_bloom.errors import ColumnError
    from secure_bloom.maintain.mistakes import Mistakes
    from secure_bloom.verify.findings import VerifyResult
    found = files_of(paths)
    mistakes, without, unread = Mistakes(), {}, 0
    printer, totals, missing_keys, ok = JsonFiles(), Totals(), False, True
    bar = progress("verifying", paths[0]) if found.is_single else progress_of_many("verifying")
    with bar as advance:
        for number, (file, filesystem) in enumerate(found.files):
            def advance_in_file(fraction: float, number: int = number) -> None:
                advance((number + fraction) / len(found.files))

            try:
                result = verify_file(file, kms, columns=columns or None, filesystem=filesystem,
                                     advance=advance_in_file,
                                     require_encryption=require_encryption)
            except ColumnError as error:  # the other files may have this column
                mistakes.add(file, error)
                error.file = None  # the message is shown with the file already
                without[file] = f"not checked: {error}"
                result = VerifyResult(file, not_checked=str(error))
            except OSError as error:  # the other files are still verified
                result = VerifyResult(file, not_checked=str(error))
            is_unread = file not in without and (
                (not result.filters and not result.ok) or result.not_checked is not None)
            unread += is_unread
            totals.add(verified(result))
            missing_keys |= result.missing_keys
            ok &= result.ok
            if as_json and not found.is_single:
                printer.add(result.to_dict(), hold=is_unread or file in without)
            elif not as_json and file not in without:
                echo(report.render_verification(result))
    if len(without) + unread == totals["files"] and (mistake := mistakes.error(unread)):
        mistake.file = paths[0] if found.is_single else None
        raise mistake
    if as_json and found.is_single:
        print_json({"ok": ok, "files": [result.to_dict()]})
    elif as_json:
        printer.finish({"ok": ok, "totals": totals})
    else:
        for line in by_message(without.items()):
            echo(line)
        if not found.is_single:
            echo(verification_text(totals))
    ctx.exit(check_exit_code(not totals["errors"], missing_keys, not totals["not_checked"]))
