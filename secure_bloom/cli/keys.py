"""The commands ``keys list`` and ``keys rotate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from secure_bloom.cli.shared import (
    UNREADABLE,
    change_files,
    json_option,
    kms_options,
    progress,
    show,
)

if TYPE_CHECKING:
    from secure_bloom.cli.rotation import FolderRotation
    from secure_bloom.keys.kms import KmsClient


@click.group()
def keys() -> None:
    """Show which master keys a data set needs, and rotate them."""


@keys.command("list")
@click.argument("path", type=click.Path())
@kms_options
@json_option
@click.pass_context
def keys_list(ctx: click.Context, path: str, kms: KmsClient | None, as_json: bool) -> None:
    """List the master keys that a file or folder needs, including its indexes.

    No keys are required, except for encrypted footers: what they say about the keys of columns can
    be read only with the footer key.

    Exit code 0: all files were read; 3: some were not; 2, 4, 5: other errors.
    """
    from secure_bloom.cli.index_report import render_keys
    from secure_bloom.cli.report import render_inventory
    from secure_bloom.index.finding import find_indexes
    from secure_bloom.index.inspection import inspect_index
    from secure_bloom.keys import list_master_keys
    with progress("reading footers") as advance:
        inventory = list_master_keys(path, kms, advance=advance)
    indexes = [inspect_index(folder, None, {}) for folder in find_indexes(path)]
    record = {"path": path, **inventory.to_dict(), "indexes": [
        {"path": one.path, "column": one.column, "is_encrypted": one.is_encrypted,
         "master_key": one.master_key, "error": one.to_dict()["error"]} for one in indexes]}
    show(as_json, record, lambda: "\n".join(
        [render_inventory(inventory), *([render_keys(indexes)] if indexes else [])]))
    is_read = not inventory.failed and all(one.error is None for one in indexes)
    ctx.exit(0 if is_read else UNREADABLE)


@keys.command("rotate", short_help="Rewrap keys with another master key.")
@click.argument("path", type=click.Path())
@click.option("--from", "old", required=True, metavar="NAME", help="The old master key.")
@click.option("--to", "new", required=True, metavar="NAME", help="The new master key.")
@kms_options
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@json_option
@click.pass_context
def keys_rotate(ctx: click.Context, path: str, old: str, new: str, kms: KmsClient | None,
                dry_run: bool, as_json: bool) -> None:
    """Rewrap the keys of a file or folder from one master key to another.

    Pages and filters are not changed; if the key material is stored next to a file, the file is not
    changed either. Each file changes in one step, and after a crash the command can be run again.
    Readers need both master keys until it is done.

    Indexes below a folder are rotated too: each gets a new manifest, and its earlier manifests are
    deleted. Then they are updated, because the files have changed.

    The new master key is tested first. A dry run tests both master keys.

    Exit code 0: all files and indexes are rotated, now or before (if an index could not be updated,
    that is shown); 3: some could not be rotated; 4: a master key is missing or refused, or no file
    uses the old or the new one; 2, 5: other errors. What was done before an error is shown.
    """
    from secure_bloom.cli.index_report import render_rotated_indexes
    from secure_bloom.cli.report import render_rotation
    from secure_bloom.cli.rotation import rotate
    if kms is None:
        raise click.UsageError("the master keys are missing: specify --keys, or set "
                               "SECURE_BLOOM_KEYRING or SECURE_BLOOM_KMS")

    def text(result: FolderRotation) -> str:
        of_indexes = [] if result.indexes is None else [
            render_rotated_indexes(result.indexes, result.not_updated)]
        return "\n".join([render_rotation(result, old), *of_indexes])

    change_files(ctx, "rotating keys of", path, lambda advance: rotate(
        path, kms, old=old, new=new, dry_run=dry_run, advance=advance), lambda result: show(
            as_json, {"path": path, "from": old, "to": new, **result.to_dict()},
            lambda: text(result)))
