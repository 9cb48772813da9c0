"""The command ``warmup``."""

from __future__ import annotations

import click

from secure_bloom.cli import shared


@click.command(short_help="Compile the kernels for bulk operations.")
def warmup() -> None:
    """Compile the kernels for bulk operations, so that later processes only load them."""
    from secure_bloom.kernels import bulk
    from secure_bloom.kernels.compiling import compiled
    from secure_bloom.parquet import footer_kernels
    bulk.warm_up()
    footer_kernels.warm_up()
    count, folder = compiled()
    if folder is None:
        shared.echo(f"{count} kernels compiled, but there is no folder to store them: set "
                    "NUMBA_CACHE_DIR to a writable folder", err=True)
    else:
        shared.echo(f"{count} kernels in {folder}")
