"""Run the examples of a page as they stand there, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path


def run_examples(text: str, folder: Path, **variables: str) -> list[subprocess.CompletedProcess]:
    """Run the blocks of shell and Python in a folder; each must succeed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    finished = []
    for language, code in re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL):
        command = ["bash", "-euc", code] if language == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240,
                              env=environment)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        finished.append(done)
    return finished
