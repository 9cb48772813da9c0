"""The command ``secure-bloom``.

Message rules: results go to standard output; errors and progress go to standard error, as
``secure-bloom: error: what happened and what to do``. With ``--json`` the result is one JSON
object. Keys are never passed on the command line, only in keyring files, and only
``keyring export`` prints one.

The table in the page "Command line" says what each exit code means. If inspect, probe or find
cannot read one of several files, they go on with the others, and exit with the highest code of all
errors.
"""

from __future__ import annotations

import os

import click

from secure_bloom import __version__
from secure_bloom.cli import (
    audit,
    demo,
    doctor,
    encrypt,
    erase,
    examples,
    find,
    index,
    keyring,
    keys,
    lance,
    maintain,
    policy,
    read,
    shared,
    signing,
    validate,
    verify,
    warmup,
    write,
)


@click.group(cls=shared.Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="secure-bloom")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Encrypted Bloom filters for encrypted Parquet files."""
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        ctx.color = False


for _command in (read.inspect, read.probe, find.find, index.index, verify.verify, write.write,
                 maintain.attach, maintain.strip, audit.audit, maintain.seal, encrypt.encrypt,
                 encrypt.reencrypt, encrypt.decrypt, erase.erase,
                 policy.policy, keyring.keyring, keys.keys, lance.lance, signing.report,
                 validate.validate, demo.demo, doctor.doctor, warmup.warmup):
    main.add_command(_command)
examples.add_examples(main)
