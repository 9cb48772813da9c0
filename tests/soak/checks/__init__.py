"""The checks, by name."""

from tests.soak.check import Check
from tests.soak.checks import (
    adversary,
    concurrency,
    crashes,
    differential,
    erasing,
    false_negatives,
    false_positives,
    guided,
    hostile_bytes,
    leftovers,
    long_life,
    nonces,
    pages,
    reencrypt,
    secrets,
    spark_conditions,
    spark_false_negatives,
    spark_secrets,
    storage_faults,
    swaps,
    tampering,
)

CHECKS: dict[str, Check] = {check.name: check for check in (
    false_negatives.CHECK, false_positives.CHECK, tampering.CHECK, swaps.CHECK,
    hostile_bytes.CHECK, crashes.CHECK, erasing.CHECK, long_life.CHECK,
    differential.CHECK, concurrency.CHECK, storage_faults.CHECK, nonces.CHECK, secrets.CHECK,
    guided.CHECK, adversary.CHECK, leftovers.CHECK, pages.CHECK,
    reencrypt.CHECK,
    spark_false_negatives.CHECK, spark_secrets.CHECK, spark_conditions.CHECK)}
