"""The command ``verify``."""

from __future__ import annotations

from pathlib import Path
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
    from secure_bloom.encryption_requirement import RequireEncryption
    from secure_bloom.keys.kms import KmsClient


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@kms_options
@reading_options
@click.option("--column", "columns", multiple=True, metavar="NAME",
              help="Dotted path of a leaf column to check; may be repeated. Default: all.")
@json_option
@click.pass_context
def verify(ctx: click.Context, files: tuple[str, ...], kms: KmsClient | None,
           require_encryption: RequireEncryption, columns: tuple[str, ...], as_json: bool) -> None:
    """Check Bloom filters against the data of their Parquet files.

    Checks that each filter can be read, is stored at a valid location, and is encrypted if its
    column is; that it contains every value of its column; and that it has no more false positives
    than its size implies.

    Exit code 0: everything was checked and no errors were found (there may be warnings); 1: errors
    were found; 4: no errors were found, but not everything was checked because keys are missing;
    3: some files were not checked; 2: no file has such a column, or other errors.
    """
    from secure_bloom import verify_file
    from secure_bloom.cli import report
    from secure_bloom.errors import ColumnError
    from secure_bloom.maintain.mistakes import Mistakes
    from secure_bloom.verify.findings import VerifyResult
    results: list[VerifyResult] = []
    mistakes, without = Mistakes(), {}
    for file in files:
        with progress(f"verifying {Path(file).name}") as advance:
            try:
                result = verify_file(file, kms, columns=columns or None, advance=advance,
                                     require_encryption=require_encryption)
            except ColumnError as error:  # the other files may have this column
                mistakes.add(file, error)
                error.file = None  # the message is shown with the file already
                without[file] = f"not checked: {error}"
                result = VerifyResult(file, not_checked=str(error))
            except OSError as error:  # the other files are still verified
                result = VerifyResult(file, not_checked=str(error))
            results.append(result)
        if not as_json and file not in without:
            echo(report.render_verification(result))
    unread = sum((not result.filters and not result.ok) or result.not_checked is not None
                 for result in results) - len(without)
    if len(without) + unread == len(files) and (mistake := mistakes.error(unread)):
        mistake.file = files[0] if len(files) == 1 else None
        raise mistake
    ok = all(result.ok for result in results)
    if as_json:
        print_json({"ok": ok,
                    "files": [result.to_dict() for result in results]})
    else:
        for line in report.by_message(without.items()):
            echo(line)
    ctx.exit(check_exit_code(ok, any(result.missing_keys for result in results),
                             not any(result.not_checked for result in results)))
