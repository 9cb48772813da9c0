"""The commands ``keyring create``, ``add`` and ``list``."""

from __future__ import annotations

import click

from secure_bloom.cli.shared import json_option, print_json


@click.group()
def keyring() -> None:
    """Manage a local keyring: a file of named master keys that only you can read."""


@keyring.command("create")
@click.argument("file", type=click.Path(dir_okay=False))
def keyring_create(file: str) -> None:
    """Create an empty keyring."""
    from secure_bloom.keys import Keyring
    Keyring.create(file)
    click.echo(f"created {file}; keep a copy: data is lost without its keys", err=True)


@keyring.command("add")
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("name")
@click.option("--bits", type=click.Choice(["128", "192", "256"]), default="256",
              show_default=True)
def keyring_add(file: str, name: str, bits: str) -> None:
    """Add a new random master key."""
    from secure_bloom.keys import Keyring
    Keyring(file).add(name, bits=int(bits))
    click.echo(f"added a key of {bits} bits named {name}", err=True)


@keyring.command("list")
@click.argument("file", type=click.Path(dir_okay=False))
@json_option
def keyring_list(file: str, as_json: bool) -> None:
    """List the names of the master keys."""
    from secure_bloom.keys import Keyring
    names = Keyring(file).names()
    if as_json:
        print_json({"keyring": file, "keys": names})
    else:
        for name in names:
            click.echo(name)
