"""The report of an erasure as a single HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from secure_bloom import __version__
from secure_bloom.display import count
from secure_bloom.erasing.result import Absence, EraseResult
from secure_bloom.html_page import html_page

_MOST = 1000  # rows of a table


def render_page(result: EraseResult) -> str:
    """Render the complete page."""
    files = [[one.file, one.new_file or "", f"{one.rows_before:,}", f"{one.rows_removed:,}",
              one.hmac_before or "", one.sha256_after or ""] for one in result.files]
    values = [[one.hash, f"{one.found:,}"] for one in result.values]
    return html_page(f"Erasure from {result.path}", [
        f"<h1>Erasure</h1><p><code>{escape(result.path)}</code>, column "
        f"<code>{escape(result.column)}</code>. <small>secure_bloom {__version__}</small></p>",
        _verdict(result),
        "" if result.absence is None else _absence(result.absence),
        _table("Files that were changed", ["file", "new file", "rows before", "rows removed",
                                           "HMAC-SHA-256 before", "SHA-256 after"], files),
        _table("Values", ["keyed hash (HMAC-SHA-256)", "found"], values),
        _list("Indexes that were brought up to date", result.indexes),
        _list("Summary files that were removed", [] if result.dry_run else result.summaries),
        _list("What is out of reach", result.out_of_reach)])


def _verdict(result: EraseResult) -> str:
    rows = f"{count(result.rows_removed, 'row')} of {result.num_rows:,} in " \
        f"{count(len(result.files), 'file')} of {result.num_files:,}"
    if result.dry_run:
        state, text = "unknown", f"Nothing was changed: {rows} would be erased."
    elif result.is_complete:
        state, text = "protected", f"{rows} were erased. No row and no dictionary has one of the " \
            "values any more."
        if result.dictionaries:
            text += " Written again because of a dictionary: " \
                f"{count(result.dictionaries, 'more row group')}."
    else:
        state, text = "leaking", f"{rows} were erased, but there are new rows, or dictionaries, " \
            "with these values: run it again."
    return f"<p class=\"verdict {state}\" id=\"verdict\">{text}</p>"


def _absence(absence: Absence) -> str:
    rows = [[name.replace("_", " "), f"{number:,}", f"{getattr(absence.row_groups, name):,}"]
            for name, number in vars(absence.files).items()]
    return _table("How absence was verified", ["by", "files", "row groups"], rows)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th scope=\"col\">{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
                   for row in rows[:_MOST])
    more = len(rows) - _MOST
    return (f"<h2>{title}</h2><div class=\"scroll\"><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>"
            + (f"<p>And {more:,} more: see the JSON report.</p>" if more > 0 else ""))


def _list(title: str, items: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<h2>{title}</h2><ul>{lines}</ul>" if lines else ""
