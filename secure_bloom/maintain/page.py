"""An audit as one page of HTML, for people: no script, and nothing from elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from html import escape

from secure_bloom import __version__
from secure_bloom.maintain.audit_result import (
    KINDS,
    LEAKING,
    NONE,
    OPEN,
    PROTECTED,
    UNKNOWN,
    AuditFinding,
    AuditResult,
    ColumnAudit,
)

_MAX_FILES = 500  # rows of the table
_MAX_NAMES = 20  # files of a finding that are named
_STATES = {  # sign, word, what it means
    PROTECTED: ("✓", "protected", "encrypted, and so are its filters"),
    LEAKING: ("✗", "leaking", "sensitive, and something of it can be read"),
    UNKNOWN: ("?", "unknown", "encrypted with a key that was not at hand"),
    OPEN: ("○", "open", "not sensitive, with filters that everybody can read"),
    NONE: ("·", "none", "not sensitive, without filters"),
}
_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--paper:#fff;--soft:#f2f4f7;--line:#d5dae1;
--protected:#1b7a43;--leaking:#c22626;--unknown:#96690a;--open:#2f66b0;--none:#717a87}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--paper:#14181e;--soft:#1e242c;
--line:#39424e;--protected:#5ecb8b;--leaking:#ff7d7d;--unknown:#e8b84a;--open:#84b4f5;
--none:#929cab}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:2rem 1.25rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{margin:0;font-size:1.6rem}h2{margin:2.5rem 0 .75rem;font-size:1.2rem}
p{margin:.3rem 0}code,td,th{overflow-wrap:anywhere}
.verdict{margin:1.25rem 0;padding:1rem 1.25rem;border-left:.4rem solid;background:var(--soft);
font-size:1.15rem}
.cards{display:flex;flex-wrap:wrap;gap:.75rem}
.card{flex:1 1 8rem;padding:.75rem 1rem;background:var(--soft);border-radius:.4rem}
.card b{display:block;font-size:1.8rem;line-height:1.2}
.finding{margin:.75rem 0;padding:.75rem 1rem;border:1px solid var(--line);
border-left:.4rem solid;border-radius:.3rem}
.finding.error{border-left-color:var(--leaking)}.finding.warning{border-left-color:var(--unknown)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.3rem .6rem;border:1px solid var(--line);text-align:left}
td.state{text-align:center;font-weight:600;white-space:nowrap}
.protected{color:var(--protected)}.leaking{color:var(--leaking)}.unknown{color:var(--unknown)}
.open{color:var(--open)}.none{color:var(--none)}
svg text{fill:var(--ink);font:13px system-ui,sans-serif}
rect.protected{fill:var(--protected)}rect.leaking{fill:var(--leaking)}
rect.unknown{fill:var(--unknown)}rect.open{fill:var(--open)}rect.none{fill:var(--none)}
rect.track{fill:var(--soft)}
small{color:var(--none)}
"""


def render_page(result: AuditResult) -> str:
    """The page, complete with its style and pictures."""
    parts = [_head(result), _verdict(result), _cards(result), _findings(result), _table(result),
             _pictures(result), _not_checked(result)]
    return ("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            "<meta name=\"viewport\" content=\"width=device-width\">"
            "<meta http-equiv=\"Content-Security-Policy\" "
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            f"<title>Audit of {escape(result.path)}</title><style>{_STYLE}</style></head><body>\n"
            + "\n".join(filter(None, parts)) + "\n</body></html>\n")


def _head(result: AuditResult) -> str:
    return (f"<h1>Audit of Bloom filters</h1><p><code>{escape(result.path)}</code>, "
            f"{_count(len(result.files), 'file')}. <small>secure_bloom {__version__}</small></p>")


def _verdict(result: AuditResult) -> str:
    errors = sum(finding.severity == "error" for finding in result.findings)
    if errors:
        state, text = LEAKING, f"{_count(errors, 'error')} found: see below what to do. What a " \
            "leak has given away cannot be taken back."
    elif not result.complete:
        state, text = UNKNOWN, "No error was found, but not everything could be checked."
    else:
        state, text = PROTECTED, "No error was found, and everything was checked."
    return f"<p class=\"verdict {state}\" id=\"verdict\">{text}</p>"


def _cards(result: AuditResult) -> str:
    counts = Counter(column.state for file in result.files for column in file.columns)
    cards = (f"<div class=\"card\"><b class=\"{state}\">{counts[state]:,}</b>{sign} {word}"
             f"<br><small>{meaning}</small></div>"
             for state, (sign, word, meaning) in _STATES.items())
    return "<h2>Columns of files</h2><div class=\"cards\">" + "".join(cards) + "</div>"


# --- findings ------------------------------------------------------------------------------------

def _findings(result: AuditResult) -> str:
    """Those of several files with the same remedy are shown as one."""
    groups: dict[tuple, list[AuditFinding]] = defaultdict(list)
    for finding in result.findings:
        groups[finding.kind, finding.column, finding.remedy].append(finding)
    ordered = sorted(groups.values(), key=lambda group: group[0].severity != "error")
    return "<h2>Findings</h2>" + ("".join(map(_finding, ordered)) or "<p>None.</p>")


def _finding(group: list[AuditFinding]) -> str:
    first = group[0]
    column = f" <code>{escape(first.column)}</code>" if first.column else ""
    evidence = dict.fromkeys(one for finding in group[:_MAX_NAMES] for one in finding.evidence)
    names = [f"<code>{escape(finding.file)}</code>{_row_groups(finding)}"
             for finding in group[:_MAX_NAMES]]
    if len(group) > _MAX_NAMES:
        names.append(f"and {len(group) - _MAX_NAMES:,} more")
    shown = "".join(f"<li>{escape(one)}</li>" for one in evidence)
    messages = dict.fromkeys(_sentence(finding.message) for finding in group[:_MAX_NAMES])
    return (f"<div class=\"finding {first.severity}\" data-kind=\"{first.kind}\">"
            f"<b>{first.severity.capitalize()}: {escape(KINDS[first.kind][1])}</b>{column}"
            + "".join(f"<p>{escape(message)}</p>" for message in messages)
            + (f"<p>Shown by the file itself:</p><ul>{shown}</ul>" if shown else "")
            + f"<p><b>What to do:</b> {escape(_sentence(first.remedy))}</p>"
            f"<p><small>{', '.join(names)}</small></p></div>")


def _row_groups(finding: AuditFinding) -> str:
    return f" ({_count(len(finding.row_groups), 'row group')})" if finding.row_groups else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# --- files and columns ---------------------------------------------------------------------------

def _of_interest(result: AuditResult) -> list[str]:
    """Columns that are sensitive or have filters, in the order of the files."""
    return list(dict.fromkeys(column.column for file in result.files for column in file.columns
                              if column.sensitive or column.state != NONE))


def _table(result: AuditResult) -> str:
    names = _of_interest(result)
    if not names:
        return ""
    head = "".join(f"<th scope=\"col\">{escape(name)}</th>" for name in names)
    rows = []
    for file in result.files[:_MAX_FILES]:
        found = {column.column: column for column in file.columns}
        cells = "".join(_cell(found.get(name)) for name in names)
        rows.append(f"<tr><th scope=\"row\"><code>{escape(file.file)}</code><br>"
                    f"<small>{file.encryption}</small></th>{cells}</tr>")
    more = len(result.files) - _MAX_FILES
    note = f"<p>And {more:,} more files: see the JSON report.</p>" if more > 0 else ""
    return (f"<h2>Files and columns</h2><div class=\"scroll\"><table id=\"columns\"><thead><tr>"
            f"<th scope=\"col\">file</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
            f"</div>{note}")


def _cell(column: ColumnAudit | None) -> str:
    if column is None:
        return "<td class=\"state\"></td>"
    sign, word, _ = _STATES[column.state]
    filters = "" if not column.filters else f"<br><small>{_count(column.filters, 'filter')}</small>"
    return f"<td class=\"state {column.state}\">{sign} {word}{filters}</td>"


# --- pictures ------------------------------------------------------------------------------------

def _pictures(result: AuditResult) -> str:
    columns = [(name, [column for file in result.files for column in file.columns
                       if column.column == name and column.filters])
               for name in _of_interest(result)]
    columns = [(name, found) for name, found in columns if found]
    if not columns:
        return ""
    sizes = [(name, _worst(found), sum(column.bytes for column in found))
             for name, found in columns]
    fills = [(name, _worst(found), _mean([column.fill for column in found]))
             for name, found in columns]
    rates = [(name, _worst(found), _mean([column.fpp for column in found]))
             for name, found in columns]
    return ("<h2>Filters</h2>"
            + _bars("Bytes of filters", sizes, lambda value: f"{value:,}")
            + _bars("Bits that are set", fills, lambda value: f"{value:.0%}", 1.0)
            + _bars("Estimated false positives", rates, lambda value: f"{value:.2%}"))


def _worst(columns: list[ColumnAudit]) -> str:
    states = {column.state for column in columns}
    return next(state for state in (LEAKING, UNKNOWN, PROTECTED, OPEN, NONE) if state in states)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _bars(title: str, rows: list[tuple], text, top: float | None = None) -> str:
    """Horizontal bars; rows are name, state and value (None: not known)."""
    top = top or max((value or 0 for *_, value in rows), default=0) or 1
    height, left, width = 26, 220, 520
    marks = []
    for number, (name, state, value) in enumerate(rows):
        y = number * height + 4
        shown = "not known without its key" if value is None else text(value)
        label = name if len(name) <= 28 else f"{name[:27]}…"
        marks.append(f"<text x=\"{left - 8}\" y=\"{y + 14}\" text-anchor=\"end\">{escape(label)}"
                     f"</text><rect class=\"track\" x=\"{left}\" y=\"{y}\" width=\"{width}\" "
                     f"height=\"18\"></rect><rect class=\"{state}\" x=\"{left}\" y=\"{y}\" "
                     f"width=\"{width * (value or 0) / top:.1f}\" height=\"18\"></rect>"
                     f"<text x=\"{left + width + 8}\" y=\"{y + 14}\">{shown}</text>")
    box = f"0 0 {left + width + 190} {len(rows) * height + 8}"
    return (f"<h3>{title}</h3><div class=\"scroll\"><svg role=\"img\" aria-label=\"{title}\" "
            f"viewBox=\"{box}\" width=\"{left + width + 190}\">{''.join(marks)}</svg></div>")


def _not_checked(result: AuditResult) -> str:
    files: dict[str, list[str]] = defaultdict(list)
    for file in result.files:
        for what in file.not_checked:
            files[what].append(file.file)
    if not files:
        return ""
    rows = "".join(f"<li>{escape(what)} <small>({_count(len(names), 'file')}: "
                   f"{escape(', '.join(names[:3]) + (', ...' if len(names) > 3 else ''))})</small>"
                   "</li>" for what, names in files.items())
    return f"<h2>Not checked</h2><ul id=\"not-checked\">{rows}</ul>"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
