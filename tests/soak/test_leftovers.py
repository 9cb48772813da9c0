"""The check ``leftovers`` notices what it is there for."""

import re

import pytest

from secure_bloom.arrow import page_writer, views
from secure_bloom.arrow.views import filtered
from secure_bloom.datasets import searched_rows as finding
from secure_bloom.erasing import erasure, leftover_search, leftovers, rows, search, summaries
from secure_bloom.index import compaction
from secure_bloom.parquet import thrift
from tests.soak.runner import try_seed

_LEFT = re.compile(r"has \d+ values of other rows|segments are left|"
                   "does not have values of other rows in metadata")


_SEARCHED = leftovers.columns_to_search


def _as_they_are(table, *arguments):
    return table


def _no_vacuum(*arguments, **options):
    return []


def _none(*arguments):
    return []


def _of_trusted_writers(file):
    return [] if file.footer.created_by.startswith("parquet-mr") else _SEARCHED(file)


@pytest.mark.sweep
@pytest.mark.parametrize("disabled", [
    [(page_writer, "compact_dictionaries", _as_they_are)],
    [(rows, "compact_dictionaries", _as_they_are)],
    [(search, "erased_in_dictionaries", lambda *arguments: ([], 0))],
    [(leftover_search, "groups_with_removed", _none)],
    [(finding, "filtered_rows", lambda batch, mask, _: filtered(batch, mask))],
    [(compaction, "vacuum", _no_vacuum)],
    [(erasure, "remove_summaries", lambda *arguments: summaries.Summaries([], []))],
    [(thrift, "without_extensions", bytes)],
    [(leftovers, "columns_to_search", _of_trusted_writers)],
    [(views, "_gathered", lambda array: (array, [array.values]))],
    [(search, "metadata_with_values", lambda schema: set())]], ids=[
    "files that are written", "rewritten row groups", "dictionaries of the column",
    "dictionaries of others", "find", "index", "summaries", "extensions", "false writers",
    "list views", "metadata"])
def test_the_check_fails_without(disabled, monkeypatch):
    for module, name, replacement in disabled:
        monkeypatch.setattr(module, name, replacement)
    errors = (failure["error"] for seed in range(100)
              for failure in try_seed("leftovers", seed).failures)
    assert any(_LEFT.search(error) for error in errors)
