"""The tour's leak: plaintext Bloom filters of an encrypted column, guessed, found and sealed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from secure_bloom import EncryptionConfiguration, SplitBlockBloomFilter, audit, seal
from secure_bloom.cli.demo.story import Bar, Bars, Code, Tour
from secure_bloom.errors import FormatError
from secure_bloom.examples.leaking_file import leaking_file
from secure_bloom.keys import NO_KEYS
from secure_bloom.parquet.header import decode_header
from secure_bloom.parquet.schema import find_column
from secure_bloom.reading.open_file import OpenFile

_ROW_GROUP_ROWS = 100_000


def make_and_find(tour: Tour) -> None:
    """Write a file that leaks; guess, audit and seal it."""
    story = tour.story
    path = tour.output / "leak.parquet"
    story.say("Some writers encrypt a column, but leave its Bloom filters in plaintext. This is "
              "such a file. An attacker without any key tries all tail numbers of five digits.")
    path.write_bytes(leaking_file(
        tour.flights, ["tailnum"], tour.keyring, row_group_size=_ROW_GROUP_ROWS,
        encryption=EncryptionConfiguration("footer", {"pii": ["tailnum"]}, plaintext_footer=True)))
    guesses = [f"N{number}" for number in range(10_000, 100_000)]
    before = _confirmed(path, guesses)
    true = len(set(before) & set(pc.unique(tour.flights["tailnum"]).to_pylist()))
    story.say(f"The filters confirm {len(before):,} of {len(guesses):,} guesses. {true:,} of them "
              "did fly, and the rest are false positives.")
    story.add(Code('audit("leak.parquet")\nseal("leak.parquet", keyring)'))
    [finding] = [one for one in audit(path).findings if one.kind == "leak"]
    story.say(f"The audit needs no key to find it. It says: {finding.message}. What it advises: "
              f"{finding.remedy}.")
    seal(path, tour.keyring)
    after, errors = _confirmed(path, guesses), audit(path, tour.keyring).findings
    story.add(Bars(f"Confirmed by the filters, of {len(guesses):,} guesses", (
        Bar("plaintext filters", len(before), f"{len(before):,}", "leaking"),
        Bar("sealed", len(after), f"{len(after):,}", "protected"))))
    story.say(f"A second audit, with the keys, reports {len(errors)} findings. What was copied "
              "before stays leaked.")
    story.highlight(f"{len(before):,} → {len(after):,}", "guesses confirmed before and after "
                    "sealing")


def _confirmed(path: Path, guesses: list[str]) -> list[str]:
    """The guesses that the plaintext filters of a file confirm, read without keys."""
    hits = np.zeros(len(guesses), bool)
    with OpenFile(path, NO_KEYS) as file:
        column = find_column(file.columns, "tailnum")
        for chunks in file.footer.row_groups:
            offset, length = chunks[column.ordinal].bloom_filter or (0, None)
            if length is None:
                continue
            data = file.read_at(length, offset)
            try:
                _, start = decode_header(data)
            except FormatError:  # it is encrypted
                continue
            hits |= SplitBlockBloomFilter.from_bitset(data[start:],
                                                      column_type=column.type).check(guesses)
    return [guess for guess, hit in zip(guesses, hits, strict=True) if hit]
