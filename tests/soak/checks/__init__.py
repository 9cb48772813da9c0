"""The checks, by name."""

from tests.soak.check import Check
from tests.soak.checks import (
    crashes,
    differential,
    erasing,
    false_negatives,
    false_positives,
    hostile_bytes,
    long_life,
    swaps,
    tampering,
)

CHECKS: dict[str, Check] = {check.name: check for check in (
    false_negatives.CHECK, false_positives.CHECK, tampering.CHECK, swaps.CHECK,
    hostile_bytes.CHECK, crashes.CHECK, erasing.CHECK, long_life.CHECK,
    differential.CHECK)}
