"""Code that the commands share: options, output, progress, errors and their exit codes."""

from __future__ import annotations

import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import click
from click.core import ParameterSource

from secure_bloom.errors import (
    AuthenticationError,
    ColumnError,
    KernelChoiceError,
    KeyRetrievalError,
    KeyringError,
    MissingExtraError,
    OperationInterrupted,
    PolicyError,
    SecureBloomError,
)

if TYPE_CHECKING:
    from secure_bloom.encryption_requirement import RequireEncryption
    from secure_bloom.keys.keyring import Keyring
    from secure_bloom.keys.kms import KmsClient

Command: TypeAlias = Callable[..., Any]  # a function, before click turns it into a command
OpenKms: TypeAlias = "Callable[[], KmsClient | None]"

BAD, USAGE, UNREADABLE, KEY, TAMPERED, UNUSED_RULES, FAULT, ABORTED = 1, 2, 3, 4, 5, 6, 70, 130
_STEPS = 1000  # of a progress bar


class Commands(click.Group):
    """A group that turns the errors of every command into a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (click.Abort, KeyboardInterrupt):  # click would exit with 1: a negative result
            click.echo("secure-bloom: aborted", err=True)
            ctx.exit(ABORTED)
        except Exception as error:
            echo(f"secure-bloom: error: {error or type(error).__name__}", err=True)
            ctx.exit(exit_code(error))


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text so that names from files cannot control the terminal."""
    shown = (c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    click.echo("".join(shown), err=err, nl=nl)


def exit_code(error: Exception) -> int:
    """The exit code of an error that ended a command."""
    if isinstance(error, AuthenticationError):
        return TAMPERED
    if isinstance(error, KeyRetrievalError):
        return KEY
    if isinstance(error, ColumnError | PolicyError | MissingExtraError | KernelChoiceError):
        return USAGE
    if isinstance(error, SecureBloomError | OSError):
        return UNREADABLE
    known = isinstance(error, ValueError | TypeError | NotImplementedError | LookupError)
    return USAGE if known else FAULT


def check_exit_code(ok: bool, missing_keys: bool, complete: bool) -> int:
    """The exit code of a command that checks files."""
    if not ok:
        return BAD
    if missing_keys:
        return KEY
    return 0 if complete else UNREADABLE


def kms_options(command: Command) -> Command:
    """Add ``--keyring`` and ``--kms``; the command receives ``kms``, a client or None.

    Without these options, the environment determines the client.
    """
    @functools.wraps(command)
    def with_client(*args: Any, kms: OpenKms, **options: Any) -> Any:
        return command(*args, kms=kms(), **options)

    return kms_options_opened_later(with_client)


def kms_options_opened_later(command: Command) -> Command:
    """Add the options of :func:`kms_options`; the command receives a function that opens ``kms``.

    So the command can report why the KMS cannot be opened.
    """
    @functools.wraps(command)
    def with_opener(*args: Any, keyring: str | None, kms: str | None, **options: Any) -> Any:
        return command(*args, kms=functools.partial(_client, keyring, kms), **options)

    kms = click.option("--kms", metavar="URI", help="KMS with the master keys, such as "
                       "awskms:?region=eu-west-1 or vault:https://host:8200/transit. "
                       "Default: SECURE_BLOOM_KMS.")
    keyring = click.option("--keyring", type=click.Path(dir_okay=False), metavar="FILE",
                           help="Keyring with the master keys. Default: SECURE_BLOOM_KEYRING.")
    return keyring(kms(with_opener))


def _client(keyring: str | None, uri: str | None) -> KmsClient | None:
    if keyring is not None and uri is not None:
        raise click.UsageError("specify either --keyring or --kms, not both")
    if uri is not None:
        from secure_bloom.keys import open_kms
        return open_kms(uri)
    if keyring is not None:
        return open_keyring(keyring)
    from secure_bloom.keys.environment import environment_kms
    return environment_kms(_asked_once())


def _asked_once() -> Callable[[str], str]:
    """Return a function that prompts for a passphrase once, whichever thread calls it first."""
    lock, ask = Lock(), functools.cache(ask_passphrase)

    def ask_once(path: str) -> str:
        with lock:
            return ask(path)

    return ask_once


def open_keyring(path: str) -> Keyring:
    """Open a keyring, and prompt for its passphrase if it has one."""
    from secure_bloom.keys import Keyring
    return Keyring(path, ask=ask_passphrase)


def requirement_option(command: Command) -> Command:
    """Add ``--require-encryption``; the command receives the parsed requirement, or None."""
    @functools.wraps(command)
    def with_requirement(*args: Any, require_encryption: str | None, **options: Any) -> Any:
        required = None if require_encryption is None else _required(require_encryption)
        return command(*args, require_encryption=required, **options)

    return click.option(
        "--require-encryption", metavar="WHAT",
        help='Reject files that are not encrypted as required: "true" (everything), "ssn, address" '
             '(these columns), or "pii: ssn, name; key2: c" (under these master keys).')(
                 with_requirement)


def policy_option(what: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--policy``; the command receives a path, or None."""
    return click.option("--policy", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
                        help=f"Policy (TOML). {what}")


def reading_options(command: Command) -> Command:
    """Add ``--require-encryption`` and ``--policy``; the command receives the requirement."""
    @functools.wraps(command)
    def with_requirement(*args: Any, policy: str | None, require_encryption: RequireEncryption,
                         **options: Any) -> Any:
        if policy is not None and require_encryption is not None:
            raise click.UsageError("specify either --require-encryption or --policy, not both")
        if policy is not None:
            from secure_bloom.policy import Policy
            require_encryption = Policy.read(policy)
        return command(*args, require_encryption=require_encryption, **options)

    return requirement_option(
        policy_option("Refuse files that do not meet it.")(with_requirement))


def _required(text: str) -> RequireEncryption:
    from secure_bloom.encryption_requirement import encryption_requirement, parse_required
    try:
        return encryption_requirement(parse_required(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--require-encryption") from None


def index_option(command: Command) -> Command:
    """Add ``--index``."""
    return click.option("--index", type=click.Choice(["auto", "off", "require"]), default="auto",
                        help="Use the index of a folder if possible (the default), never, or fail "
                             "if it cannot be used.")(command)


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True,
                        help="Print the result as one JSON object.")(command)


def jobs_option(command: Command) -> Command:
    """Add ``--jobs``."""
    return click.option("--jobs", type=click.IntRange(min=1), metavar="N",
                        help="Files to process in parallel. Default: one per core.")(command)


def change_files(ctx: click.Context, label: str, operation: Callable[..., Any],
                 show: Callable[[Any], None]) -> None:
    """Run an operation on files, show its result, and exit.

    ``operation(advance)`` returns a result with ``failed`` files, which ``show`` prints. If an
    error or an interruption ends the operation, its partial result, if any, is printed first.
    """
    try:
        with progress(label) as advance:
            result = operation(advance)
    except (SecureBloomError, OperationInterrupted) as error:
        if error.result is not None:
            show(error.result)
        raise
    show(result)
    ctx.exit(UNREADABLE if result.failed else 0)


def check_not_given(ctx: click.Context, options: Iterable[str], without: str) -> None:
    """Refuse options that were given although they say nothing without another one."""
    refuse_given(ctx, options,
                 f"says how the filters of {without} are built; specify {without}, or")


def refuse_given(ctx: click.Context, options: Iterable[str], why: str) -> None:
    """Refuse options that were given; ``why`` stands between its name and advice to omit it."""
    for name in options:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} {why} omit --{name}")


def names(text: str | None) -> list[str]:
    """The names in a comma-separated list."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def ask_passphrase(keyring: str, *, new: bool = False) -> str:
    """Prompt for the passphrase of a keyring on the terminal."""
    if new and not sys.stdin.isatty():
        raise KeyringError("there is no terminal to ask for a new passphrase; in Python, pass it "
                           "to Keyring.create or set_passphrase", file=keyring)
    if not sys.stdin.isatty():
        raise KeyringError("it needs a passphrase, and there is no terminal to ask for it; "
                           "commands that have option --kms can read it from a file: "
                           "'keyring:FILE?passphrase-file=FILE'", file=keyring)
    return click.prompt(f"{'New passphrase' if new else 'Passphrase'} of {keyring}",
                        hide_input=True, confirmation_prompt=new, err=True)


def line_from_stdin() -> str:
    """Read a value to look up from standard input."""
    line = sys.stdin.readline()
    if not line:
        raise click.UsageError("no value: specify --value, or write the value to standard "
                               "input")
    return line.removeprefix("\ufeff").rstrip("\r\n")  # some programs write a byte order mark


def values_options(command: Command) -> Command:
    """Add ``--value`` and ``--values``; the command receives ``given`` and ``file``."""
    value = click.option("--value", "given", multiple=True, metavar="V",
                         help="Value to look for; may be repeated. Without --value and --values, "
                              "one is read from standard input, which keeps it out of the process "
                              "list.")
    values = click.option("--values", "file", type=click.File(encoding="utf-8-sig"),
                          metavar="FILE", help="Values to look for, one per line; - for standard "
                                               "input. Empty lines are skipped.")
    return value(values(command))


def given_values(given: tuple[str, ...], file: TextIO | None) -> list[str]:
    """Return the values that these options name, as text."""
    if file is None:
        return list(given) or [line_from_stdin()]
    try:
        lines = [line.rstrip("\r\n") for line in file]
    except UnicodeDecodeError:  # its message has a part of the values
        raise click.UsageError("the values are not UTF-8 text: convert the file") from None
    texts = [*given, *filter(None, lines)]
    if not texts:
        raise click.UsageError("there are no values to look for in the file")
    return texts


def write_report(path: str, text: str) -> None:
    """Write a report to a file, which appears only when complete, or to a pipe or device."""
    from secure_bloom.storage.files import resolve, write_file
    write_file(*resolve(os.path.abspath(path)), text.encode())


def print_json(result: dict[str, Any]) -> None:
    """Print the result of a command that was called with ``--json``."""
    click.echo(json.dumps(result, indent=2, default=str))


@contextmanager
def progress(label: str, *, hidden: bool = False) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error, if that is a terminal; yields ``advance(fraction)``."""
    with click.progressbar(length=_STEPS, label=label, file=sys.stderr,
                           hidden=hidden or not sys.stderr.isatty()) as bar:
        yield lambda fraction: bar.update(max(0, round(fraction * _STEPS) - bar.pos))


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Show warnings in this program's style, without the source line that issued them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        echo(f"secure-bloom: warning: {warning.message}", err=True)
