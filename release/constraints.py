"""python -m release.constraints: write the versions in this environment to constraints.txt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATH = Path(__file__).parents[1] / "constraints.txt"
_HEAD = """\
# The versions of all packages with which the tests were run: CI and `make release` use them.
# `make constraints` writes the newest ones here, with Python 3.11; then run `make test`.
"""


def main() -> None:
    """Write the file."""
    frozen = subprocess.run([sys.executable, "-m", "pip", "freeze", "--exclude-editable", "--all",
                             "--exclude", "pip"],
                            check=True, capture_output=True, text=True).stdout
    PATH.write_text(_HEAD + frozen, encoding="utf-8")


if __name__ == "__main__":
    main()
