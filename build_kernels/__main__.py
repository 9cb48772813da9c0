"""python -m build_kernels [FOLDER]: compile the kernels, by default for the source tree."""

import sys
from pathlib import Path

from build_kernels.building import build, is_current
from secure_bloom.kernels.interface import BUILT

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else BUILT
if not is_current(folder):
    build(folder)
print(f"kernels: {folder}")
