"""``python -m secure_bloom``: the command ``secure-bloom``."""

from secure_bloom.cli import main

main(prog_name="secure-bloom")
