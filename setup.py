"""Builds the package with compiled kernels; everything else is in pyproject.toml."""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithKernels(build_py):
    """Copies the modules, and compiles the kernels for every CPU."""

    def run(self) -> None:
        super().run()
        target = ROOT if self.editable_mode else Path(self.build_lib).absolute()
        subprocess.run([sys.executable, "-m", "build_kernels",
                        str(target / "secure_bloom" / "kernels" / "built")], cwd=ROOT, check=True)


setup(cmdclass={"build_py": BuildWithKernels})
