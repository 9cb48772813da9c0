"""The picture of the README, from what the demo has told.

``python -m tests.cli.demo_picture`` runs the demo and draws it again.
"""

import tempfile
from html import escape
from pathlib import Path

from secure_bloom.cli.demo.story import Bar, Bars, Cells, Story
from secure_bloom.cli.demo.tour import run

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "demo.svg"
_WIDTH, _LEFT, _TOP = 760, 24, 40
_LABELS = 190  #: width of the labels of bars
_BARS = 430
_CELL = 20.9

_STYLE = """
:root{--ink:#1c2430;--paper:#fff;--line:#d5dae1;--track:#e7ebf0;--good:#1b7a43;--bad:#c22626;
--dim:#5b6572}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--paper:#14181e;--line:#39424e;
--track:#2a323c;--good:#5ecb8b;--bad:#ff7d7d;--dim:#a3adba}}
text{fill:var(--ink);font:15px system-ui,sans-serif}.head{font-weight:600;font-size:16px}
.dim{fill:var(--dim);font-size:14px}.paper{fill:var(--paper);stroke:var(--line)}
.track{fill:var(--track)}.protected{fill:var(--good)}.leaking{fill:var(--bad)}
.none{fill:var(--dim)}
"""


def picture(story: Story) -> str:
    """Draw a guess, a lookup, one by pages, and one with an index, on a background."""
    bars = [part for chapter in story.chapters for part in chapter.parts if isinstance(part, Bars)]
    cells = next(part for chapter in story.chapters for part in chapter.parts
                 if isinstance(part, Cells))
    pages, leak, _, index = bars
    marks = [_head(0, "An attacker without a key guesses", leak.title), *_bars(14, leak),
             _head(105, "Looking up one aircraft", str(cells)), *_cells(119, cells),
             _head(188, "The same in one large row group", pages.title), *_bars(202, pages),
             _head(293, "The same in one file for each day", index.title), *_bars(307, index)]
    height = _TOP + 377
    return (f"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {_WIDTH} {height}\" "
            f"width=\"{_WIDTH}\" height=\"{height}\"><style>{_STYLE}</style>\n"
            f"<rect class=\"paper\" x=\".5\" y=\".5\" width=\"{_WIDTH - 1}\" "
            f"height=\"{height - 1}\" rx=\"8\"/>\n" + "\n".join(marks) + "\n</svg>\n")


def _head(y: float, title: str, remark: str) -> str:
    return (f"<text x=\"{_LEFT}\" y=\"{_TOP + y}\"><tspan class=\"head\">{escape(title)}</tspan>"
            f"<tspan class=\"dim\" dx=\"12\">{escape(remark)}</tspan></text>")


def _bars(y: float, chart: Bars) -> list[str]:
    return [_bar(_TOP + y + 28 * number, bar, bar.value / chart.top)
            for number, bar in enumerate(chart.bars)]


def _bar(y: float, bar: Bar, share: float) -> str:
    left = _LEFT + _LABELS
    return (f"<text x=\"{_LEFT}\" y=\"{y + 15}\">{escape(bar.label)}</text>"
            f"<rect class=\"track\" x=\"{left}\" y=\"{y}\" width=\"{_BARS}\" height=\"20\" "
            f"rx=\"2\"/><rect class=\"{bar.state}\" x=\"{left}\" y=\"{y}\" "
            f"width=\"{_BARS * share:.1f}\" height=\"20\" rx=\"2\"/>"
            f"<text x=\"{left + _BARS + 10}\" y=\"{y + 15}\">{escape(bar.text)}</text>")


def _cells(y: float, cells: Cells) -> list[str]:
    return [f"<rect class=\"{'protected' if position in cells.used else 'track'}\" "
            f"x=\"{_LEFT + position * _CELL:.1f}\" y=\"{_TOP + y}\" width=\"{_CELL - 3:.1f}\" "
            "height=\"26\" rx=\"2\"/>" for position in range(cells.number)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(picture(run(Path(folder), with_spark=False)))
