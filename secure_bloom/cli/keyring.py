"""The commands ``keyring ...``: master keys in a local file, and its passphrase."""

from __future__ import annotations

import base64
import binascii
import sys

import click

from secure_bloom.cli.shared import (
    ask_passphrase,
    echo,
    json_option,
    open_keyring,
    print_json,
    warnings_shown,
)

_FILE = click.argument("file", type=click.Path(dir_okay=False))
_NAME = click.argument("name")
_FORMAT = click.option("--format", "form", required=True,
                       type=click.Choice(["hex", "base64", "raw"]),
                       help="Encoding of the key; it is not detected automatically.")
_MAX_INPUT = 4096  # bytes; longer than any key


@click.group(short_help="Manage a local file of master keys.")
def keyring() -> None:
    """Manage a local keyring: a file of named master keys that only you can read.

    If it has a passphrase, the terminal prompts for it.
    """


@keyring.command("create")
@_FILE
@click.option("--key", "keys", metavar="NAME", multiple=True,
              help="Add a new random master key; may be repeated.")
@click.option("--passphrase", is_flag=True, help="Encrypt it with a passphrase.")
def keyring_create(file: str, keys: tuple[str, ...], passphrase: bool) -> None:
    """Create a keyring, without keys unless --key names some."""
    from secure_bloom.keys import Keyring
    with warnings_shown():
        Keyring.create(file, ask_passphrase(file, new=True) if passphrase else None, keys=keys)
    click.echo(f"created {file}; keep a backup: without its keys, data is lost", err=True)


@keyring.command("add")
@_FILE
@_NAME
@click.option("--bits", type=click.Choice(["128", "192", "256"]), default="256", show_default=True)
def keyring_add(file: str, name: str, bits: str) -> None:
    """Add a new random master key."""
    open_keyring(file).add(name, bits=int(bits))
    echo(f"added a key of {bits} bits named {name}", err=True)


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


@keyring.command("remove")
@_FILE
@_NAME
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def keyring_remove(file: str, name: str, yes: bool) -> None:
    """Remove a master key. Without a backup of the key, data encrypted with it is lost.

    'secure-bloom keys list PATH' shows which master keys a data set needs.
    """
    opened = open_keyring(file)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("without its key, data is lost, and there is no terminal to ask "
                                   "for confirmation: specify --yes")
        click.confirm(f"Data encrypted with {name!r} is lost unless you have a backup of the key. "
                      "Remove it?", abort=True, err=True)
    opened.remove(name)
    echo(f"removed the key named {name}", err=True)


@keyring.command("rename")
@_FILE
@click.argument("old")
@click.argument("new")
def keyring_rename(file: str, old: str, new: str) -> None:
    """Rename a master key.

    Files refer to master keys by name: those written under OLD cannot be opened under NEW. For
    such files, add a key and use 'secure-bloom keys rotate' instead.
    """
    open_keyring(file).rename(old, new)
    echo(f"renamed {old} to {new}; files written under the old name can be opened only under that "
         "name", err=True)


@keyring.command("subset", short_help="Create a keyring with some of the keys.")
@_FILE
@click.argument("new_file", metavar="NEWFILE", type=click.Path(dir_okay=False))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--passphrase/--no-passphrase", default=None,
              help="Whether to encrypt NEWFILE with a passphrase. Default: same as FILE.")
def keyring_subset(file: str, new_file: str, names: tuple[str, ...],
                   passphrase: bool | None) -> None:
    """Create NEWFILE with some of the keys, for readers of only the data that they encrypt."""
    opened = open_keyring(file)
    is_sealed = opened.has_passphrase if passphrase is None else passphrase
    with warnings_shown():
        created = opened.subset(new_file, names, passphrase=(
            lambda: ask_passphrase(new_file, new=True)) if is_sealed else None)
    echo(f"created {new_file} with {', '.join(created.names())}", err=True)


@keyring.command("import")
@_FILE
@_NAME
@_FORMAT
@click.option("--from", "source", type=click.Path(dir_okay=False, allow_dash=True), default="-",
              metavar="PATH", help="File with the key. Default: standard input.")
def keyring_import(file: str, name: str, form: str, source: str) -> None:
    """Add an existing master key of 128, 192 or 256 bits."""
    key = _decoded(_input(source, form), form)
    open_keyring(file).add(name, key)
    echo(f"added a key of {len(key) * 8} bits named {name}", err=True)


@keyring.command("export")
@_FILE
@_NAME
@_FORMAT
@click.option("--to", "target", required=True, metavar="PATH",
              type=click.Path(dir_okay=False, allow_dash=True),
              help="A new file that only you can read; - for standard output.")
def keyring_export(file: str, name: str, form: str, target: str) -> None:
    """Export a master key in plaintext. Anyone who has it can read data encrypted with it."""
    from secure_bloom.keys.keyring_file import create_private
    text = _encoded(open_keyring(file).export(name), form)
    if target == "-":
        click.echo(text, nl=False)
        return
    try:
        create_private(target, text)
    except FileExistsError:
        raise click.UsageError(f"{target} exists; specify the path of a new file") from None
    echo(f"wrote the key named {name} to {target}", err=True)


@keyring.command("passphrase")
@_FILE
@click.option("--remove", is_flag=True, help="Remove the passphrase from the keyring.")
def keyring_passphrase(file: str, remove: bool) -> None:
    """Set, change or remove the passphrase of a keyring."""
    opened = open_keyring(file)
    with warnings_shown():
        opened.set_passphrase(None if remove else ask_passphrase(file, new=True))
    click.echo(f"{file} has {'no' if remove else 'a new'} passphrase", err=True)


def _input(source: str, form: str) -> bytes:
    if source != "-":
        with open(source, "rb") as file:
            return file.read(_MAX_INPUT)
    if sys.stdin.isatty() and form != "raw":
        return click.prompt("Key", hide_input=True, err=True).encode()
    return sys.stdin.buffer.read(_MAX_INPUT)


def _decoded(data: bytes, form: str) -> bytes:
    """Decode a key. Errors do not quote it."""
    from secure_bloom.crypto.aes_gcm import KEY_SIZES
    try:
        if form == "hex":
            data = binascii.unhexlify(data.strip())
        elif form == "base64":
            data = base64.b64decode(data.strip(), validate=True)
    except binascii.Error:
        raise click.UsageError(f"the input is not a key in {form}") from None
    if len(data) not in KEY_SIZES:
        raise click.UsageError(f"as {form}, the input has {len(data)} bytes; a master key has 16, "
                               "24 or 32 (128, 192 or 256 bits)")
    return data


def _encoded(key: bytes, form: str) -> bytes:
    if form == "raw":
        return key
    return (binascii.hexlify(key) if form == "hex" else base64.b64encode(key)) + b"\n"
