"""Filters beyond the memory limit are spilled to disk, sealed."""

import io
import tempfile

import numpy as np
import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.storage import spill
from secure_bloom.storage.spill import FilterStore


def _filter(seed):
    filter_ = SplitBlockBloomFilter(4)
    filter_.insert_hashes(np.random.default_rng(seed).integers(0, 2**64, 50, dtype=np.uint64))
    return filter_


@pytest.fixture
def files(monkeypatch):
    """The temporary files that are made, kept open for a look."""
    made = []

    class Kept(io.BytesIO):
        def close(self):
            pass

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: made.append(Kept()) or made[-1])
    return made


def test_filters_come_back_from_memory_and_from_disk(files):
    store = FilterStore(memory_limit=300)
    filters = [_filter(seed) for seed in range(6)]
    assert [store.put(filter_) for filter_ in filters] == list(range(6))
    assert len(files) == 1
    for number in (5, 0, 3, 3, 1):
        assert store.get(number) == filters[number]


def test_nothing_on_disk_is_plaintext(files):
    store = FilterStore(memory_limit=0)
    filters = [_filter(seed) for seed in range(3)]
    for filter_ in filters:
        store.put(filter_)
    raw = files[0].getvalue()
    assert len(raw) == 3 * (128 + 32)
    assert not any(bytes(filter_.bitset)[:16] in raw for filter_ in filters)


def test_a_file_is_the_same_whether_its_filters_were_spilled_or_not(tmp_path, monkeypatch, files):
    table = pa.table({"a": range(1000)})
    for name, limit in (("memory", 1 << 20), ("disk", 600)):
        monkeypatch.setattr(spill.FilterStore.__init__, "__defaults__", (limit,))
        secure_bloom.write_table(table, tmp_path / name, bloom_filters={"a": True},
                                 row_group_size=100)
    assert len(files) == 1
    assert (tmp_path / "memory").read_bytes() == (tmp_path / "disk").read_bytes()
