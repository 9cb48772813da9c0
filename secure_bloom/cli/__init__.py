"""The command ``secure-bloom``.

Message rules: results go to standard output; errors and progress go to standard error, as
``secure-bloom: error: what happened and what to do``. With ``--json`` the result is one JSON
object. Keys are never passed on the command line, only in keyring files, and only
``keyring export`` prints one.

Exit codes: 0 success (probe, index find: may contain; find: rows found); 1 negative result (probe,
index find: certainly absent; find: no row found; validate: cases fail; verify, audit, policy check:
errors found; erase: such rows were written meanwhile; doctor: problems found); 2 wrong usage, or a
column, value or policy that does not fit; 3 a file cannot be read, is not valid Parquet, or changed
while it was read; 4 a key is missing or refused; 5 encrypted data does not authenticate: a wrong
key, or a modified file; 70 a bug in this program; 130 aborted.

If inspect, probe or find cannot read one of several files, they go on with the others, and exit
with the highest code of all errors.
"""

from __future__ import annotations

import click

from secure_bloom import __version__
from secure_bloom.cli import (
    audit,
    demo,
    doctor,
    erase,
    find,
    index,
    keyring,
    keys,
    lance,
    maintain,
    policy,
    read,
    shared,
    validate,
    verify,
    warmup,
    write,
)


@click.group(cls=shared.Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="secure-bloom")
def main() -> None:
    """Encrypted Bloom filters for encrypted Parquet files."""


for _command in (read.inspect, read.probe, find.find, index.index, verify.verify, write.write,
                 maintain.attach, maintain.strip, audit.audit, maintain.seal, erase.erase,
                 policy.policy, keyring.keyring, keys.keys, lance.lance, validate.validate,
                 demo.demo, doctor.doctor, warmup.warmup):
    main.add_command(_command)
