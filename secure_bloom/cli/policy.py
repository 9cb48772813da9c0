"""The commands ``policy check`` and ``policy explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from secure_bloom.cli.shared import (
    BAD,
    KEY,
    UNREADABLE,
    UNUSED_RULES,
    Command,
    FileOrUri,
    jobs_option,
    json_option,
    kms_options,
    progress,
    show,
)

if TYPE_CHECKING:
    from secure_bloom.auditing.compliance import FileCompliance
    from secure_bloom.keys.kms import KmsClient
    from secure_bloom.parquet.schema import LeafColumn
    from secure_bloom.policy import ColumnPolicy, Policy


@click.group()
def policy() -> None:
    """Check files against a policy, and say which of its rules applies to which column."""


def _at_option(command: Command) -> Command:
    return click.option("--at", metavar="PATH", help="Apply the rules of tables as for a file at "
                        "this path. Default: the path of the file itself.")(command)


_policy_argument = click.argument("policy_file", metavar="POLICY",
                                  type=FileOrUri(exists=True, dir_okay=False))


@policy.command(short_help="Say whether files or a schema meet a policy.")
@_policy_argument
@click.argument("path", type=click.Path())
@click.option("--schema", "is_schema", is_flag=True, help="Take only the schema of PATH, a Parquet "
              "file: check what would be written.")
@_at_option
@kms_options
@jobs_option
@json_option
@click.pass_context
def check(ctx: click.Context, policy_file: str, path: str, is_schema: bool, at: str | None,
          kms: KmsClient | None, jobs: int | None, as_json: bool) -> None:
    """Say whether PATH meets POLICY.

    PATH is a Parquet file, a folder of them, or a schema: a file in one of Arrow's IPC formats, or
    with --schema a Parquet file. Only the footers of files are read. A schema is
    checked for whether POLICY alone can encrypt a file with it.

    Exit code 0: everything meets the policy; 1: something does not; 4: not everything was checked,
    for lack of a key; 3: some files could not be read, or there are none; 6: rules of POLICY match
    no column of any file, so they may be misspelt; 2: POLICY is not valid, or other errors.
    """
    if is_schema or _is_arrow(path):
        _check_schema(ctx, policy_file, path, at, kms, as_json)
        return
    if at is not None:
        raise click.UsageError("--at is for schemas")
    from secure_bloom.auditing.compliance import check_files, to_dict
    from secure_bloom.policy import Policy
    from secure_bloom.policy.slips import RuleUsage
    from secure_bloom.storage.files import resolve
    rules, usage = Policy.read(policy_file), RuleUsage()
    with progress("checking", path) as advance:
        files = check_files(path, rules, kms, files_at_once=jobs, advance=advance, usage=usage)
    own_path = resolve(path)[1]
    is_one_file = [file.file for file in files] == [own_path]  # others have their own rules
    unused = usage.unused(rules.for_path(own_path) if is_one_file else rules)
    show(as_json, to_dict(path, files, unused),
         lambda: "\n".join([_render_files(files), *_render_transition(_until(rules)),
                            *_render_unused(unused)]))
    ctx.exit(_exit_code(files) or (UNUSED_RULES if unused else 0))


@policy.command(short_help="Say which rule applies to which column.")
@_policy_argument
@click.argument("file", type=click.Path())
@_at_option
@kms_options
@json_option
def explain(policy_file: str, file: str, at: str | None, kms: KmsClient | None,
            as_json: bool) -> None:
    """Say which rule of POLICY applies to each column, with which key and which filter.

    FILE is a Parquet file, or a schema in one of Arrow's IPC formats. It need not meet POLICY.
    """
    from secure_bloom.policy import Policy
    rules = Policy.read(policy_file)
    leaves, path = _schema_of(file, kms)
    rules = rules.for_path(path if at is None else at)
    result = _explained(rules, leaves)
    show(as_json, {"policy": policy_file, "file": file, **result},
         lambda: _render_explanation(result))


def _check_schema(ctx: click.Context, policy_file: str, path: str, at: str | None,
                  kms: KmsClient | None, as_json: bool) -> None:
    from secure_bloom.errors import PolicyError
    from secure_bloom.policy import Policy
    from secure_bloom.policy.slips import RuleUsage
    from secure_bloom.policy.writing import encryption_or_plaintext
    rules = Policy.read(policy_file)
    leaves, own_path = _schema_of(path, kms)
    rules = rules.for_path(own_path if at is None else at)
    result, error = _explained(rules, leaves), None  # raises if rules contradict each other
    usage = RuleUsage()
    usage.add(rules, leaves)
    unused = usage.unused(rules)
    try:
        encryption_or_plaintext(rules, leaves, plaintext=False)
    except PolicyError as found:
        error = str(found)
    show(as_json, {"path": path, "ok": error is None, "error": error, "unused_rules": unused,
                   **result},
         lambda: "\n".join([_render_explanation(result) if error is None else error,
                            *_render_unused(unused)]))
    ctx.exit(BAD if error is not None else UNUSED_RULES if unused else 0)


# --- schemas -------------------------------------------------------------------------------------

def _is_arrow(path: str) -> bool:
    """Whether this is a local file, and not a Parquet file."""
    from secure_bloom.parquet.tail import MAGICS
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) not in MAGICS


def _schema_of(path: str, kms: KmsClient | None) -> tuple[list[LeafColumn], str | None]:
    """Return the leaf columns of a file, and its path for the rules of tables."""
    if _is_arrow(path):
        from secure_bloom.arrow.schema import parquet_leaves
        from secure_bloom.storage.files import resolve
        return parquet_leaves(_arrow_schema(path)), resolve(path)[1]
    from secure_bloom.reading.open_file import OpenFile
    with OpenFile(path, kms) as file:
        return file.columns, file.path


def _arrow_schema(path: str) -> Any:
    import pyarrow as pa

    from secure_bloom.errors import FormatError
    try:
        with pa.OSFile(path) as file:
            is_file = file.read(6) == b"ARROW1"
            file.seek(0)
            return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(file).schema
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise FormatError("this is neither a Parquet file nor an Arrow schema", file=path) \
            from error


# --- results -------------------------------------------------------------------------------------

def _explained(rules: Policy, leaves: list[LeafColumn]) -> dict[str, Any]:
    columns = zip(leaves, rules.of_leaves(leaves), strict=True)
    return {"footer_key": rules.footer_key, "encrypted_footer": rules.encrypted_footer,
            "accept_plaintext_until": _until(rules),
            "columns": [_column(rules, leaf, column) for leaf, column in columns]}


def _until(rules: Policy) -> str | None:
    until = rules.accept_plaintext_until
    return None if until is None else until.isoformat()


def _column(rules: Policy, leaf: LeafColumn, column: ColumnPolicy) -> dict[str, Any]:
    from dataclasses import asdict
    options = column.bloom_filter
    return {"column": column.path, "encrypted": column.encrypted, "required_key": column.key,
            "key": (column.key or rules.footer_key) if column.encrypted else None,
            "rule": column.rule,
            "bloom_filter": asdict(options) if options else options,
            "filter_possible": leaf.type.can_have_filter, "filter_rule": column.filter_rule}


def _render_explanation(result: dict[str, Any]) -> str:
    from secure_bloom.cli.tables import render_table
    rows = [[column["column"], "yes" if column["encrypted"] else "no",
             column["key"] or ("any" if column["encrypted"] else ""), _filter(column),
             " and ".join(dict.fromkeys(filter(None, (column["rule"], column["filter_rule"]))))]
            for column in result["columns"]]
    footer = "must be encrypted" if result["encrypted_footer"] else "may be in plaintext"
    key = f", master key {result['footer_key']}" if result["footer_key"] is not None else ""
    return "\n".join([
        f"footer: {footer}{key}", *_render_transition(result["accept_plaintext_until"]),
        render_table(["column", "must be encrypted", "master key", "filter", "rule"], rows)])


def _render_transition(until: str | None) -> list[str]:
    return [] if until is None else [f"readers accept files without encryption until {until} (UTC)"]


def _filter(column: dict[str, Any]) -> str:
    options = column["bloom_filter"]
    if not options:
        return "" if options is None else "no"
    if not column["filter_possible"]:
        return "not possible"
    return ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)


def _render_files(files: list[FileCompliance]) -> str:
    from secure_bloom.cli.tables import by_message
    from secure_bloom.display import count, shown
    bad = sum(bool(file.violations) for file in files)
    unknown = sum(bool(file.not_checked) and not file.violations for file in files)
    lines = [f"{count(len(files), 'file')}: {len(files) - bad - unknown:,} meet the policy, "
             f"{bad:,} do not, {unknown:,} not fully checked"]
    lines += by_message((file.file, violation.message if violation.column is None
                         else f"column {shown(violation.column)}: {violation.message}")
                        for file in files for violation in file.violations)
    lines += [f"not checked in {line}" for line in by_message(
        (file.file, what) for file in files for what in file.not_checked)]
    return "\n".join(lines)


def _render_unused(unused: list[str]) -> list[str]:
    return [f"no column of any file matches {rule}" for rule in unused]


def _exit_code(files: list[FileCompliance]) -> int:
    if any(file.violations for file in files):
        return BAD
    if any(file.missing_keys for file in files):
        return KEY
    return UNREADABLE if not files or any(file.not_checked for file in files) else 0
