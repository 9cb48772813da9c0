"""The examples of docs/maintain.md run as they stand there, in their order."""

import re
import subprocess
from pathlib import Path

import pytest

from secure_bloom import ParquetFile
from secure_bloom.auditing.result import KINDS
from secure_bloom.keys import Keyring
from tests.doc_examples import run_examples

TEXT = (Path(__file__).parent.parent.parent / "docs" / "maintain.md").read_text()


@pytest.mark.sweep
def test_examples(tmp_path):
    finished = run_examples(TEXT, tmp_path)
    outputs = [done.stdout for done in finished]
    _, guessed, before, after, probed, attached, *_ = outputs
    assert guessed.strip() in TEXT and guessed.startswith("633 of 90000")
    shown = [line.strip() for line in before.splitlines() if "evidence from" in line]
    assert len(shown) == 2 and all(line in TEXT for line in shown)
    assert "0 errors, 0 warnings" in after and "may be in" in probed
    assert "origin" in attached and "('flight', 'dest') 8 8\n" in outputs
    assert (tmp_path / "leak" / "before.html").read_text().startswith("<!doctype html>")

    again = subprocess.run(finished[1].args, cwd=tmp_path, capture_output=True,  # the guessing
                           text=True)
    assert again.returncode and "FormatError" in again.stderr
    with ParquetFile(tmp_path / "leak/flights/2013.parquet",
                     Keyring(tmp_path / "leak/keyring.json")) as file:
        assert {info.column for info in file.bloom_filters} == {"tailnum", "flight", "dest"}
        real = set(file.read(["tailnum"]).slice(0, 100_000)["tailnum"].to_pylist())
    guesses = {f"N{number}" for number in range(10_000, 100_000)}
    assert f"all {len(real & guesses)} such aircraft" in TEXT


def test_every_finding_is_explained():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (error|warning|note) \|", TEXT, re.MULTILINE))
    assert rows == {kind: severity for kind, (severity, _) in KINDS.items()}
