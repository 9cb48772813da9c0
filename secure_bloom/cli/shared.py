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

from secure_bloom.display import is_terminal, shown
from secure_bloom.errors import (
    ArgumentError,
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
    from secure_bloom.keys.keyring import Keyring
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.policy.requirement import Requirement

Command: TypeAlias = Callable[..., Any]  # a function, before click turns it into a command
OpenKms: TypeAlias = "Callable[[], KmsClient | None]"

BAD, USAGE, UNREADABLE, KEY, TAMPERED, UNUSED_RULES, FAULT = 1, 2, 3, 4, 5, 6, 70
ABORTED, PIPE = 130, 141  # as of a shell
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
            ctx.exit(_shown(error))

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the command line; ``--help`` and ``--version`` print here."""
        try:
            return super().make_context(*args, **options)
        except OSError as error:
            raise click.exceptions.Exit(_shown(error)) from None


def _shown(error: Exception) -> int:
    """Print an error, unless only the output has no reader any more, and return the exit code."""
    if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
        _discard_output()
        return PIPE
    echo(f"secure-bloom: error: {error or type(error).__name__}", err=True)
    return exit_code(error)


def _has_no_reader(output: TextIO) -> bool:
    """Whether what reads the output has ended, as of '| head'. Other pipes break, too."""
    import select  # which only this case needs
    try:
        poll = select.poll()
        poll.register(output.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # on Windows; not a file
        return False
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _discard_output() -> None:
    """Let the interpreter flush its output at the end without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text so that names from files cannot control the terminal."""
    safe = (c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    click.echo("".join(safe), err=err, nl=nl)


def exit_code(error: Exception) -> int:
    """The exit code of an error that ended a command."""
    if isinstance(error, AuthenticationError):
        return TAMPERED
    if isinstance(error, KeyRetrievalError):
        return KEY
    if isinstance(error, ColumnError | PolicyError | ArgumentError | MissingExtraError
                  | KernelChoiceError):
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
    """Add ``--keys``; the command receives ``kms``, a client or None.

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
    def with_opener(*args: Any, keys: str | None, **options: Any) -> Any:
        return command(*args, kms=functools.partial(_client, keys), **options)

    option = click.option(
        "--keys", "--keyring", "keys", metavar="KEYS",
        help="The keyring, or the URI of the KMS, with the master keys: keyring.json, "
             "awskms:?region=eu-west-1, vault:https://host:8200/transit. Default: "
             "SECURE_BLOOM_KEYRING or SECURE_BLOOM_KMS.")
    old = click.option("--kms", hidden=True, expose_value=False, callback=_refuse_kms)
    return option(old(with_opener))


def _refuse_kms(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError("option --kms is called --keys now")


def _client(keys: str | None) -> KmsClient | None:
    from secure_bloom.keys.uri import has_scheme
    if keys is None:
        from secure_bloom.keys.environment import environment_kms
        return environment_kms(_asked_once())
    if has_scheme(keys):
        from secure_bloom.keys import open_kms
        return open_kms(keys)
    return open_keyring(keys)


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
    return click.option(
        "--require-encryption", metavar="WHAT", callback=_required,
        help='Reject files that are not encrypted as required: "true" (everything), "ssn, address" '
             '(these columns), or "pii: ssn, name; key2: c" (under these master keys).')(command)


class FileOrUri(click.Path):
    """The path of a file, or its URI. In the environment, it may begin with ``~``."""

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> Any:
        from secure_bloom.storage.locations import is_uri
        if ctx is not None and param is not None and param.name is not None \
                and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
            value = os.path.expanduser(value)  # as the library does; on a command line, shells do
        return value if is_uri(value) else super().convert(value, param, ctx)


def policy_option(what: str, *, has_default: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--policy``; the command receives a path or URI, or None.

    With ``has_default``, the environment may name the policy.
    """
    default = " Default: SECURE_BLOOM_POLICY." if has_default else ""
    return click.option("--policy", type=FileOrUri(exists=True, dir_okay=False), metavar="FILE",
                        envvar="SECURE_BLOOM_POLICY" if has_default else None,
                        help=f"Policy (TOML), or its URI. {what}{default}")


reading_policy_option = policy_option("Refuse files that do not meet it.")


def reading_options(command: Command) -> Command:
    """Add ``--require-encryption`` and ``--policy``; the command receives one requirement."""
    @functools.wraps(command)
    def with_requirement(*args: Any, policy: str | None, require_encryption: Requirement | None,
                         **options: Any) -> Any:
        from secure_bloom.policy.requirement import encryption_requirement
        return command(*args, require_encryption=encryption_requirement(
            require_encryption, policy), **options)

    return requirement_option(reading_policy_option(with_requirement))


def _required(ctx: click.Context, parameter: click.Parameter,
              text: str | None) -> Requirement | None:
    from secure_bloom.policy.requirement import encryption_requirement, parse_required
    try:
        return None if text is None else encryption_requirement(parse_required(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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


def changing_command(exit_codes: str,
                     *options: Callable[[Command], Command]) -> Callable[[Command], click.Command]:
    """Make a command that changes the files of a path; its help ends with the exit codes."""
    def make(command: Command) -> click.Command:
        command.__doc__ = f"{command.__doc__}{exit_codes}"
        for option in (json_option, jobs_option, *options, kms_options):
            command = option(command)
        return click.command()(click.argument("path", type=click.Path())(
            click.pass_context(command)))

    return make


def change_files(ctx: click.Context, label: str, path: str, operation: Callable[..., Any],
                 show: Callable[[Any], None]) -> None:
    """Run an operation on files, show its result, and exit.

    ``operation(advance)`` returns a result with ``failed`` files, which ``show`` prints. If an
    error or an interruption ends the operation, its partial result, if any, is printed first.
    """
    try:
        with progress(label, path) as advance:
            result = operation(advance)
    except (SecureBloomError, OperationInterrupted) as error:
        if error.result is not None:
            show(error.result)
        raise
    show(result)
    ctx.exit(0 if result.ok else UNREADABLE)


def refuse_without_bloom(ctx: click.Context, *options: str) -> None:
    """Refuse options of filters that were given without columns that get one."""
    refuse_given(ctx, options, "says how the filters of --bloom are built; specify --bloom, or")


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
                           "commands that have option --keys can read it from a file: "
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
    texts = [*given, *lines_of(file)]
    if not texts:
        raise click.UsageError("there are no values to look for in the file")
    return texts


def lines_of(file: TextIO) -> list[str]:
    """Return the lines of a file of values, without empty ones."""
    try:
        return [text for line in file if (text := line.rstrip("\r\n"))]
    except UnicodeDecodeError:  # its message has a part of the values
        raise click.UsageError("the values are not UTF-8 text: convert the file") from None


def write_report(path: str, text: str) -> None:
    """Write a report to a file, which appears only when complete, or to a pipe or device."""
    from secure_bloom.storage.files import resolve, write_file
    write_file(*resolve(os.path.abspath(path)), text.encode())


def print_json(result: dict[str, Any]) -> None:
    """Print the result of a command that was called with ``--json``."""
    click.echo(json.dumps(result, indent=2, default=str))


def show(as_json: bool, result: dict[str, Any], text: Callable[[], str]) -> None:
    """Print the result of a command: with ``--json`` as one object, otherwise as text."""
    if as_json:
        print_json(result)
    else:
        echo(text())


@contextmanager
def progress(label: str, path: str = "", *,
             hidden: bool = False) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error, if that is a terminal; yields ``advance(fraction)``.

    ``path`` is that of what is worked on, whose last part is shown.
    """
    if path:
        label = f"{label} {shown(os.path.basename(os.path.abspath(path)))}"
    with click.progressbar(length=_STEPS, label=label, file=sys.stderr,
                           hidden=hidden or not is_terminal(sys.stderr)) as bar:
        yield lambda fraction: bar.update(max(0, round(fraction * _STEPS) - bar.pos))


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Show warnings in this program's style, without the source line that issued them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        echo(f"secure-bloom: warning: {warning.message}", err=True)
