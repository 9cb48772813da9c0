"""Commit records, which anyone who can write to the folder may have written."""

import json

import pytest

from secure_bloom.errors import FormatError
from secure_bloom.storage.commit_record import CommitRecord

GOOD = {"files": ["day=1/a.parquet"], "replaced": {"b.parquet": [3, 5]}, "stream": "q-1",
        "batch": 7, "folder": "day=1"}


def stored(**changed) -> bytes:
    return json.dumps({**json.loads(CommitRecord(**GOOD).to_bytes()), **changed}).encode()


def test_a_record_is_read_as_it_was_written():
    assert CommitRecord.from_bytes(stored()) == CommitRecord(**GOOD)


@pytest.mark.parametrize("changed", [
    {"version": 2}, {"files": {}}, {"replaced": []}, {"summary": []}, {"more": 1},
    {"files": ["../a.parquet"]}, {"replaced": {"/a.parquet": [3, 5]}}, {"files": [1]},
    {"replaced": {"a.parquet": [3]}}, {"replaced": {"a.parquet": "35"}},
    {"files": ["_staging/a.parquet"]}, {"replaced": {"day=1/.a.parquet": [3, 5]}},
    {"folder": ".."}, {"folder": "day"}, {"folder": 1}, {"stream": "a/b"}, {"stream": ""},
    {"batch": -1}, {"batch": 2**63}, {"batch": True}], ids=str)
def test_a_record_that_could_lead_elsewhere_is_refused(changed):
    with pytest.raises(FormatError, match="cannot be parsed"):
        CommitRecord.from_bytes(stored(**changed))
