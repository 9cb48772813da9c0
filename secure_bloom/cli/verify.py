"""The command ``verify``."""

from __future__ import annotations

from pathlib import Path

import click

from secure_bloom.cli.shared import (
    BAD,
    KEY,
    UNREADABLE,
    echo,
    json_option,
    kms_options,
    print_json,
    progress,
    requirement_option,
)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@kms_options
@requirement_option
@click.option("--column", "columns", multiple=True, metavar="NAME",
              help="Dotted path of a leaf column to check; may be repeated. Default: all.")
@json_option
@click.pass_context
def verify(ctx, files: tuple[str, ...], kms, require_encryption, columns: tuple[str, ...],
           as_json: bool) -> None:
    """Check Bloom filters against the data of their Parquet files.

    Does every filter open, is it encrypted where its column is, and in its place? Does it know
    every value of its column? Is it wrong more often than its size promises?

    Exit code 0: everything was checked, there is no error (but perhaps warnings); 1: errors found;
    4: none found, but not everything was checked, for lack of a key; 2, 3: other errors.
    """
    from secure_bloom import report, verify_file
    from secure_bloom.findings import VerifyResult
    results = []
    for file in files:
        with progress(f"verifying {Path(file).name}") as advance:
            try:
                result = verify_file(file, kms, columns=columns or None, advance=advance,
                                     require_encryption=require_encryption)
            except OSError as error:  # the other files are verified all the same
                result = VerifyResult(file, not_checked=str(error))
            results.append(result)
        if not as_json:
            echo(report.render_verification(results[-1]))
    if as_json:
        print_json({"ok": all(result.ok for result in results),
                    "files": [result.to_dict() for result in results]})
    ctx.exit(_exit_code(results))


def _exit_code(results) -> int:
    if not all(result.ok for result in results):
        return BAD
    if any(result.missing_keys for result in results):
        return KEY
    return UNREADABLE if any(result.not_checked for result in results) else 0
