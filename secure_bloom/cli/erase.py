"""The command ``erase``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO, TextIO

import click

from secure_bloom.cli.shared import (
    BAD,
    given_values,
    index_option,
    jobs_option,
    json_option,
    kms_options,
    progress,
    reading_policy_option,
    show,
    values_options,
)
from secure_bloom.cli.signing import Reports, check_private, sign_option

if TYPE_CHECKING:
    from secure_bloom.index.planning import IndexUse
    from secure_bloom.keys.kms import KmsClient


@click.command(short_help="Erase the rows that have any of the given values.")
@click.argument("path", type=click.Path())
@click.option("--column", required=True, metavar="C",
              help="Dotted path of a leaf column. In lists, one such value is enough.")
@values_options
@click.option("--dry-run", is_flag=True, help="Only show what would be erased.")
@click.option("--yes", is_flag=True, help="Erase even more than 1% of all rows.")
@click.option("--report", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Also write the report as JSON.")
@click.option("--html", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Also write the report as an HTML page.")
@click.option("--hash-key", type=click.File("rb"), metavar="FILE",
              help="File with the key of the hashes that stand for values in reports: at least 16 "
                   "bytes, readable by its owner only. Default: a random key.")
@sign_option
@reading_policy_option
@index_option
@kms_options
@jobs_option
@json_option
@click.pass_context
def erase(ctx: click.Context, path: str, column: str, given: tuple[str, ...], file: TextIO | None,
          dry_run: bool, yes: bool, report: str | None, html: str | None,
          hash_key: BinaryIO | None, sign: BinaryIO | None, policy: str | None, index: IndexUse,
          kms: KmsClient | None, jobs: int | None, as_json: bool) -> None:
    """Erase all rows in which a column has any of the given values, and verify that they are gone.

    PATH is a file or a folder. Files without such rows are not touched; the others keep their
    encryption, keys, filters, order and metadata. A folder changes in one step. Its index is
    brought up to date. Reports show keyed hashes in place of values.

    Values are written as for find.

    Exit code 0: the rows are gone, or there were none; 1: rows with these values were written
    meanwhile, so run it again; 2: wrong usage, or more than 1% of the rows would be erased; 3: a
    file could not be read or written again, 4: a key is missing, 5: encrypted data does not
    authenticate: then nothing was erased.
    """
    from secure_bloom.cli.origin import facts, origin, read_policy, without_secrets
    from secure_bloom.cli.report import render_erasure
    from secure_bloom.erasing.erase import erase
    from secure_bloom.erasing.erasure import MAX_SHARE
    from secure_bloom.erasing.page import render_page
    from secure_bloom.erasing.search import parse_texts
    reports = Reports(sign, path, report, html)
    rules, digest = read_policy(policy)
    texts = given_values(given, file)
    values = parse_texts(path, column, texts, kms)
    if hash_key is not None:
        check_private(hash_key, "with this key test values against reports", "--hash-key")
    key = None if hash_key is None else hash_key.read()
    with progress("erasing from", path) as advance:
        result = erase(path, column, values, kms, policy=rules, dry_run=dry_run,
                       max_share=1 if yes else MAX_SHARE, hash_key=key, index=index,
                       files_at_once=jobs, advance=advance)
    described = origin(ctx, digest, texts)
    result.path = without_secrets(result.path)
    evidence = {"origin": described, **result.to_dict()}
    reports.write(report, lambda: json.dumps(evidence, indent=2))
    reports.write(html, lambda: render_page(result, facts(described)))
    show(as_json, evidence, lambda: render_erasure(result))
    ctx.exit(0 if dry_run or result.ok else BAD)
