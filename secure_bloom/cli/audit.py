"""The command ``audit``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO, TextIO

import click

from secure_bloom.cli.shared import (
    check_exit_code,
    echo,
    jobs_option,
    json_option,
    kms_options,
    lines_of,
    policy_option,
    progress,
)
from secure_bloom.cli.signing import Reports, sign_option

if TYPE_CHECKING:
    from secure_bloom.keys.kms import KmsClient


@click.command(short_help="Find what filters and metadata leak.")
@click.argument("path", type=click.Path())
@policy_option("What must be encrypted, such as: sensitive = [\"ssn\"].")
@kms_options
@click.option("--guesses", type=click.File(encoding="utf-8-sig"), metavar="FILE",
              help="Values to test against plaintext filters, one per line; - for standard input.")
@click.option("--scan", is_flag=True, help="Search every byte for plaintext filters that no "
                                           "footer references.")
@jobs_option
@json_option
@click.option("--sarif", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Also write the findings as SARIF 2.1.0.")
@click.option("--report", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Also write the result as JSON.")
@click.option("--html", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Also write an HTML page.")
@sign_option
@click.pass_context
def audit(ctx: click.Context, path: str, policy: str | None, kms: KmsClient | None,
          guesses: TextIO | None, scan: bool, jobs: int | None, as_json: bool, sarif: str | None,
          report: str | None, html: str | None, sign: BinaryIO | None) -> None:
    """Find what Bloom filters and metadata of a file or folder leak.

    Finds plaintext filters on encrypted columns; sensitive columns that are not encrypted;
    readable statistics of encrypted columns; filters that do not authenticate, or that readers
    reject; files that share a file id; indexes without encryption of sensitive columns; values of
    sensitive columns in the log of a Delta Lake or Iceberg table; columns that are encrypted in
    some files but not in others. Without keys, it sees what an attacker sees.

    Exit code 0: everything was checked and no errors were found (there may be warnings); 1: errors
    were found; 4: no errors were found, but not everything was checked because keys are missing,
    or live files of a table are not in the folder; 3: some files could not be read or are not
    Parquet files, or there are none; 2: other errors.
    """
    from secure_bloom.auditing.audit import audit
    from secure_bloom.auditing.page import render_page
    from secure_bloom.auditing.sarif import to_sarif
    from secure_bloom.cli.origin import facts, origin, read_policy, without_secrets
    from secure_bloom.cli.report import render_audit
    reports = Reports(sign, path, sarif, report, html)
    rules, digest = read_policy(policy)
    with progress("auditing", path) as advance:
        result = audit(path, kms, policy=rules, scan=scan, files_at_once=jobs,
                       guesses=() if guesses is None else lines_of(guesses), advance=advance)
    described = origin(ctx, digest)
    result.path = without_secrets(result.path)
    reports.write(sarif, lambda: json.dumps(to_sarif(result), indent=2))
    reports.write(report, lambda: "".join(result.json_parts(origin=described)))
    reports.write(html, lambda: render_page(result, facts(described)))
    if as_json:
        for part in result.json_parts(origin=described):
            click.echo(part, nl=False)
    else:
        echo(render_audit(result))
    out_of_reach = result.missing_keys or result.outside_files > 0
    ctx.exit(check_exit_code(result.ok, out_of_reach, result.complete))
