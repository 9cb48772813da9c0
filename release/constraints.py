"""python -m release.constraints: write the newest versions of all packages to constraints.txt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATH = ROOT / "constraints.txt"
_HEAD = """\
# The versions of all packages with which the tests were run: CI and `make release` use them.
# `make constraints` writes the newest ones here, with Python 3.11; then run `make test`.
"""


def main() -> None:
    """Let pip choose versions, without installing anything, and write the file."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")}
    report = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "install", "--dry-run", "--ignore-installed",
         "--no-build-isolation", "--report", "-", "--group", "release", f"{ROOT}[all,test]"],
        cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE).stdout
    chosen = [item["metadata"] for item in json.loads(report)["install"]
              if "dir_info" not in item["download_info"]]  # not this project
    lines = (f"{one['name']}=={one['version']}\n" for one in chosen)
    PATH.write_text(_HEAD + "".join(sorted(lines, key=str.lower)), encoding="utf-8")


if __name__ == "__main__":
    main()
