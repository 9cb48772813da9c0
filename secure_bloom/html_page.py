"""Reports as a single HTML page, and its parts: no script, and no external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

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
p{margin:.3rem 0}code,td,dd{overflow-wrap:anywhere}
/* On a narrow screen, words stay whole, and the table scrolls. */
td{min-width:6rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.75rem 0;
font-size:.9rem}dd{margin:0}
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


def html_page(title: str, parts: Iterable[str], style: str = "") -> str:
    """Return a page that consists of these parts, which are HTML; empty ones are left out.

    ``style`` is CSS that this page needs besides what all pages have.
    """
    return ("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            "<meta name=\"viewport\" content=\"width=device-width\">"
            "<meta http-equiv=\"Content-Security-Policy\" "
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body>\n"
            + "\n".join(filter(None, parts)) + "\n</body></html>\n")


def verdict(state: str, text: str) -> str:
    """Return the sentence that matters most; ``state`` determines its colour."""
    return f"<p class=\"verdict {state}\" id=\"verdict\">{text}</p>"


def card(figure: str, text: str, state: str = "") -> str:
    """Return a figure with what it says, which is HTML."""
    mark = f" class=\"{state}\"" if state else ""
    return f"<div class=\"card\"><b{mark}>{escape(figure)}</b>{text}</div>"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], limit: int,
          what: str = "", name: str = "") -> str:
    """Return a table of texts with its title; no text without rows.

    At most ``limit`` rows are shown, and how many more there are of what.
    """
    cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows[:limit]]
    return table_of_cells(title, header, cells, name) + more(len(rows) - limit, what) \
        if rows else ""


def table_of_cells(title: str, header: Sequence[str], rows: Iterable[str], name: str = "") -> str:
    """Return a table whose rows are the HTML of their cells."""
    head = "".join(f"<th scope=\"col\">{escape(cell)}</th>" for cell in header)
    own = f" id=\"{name}\"" if name else ""
    return (f"<h2>{title}</h2><div class=\"scroll\"><table{own}><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table></div>")


def more(number: int, what: str = "") -> str:
    """Return how many more there are than are shown, if any."""
    return f"<p>And {number:,} more{what and ' '}{what}: see the JSON report.</p>" \
        if number > 0 else ""


def items(title: str, lines: Iterable[str], name: str = "") -> str:
    """Return a list with its title; its lines are HTML. No text without lines."""
    marks = "".join(f"<li>{line}</li>" for line in lines)
    own = f" id=\"{name}\"" if name else ""
    return f"<h2>{title}</h2><ul{own}>{marks}</ul>" if marks else ""
