"""The commands ``encrypt``, ``reencrypt`` and ``decrypt``."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from secure_bloom.cli.encryption_options import (
    NO_KEYS,
    check_other_columns,
    configuration,
    encryption_options,
)
from secure_bloom.cli.shared import (
    Command,
    change_files,
    changing_command,
    names,
    policy_option,
    refuse_without_bloom,
    show,
)

if TYPE_CHECKING:
    from secure_bloom.auditing.result import AuditResult
    from secure_bloom.cli.encrypt_report import Done
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.reencryption.result import ReencryptResult

_SHARE = 0.9  # of the progress; the rest is for the audit
_EXIT = """

    Exit code 0: all files are as requested{audit}; 3: some files could not be changed, and were
    left as they were{leaks}; 2: wrong usage; 4, 5: other errors. If it was interrupted, run it
    again{again}.
    """


def _changes_files(*, audit: bool, again: str) -> Callable[[Command], click.Command]:
    exit_codes = _EXIT.format(audit=", and the audit found no error" if audit else "",
                              leaks=", or the audit found errors" if audit else "", again=again)
    return changing_command(
        exit_codes,
        click.option("--dry-run", is_flag=True,
                     help="Only show the plan: what would be done, how long it would take, and "
                          "how often the KMS would be called."),
        click.option("--keep-times", is_flag=True,
                     help="Give the new files the times of the old ones, to the millisecond. "
                          "Programs that notice a change by size and time may miss it."),
        click.option("--output", type=click.Path(), metavar="DIR",
                     help="Write the new files into this folder. The old files stay."))


@_changes_files(audit=True, again=" to process the remaining files")
@policy_option("It decides the encryption and filters of each file; other options may add to it.")
@encryption_options
@click.option("--bloom", metavar="col,col",
              help="Columns that get Bloom filters where they have none, besides those of the "
                   "policy.")
@click.option("--fpp", type=float, default=0.01, show_default=True,
              help="False-positive probability of the filters.")
def encrypt(ctx: click.Context, path: str, policy: str | None, footer_key: str | None,
            column_keys: tuple[str, ...], other_columns: str | None, plaintext_footer: bool,
            bloom: str | None, fpp: float, kms: KmsClient | None, **options: Any) -> None:
    """Encrypt an existing file, or all files of a folder.

    Every file becomes what --policy, or --footer-key and --column-key, say. Pages are not decoded;
    rows, order, row groups, compression, statistics and existing filters stay as they are. With
    --footer-key alone, the whole file is encrypted with that key. Each file is replaced in one step
    and keeps its name. Then PATH is audited."""
    from secure_bloom import BloomFilterOptions
    from secure_bloom.reencryption.operations import encrypt
    if not names(bloom):
        refuse_without_bloom(ctx, "fpp")
    check_other_columns(other_columns, column_keys)
    encryption = None
    if footer_key is not None:
        encryption = configuration(footer_key, column_keys, other_columns, plaintext_footer)
    elif column_keys or plaintext_footer:
        raise click.UsageError("--column-key and --plaintext-footer need --footer-key NAME")
    elif policy is None:
        raise click.UsageError("specify how the files are encrypted: --policy FILE; or "
                               "--footer-key NAME, and --column-key NAME:col,col")
    if kms is None:
        raise click.UsageError(NO_KEYS)
    filters = {column: BloomFilterOptions(fpp=fpp) for column in names(bloom)}
    _run(ctx, path, encrypt, kms, policy, audits=True, policy=policy, encryption=encryption,
         bloom_filters=filters or None, **options)


@_changes_files(audit=True, again=", with the same --journal: otherwise it starts over")
@policy_option("How each file is encrypted then.", has_default=False)
@click.option("--master-key", "replaced", metavar="OLD=NEW", multiple=True,
              help="Wrap the new data keys with NEW where the files name OLD; may be repeated. "
                   "Default: as now.")
@click.option("--journal", type=click.Path(dir_okay=False), metavar="FILE",
              help="Note in this local file, outside of PATH, which files are done, and skip them "
                   "when it is run again. Not for --output.")
def reencrypt(ctx: click.Context, path: str, policy: str | None, replaced: tuple[str, ...],
              journal: str | None, kms: KmsClient | None, **options: Any) -> None:
    """Encrypt encrypted files again, with new data keys, after a key has leaked.

    Without --master-key and --policy, the files keep their structure and master keys. `keys rotate`
    is quicker, but keeps the data keys. Plaintext files stay as they are. Then PATH is audited."""
    from secure_bloom.reencryption.operations import reencrypt
    master_keys = _replaced(replaced)
    if master_keys and policy is not None:
        raise click.UsageError("--master-key leaves everything else as it is; omit --policy, or "
                               "name the new master keys in the policy")
    if kms is None:
        raise click.UsageError(NO_KEYS)
    _run(ctx, path, reencrypt, kms, policy, audits=True, policy=policy,
         master_keys=master_keys or None, journal=journal, **options)


@_changes_files(audit=False, again=" to process the remaining files")
@click.option("--plaintext", is_flag=True,
              help="Required: everyone who can read the files can then read these data.")
@click.option("--column", "columns", multiple=True, metavar="NAME",
              help="Dotted path of a column, or of a group, that will be in plaintext; may be "
                   "repeated. The others get new data keys. Default: the whole file.")
def decrypt(ctx: click.Context, path: str, plaintext: bool, columns: tuple[str, ...],
            kms: KmsClient | None, **options: Any) -> None:
    """Turn an encrypted file, or all files of a folder, into plaintext."""
    from secure_bloom.reencryption.operations import decrypt
    if not plaintext and not options["dry_run"]:
        raise click.UsageError("everyone who can read the files could then read their data; to "
                               "decrypt them, specify --plaintext")
    _run(ctx, path, decrypt, kms, None, audits=False, plaintext=True, columns=columns or None,
         **options)


def _replaced(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise click.BadParameter("expected OLD=NEW, two names of master keys",
                                     param_hint="--master-key")
        if found.setdefault(old, new) != new:
            raise click.BadParameter(f"{old} is replaced twice", param_hint="--master-key")
    return found


def _run(ctx: click.Context, path: str, operation: Callable[..., ReencryptResult],
         kms: KmsClient | None, rules: str | None, *, audits: bool, dry_run: bool,
         jobs: int | None, as_json: bool, output: str | None, **options: Any) -> None:
    from secure_bloom.cli.encrypt_report import Done, render
    from secure_bloom.reencryption.estimate import estimate
    from secure_bloom.storage.files import resolve

    def show_done(shown: Done | ReencryptResult) -> None:
        done = shown if isinstance(shown, Done) else Done(shown)
        show(as_json, done.to_dict(path), lambda: render(done))

    def run(advance: Callable[[float], None]) -> Done:
        share, start = _SHARE if audits and not dry_run else 1, perf_counter()
        result = operation(path, kms, output=output, dry_run=dry_run, files_at_once=jobs,
                           advance=lambda fraction: advance(share * fraction), **options)
        if dry_run:
            planning = perf_counter() - start
            return Done(result, estimate(result, resolve(path)[0], planning, jobs))
        if not audits:
            return Done(result)
        audit = _audited(output or path, kms, rules, jobs, result,
                         lambda fraction: advance(share + (1 - share) * fraction))
        return Done(result, audit=audit)

    change_files(ctx, f"{ctx.info_name}ing", path, run, show_done)


def _audited(path: str, kms: KmsClient | None, rules: str | None, jobs: int | None,
             result: ReencryptResult, advance: Callable[[float], None]) -> AuditResult:
    from secure_bloom.auditing.audit import audit
    from secure_bloom.storage.many_files import result_on_error
    with result_on_error(lambda: result):  # the files are changed nevertheless
        return audit(path, kms, policy=rules, files_at_once=jobs, advance=advance)
