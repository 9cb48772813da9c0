"""The commands ``index``: build, update, find, inspect, verify, compact, vacuum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

import click

from secure_bloom.cli.shared import (
    BAD,
    UNREADABLE,
    Command,
    echo,
    exit_code,
    given_values,
    json_option,
    kms_options,
    progress,
    reading_policy_option,
    show,
    values_options,
)
from secure_bloom.display import count

if TYPE_CHECKING:
    from secure_bloom.index import UpdateResult
    from secure_bloom.keys.kms import KmsClient

_path = click.argument("path", type=click.Path())


@click.group()
def index() -> None:
    """Build and use the index of a table: where values are, in one small read."""


def _subcommand(short_help: str) -> Callable[[Command], click.Command]:
    def decorate(command: Command) -> click.Command:
        for option in (json_option, kms_options, _path):
            command = option(command)
        return index.command(short_help=short_help)(click.pass_context(command))

    return decorate


@_subcommand("Build indexes of columns.")
@click.option("--column", "columns", multiple=True, required=True, metavar="C",
              help="Dotted path of a column that can have a Bloom filter; may be repeated.")
@click.option("--no-encryption", is_flag=True,
              help="Build a plaintext index of plaintext columns: anyone who "
                   "has it can learn which values exist.")
@click.option("--exclusive", is_flag=True,
              help="Only secure_bloom writes to this table, so lookups need not list its files.")
@reading_policy_option
def build(ctx: click.Context, path: str, columns: tuple[str, ...], no_encryption: bool,
          exclusive: bool, policy: str | None, kms: KmsClient | None, as_json: bool) -> None:
    """Build the index of some columns, or update it if it exists.

    PATH is the folder of a table, or its URI. The index is stored in _index below it. It is
    encrypted under the master key of its column.

    Exit code 0: the index was updated (files that it does not cover are shown, and are searched
    without it); 3: some files could not be read; 2: no file has such a column, it cannot have an
    index, or its index must, or cannot, be encrypted; 4, 5: other errors.
    """
    from secure_bloom.index import build
    _update(ctx, path, as_json, lambda advance: build(
        path, columns, kms, encryption=None if no_encryption else "column", exclusive=exclusive,
        policy=policy, advance=advance))


@_subcommand("Cover new and changed files.")
@reading_policy_option
def update(ctx: click.Context, path: str, policy: str | None, kms: KmsClient | None,
           as_json: bool) -> None:
    """Cover the files that the indexes of a table do not cover yet.

    Can be repeated at any time, also after an interruption. Meanwhile, lookups use the previous
    version.

    Exit code 0: the indexes were updated (files that they do not cover are shown, and are searched
    without them); 3: some files could not be read, or there is no index; 2, 4, 5: other errors.
    """
    from secure_bloom.index import Index
    _update(ctx, path, as_json,
            lambda advance: Index.open(path, kms).update(policy=policy, advance=advance))


def _update(ctx: click.Context, path: str, as_json: bool,
            operation: Callable[[Callable[[float], None]], UpdateResult]) -> None:
    from secure_bloom.cli.index_report import render_update
    with progress("indexing", path) as advance:
        result = operation(advance)
    show(as_json, {"path": path, **result.to_dict()}, lambda: render_update(result))
    ctx.exit(0 if result.ok else UNREADABLE)


@_subcommand("Show where values may be.")
@click.option("--column", required=True, metavar="C", help="Dotted path of an indexed column.")
@values_options
def find(ctx: click.Context, path: str, column: str, given: tuple[str, ...], file: TextIO | None,
         kms: KmsClient | None, as_json: bool) -> None:
    """Show which files and row groups may have any of the given values; reads no data file.

    Values are written as for secure-bloom find. Files that the index does not cover may have any
    value; they are listed separately.

    Exit code 0: a file may have a value; 1: no file has any of them; 2: a column without index, or
    a value that does not fit; 3: there is no index, or it cannot be read; 4: a key is missing; 5:
    the index does not authenticate.
    """
    from secure_bloom.cli.index_report import found_places, render_places
    from secure_bloom.index import Index
    texts = given_values(given, file)
    result = found_places(Index.open(path, kms), column, texts)
    show(as_json, result, lambda: render_places(result))
    ctx.exit(0 if result["may_contain"] else BAD)


@_subcommand("Show size, keys and coverage.")
def inspect(ctx: click.Context, path: str, kms: KmsClient | None, as_json: bool) -> None:
    """Show the indexes of a table: their size, their keys, and which files they cover.

    Without an index's key, only what its manifest reveals is shown.

    Exit code 0: all indexes were read, as far as keys are available; 3: an index is damaged, or
    there is none, 5: an index does not authenticate, 4: a key cannot unwrap its index; the highest
    one counts; 2: other errors.
    """
    from secure_bloom.cli.index_report import render_inspection
    from secure_bloom.index import Index
    found = Index.open(path, kms).inspect()
    show(as_json, {"path": path, "indexes": [one.to_dict() for one in found]},
         lambda: render_inspection(found))
    errors = [one.error for one in found if one.error is not None]
    for error in errors:
        echo(f"secure-bloom: error: {error}", err=True)
    ctx.exit(max([0, *(exit_code(error) for error in errors)]))


@_subcommand("Check against the data.")
@click.option("--sample", type=click.IntRange(min=0), default=20, show_default=True, metavar="N",
              help="Number of covered files, chosen at random, whose values are all looked up.")
@click.option("--all", "every", is_flag=True, help="Look up the values of all covered files.")
@click.option("--integrity", is_flag=True,
              help="Also show files that were replaced, rolled back to an older version, removed "
                   "or added since the last update.")
def verify(ctx: click.Context, path: str, sample: int, every: bool, integrity: bool,
           kms: KmsClient | None, as_json: bool) -> None:
    """Check that the indexes of a table are intact, and miss no value.

    Everything in the indexes is read and authenticated. Then the values of some covered files are
    read, and looked up.

    Exit code 0: nothing was found; 1: something was found; 3: there is no index; 4: a key is
    missing; 2: other errors.
    """
    from secure_bloom.cli.index_report import render_verification
    from secure_bloom.index import Index
    with progress("verifying", path) as advance:
        result = Index.open(path, kms).verify(None if every else sample, integrity=integrity,
                                              advance=advance)
    show(as_json, {"path": path, **result.to_dict()}, lambda: render_verification(result))
    ctx.exit(0 if result.ok else BAD)


@_subcommand("Merge segments.")
def compact(ctx: click.Context, path: str, kms: KmsClient | None, as_json: bool) -> None:
    """Merge the segments of each index, and drop values of files that no longer exist.

    No data file is read. The files of the replaced segments are deleted by index vacuum.

    Exit code 0: done; 2 and up: errors.
    """
    from secure_bloom.index import Index
    merged = Index.open(path, kms).compact()
    show(as_json, {"path": path, "merged": merged},
         lambda: f"{count(merged, 'segment')} merged" + (
             "; secure-bloom index vacuum deletes their files" if merged else ""))


@_subcommand("Delete files that are not needed any more.")
@click.option("--grace", type=click.FloatRange(min=0), default=3600.0, show_default=True,
              metavar="SECONDS",
              help="Keep younger files: open readers may use them, or a running update may be "
                   "about to publish them.")
def vacuum(ctx: click.Context, path: str, grace: float, kms: KmsClient | None,
           as_json: bool) -> None:
    """Delete files of the indexes that their newest version does not need.

    Exit code 0: done; 2 and up: errors.
    """
    from secure_bloom.index import Index
    deleted = Index.open(path, kms).vacuum(grace)
    show(as_json, {"path": path, "deleted": deleted},
         lambda: f"{count(len(deleted), 'file')} deleted")
