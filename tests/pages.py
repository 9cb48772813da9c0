"""Tables in the docs, between ``<!-- name -->`` and ``<!-- end of name -->``."""

from pathlib import Path


def put(page: Path, name: str, text: str) -> None:
    """Replace what is between the two marks."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{before}{begin}{text}{end}{rest.split(end)[1]}", encoding="utf-8")
