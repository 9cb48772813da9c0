"""The commands ``keyring create``, ``add``, ``list`` and ``passphrase``."""

from __future__ import annotations

import click

from secure_bloom.cli.shared import ask_passphrase, echo, json_option, open_keyring, print_json

_FILE = click.argument("file", type=click.Path(dir_okay=False))


@click.group()
def keyring() -> None:
    """Manage a local keyring: a file of named master keys that only you can read.

    Where it has a passphrase, that is asked for on the terminal.
    """


@keyring.command("create")
@_FILE
@click.option("--passphrase", is_flag=True, help="Seal it with a passphrase.")
def keyring_create(file: str, passphrase: bool) -> None:
    """Create an empty keyring."""
    from secure_bloom.keys import Keyring
    Keyring.create(file, ask_passphrase(file, new=True) if passphrase else None)
    click.echo(f"created {file}; keep a copy: data is lost without its keys", err=True)


@keyring.command("add")
@_FILE
@click.argument("name")
@click.option("--bits", type=click.Choice(["128", "192", "256"]), default="256",
              show_default=True)
def keyring_add(file: str, name: str, bits: str) -> None:
    """Add a new random master key."""
    open_keyring(file).add(name, bits=int(bits))
    click.echo(f"added a key of {bits} bits named {name}", err=True)


@keyring.command("list")
@_FILE
@json_option
def keyring_list(file: str, as_json: bool) -> None:
    """List the names of the master keys."""
    names = open_keyring(file).names()
    if as_json:
        print_json({"keyring": file, "keys": names})
    else:
        for name in names:
            echo(name)


@keyring.command("passphrase")
@_FILE
@click.option("--remove", is_flag=True, help="Leave the keyring without a passphrase.")
def keyring_passphrase(file: str, remove: bool) -> None:
    """Set, change or remove the passphrase of a keyring."""
    opened = open_keyring(file)
    opened.set_passphrase(None if remove else ask_passphrase(file, new=True))
    click.echo(f"{file} has {'no' if remove else 'a new'} passphrase", err=True)
