"""The tour's lake in plaintext: what the audit says of it before and after it is encrypted."""

from __future__ import annotations

import time

import pyarrow.parquet as pq

from secure_bloom import Policy, audit, encrypt, read_table
from secure_bloom.cli.demo.story import Bar, Bars, Code, Tour
from secure_bloom.display import count


def encrypt_and_audit(tour: Tour) -> None:
    """Write plaintext files as pyarrow does, encrypt them where they are, and audit them twice."""
    story = tour.story
    folder = tour.output / "flights-by-month"
    pq.write_to_dataset(tour.flights, folder, partition_cols=["month"], use_threads=False,
                        basename_template="flights-{i}.parquet",
                        existing_data_behavior="delete_matching")
    policy = Policy(footer_key="footer", encrypted_footer=True,
                    columns={"tailnum": {"key": "pii", "bloom_filter": True}})
    before = audit(folder, policy=policy).errors
    story.say("Most data is there already, in plaintext. A policy says what must be encrypted, and "
              f"the audit counts {before:,} errors in the files that pyarrow has written: one for "
              "each footer, and one for each column of tail numbers.")
    story.add(Code('encrypt("flights-by-month", keyring, policy="policy.toml")'))
    start = time.monotonic()
    done = encrypt(folder, tour.keyring, policy=policy, progress=False)
    seconds = time.monotonic() - start
    after = audit(folder, tour.keyring, policy=policy).errors
    story.say(f"{count(len(done.changed), 'file')} of {done.bytes / 1e6:.1f} MB were encrypted in "
              f"{seconds:.1f} s. Their pages stay as they are and are not decoded, except those of "
              "tail numbers, for their new Bloom filters.")
    story.add(Bars("Errors that the audit finds", (
        Bar("plaintext files", before, f"{before:,}", "leaking"),
        Bar("encrypted", after, f"{after:,}", "protected"))))
    story.highlight(f"{before:,} → {after:,}", "errors of the audit before and after the files "
                    "are encrypted")
    rows = read_table(folder, tour.keyring, columns=["flight"], policy=policy).num_rows
    if rows != tour.flights.num_rows:
        raise AssertionError(f"{rows} rows were read, but there are {tour.flights.num_rows}")
