"""Options that say which columns are encrypted, with which master keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from secure_bloom.cli.shared import Command, names

if TYPE_CHECKING:
    from secure_bloom.encryption import EncryptionConfiguration

NO_KEYS = ("encryption needs master keys: specify --keys FILE or URI, or set SECURE_BLOOM_KEYRING "
           "or SECURE_BLOOM_KMS")


def encryption_options(command: Command) -> Command:
    """Add ``--footer-key``, ``--column-key``, ``--other-columns`` and ``--plaintext-footer``."""
    for option in (
        click.option("--plaintext-footer", is_flag=True,
                     help="Keep the footer readable, but signed."),
        click.option("--other-columns", type=click.Choice(["plaintext", "footer-key"]),
                     help="What happens to columns without a key: they stay open (the default), or "
                          "are encrypted under the master key of the footer. For --column-key."),
        click.option("--column-key", "column_keys", metavar="NAME:col,col", multiple=True,
                     help="Master key of sensitive columns; may be repeated."),
        click.option("--footer-key", metavar="NAME", help="Master key of the footer."),
    ):
        command = option(command)
    return command


def check_other_columns(other_columns: str | None, column_keys: tuple[str, ...]) -> None:
    """Refuse ``--other-columns`` if no column has a key."""
    if other_columns is not None and not column_keys:
        raise click.UsageError("--other-columns is for columns without a --column-key: specify "
                               "--column-key, or omit --other-columns")


def configuration(footer_key: str, column_keys: tuple[str, ...], other_columns: str | None,
                  plaintext_footer: bool) -> EncryptionConfiguration:
    """Return what these options say; with a footer key alone, it encrypts the whole file."""
    from secure_bloom.encryption import EncryptionConfiguration
    by_key = _column_keys(column_keys)
    if by_key:
        return EncryptionConfiguration(
            footer_key, by_key, plaintext_footer=plaintext_footer,
            other_columns="footer key" if other_columns == "footer-key" else "plaintext")
    return EncryptionConfiguration(footer_key, uniform_encryption=True,
                                   plaintext_footer=plaintext_footer)


def _column_keys(options: tuple[str, ...]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for option in options:
        name, colon, columns = option.rpartition(":")
        if not (name and colon and names(columns)):
            raise click.BadParameter("expected NAME:column,column", param_hint="--column-key")
        keys.setdefault(name, []).extend(names(columns))
    return keys
