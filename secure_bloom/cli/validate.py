"""The command ``validate``."""

from __future__ import annotations

from pathlib import Path

import click

from secure_bloom.cli.shared import BAD, echo, json_option, print_json, progress, write_report


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
@click.option("--junit", type=click.Path(dir_okay=False), metavar="FILE",
              help="Also write the results as JUnit XML.")
@json_option
@click.pass_context
def validate(ctx: click.Context, folder: Path | None, layers: tuple[str, ...], against: str | None,
             timeout: int | None, junit: str | None, as_json: bool) -> None:
    """Run the test vectors of DIR, and report where a result is not the expected one.

    Without DIR: the folder vectors/ here, or in the sources that secure_bloom runs from.

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
    cases = validator.load_cases(folder or _vectors_folder(), layers)
    with (validator.ExternalProgram(against, timeout=timeout or validator.TIMEOUT) if against
          else validator.SecureBloom()) as program, progress("validating") as advance:
        results = validator.run_cases(cases, program, advance)
    if as_json:
        print_json(validation_report.summary(results, program.name))
    else:
        echo(validation_report.render(results, program.name))
    if junit is not None:
        write_report(junit, validation_report.junit(results, program.name))
    ctx.exit(BAD if any(result.result == validator.FAILED for result in results) else 0)


def _vectors_folder() -> Path:
    places = [Path("vectors"), Path(__file__).parents[2] / "vectors"]
    for place in places:
        if (place / "files").is_dir():
            return place
    raise click.UsageError("there are no test vectors here: specify DIR, the folder vectors/ of "
                           "the secure_bloom sources")
