"""The commands ``attach``, ``strip`` and ``seal``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from secure_bloom.cli.shared import (
    change_files,
    changing_command,
    names,
    policy_option,
    refuse_without_bloom,
    show,
)

if TYPE_CHECKING:
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.maintain.folders import MaintainResult

_EXIT = """

    Exit code 0: all files are as requested; 3: some files could not be changed, and were left as
    they were; 2: no file has such a column, and nothing was changed; 4, 5: other errors. If it was
    interrupted, run it again to process the remaining files.
    """
_changes_files = changing_command(_EXIT, click.option(
    "--dry-run", is_flag=True, help="Only show what would be done."))


@_changes_files
@click.option("--bloom", metavar="col,col",
              help="Columns that get Bloom filters. Required without --policy or --page-index.")
@policy_option("Its filters are added for columns that --bloom does not name.")
@click.option("--fpp", type=float, default=0.01, show_default=True,
              help="False-positive probability of the filters.")
@click.option("--ndv", type=click.IntRange(min=0), metavar="N",
              help="Expected distinct values in a row group. Default: the actual number.")
@click.option("--replace", is_flag=True, help="Rebuild existing filters.")
@click.option("--page-index", is_flag=True,
              help="Add an offset index to columns without one, so that readers find single pages.")
def attach(ctx: click.Context, path: str, bloom: str | None, policy: str | None, fpp: float,
           ndv: int | None, replace: bool, page_index: bool, kms: KmsClient | None,
           **options: Any) -> None:
    """Add Bloom filters and offset indexes to a file, or to all files of a folder.

    Only the pages of these columns are read; everything else is copied unchanged. Filters of
    encrypted columns are encrypted, all others are not. Works on files of any writer. With
    --policy, a file is not changed if one of these columns is not encrypted as it requires."""
    if bloom is None and policy is None and not page_index:
        raise click.UsageError("specify the columns: --bloom or --policy; or --page-index")
    if not names(bloom):
        refuse_without_bloom(ctx, "fpp", "ndv")
    from secure_bloom import BloomFilterOptions
    from secure_bloom.maintain.attach import attach
    wanted = None if bloom is None else {
        column: BloomFilterOptions(fpp=fpp, ndv=ndv) for column in names(bloom)}
    _run(ctx, path, "attaching", attach, wanted, kms, policy=policy, replace=replace,
         page_index=page_index, **options)


@_changes_files
@click.option("--column", "columns", multiple=True, metavar="NAME",
              help="Dotted path of a leaf column; may be repeated. Default: all.")
def strip(ctx: click.Context, path: str, columns: tuple[str, ...], kms: KmsClient | None,
          **options: Any) -> None:
    """Remove Bloom filters from a file, or from all files of a folder.

    No byte of the filters remains in the file; pages are copied unchanged."""
    from secure_bloom.maintain.strip import strip
    _run(ctx, path, "stripping", strip, kms, columns=columns or None, **options)


@_changes_files
@policy_option("A file is not changed if it requires more than sealing can repair.")
def seal(ctx: click.Context, path: str, kms: KmsClient | None, policy: str | None,
         **options: Any) -> None:
    """Encrypt the plaintext filters of encrypted columns.

    PATH is a file or a folder. The filters are rebuilt from the pages of their columns, because
    anyone may have changed them; no byte of the plaintext filters remains in the file. Copies and
    backups of the file still leak."""
    from secure_bloom.maintain.seal import seal
    _run(ctx, path, "sealing", seal, kms, policy=policy, **options)


def _run(ctx: click.Context, path: str, label: str, operation: Callable[..., MaintainResult],
         *arguments: Any, dry_run: bool, jobs: int | None, as_json: bool, **options: Any) -> None:
    from secure_bloom.cli.report import render_changes

    def run(advance: Callable[[float], None]) -> MaintainResult:
        result = operation(path, *arguments, dry_run=dry_run, files_at_once=jobs, advance=advance,
                           **options)
        if result.mistake:
            raise result.mistake
        return result

    change_files(ctx, label, path, run, lambda result: show(
        as_json, {"path": path, **result.to_dict()}, lambda: render_changes(result)))
