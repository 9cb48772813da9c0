"""The report of an erasure as a single HTML page."""

from __future__ import annotations

from html import escape

from secure_bloom import __version__
from secure_bloom.display import count
from secure_bloom.erasing.result import Absence, EraseResult
from secure_bloom.html_page import html_page, items, table, verdict

_MOST = 1000  # rows of a table


def render_page(result: EraseResult, origin: str = "") -> str:
    """Render the complete page; ``origin`` is HTML that says where the report comes from."""
    files = [[one.file, one.new_file or "", f"{one.rows_before:,}", f"{one.rows_removed:,}",
              one.hmac_before or "", one.sha256_after or ""] for one in result.files]
    values = [[one.hash, f"{one.found:,}"] for one in result.values]
    return html_page(f"Erasure from {result.path}", [
        f"<h1>Erasure</h1><p><code>{escape(result.path)}</code>, column "
        f"<code>{escape(result.column)}</code>. <small>secure_bloom {__version__}</small></p>",
        origin,
        _verdict(result),
        "" if result.absence is None else _absence(result.absence),
        table("Files that were changed", ["file", "new file", "rows before", "rows removed",
                                          "HMAC-SHA-256 before", "SHA-256 after"], files, _MOST),
        table("Values", ["keyed hash (HMAC-SHA-256)", "found"], values, _MOST),
        items("Indexes that were brought up to date", map(escape, result.indexes)),
        items("Summary files that were removed",
              [] if result.dry_run else map(escape, result.summaries)),
        items("What is out of reach", map(escape, result.out_of_reach))])


def _verdict(result: EraseResult) -> str:
    rows = f"{count(result.rows_removed, 'row')} of {result.num_rows:,} in " \
        f"{count(len(result.files), 'file')} of {result.num_files:,}"
    if result.dry_run:
        state, text = "unknown", f"Nothing was changed: {rows} would be erased."
    elif result.ok:
        state, text = "protected", f"{rows} were erased. No row and no dictionary has one of the " \
            "values any more."
        if result.dictionaries:
            text += " Written again because of a dictionary: " \
                f"{count(result.dictionaries, 'more row group')}."
    else:
        state, text = "leaking", f"{rows} were erased, but there are new rows, or dictionaries, " \
            "with these values: run it again."
    return verdict(state, text)


def _absence(absence: Absence) -> str:
    rows = [[name.replace("_", " "), f"{number:,}", f"{getattr(absence.row_groups, name):,}"]
            for name, number in vars(absence.files).items()]
    return table("How absence was verified", ["by", "files", "row groups"], rows, _MOST)
