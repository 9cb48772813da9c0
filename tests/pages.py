"""Tables in the docs, between ``<!-- name -->`` and ``<!-- end of name -->``."""

import re
from pathlib import Path


def put(page: Path, name: str, text: str) -> None:
    """Replace what is between the two marks, which the page must have exactly once."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    changed, count = re.subn(f"{begin}.*?{end}", lambda _: f"{begin}{text}\n{end}",
                             page.read_text(encoding="utf-8"), flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{page} has {count} places for {name}; it must have one")
    page.write_text(changed, encoding="utf-8")
