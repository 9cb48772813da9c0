"""The output of the commands: plain dictionaries for JSON, and text for people."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from secure_bloom.auditing.result import NONE, NOT_PARQUET, TOTALS_HEADER, AuditResult, totals_row
from secure_bloom.cli.tables import SHOWN, and_more, by_message, list_files, render_table
from secure_bloom.display import count, names, shown, shown_path
from secure_bloom.errors import (
    NO_KEY,
    KeyAccessError,
    KeyRetrievalError,
    UnsupportedError,
    error_location,
)
from secure_bloom.findings import Finding
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.keys.operations.inventory import Inventory
from secure_bloom.keys.operations.rotation import RotationResult
from secure_bloom.maintain.folders import MaintainResult
from secure_bloom.parquet.bloom_filter import BloomFilterInfo, Disjoint, read_filter
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.verify.findings import FilterCheck, VerifyResult

if TYPE_CHECKING:
    from secure_bloom.erasing.result import EraseResult
    from secure_bloom.parquet.footer import Footer


def inspect_file(file: OpenFile) -> dict[str, Any]:
    """The encryption of a file, and the encryption and filters of each column."""
    footer, filters = file.footer, _filters_by_column(file)
    hidden = {column: "access denied" if isinstance(error, KeyAccessError) else "no key"
              for column, error in file.key_errors.items()}
    disjoint = Disjoint(footer.start)
    return {
        "file": file.name,
        "rows": file.num_rows,
        "row_groups": file.num_row_groups,
        "created_by": footer.created_by,
        "encryption": _encryption(footer),
        "columns": [_column(file, column, filters.get(column.ordinal, []),
                            hidden.get(column.path), disjoint) for column in file.columns],
    }


def _filters_by_column(file: OpenFile) -> dict[int, list[BloomFilterInfo]]:
    """Group filters by column ordinal, because several columns may have the same path."""
    filters: dict[int, list[BloomFilterInfo]] = defaultdict(list)
    infos = deque(file.bloom_filters)
    for chunk in file.footer.column_chunks():
        if not infos:
            break
        if (infos[0].row_group, infos[0].column) == (chunk.row_group, chunk.column.path) \
                and chunk.bloom_filter is not None:
            filters[chunk.column.ordinal].append(infos.popleft())
    return filters


def _encryption(footer: Footer) -> dict[str, Any] | None:
    algorithm = footer.algorithm
    if algorithm is None:
        return None
    return {
        "algorithm": algorithm.name,
        "footer": "encrypted" if footer.has_encrypted_footer else
                  "plaintext, signature verified" if footer.signature_verified else
                  "plaintext, signature not verified",
        "footer_key": _key_name(footer.footer_key_metadata),
        "aad_prefix": "stored" if algorithm.aad_prefix is not None else
                      "to be supplied" if algorithm.supply_aad_prefix else "none",
    }


def _key_name(key_metadata: bytes | None) -> str | None:
    """The master key that the key material names; None if there is no such material."""
    try:
        return None if key_metadata is None else KeyMaterial.parse(key_metadata).master_key_id
    except (KeyRetrievalError, UnsupportedError):
        return None


def _column(file: OpenFile, column: LeafColumn, filters: list[BloomFilterInfo],
            hidden: str | None, disjoint: Disjoint) -> dict[str, Any]:
    first = file.footer.row_groups[0][column.ordinal] if file.footer.row_groups else None
    sizes = [info.num_bytes for info in filters if info.num_bytes is not None]
    return {
        "column": column.path,
        "type": str(column.type.arrow_type or column.type.physical_type),
        "encryption": first.encryption if first else None,
        "key": _key_name(first.key_metadata) if first else None,
        "hidden": hidden,
        "filters": None if hidden else len(filters),
        "filters_encrypted": None if hidden else sum(info.encrypted for info in filters),
        "filter_bytes": None if hidden else sum(sizes),
        "expected_fpp": _expected_fpp(file, column, filters, disjoint),
    }


def _expected_fpp(file: OpenFile, column: LeafColumn, filters: list[BloomFilterInfo],
                  disjoint: Disjoint) -> float | None:
    """The mean expected rate over the filters that can be read."""
    values = []
    for info in filters:
        chunk = file.footer.row_groups[info.row_group][column.ordinal]
        try:
            with error_location(file=file.name):
                filter_ = read_filter(file, chunk, file.footer.start, disjoint)
            if filter_ is not None:
                values.append(filter_.expected_fpp())
        except (*NO_KEY, UnsupportedError):
            continue
    return float(np.mean(values)) if values else None


def render_inspection(result: dict[str, Any]) -> str:
    """The result of :func:`inspect_file` as text."""
    lines = [shown_path(result["file"]),
             f"  {count(result['rows'], 'row')} in {count(result['row_groups'], 'row group')}, "
             f"by {shown(result['created_by'] or 'an unknown writer')}"]
    encryption = result["encryption"]
    if encryption is None:
        lines.append("  not encrypted")
    else:
        key = f", key {shown(encryption['footer_key'])}" if encryption["footer_key"] else ""
        lines.append(f"  {encryption['algorithm']}, footer {encryption['footer']}{key}, "
                     f"AAD prefix {encryption['aad_prefix']}")
    rows = [[shown(column["column"]), column["type"], _protection(column), *_filter_cells(column)]
            for column in result["columns"]]
    return "\n".join([*lines, "", render_table(
        ["column", "type", "encryption", "Bloom filters", "bytes", "false positives"], rows)])


def inspection_line(result: dict[str, Any]) -> str:
    """The result of :func:`inspect_file` as one line, for many files."""
    columns = result["columns"]
    encrypted = [f"{column['column']} ({column['key']})" if column["key"] else column["column"]
                 for column in columns if column["encryption"] is not None]
    others = [column["column"] for column in columns if column["encryption"] is None]
    protection = f"encrypted: {names(encrypted)}; open: {names(others) or 'none'}" if encrypted \
        else "all columns open"
    filters = sum(column["filters"] or 0 for column in columns)
    unknown = ", others unknown: no key" if any(column["hidden"] for column in columns) else ""
    return (f"{shown_path(result['file'])}: {count(result['rows'], 'row')} in "
            f"{count(result['row_groups'], 'row group')}; {protection}; "
            f"{count(filters, 'Bloom filter')}{unknown}")


def _protection(column: dict[str, Any]) -> str:
    if column["encryption"] is None:
        return "open"
    return column["encryption"] + (f" {column['key']}" if column["key"] else "")


def _filter_cells(column: dict[str, Any]) -> list[str]:
    if not column["filters"]:
        return ["-" if column["filters"] == 0 else f"unknown: {column['hidden']}", "", ""]
    kind = "encrypted" if column["filters_encrypted"] else "plaintext"
    fpp = column["expected_fpp"]
    return [f"{column['filters']} {kind}", f"{column['filter_bytes']:,}",
            "?" if fpp is None else _rate([fpp])]


def probe_file(file: OpenFile, column: str, value: pa.Scalar) -> dict[str, Any]:
    """The places where a value may be. The result does not include the value itself."""
    answers = file.might_contain(column, value)[:, 0]
    with_filter = {info.row_group for info in file.bloom_filters if info.column == column}
    return {
        "file": file.name,
        "column": column,
        "may_contain": bool(answers.any()),
        "row_groups": [{"row_group": number, "may_contain": bool(answer),
                        "has_filter": number in with_filter}
                       for number, answer in enumerate(answers)],
    }


def probe_without_column(file: OpenFile, column: str) -> dict[str, Any]:
    """The same for a file without this column, among files that have it."""
    return {"file": file.name, "column": column, "has_column": False, "may_contain": False,
            "row_groups": []}


def render_probe(result: dict[str, Any]) -> str:
    """The result of :func:`probe_file` as text."""
    groups = result["row_groups"]
    candidates = [group["row_group"] for group in groups if group["may_contain"]]
    without = sum(not group["has_filter"] for group in groups)
    place = f"{shown_path(result['file'])}, column {shown(result['column'])}"
    if not candidates:
        return f"{place}: certainly absent ({count(len(groups), 'row group')} ruled out)"
    lines = [f"{place}: may be in {len(candidates):,} of {len(groups):,} row groups: "
             + ", ".join(map(str, candidates))]
    if without:
        lines.append(f"  no Bloom filter on this column in {count(without, 'row group')}")
    return "\n".join(lines)


def render_verification(result: VerifyResult) -> str:
    """The result of :func:`secure_bloom.verify_file` as text."""
    if result.not_checked is not None:
        return f"{shown_path(result.file)}\n  not checked: {result.not_checked}"
    columns: dict[str, list[FilterCheck]] = defaultdict(list)
    for check in result.filters:
        columns[check.column].append(check)
    lines = [shown_path(result.file)]
    if columns:
        rows = [_verified_row(column, checks) for column, checks in columns.items()]
        lines += ["", render_table(["column", "filters", "values checked", "false positives",
                                    "promised", "not checked"], rows), ""]
    elif not result.findings:
        lines.append("  no Bloom filters")
    lines.append(f"  {count(result.errors, 'error')}, {count(result.warnings, 'warning')}")
    found = [*(finding.text for finding in result.findings[:SHOWN]),
             *and_more(len(result.findings) - SHOWN, "findings: see --json")]
    return "\n".join([*lines, *(f"  {line}" for line in found)])


def _verified_row(column: str, checks: list[FilterCheck]) -> list[str]:
    """The table row for the filters of one column: sums, and the worst rate."""
    values = [check.values for check in checks if check.values is not None]
    measured = [check.measured_fpp for check in checks if check.measured_fpp is not None]
    promised = [check.promised_fpp for check in checks if check.promised_fpp is not None]
    reasons = [check.not_checked for check in checks if check.not_checked is not None]
    kinds = {check.encrypted for check in checks}
    kind = " encrypted" if kinds == {True} else " plaintext" if kinds == {False} else ""
    return [shown(column), f"{len(checks)}{kind}", f"{sum(values):,}" if values else "-",
            _rate(measured), _rate(promised),
            f"{len(reasons)}: {reasons[0]}" if reasons else ""]


def _rate(rates: list[float]) -> str:
    return "" if not rates else f"{max(rates):.2%}" if max(rates) >= 0.0001 else "< 0.01%"


# --- master keys ---------------------------------------------------------------------------------

def render_inventory(inventory: Inventory) -> str:
    """The master keys of a data set as a table, and what could not be determined."""
    lines = [f"{count(inventory.files, 'file')}, {inventory.plaintext} without encryption"]
    if inventory.master_keys:
        rows = [[use.name, str(use.files), use.wrapping, ", ".join(use.used_for)]
                for use in inventory.master_keys]
        lines.append(render_table(["master key", "files", "wrapping", "used for"], rows))
    if inventory.explicit:
        lines.append(f"{count(inventory.explicit, 'file')} with keys that are not from a KMS")
    if inventory.hidden:
        lines.append(f"{count(inventory.hidden, 'file')} with an encrypted footer, which may name "
                     "more master keys; pass the footer keys to see them")
    lines += by_message(inventory.failed.items())
    return "\n".join(lines)


def render_rotation(result: RotationResult, old: str) -> str:
    """What a rotation did, or would do in a dry run."""
    done = "would be rotated" if result.dry_run else "rotated"
    lines = [f"{count(len(result.rotated), 'file')} {done}, {result.unchanged} without the old "
             f"master key, {len(result.failed)} failed"]
    if result.master_keys and old not in result.master_keys:
        lines.append(f"no file uses the master key {old}; master keys found: "
                     f"{names(result.master_keys, SHOWN)}")
    lines += by_message(result.failed.items())
    return "\n".join(lines)


# --- filters of existing files -------------------------------------------------------------------

def render_changes(result: MaintainResult) -> str:
    """What attach, strip or seal did, or would do in a dry run."""
    will = "would be changed" if result.dry_run else "changed"
    lines = [f"{count(len(result.changed), 'file')} {will}, {result.unchanged} need no change, "
             f"{len(result.failed)} failed"]
    if result.changed:
        rows = [[change.file, names(change.columns, 8), str(change.built), str(change.removed),
                 f"{change.indexed:,}", "" if change.bytes is None else f"{change.bytes:,}"]
                for change in result.changed[:SHOWN]]
        lines.append(render_table(["file", "columns", "built", "removed", "indexed", "bytes"],
                                  rows))
        lines += and_more(len(result.changed) - SHOWN, "files: see --json")
    lines += by_message((change.file, note) for change in result.changed for note in change.notes)
    lines += by_message(result.failed.items())
    return "\n".join(lines)


def render_erasure(result: EraseResult) -> str:
    """The result of :func:`secure_bloom.erase` as text."""
    done = "would be erased" if result.dry_run else "erased"
    lines = [f"{count(result.rows_removed, 'row')} of {result.num_rows:,} {done}, in "
             f"{count(len(result.files), 'file')} of {result.num_files:,}"]
    if result.files:
        rows = [[one.file, f"{one.rows_before:,}", f"{one.rows_removed:,}"]
                for one in result.files[:SHOWN]]
        lines.append(render_table(["file", "rows", "erased"], rows))
        lines += and_more(len(result.files) - SHOWN, "files in --json or --report")
    missing = sum(not one.found for one in result.values)
    if missing:
        lines.append(f"not found: {missing:,} of {count(len(result.values), 'value')}")
    if result.dictionaries:
        written = "to write" if result.dry_run else "written"
        lines.append(f"{count(result.dictionaries, 'more row group')} {written} again: a "
                     "dictionary has values of these rows")
    if (absence := result.absence) is not None:
        by = ", ".join(f"{name.replace('_', ' ')} {number:,}"
                       for name, number in vars(absence.files).items() if number)
        lines.append(f"verified absent, files by: {by or 'none'}" if result.ok else
                     f"written meanwhile with these values: {absence.found}. Run it again")
    if result.indexes:
        lines.append(f"indexes brought up to date: {names(result.indexes)}")
    if result.summaries:
        removed = "to remove" if result.dry_run else "removed"
        lines.append(f"summary files {removed}: {names(result.summaries)}")
    return "\n".join([*lines, *(f"out of reach: {one}" for one in result.out_of_reach)])


def render_audit(result: AuditResult) -> str:
    """The result of :func:`secure_bloom.audit` as text."""
    more = "in --json or --html"
    lines, totals = [result.summary], result.totals()
    if len(result.files) > 1 and totals:
        lines.append(render_table(TOTALS_HEADER, map(totals_row, totals[:SHOWN])))
        lines += and_more(len(totals) - SHOWN, f"columns {more}")
    rows = _audit_rows(result)
    if shown_rows := list(islice(rows, SHOWN)):
        lines.append(render_table(["file", "column", "state", "filters", "bytes", "bits set",
                                   "false positives"], shown_rows))
    lines += and_more(sum(1 for _ in rows), f"columns of files {more}")
    lines += render_audit_findings(result.findings)
    for state, is_parquet in (("checked in", True), ("audited:", False)):
        unchecked = ((file.file, what) for file in result.files for what in file.not_checked
                     if (file.encryption != NOT_PARQUET) is is_parquet)
        lines += [f"not {state} {line}" for line in by_message(unchecked)]
    return "\n".join(lines)


def _audit_rows(result: AuditResult) -> Iterator[list[str]]:
    for file in result.files:
        for column in file.columns:
            if column.sensitive or column.state != NONE:
                yield [file.file, shown(column.column), column.state,
                       "?" if column.filters is None else str(column.filters),
                       "?" if column.bytes is None else f"{column.bytes:,}",
                       "" if column.fill is None else f"{column.fill:.0%}",
                       "" if column.fpp is None else _rate([column.fpp])]


def render_audit_findings(findings: list[Finding]) -> list[str]:
    """Group findings that are the same for several files, with the evidence of the first."""
    groups: dict[tuple[Any, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.kind, finding.column, finding.message, finding.remedy].append(finding)
    said = list(islice(groups.values(), SHOWN))
    return [*map(_audit_finding, said),
            *and_more(len(findings) - sum(map(len, said)), "findings: see --json or --html")]


def _audit_finding(group: list[Finding]) -> str:
    finding = group[0]
    where = list_files([finding.file for finding in group]) \
        + (f", column {shown(finding.column)}" if finding.column else "")
    groups = f" (row groups {', '.join(map(str, finding.row_groups[:8]))}" \
             f"{', ...' if len(finding.row_groups) > 8 else ''})" \
        if finding.row_groups and len(group) == 1 else ""
    evidence = "".join(f"\n    evidence from the file: {one}" for one in finding.evidence)
    return (f"{finding.severity} ({finding.kind}): {where}{groups}\n  {finding.message}{evidence}"
            f"\n  what to do: {finding.remedy}")
