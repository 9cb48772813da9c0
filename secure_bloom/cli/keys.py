"""The commands ``keys list`` and ``keys rotate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from secure_bloom.cli.shared import (
    UNREADABLE,
    change_files,
    echo,
    json_option,
    kms_options,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.keys.operations.rotation import RotationResult


@click.group()
def keys() -> None:
    """Show which master keys a data set needs, and rotate them."""


@keys.command("list")
@click.argument("path", type=click.Path())
@kms_options
@json_option
@click.pass_context
def keys_list(ctx: click.Context, path: str, kms: KmsClient | None, as_json: bool) -> None:
    """List the master keys that a file or folder needs.

    No keys are required, except for encrypted footers: what they say about the keys of columns can
    be read only with the footer key.

    Exit code 0: all files were read; 3: some were not; 2, 4, 5: other errors.
    """
    from secure_bloom.cli.report import render_inventory
    from secure_bloom.keys import list_master_keys
    with progress("reading footers") as advance:
        inventory = list_master_keys(path, kms, advance=advance)
    if as_json:
        print_json({"path": path, **inventory.to_dict()})
    else:
        echo(render_inventory(inventory))
    ctx.exit(UNREADABLE if inventory.failed else 0)


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

    The new master key is tested first. A dry run tests both master keys.

    Exit code 0: all files are rotated, now or before; 3: some files could not be rotated; 4: a
    master key is missing or refused, or no file uses the old or the new one; 2, 5: other errors.
    What was done before an error is shown.
    """
    from secure_bloom.cli.report import render_rotation
    from secure_bloom.keys import rotate_master_keys
    if kms is None:
        raise click.UsageError("the master keys are missing: specify --keyring or --kms, or set "
                               "SECURE_BLOOM_KEYRING or SECURE_BLOOM_KMS")

    def show(result: RotationResult) -> None:
        if as_json:
            print_json({"path": path, "from": old, "to": new, **result.to_dict()})
        else:
            echo(render_rotation(result, old))

    change_files(ctx, "rotating", lambda advance: rotate_master_keys(
        path, kms, old=old, new=new, dry_run=dry_run, advance=advance), show)
