"""Run the examples of a page as they stand there, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path


def run_examples(text: str, folder: Path, **variables: str) -> list[subprocess.CompletedProcess]:
    """Run the blocks of shell and Python in a folder; each must succeed."""
    return [_run(language, code, folder, variables)
            for language, code in re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)]


def check_examples(text: str, folder: Path) -> None:
    """Run the blocks as above. What a block of text after one shows must be in its output."""
    num_shown = 0
    for language, code, shown in re.findall(
            r"```(sh|python)\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL):
        done = _run(language, code, folder, {})
        assert shown in done.stdout, f"{code}\n{done.stdout}\nis not\n{shown}"
        num_shown += bool(shown)
    assert num_shown


def _run(language: str, code: str, folder: Path,
         variables: dict[str, str]) -> subprocess.CompletedProcess:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "-euc", code] if language == "sh" else [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240,
                          env={**os.environ, "PATH": path, **variables})
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done
