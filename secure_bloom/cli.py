"""The command ``secure-bloom``.

Rules of its messages: results go to standard output; errors and progress to standard error, as
``secure-bloom: error: what happened and what to do``. With ``--json`` the result is one JSON
object. Keys never stand on the command line, only in keyring files.

Exit codes: 0 done (probe: may contain); 1 probe: certainly absent; 2 wrong usage, or a column or
value that does not fit; 3 a file cannot be read or is no valid Parquet; 4 a key is missing or
refused; 5 something encrypted does not authenticate: a wrong key, or a changed file; 70 a fault of
this program; 130 aborted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from secure_bloom import __version__
from secure_bloom.errors import (
    AuthenticationError,
    ColumnError,
    KeyRetrievalError,
    MissingExtraError,
    SecureBloomError,
)

ABSENT, USAGE, UNREADABLE, KEY, TAMPERED, FAULT, ABORTED = 1, 2, 3, 4, 5, 70, 130


class _Commands(click.Group):
    """Turns errors into a message and an exit code, for every command."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (click.Abort, KeyboardInterrupt):  # click would exit with 1: "certainly absent"
            click.echo("secure-bloom: aborted", err=True)
            ctx.exit(ABORTED)
        except Exception as error:
            _echo(f"secure-bloom: error: {error or type(error).__name__}", err=True)
            ctx.exit(_exit_code(error))


def _echo(text: str, *, err: bool = False) -> None:
    """Print text in which names from files cannot steer the terminal."""
    shown = (c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    click.echo("".join(shown), err=err)


def _exit_code(error: Exception) -> int:
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


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="secure-bloom")
def main() -> None:
    """Encrypted Bloom filters for encrypted Parquet files."""


def _keyring_option(command):
    return click.option("--keyring", type=click.Path(dir_okay=False), metavar="FILE",
                        help="Keyring with the master keys.")(command)


def _json_option(command):
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def _open_keyring(path: str | None):
    if path is None:
        return None
    from secure_bloom.keys import Keyring
    return Keyring(path)


def _print_json(result: dict) -> None:
    click.echo(json.dumps(result, indent=2, default=str))


# --- inspect -------------------------------------------------------------------------------------

@main.command()
@click.argument("file", type=click.Path())
@_keyring_option
@_json_option
def inspect(file: str, keyring: str | None, as_json: bool) -> None:
    """Show columns, encryption and Bloom filters of a Parquet file."""
    from secure_bloom import report
    with _open_file(file, keyring) as parquet_file:
        result = report.inspect_file(parquet_file)
    if as_json:
        _print_json(result)
    else:
        _echo(report.render_inspection(result))


def _open_file(file: str, keyring: str | None):
    from secure_bloom import ParquetFile
    return ParquetFile(file, _open_keyring(keyring))


# --- probe ---------------------------------------------------------------------------------------

@main.command()
@click.argument("file", type=click.Path())
@click.option("--column", required=True, metavar="C", help="Dotted path of a leaf column.")
@click.option("--value", metavar="V", help="Value to look for; read from standard input if absent, "
              "which keeps it out of the list of processes.")
@_keyring_option
@_json_option
@click.pass_context
def probe(ctx, file: str, column: str, value: str | None, keyring: str | None,
          as_json: bool) -> None:
    """Ask the Bloom filters whether a column may contain a value.

    Exit code 0: it may; 1: it certainly does not; 2 and up: errors.
    """
    from secure_bloom import report
    from secure_bloom.parquet.schema import find_column
    from secure_bloom.probes import parse_value
    text = _line_from_stdin() if value is None else value
    with _open_file(file, keyring) as parquet_file:
        column_type = find_column(parquet_file.columns, column).type
        result = report.probe_file(parquet_file, column, parse_value(text, column_type))
    if as_json:
        _print_json(result)
    else:
        _echo(report.render_probe(result))
    ctx.exit(0 if result["may_contain"] else ABSENT)


def _line_from_stdin() -> str:
    line = sys.stdin.readline()
    if not line:
        raise click.UsageError("no value: give --value, or a line on standard input")
    return line.rstrip("\r\n")


# --- write ---------------------------------------------------------------------------------------

def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _column_keys(options: tuple[str, ...]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for option in options:
        name, colon, columns = option.rpartition(":")
        if not (name and colon and _names(columns)):
            raise click.BadParameter("expected NAME:column,column", param_hint="--column-key")
        keys.setdefault(name, []).extend(_names(columns))
    return keys


@main.command()
@click.argument("source", metavar="IN", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False))
@_keyring_option
@click.option("--footer-key", metavar="NAME", help="Master key of the footer.")
@click.option("--column-key", "column_keys", metavar="NAME:col,col", multiple=True,
              help="Master key of sensitive columns; may be repeated.")
@click.option("--plaintext-footer", is_flag=True, help="Leave the footer readable, but signed.")
@click.option("--bloom", metavar="col,col", help="Columns that get Bloom filters.")
@click.option("--fpp", type=float, default=0.01, show_default=True,
              help="False-positive probability of the filters.")
@click.option("--row-group-size", type=click.IntRange(min=1), metavar="ROWS",
              help="Rows in a row group. Default: 1,048,576, or as in a Parquet input.")
@click.option("--compression", default="snappy", show_default=True)
@click.option("--text", metavar="col,col", help="CSV columns to keep as text, such as codes with "
              "leading zeros.")
@click.option("--plaintext", is_flag=True,
              help="OUT may be without encryption, though IN is encrypted or a keyring given.")
@_json_option
def write(source: str, target: str, keyring: str | None, footer_key: str | None,
          column_keys: tuple[str, ...], plaintext_footer: bool, bloom: str | None, fpp: float,
          row_group_size: int | None, compression: str, text: str | None, plaintext: bool,
          as_json: bool) -> None:
    """Write a Parquet file with Bloom filters from a Parquet or CSV file.

    Filters of columns with a key are encrypted, all others are plain. With --footer-key alone
    the whole file is encrypted with that key.
    """
    from secure_bloom import BloomFilterOptions, convert, report
    kms = _open_keyring(keyring)
    encryption = _encryption(footer_key, _column_keys(column_keys), plaintext_footer, kms,
                             plaintext)
    filters = {column: BloomFilterOptions(fpp=fpp) for column in _names(bloom)}
    with _progress(f"writing {Path(target).name}") as advance:
        convert.convert_file(source, target, bloom_filters=filters, encryption=encryption,
                             kms=kms, row_group_size=row_group_size, text_columns=_names(text),
                             allow_plaintext=plaintext, compression=compression, advance=advance)
    with _open_file(target, keyring if encryption else None) as parquet_file:
        result = report.inspect_file(parquet_file)
    if as_json:
        _print_json(result)
    else:
        _echo(report.render_inspection(result))


def _encryption(footer_key, column_keys, plaintext_footer, kms, plaintext):
    if footer_key is None and not column_keys:
        if plaintext_footer:
            raise click.UsageError("--plaintext-footer needs --footer-key")
        if kms is not None and not plaintext:
            raise click.UsageError("a keyring, but no --footer-key: OUT would not be encrypted; "
                                   "say --plaintext if that is meant")
        return None
    if footer_key is None or kms is None:
        raise click.UsageError("encryption needs --keyring and --footer-key")
    import pyarrow.parquet.encryption as pe
    if column_keys:
        return pe.EncryptionConfiguration(footer_key, column_keys=column_keys,
                                          plaintext_footer=plaintext_footer)
    return pe.EncryptionConfiguration(footer_key, uniform_encryption=True,
                                      plaintext_footer=plaintext_footer)


class _progress:
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


# --- keyring -------------------------------------------------------------------------------------

@main.group()
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
@_json_option
def keyring_list(file: str, as_json: bool) -> None:
    """List the names of the master keys."""
    from secure_bloom.keys import Keyring
    names = Keyring(file).names()
    if as_json:
        _print_json({"keyring": file, "keys": names})
    else:
        for name in names:
            click.echo(name)


# --- validate ------------------------------------------------------------------------------------

@main.command()
@click.argument("folder", required=False, metavar="[DIR]",
                type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--layer", "layers", multiple=True, metavar="L",
              help="Only the cases of this layer; may be repeated.")
@click.option("--against", metavar="CMD", help="Validate another implementation: a program that "
              "answers the cases over its standard input and output.")
@click.option("--junit", type=click.Path(dir_okay=False), metavar="FILE",
              help="Also write the results as JUnit XML.")
@_json_option
@click.pass_context
def validate(ctx, folder: Path | None, layers: tuple[str, ...], against: str | None,
             junit: str | None, as_json: bool) -> None:
    """Run the test vectors of DIR, and say where an answer is not the expected one.

    Without DIR: the folder vectors/ here, or of the sources that secure_bloom runs from.

    Exit code 0: all cases pass or are skipped; 1: some fail; 2 and up: errors.
    """
    from secure_bloom import vectors
    unknown = set(layers) - vectors.LAYERS.keys()
    if unknown:
        raise click.BadParameter(f"{', '.join(sorted(unknown))}; there are "
                                 f"{', '.join(vectors.LAYERS)}", param_hint="--layer")
    cases = vectors.load_cases(folder or _vectors_folder(), layers)
    with (vectors.ExternalProgram(against) if against else vectors.SecureBloom()) as program, \
            _progress("validating") as advance:
        results = vectors.run_cases(cases, program, advance)
    if junit is not None:
        Path(junit).write_text(vectors.junit(results, program.name), encoding="utf-8")
    if as_json:
        _print_json(vectors.summary(results, program.name))
    else:
        _echo(vectors.render(results, program.name))
    ctx.exit(1 if any(result.result == vectors.FAILED for result in results) else 0)


def _vectors_folder() -> Path:
    places = [Path("vectors"), Path(__file__).parents[1] / "vectors"]
    for place in places:
        if (place / "files").is_dir():
            return place
    raise click.UsageError("there are no test vectors here: give DIR, the folder vectors/ of the "
                           "secure_bloom sources")


# --- demo ----------------------------------------------------------------------------------------

@main.command()
@click.option("--output", type=click.Path(file_okay=False), default="demo-output",
              show_default=True, help="Folder for the files that the demo writes.")
@click.option("--spark/--no-spark", default=True, help="Also run the Spark part.")
def demo(output: str, spark: bool) -> None:
    """Write, inspect and search the flights of New York 2013, with secret tail numbers."""
    from secure_bloom.demo import run
    run(Path(output), with_spark=spark)
