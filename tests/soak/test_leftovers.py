"""The check ``leftovers`` notices what it is there for."""

import re

import pytest

from secure_bloom import writer
from secure_bloom.arrow.views import filtered
from secure_bloom.datasets import lookup
from secure_bloom.erasing import leftover_search, rows, search
from secure_bloom.index import compaction
from tests.soak.runner import try_seed

_LEFT = re.compile(r"has \d+ values of other rows|segments are left")


def _as_they_are(table, *arguments):
    return table


def _no_vacuum(*arguments, **options):
    return []


def _none(*arguments):
    return []


@pytest.mark.slow
@pytest.mark.parametrize("disabled", [
    [(writer, "compact_dictionaries", _as_they_are)],
    [(rows, "compact_dictionaries", _as_they_are)],
    [(search, "erased_in_dictionaries", lambda *arguments: ([], 0))],
    [(leftover_search, "groups_with_removed", _none)],
    [(lookup, "filtered_rows", lambda batch, mask, _: filtered(batch, mask))],
    [(compaction, "vacuum", _no_vacuum)]], ids=[
    "files that are written", "rewritten row groups", "dictionaries of the column",
    "dictionaries of others", "find", "index"])
def test_the_check_fails_without(disabled, monkeypatch):
    for module, name, replacement in disabled:
        monkeypatch.setattr(module, name, replacement)
    errors = (failure["error"] for seed in range(30)
              for failure in try_seed("leftovers", seed).failures)
    assert any(_LEFT.search(error) for error in errors)
