"""The tour as a single HTML page with charts."""

from __future__ import annotations

from html import escape

from secure_bloom import __version__
from secure_bloom.cli.demo.story import Bar, Bars, Cells, Chapter, Code, Output, Part, Story, Text
from secure_bloom.html_page import card, html_page

_PER_LINE = 34  # cells
_CELL = 20

_STYLE = """
body{max-width:52rem}.cards{margin-top:1rem}
pre{margin:.75rem 0;padding:.75rem 1rem;overflow-x:auto;background:var(--soft);border-radius:.4rem;
font:.85rem/1.45 ui-monospace,monospace}
pre.output{background:none;border:1px solid var(--line)}
figure{margin:1rem 0}figcaption{margin-bottom:.4rem;font-weight:600}
figure svg{display:block;width:100%;height:auto}
figure svg.bar{height:1rem}
.label{display:flex;justify-content:space-between;margin-top:.5rem;font-size:.9rem}
figure rect.track{fill:var(--line)}
"""


def render_page(story: Story) -> str:
    """Render the complete page, with its style and charts."""
    return html_page("secure_bloom: a tour", [
        "<h1>Encrypted Bloom filters, on real data</h1><p>What <code>secure-bloom demo</code> has "
        f"done on this machine, with secure_bloom {escape(__version__)}.</p>",
        _cards(story), *map(_chapter, story.chapters), _times(story)], _STYLE)


def _cards(story: Story) -> str:
    cards = "".join(card(figure, escape(text))
                    for figure, text in (chapter.highlight for chapter in story.chapters
                                         if chapter.highlight is not None))
    return f"<div class=\"cards\">{cards}</div>"


def _chapter(chapter: Chapter) -> str:
    return f"<h2>{escape(chapter.title)}</h2>" + "".join(map(_part, chapter.parts))


def _part(part: Part) -> str:
    match part:
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Code(text):
            return f"<pre tabindex=\"0\">{escape(text)}</pre>"
        case Output(text):
            return f"<pre tabindex=\"0\" class=\"output\">{escape(text)}</pre>"
        case Cells():
            return _cells(part)
        case Bars(title, bars):
            return _figure(title, "".join(_bar(bar, part.top) for bar in bars))


def _cells(cells: Cells) -> str:
    marks = []
    for position in range(cells.number):
        line, column = divmod(position, _PER_LINE)
        state = "protected" if position in cells.used else "track"
        marks.append(f"<rect class=\"{state}\" x=\"{column * _CELL}\" y=\"{line * _CELL}\" "
                     f"width=\"{_CELL - 3}\" height=\"{_CELL - 3}\" rx=\"2\"/>")
    width = min(cells.number, _PER_LINE) * _CELL
    height = -(-cells.number // _PER_LINE) * _CELL
    return _figure(str(cells), f"<svg role=\"img\" aria-label=\"{escape(str(cells))}\" "
                   f"viewBox=\"0 0 {width} {height}\">{''.join(marks)}</svg>")


def _bar(bar: Bar, top: float) -> str:
    """A bar that fills the width of the page; its label is no part of the picture, to keep size."""
    name = escape(f"{bar.label}: {bar.text}")
    return (f"<div class=\"label\"><span>{escape(bar.label)}</span><b>{escape(bar.text)}</b></div>"
            f"<svg class=\"bar\" role=\"img\" aria-label=\"{name}\" viewBox=\"0 0 100 10\" "
            "preserveAspectRatio=\"none\"><rect class=\"track\" width=\"100\" height=\"10\"/>"
            f"<rect class=\"{bar.state}\" width=\"{100 * bar.value / top:.2f}\" height=\"10\"/>"
            "</svg>")


def _figure(title: str, picture: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{picture}</figure>"


def _times(story: Story) -> str:
    bars = Bars("Seconds", tuple(Bar(chapter.title, chapter.seconds, f"{chapter.seconds:.1f}",
                                     "open") for chapter in story.chapters))
    total = sum(chapter.seconds for chapter in story.chapters)
    return f"<h2>How long it took: {total:.0f} seconds</h2>" + _part(bars)
