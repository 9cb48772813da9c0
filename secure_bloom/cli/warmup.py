"""The command ``warmup``."""

from __future__ import annotations

import click

from secure_bloom.cli import shared


@click.command(short_help="Test the kernels for bulk operations, and say which are used.")
def warmup() -> None:
    """Say which kernels hash values and fill filters on this machine, and test them.

    Kernels are compiled when the package is built, so nothing has to be prepared. Only if the
    environment variable SECURE_BLOOM_KERNELS is numba, this command compiles them, so that later
    processes only load them.
    """
    from secure_bloom.sbbf.kernel_choice import chosen
    choice = chosen()
    if choice.name == "numba":
        _compile()
    elif choice.reason:
        shared.echo(f"numpy; built kernels are not used: {choice.reason}")
    elif choice.raw is None:
        shared.echo("numpy")
    else:
        shared.echo(f"{choice.name}: built kernels, tested on this machine")


def _compile() -> None:
    from secure_bloom.kernels.compiling import compiled
    from secure_bloom.kernels.numba_kernels import to_warm_up
    from secure_bloom.parquet import footer_kernels
    steps = list(to_warm_up(footer_kernels))
    with shared.progress("compiling kernels") as advance:
        for done, step in enumerate(steps):
            step()
            advance((done + 1) / len(steps))
    count, folder = compiled()
    if folder is None:
        shared.echo(f"{count} kernels compiled by numba, but there is no folder to store them: set "
                    "NUMBA_CACHE_DIR to a writable folder", err=True)
    else:
        shared.echo(f"numba: {count} kernels in {folder}")
