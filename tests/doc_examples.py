"""Run the examples of a page as they stand there, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path

#: blocks of shell and Python, each with the block of text right below it, if there is one
_BLOCK = re.compile(r"```(sh|python)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def run_examples(text: str, folder: Path, **variables: str) -> list[subprocess.CompletedProcess]:
    """Run the blocks of shell and Python in a folder; each must succeed."""
    return [run(language, code, folder, **variables)
            for language, code, _ in _BLOCK.findall(text)]


def check_outputs(text: str, folder: Path, **variables: str) -> None:
    """Run the blocks of shell and Python in a folder, and compare their standard output.

    It must be the block of text right below, or without such a block nothing. The path of the
    folder is ``…`` there; widths of tables, versions of programs and the last digits of large
    sizes, which depend on random keys, may differ.
    """
    shown = 0
    for language, code, output in _BLOCK.findall(text):
        printed = run(language, code, folder, **variables).stdout.replace(str(folder), "…")
        assert _comparable(printed) == _comparable(output), f"{code}\n{printed}"
        shown += bool(output)
    assert shown == len(re.findall(r"^```text$", text, re.MULTILINE)), "text without its example"


def _comparable(text: str) -> list[str]:
    text = re.sub(r"\b(\d\d),\d{3}\b", r"\1,…", re.sub(r"version \d[\w.]*", "version", text))
    lines = text.splitlines()
    return [re.sub(r"  +", "  ", re.sub("─+", "─", line)).rstrip() for line in lines]


def run(language: str, code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    """Run shell or Python as in an activated virtual environment; it must succeed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    command = ["bash", "-euc", code] if language == "sh" else [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240,
                          env=environment)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done
