"""What the commands share: options, output, progress, errors and their exit codes."""

from __future__ import annotations

import json
import sys

import click

from secure_bloom.errors import (
    AuthenticationError,
    ColumnError,
    KeyRetrievalError,
    MissingExtraError,
    SecureBloomError,
)

BAD, USAGE, UNREADABLE, KEY, TAMPERED, FAULT, ABORTED = 1, 2, 3, 4, 5, 70, 130


class Commands(click.Group):
    """Turns errors into a message and an exit code, for every command."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (click.Abort, KeyboardInterrupt):  # click would exit with 1, a bad answer
            click.echo("secure-bloom: aborted", err=True)
            ctx.exit(ABORTED)
        except Exception as error:
            echo(f"secure-bloom: error: {error or type(error).__name__}", err=True)
            ctx.exit(exit_code(error))


def echo(text: str, *, err: bool = False) -> None:
    """Print text in which names from files cannot steer the terminal."""
    shown = (c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    click.echo("".join(shown), err=err)


def exit_code(error: Exception) -> int:
    """The exit code of an error that ended a command."""
    if isinstance(error, AuthenticationError):
        return TAMPERED
    if isinstance(error, KeyRetrievalError):
        return KEY
    if isinstance(error, ColumnError | MissingExtraError):
        return USAGE
    if isinstance(error, SecureBloomError | OSError):
        return UNREADABLE
    known = isinstance(error, ValueError | TypeError | NotImplementedError | LookupError)
    return USAGE if known else FAULT


def keyring_option(command):
    """Add ``--keyring``."""
    return click.option("--keyring", type=click.Path(dir_okay=False), metavar="FILE",
                        help="Keyring with the master keys.")(command)


def json_option(command):
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def open_keyring(path: str | None):
    """The keyring of ``--keyring``, or None."""
    if path is None:
        return None
    from secure_bloom.keys import Keyring
    return Keyring(path)


def print_json(result: dict) -> None:
    """Print the result of a command that was given ``--json``."""
    click.echo(json.dumps(result, indent=2, default=str))


def open_file(file: str, keyring: str | None):
    """A Parquet file with the keys of ``--keyring``."""
    from secure_bloom import ParquetFile
    return ParquetFile(file, open_keyring(keyring))


class progress:
    """A progress bar on standard error, where that is a terminal; gives ``advance(fraction)``."""

    _STEPS = 1000

    def __init__(self, label: str):
        self._bar = click.progressbar(length=self._STEPS, label=label, file=sys.stderr,
                                      hidden=not sys.stderr.isatty())

    def __enter__(self):
        self._bar.__enter__()
        return self._advance

    def _advance(self, fraction: float) -> None:
        self._bar.update(max(0, round(fraction * self._STEPS) - self._bar.pos))

    def __exit__(self, *exception):
        return self._bar.__exit__(*exception)
