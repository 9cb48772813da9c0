"""The command ``validate``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import click

from secure_bloom.cli.shared import BAD, echo, json_option, progress, show, write_report

if TYPE_CHECKING:
    from secure_bloom.validator import Case, CaseResult


@click.command(short_help="Run the test vectors for implementations.")
@click.argument("folder", required=False, metavar="[DIR]",
                type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--layer", "layers", multiple=True, metavar="L",
              help="Run only the cases of this layer; may be repeated.")
@click.option("--against", metavar="CMD", help="Validate another implementation: a program that "
                                               "answers the cases on its standard input and "
                                               "output.")
@click.option("--timeout", type=click.IntRange(1, 86_400), metavar="SECONDS",
              help="How long that program may take to answer a case. Default: 60.")
@click.option("--known-failures", metavar="FILE",
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Names of cases that are known to fail, one per line. The exit code is then 0 "
                   "if these cases fail and no others.")
@click.option("--junit", type=click.Path(dir_okay=False), metavar="FILE",
              help="Also write the results as JUnit XML.")
@json_option
@click.pass_context
def validate(ctx: click.Context, folder: Path | None, layers: tuple[str, ...], against: str | None,
             timeout: int | None, known_failures: Path | None, junit: str | None,
             as_json: bool) -> None:
    """Run the test vectors of DIR, and report where a result is not the expected one.

    Without DIR: the folder vectors/ here or in the sources that secure_bloom runs from, or the
    installed package parquet-bloom-vectors.

    Exit code 0: all cases pass or are skipped; 1: some fail; 2 and up: errors.
    """
    from secure_bloom import validator
    from secure_bloom.cli import validation_report
    unknown = set(layers) - validator.LAYERS.keys()
    if unknown:
        raise click.BadParameter(f"unknown layers: {', '.join(sorted(unknown))}; available: "
                                 f"{', '.join(validator.LAYERS)}", param_hint="--layer")
    if against is not None and not against.strip():
        raise click.BadParameter("it is empty; omit it to validate secure_bloom",
                                 param_hint="--against")
    if timeout is not None and against is None:
        raise click.BadParameter("it limits the program that --against names, and there is none",
                                 param_hint="--timeout")
    folder = folder or _vectors_folder()
    known = _names(known_failures, validator.load_cases(folder)) if known_failures else set()
    cases = validator.load_cases(folder, layers)
    with (validator.ExternalProgram(against, timeout=timeout or validator.TIMEOUT) if against
          else validator.SecureBloom()) as program, progress("validating") as advance:
        results = validator.run_cases(cases, program, advance)
    show(as_json, validation_report.summary(results, program.name),
         lambda: validation_report.render(results, program.name))
    if junit is not None:
        write_report(junit, validation_report.junit(results, program.name))
    unexpected = _unexpected(results, known)
    if known:
        for line in unexpected:
            echo(line, err=True)
    ctx.exit(BAD if unexpected else 0)


def _names(path: Path, cases: list[Case]) -> set[str]:
    """Return the names of cases in a file; lines can have comments after ``#``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    names = {name for line in lines if (name := line.partition("#")[0].strip())}
    if unknown := names - {case.name for case in cases}:
        raise click.BadParameter(f"there are no cases with these names: "
                                 f"{', '.join(sorted(unknown))}", param_hint="--known-failures")
    return names


def _unexpected(results: list[CaseResult], known: set[str]) -> list[str]:
    """Return a line for each case that fails and is not known to, or the other way round."""
    from secure_bloom.validator import FAILED
    failed = {result.case.name for result in results if result.result == FAILED}
    ran = {result.case.name for result in results}
    return [*(f"fails, and is not known to: {name}" for name in sorted(failed - known)),
            *(f"known to fail, but does not: {name}" for name in sorted((known & ran) - failed))]


def _vectors_folder() -> Path:
    package = importlib.util.find_spec("parquet_bloom_vectors")
    places = [Path("vectors"), Path(__file__).parents[2] / "vectors",
              *map(Path, (package and package.submodule_search_locations) or ())]
    for place in places:
        if (place / "files").is_dir():
            return place
    raise click.UsageError("there are no test vectors here: pip install the folder vectors/ of the "
                           "secure_bloom sources, or specify it as DIR")
