"""python -m tests.soak.guided KIND RUNS SEED FOLDER: inputs that coverage guides.

atheris observes which branches of the package an input reaches, and goes on changing those that
reach new ones. The process ends with an error if a reader raises what it must not, takes too long
or too much memory. The folder must be empty; it gets the inputs that reached something new.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import atheris

os.environ["SECURE_BLOOM_KERNELS"] = "numpy"  # footers are then read by Python, which is observed
with atheris.instrument_imports(include=["secure_bloom", "tomllib"], enable_loader_override=False):
    from tests.soak.check import Case
    from tests.soak.generators import small_file
    from tests.soak.hostile_inputs import in_memory

_SECONDS, _MEMORY = 20, 2048  # of one input, and MiB of the process


def main() -> None:
    """Try inputs of one kind; libFuzzer ends the process."""
    kind, runs, seed, folder = sys.argv[1:]
    data, _, _ = small_file(Case.of("guided", int(seed), Path(folder), 0))
    one = in_memory(data)[kind]
    Path(folder, "valid").write_bytes(one.valid)

    def read(hostile: bytes) -> None:
        with contextlib.suppress(*one.errors):
            one.read(hostile)

    atheris.Setup([sys.argv[0], f"-runs={runs}", f"-seed={seed}", f"-timeout={_SECONDS}",
                   f"-rss_limit_mb={_MEMORY}", f"-artifact_prefix={folder}/", "-verbosity=0",
                   folder], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
