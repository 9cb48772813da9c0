"""Builds the package with compiled kernels; everything else is in pyproject.toml."""

import re
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).parent
KEYS = ROOT / "secure_bloom" / "keys"  #: a link, which source distributions cannot hold


class BuildWithKernels(build_py):
    """Copies the modules, and compiles the kernels for every CPU."""

    def run(self) -> None:
        super().run()
        target = ROOT if self.editable_mode else Path(self.build_lib).absolute()
        subprocess.run([sys.executable, "-m", "build_kernels",
                        str(target / "secure_bloom" / "kernels" / "built")], cwd=ROOT, check=True)


class EditableSources(editable_wheel):
    """Puts the source tree on the path, where type checkers and editors find the package, too."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if not KEYS.exists():
            KEYS.symlink_to("../keys")
        self.package_dir = {"": "."}  # else setuptools writes a finder, which only Python can ask


def index_page(readme: str) -> str:
    """Return the README for a package index, where relative links and images lead nowhere.

    A link becomes its text and the path of the file in the source distribution.
    """
    def named(link: re.Match[str]) -> str:
        text, target = link.groups()
        return text if target in text or target.startswith("#") else f"{text} ({target})"

    without_images = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", readme)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)([^)]*)\)", named, without_images)


setup(cmdclass={"build_py": BuildWithKernels, "editable_wheel": EditableSources},
      long_description=index_page((ROOT / "README.md").read_text(encoding="utf-8")),
      long_description_content_type="text/markdown")
