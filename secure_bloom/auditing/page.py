"""An audit as a single HTML page: no script, and no external resources."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from html import escape
from itertools import islice
from typing import Any

from secure_bloom import __version__
from secure_bloom.auditing.result import (
    KINDS,
    LEAKING,
    NONE,
    OPEN,
    PROTECTED,
    TOTALS_HEADER,
    UNKNOWN,
    AuditResult,
    ColumnAudit,
    totals_row,
)
from secure_bloom.display import count, shown
from secure_bloom.findings import Finding
from secure_bloom.html_page import (
    card,
    html_page,
    items,
    more,
    table,
    table_of_cells,
    verdict,
)

_MAX_FILES = 500  # rows of the table
_MAX_COLUMNS = 50  # of the table, and bars of a chart
_MAX_TOTALS = 200
_MAX_FINDINGS = 200
_MAX_NAMES = 20  # files listed for a finding
_STATES = {  # symbol, label, meaning
    PROTECTED: ("✓", "protected", "encrypted, and so are its filters"),
    LEAKING: ("✗", "leaking", "sensitive, but part of it can be read"),
    UNKNOWN: ("?", "unknown", "encrypted with a key that was not available"),
    OPEN: ("○", "open", "not encrypted, with filters that anyone can read"),
    NONE: ("·", "none", "not encrypted, without filters"),
}


def render_page(result: AuditResult, origin: str = "") -> str:
    """Render the complete page, with its style and charts.

    ``origin`` is HTML that says where the report comes from.
    """
    columns = _of_interest(result)
    totals = table("Columns", TOTALS_HEADER, list(map(totals_row, result.totals())), _MAX_TOTALS,
                   "columns", "totals")
    parts = [_head(result), origin, _verdict(result), _cards(result), _findings(result), totals,
             _table(result, columns), _pictures(columns), _not_checked(result)]
    return html_page(f"Audit of {result.path}", parts)


def _head(result: AuditResult) -> str:
    audited = count(len(result.files) - result.not_audited_files, "file")
    return (f"<h1>Audit of Bloom filters</h1><p><code>{escape(result.path)}</code>, {audited}. "
            f"<small>secure_bloom {__version__}</small></p>")


def _verdict(result: AuditResult) -> str:
    none = f"No file is encrypted: {count(result.unencrypted_files, 'file')}. " \
        if result.lacks_encryption else ""
    if not result.ok:
        state, text = LEAKING, f"{none}{count(result.errors, 'error')} found: see below for " \
            "what to do. What has leaked cannot be taken back."
    elif none:
        state, text = UNKNOWN, f"{none}Everything in them can be read without a key. Use a " \
            "policy to specify which columns must be encrypted."
    elif not result.complete:
        state, text = UNKNOWN, "No errors were found, but not everything could be checked."
    else:
        state, text = PROTECTED, "No errors were found, and everything was checked."
    return verdict(state, text)


def _cards(result: AuditResult) -> str:
    counts = Counter(column.state for file in result.files for column in file.columns)
    unknown = result.unknown_files
    cards = (card("?" if unknown and not counts[state] else f"{counts[state]:,}",
                  f"{sign} {word}<br><small>{meaning}</small>", state)
             for state, (sign, word, meaning) in _STATES.items())
    not_counted = f"<p id=\"unknown\">The columns of {count(unknown, 'file')} are unknown, and " \
                  "not counted here: see below for the reasons.</p>" if unknown else ""
    return f"<h2>Columns by state</h2><div class=\"cards\">{''.join(cards)}</div>{not_counted}"


# --- findings ------------------------------------------------------------------------------------

def _findings(result: AuditResult) -> str:
    """Render the findings; those of several files with the same remedy are merged."""
    groups: dict[tuple[Any, ...], list[Finding]] = defaultdict(list)
    for finding in result.findings:
        groups[finding.kind, finding.column, finding.remedy].append(finding)
    ordered = sorted(groups.values(), key=lambda group: group[0].severity != "error")
    return "<h2>Findings</h2>" \
        + ("".join(map(_finding, ordered[:_MAX_FINDINGS])) or "<p>None.</p>") \
        + more(len(ordered) - _MAX_FINDINGS, "kinds of findings and columns")


def _finding(group: list[Finding]) -> str:
    first = group[0]
    column = f" <code>{escape(shown(first.column))}</code>" if first.column else ""
    evidence = dict.fromkeys(one for finding in group[:_MAX_NAMES] for one in finding.evidence)
    names = [f"<code>{escape(finding.file)}</code>{_row_groups(finding)}"
             for finding in group[:_MAX_NAMES]]
    if len(group) > _MAX_NAMES:
        names.append(f"and {len(group) - _MAX_NAMES:,} more")
    proofs = "".join(f"<li>{escape(one)}</li>" for one in evidence)
    messages = dict.fromkeys(_sentence(finding.message) for finding in group[:_MAX_NAMES])
    return (f"<div class=\"finding {first.severity}\" data-kind=\"{first.kind}\">"
            f"<b>{first.severity.capitalize()}: {escape(KINDS[first.kind][1])}</b>{column}"
            + "".join(f"<p>{escape(message)}</p>" for message in messages)
            + (f"<p>Evidence from the file:</p><ul>{proofs}</ul>" if proofs else "")
            + f"<p><b>What to do:</b> {escape(_sentence(first.remedy))}</p>"
            f"<p><small>{', '.join(names)}</small></p></div>")


def _row_groups(finding: Finding) -> str:
    return f" ({count(len(finding.row_groups), 'row group')})" if finding.row_groups else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# --- files and columns ---------------------------------------------------------------------------

def _of_interest(result: AuditResult) -> dict[str, _Filters]:
    """The columns that are sensitive or have filters, in the order of the files."""
    found: dict[str, _Filters] = {}
    for column in (column for file in result.files for column in file.columns):
        if column.sensitive or column.state != NONE:
            found.setdefault(column.column, _Filters()).add(column)
    return found


_UNKNOWN_CELL = f"<td class=\"state {UNKNOWN}\">{' '.join(_STATES[UNKNOWN][:2])}</td>"


def _table(result: AuditResult, columns: Iterable[str]) -> str:
    names = list(columns)
    if not names:
        return ""
    rows = []
    for file in result.files[:_MAX_FILES]:
        found = {column.column: column for column in file.columns}
        missing = _UNKNOWN_CELL if file.is_unknown else "<td class=\"state\"></td>"
        cells = "".join(_cell(found[name]) if name in found else missing
                        for name in names[:_MAX_COLUMNS])
        rows.append(f"<th scope=\"row\"><code>{escape(file.file)}</code><br>"
                    f"<small>{file.encryption}</small></th>{cells}")
    return table_of_cells("Files and columns", ["file", *map(shown, names[:_MAX_COLUMNS])], rows,
                          "columns") + more(len(result.files) - _MAX_FILES, "files") \
        + more(len(names) - _MAX_COLUMNS, "columns")


def _cell(column: ColumnAudit) -> str:
    sign, word, _ = _STATES[column.state]
    filters = "" if not column.filters else f"<br><small>{count(column.filters, 'filter')}</small>"
    return f"<td class=\"state {column.state}\">{sign} {word}{filters}</td>"


# --- charts --------------------------------------------------------------------------------------

class _Filters:
    """The filters of one column in all files."""

    def __init__(self) -> None:
        self._states: set[str] = set()
        self._figures: dict[str, list[float]] = {"fill": [0.0, 0], "fpp": [0.0, 0]}
        self._bytes = self.filters = 0
        self._some_are_hidden = False

    def add(self, column: ColumnAudit) -> None:
        self._some_are_hidden |= column.filters is None
        if column.filters == 0:
            return
        self._states.add(column.state)
        self.filters += column.filters or 0
        self._bytes += column.bytes or 0
        for name, sums in self._figures.items():
            value = getattr(column, name)
            if value is not None:
                sums[0] += value
                sums[1] += 1

    def mean(self, name: str) -> float | None:
        """The mean of a figure over the files in which it is known."""
        total, number = self._figures[name]
        return total / number if number else None

    @property
    def bytes(self) -> int | None:
        """The size of all filters that are not hidden; None if some are, and no other is known."""
        return None if self._some_are_hidden and not self.filters else self._bytes

    @property
    def may_exist(self) -> bool:
        """Whether the column has filters, or hidden metadata that may have some."""
        return self.filters > 0 or self._some_are_hidden

    @property
    def worst(self) -> str:
        return next(state for state in (LEAKING, UNKNOWN, PROTECTED, OPEN, NONE)
                    if state in self._states)


def _pictures(columns: dict[str, _Filters]) -> str:
    found = [(name, one) for name, one in columns.items() if one.may_exist]
    if not found:
        return ""
    others = more(len(found) - _MAX_COLUMNS, "columns")
    found = found[:_MAX_COLUMNS]
    sizes = [(name, one.worst, one.bytes) for name, one in found]
    fills = [(name, one.worst, one.mean("fill")) for name, one in found]
    rates = [(name, one.worst, one.mean("fpp")) for name, one in found]
    return ("<h2>Filters</h2>"
            + _bars("Bytes of filters", sizes, lambda value: f"{value:,}")
            + _bars("Bits set", fills, lambda value: f"{value:.0%}", 1.0)
            + _bars("Estimated false positives", rates, lambda value: f"{value:.2%}") + others)


def _bars(title: str, rows: list[tuple[Any, ...]], text: Callable[[Any], str],
          top: float | None = None) -> str:
    """Horizontal bars; rows are name, state and value (None: not known)."""
    top = top or max((value or 0 for *_, value in rows), default=0) or 1
    height, left, width = 26, 220, 520
    marks = []
    for number, (name, state, value) in enumerate(rows):
        y = number * height + 4
        figure = "unknown without its key" if value is None else text(value)
        label = shown(name, 28)
        marks.append(f"<text x=\"{left - 8}\" y=\"{y + 14}\" text-anchor=\"end\">{escape(label)}"
                     f"</text><rect class=\"track\" x=\"{left}\" y=\"{y}\" width=\"{width}\" "
                     f"height=\"18\"></rect><rect class=\"{state}\" x=\"{left}\" y=\"{y}\" "
                     f"width=\"{width * (value or 0) / top:.1f}\" height=\"18\"></rect>"
                     f"<text x=\"{left + width + 8}\" y=\"{y + 14}\">{figure}</text>")
    box = f"0 0 {left + width + 190} {len(rows) * height + 8}"
    return (f"<h3>{title}</h3><div class=\"scroll\"><svg role=\"img\" aria-label=\"{title}\" "
            f"viewBox=\"{box}\" width=\"{left + width + 190}\">{''.join(marks)}</svg></div>")


def _not_checked(result: AuditResult) -> str:
    files: dict[str, list[str]] = defaultdict(list)
    for file in result.files:
        for what in file.not_checked:
            files[what].append(file.file)
    lines = (f"{escape(what)} <small>({count(len(names), 'file')}: "
             f"{escape(', '.join(names[:3]) + (', ...' if len(names) > 3 else ''))})</small>"
             for what, names in islice(files.items(), _MAX_FINDINGS))
    return items("Not checked", lines, "not-checked") \
        + more(len(files) - _MAX_FINDINGS, "reasons")
