"""Segments hold every value that was added, whatever the budget; merged ones answer as built."""

import errno
import functools
import itertools
import os
import tempfile
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.errors import ColumnError
from secure_bloom.index import Index, build, pair_store, segment, segment_writer
from secure_bloom.index.building import SegmentBuilder
from secure_bloom.index.geometry import CACHED_PAIRS, place_of, sorted_pairs
from secure_bloom.index.merging import merge
from secure_bloom.index.pair_store import PairStore, slice_bits_for
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.update import update_indexes
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.row_ranges import ALL_ROWS, NUM_PARTS, RANGE_BITS
from tests.index.helpers import (
    INT64,
    KMS,
    LOCAL,
    age,
    build_segment,
    entry,
    expected,
    find,
    open_segment,
    random_groups,
    write,
)
from tests.support import examples

KEY = IndexKey(b"k" * 32, b"i" * 16)
BUDGETS = [1, 3000, 2**24]


def keep_all(segment_, file):
    return segment_.files.entry(file)


@examples(40)
@given(st.integers(0, 2**32), st.sampled_from(BUDGETS), st.sampled_from([0, 3, 40, 3000]),
       st.sampled_from([1, 200, 10**6]))
def test_exactly_the_values_that_were_added_are_found(seed, budget, values, distinct):
    groups = [*random_groups(seed, 4, values, distinct), [[]]]
    with tempfile.TemporaryDirectory() as folder:
        built = build_segment(folder, KEY, groups, budget=budget)
        stored = {int(one) for of_file in groups for group in of_file for one in group}
        hashes = [*sorted(stored)[:50], 12345]
        assert find(built, KEY, hashes) == expected(groups, hashes)
        assert built.pairs == sum(len(set(map(int, group))) for of in groups for group in of)


@examples(20)
@given(st.integers(0, 2**32), st.sampled_from(BUDGETS))
def test_segments_merged_one_by_one_answer_as_one_built_at_once(seed, budget):
    groups = [*random_groups(seed, 2, 3, 50), *random_groups(seed + 1, 3, 2000, 10**6), [[seed]]]
    with tempfile.TemporaryDirectory() as folder:
        parts = [build_segment(folder, KEY, [one], first_file=number)
                 for number, one in enumerate(groups)]
        merged = parts[0]
        for part in parts[1:]:
            info = merge(LOCAL, folder, KEY, [merged, part], keep_all, budget)
            merged = open_segment(folder, KEY, info)
        at_once = build_segment(folder, KEY, groups, budget=budget)
        assert decoded(merged) == decoded(at_once)
        assert merged.files.rows.paths == at_once.files.rows.paths
        assert merged.files.first_group.tolist() == at_once.files.first_group.tolist()


def decoded(segment_):
    parts = segment_.decode(0, segment_.geometry.num_pages)
    return sorted(pair for one in parts
                  for pair in zip(*(part.tolist() for part in one), strict=True))


@pytest.mark.parametrize("budget", [1, 2**20])
def test_a_small_segment_merges_with_a_large_one(tmp_path, budget):
    source = np.random.default_rng(5)
    large = [[source.integers(0, 2**64, 20_000, np.uint64)] for _ in range(3)]
    small = [[np.array([7, 8, int(large[1][0][0])], np.uint64)]]
    parts = [build_segment(tmp_path, KEY, small, first_file=3),
             build_segment(tmp_path, KEY, large)]
    assert parts[1].geometry.num_pages > parts[0].geometry.num_pages == 1
    merged = open_segment(tmp_path, KEY, merge(LOCAL, str(tmp_path), KEY, parts, keep_all, budget))
    hashes = [7, 8, 9, *(int(one) for of in large for one in of[0][:100])]
    assert find(merged, KEY, hashes) == expected([*large, *small], hashes)


def test_dropped_files_leave_nothing(tmp_path):
    groups = [[[1, 2], [3]], [[1, 4]], [[2]]]
    built = build_segment(tmp_path, KEY, groups)
    info = merge(LOCAL, str(tmp_path), KEY, [built],
                 lambda one, file: None if file == 0 else one.files.entry(file))
    merged = open_segment(tmp_path, KEY, info)
    assert info.pairs == merged.pairs == 3 and info.files == info.row_groups == 2
    assert find(merged, KEY, [1, 2, 3, 4]) == {
        (0, entry(1, 0).path, 0), (1, entry(2, 0).path, 0), (3, entry(1, 0).path, 0)}


@pytest.mark.slow
def test_one_value_in_131072_row_groups(tmp_path):
    builder = SegmentBuilder(KEY, INT64, 2**20)
    added = builder.add_file(entry(0, 131_072))
    fingerprint_of = np.array([42], np.uint64)
    for group in range(131_072):
        added.add(group, fingerprint_of)
    built = open_segment(tmp_path, KEY, builder.write(LOCAL, str(tmp_path)))
    builder.close()
    found = find(built, KEY, [42, 43])
    assert len(found) == 131_072 == built.files.num_row_groups
    assert {group for _, _, group in found} == set(range(131_072))


@pytest.mark.slow
def test_200_distinct_values_in_many_row_groups(tmp_path):
    values = np.arange(200, dtype=np.uint64)
    groups = [[values] for _ in range(500)]
    built = build_segment(tmp_path, KEY, groups, budget=2**16)
    assert find(built, KEY, [0, 199]) == expected(groups, [0, 199])
    assert find(built, KEY, [200, 2**64 - 1]) == set()


def test_a_directory_in_several_parts_is_read_in_parts(tmp_path, monkeypatch):
    for module in (segment, segment_writer):
        monkeypatch.setattr(module, "DIRECTORY_PART", 2)
    monkeypatch.setattr(segment_writer, "_TAIL", 40)
    source = np.random.default_rng(6)
    groups = [[source.integers(0, 2**64, 60_000, np.uint64)]]
    built = build_segment(tmp_path, KEY, groups)
    assert built.geometry.num_pages == 8 and not built._parts
    hashes = [int(one) for one in groups[0][0][:200]]
    assert find(built, KEY, hashes) == expected(groups, hashes)
    assert len(decoded(built)) == built.pairs
    assert len(built._parts) == 4


def test_many_threads_add_to_one_builder(tmp_path):
    builder = SegmentBuilder(KEY, INT64, 5000)
    source = np.random.default_rng(7)
    groups = [[source.integers(0, 2**64, 500, np.uint64)] for _ in range(16)]
    added = [builder.add_file(entry(number, 1)) for number in range(16)]
    threads = [threading.Thread(target=one.add, args=(0, group))
               for one, [group] in zip(added, groups, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    built = open_segment(tmp_path, KEY, builder.write(LOCAL, str(tmp_path)))
    hashes = [int(group[0]) for [group] in groups]
    assert find(built, KEY, hashes) == expected(groups, hashes)


def test_what_is_spilled_has_no_unkeyed_hash(tmp_path, monkeypatch):
    spilled = []
    original = tempfile.TemporaryFile

    def opened(**options):
        spilled.append(original(**options))
        return spilled[-1]

    monkeypatch.setattr(pair_store.tempfile, "TemporaryFile", opened)
    source = np.random.default_rng(8)
    hashes = source.integers(0, 2**64, 2000, np.uint64)
    builder = SegmentBuilder(KEY, INT64, 1)
    builder.add_file(entry(0, 1)).add(0, hashes)
    [file] = spilled
    content = os.pread(file.fileno(), 10**6, 0)
    assert len(content) == 8 * 2000
    # Row group 0: only the first 38 bits are of a hash, so those are compared.
    stored = set((np.frombuffer(content, np.uint64) >> np.uint64(26)).tolist())
    assert stored == set((KEY.fingerprints(hashes) >> np.uint64(26)).tolist())
    assert not stored & set((hashes >> np.uint64(26)).tolist())
    builder.close()
    assert file.closed


def test_fingerprints_depend_on_the_key_and_on_all_bits_of_a_hash():
    hashes = np.array([0, *(1 << bit for bit in range(64))], np.uint64)
    others = IndexKey(b"l" * 32, b"i" * 16), IndexKey(b"k" * 32, b"j" * 16)
    found = [key.fingerprints(hashes).tolist() for key in (KEY, *others)]
    assert len(set(itertools.chain(*found))) == 3 * 65
    assert KEY.fingerprints(np.empty(0, np.uint64)).size == 0


def test_memory_bounds_how_many_slices_there_are():
    assert slice_bits_for(0, 2**20, 10) == slice_bits_for(100, 2**20, 10) == 0
    assert slice_bits_for(2**20, 2**20, 10) == 5
    assert slice_bits_for(2**30, 1, 4) == 4
    assert slice_bits_for(2**34, 1, 21) == 12


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from([0, 1, 2, 17, 30]),
       st.sampled_from([0, 1, 1000, CACHED_PAIRS + 5]), st.sampled_from([1, 30, 64]),
       st.integers(0, 60))
def test_pairs_are_sorted_whatever_their_parts_and_bits(seed, num_parts, size, bits, first_bit):
    source = np.random.default_rng(seed)
    size = min(size, 300_000 // max(num_parts, 1))
    parts = [source.integers(0, 2**bits, size, np.uint64) for _ in range(num_parts)]
    before = [part.copy() for part in parts]
    found = sorted_pairs(parts, first_bit)  # also if the first bits differ
    assert found.tolist() == sorted({*itertools.chain(*(part.tolist() for part in parts))})
    assert all(map(np.array_equal, parts, before))


@pytest.mark.slow
@examples(30)
@given(st.integers(0, 2**32), st.sampled_from([1, 10**5, 2**24]), st.sampled_from([0, 3, 12]))
def test_a_store_returns_each_pair_once_in_order(seed, budget, slice_bits):
    source = np.random.default_rng(seed)
    parts = [source.integers(0, 2**int(source.integers(1, 64)), int(source.integers(0, 3000)),
                             np.uint64)
             for _ in range(20)]
    parts = [part | (part % 2**RANGE_BITS == 0).astype(np.uint64) for part in parts]
    wanted = united(itertools.chain(*(part.tolist() for part in parts)))
    store = PairStore(budget)
    for part in parts:
        store.add(part)
    assert united(np.concatenate([part.pairs for part in store.parts()]).tolist()) == wanted
    assert store.finish() >= len(wanted)
    slices = list(store.slices(slice_bits))
    assert len(slices) == 2**slice_bits
    assert np.concatenate(slices).tolist() == wanted
    assert all((part >> np.uint64(64 - slice_bits) == number).all()
               for number, part in enumerate(slices) if slice_bits)
    store.close()


def united(pairs):
    """Return pairs in order, each fingerprint once for a row group, with a range around all."""
    found = {}
    for pair in pairs:
        group = pair >> RANGE_BITS
        found[group] = found.get(group, 0) | PARTS[pair % 2**RANGE_BITS]
    return sorted(group << RANGE_BITS | smallest_range(parts) for group, parts in found.items())


@functools.cache
def smallest_range(parts):
    return max(range_ for range_ in range(1, 2**RANGE_BITS) if parts & ~PARTS[range_] == 0)


def parts_of(range_):
    """Return the parts of a range, by halving: those of 1, and of 0, are all."""
    if range_ <= 1:
        return 2**NUM_PARTS - 1
    whole = parts_of(range_ // 2)
    low = whole & -whole
    half = low * (2**(whole.bit_count() // 2) - 1)
    return half << half.bit_count() if range_ % 2 else half


PARTS = [parts_of(range_) for range_ in range(2**RANGE_BITS)]


def places(groups):
    return place_of(np.array(groups, np.uint64), ALL_ROWS)


def test_pairs_that_are_repeated_are_not_spilled():
    store = PairStore(8 * 1000)
    for _ in range(50):
        store.add(places(range(400)))
    assert len(store) < 1000 and not store._runs
    store.add(places(range(400, 1000)))
    assert store._runs and store.num_in_memory == 0


def test_many_small_arrays_are_joined(monkeypatch):
    monkeypatch.setattr(pair_store, "_MANY_PARTS", 10)
    store = PairStore(8 * 1000)
    for number in range(500):
        store.add(places([number]))
        assert len(store._waiting) < 10
    assert store.finish() == 500


class FullDisk:
    """A temporary file for which there is room once."""

    def __init__(self, room=0):
        self._file, self._room = os.fdopen(os.memfd_create("spill"), "w+b", 0), room

    def write(self, data):
        if self._room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._room -= 1
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)


@pytest.mark.parametrize("room", [0, 1])
def test_after_a_full_disk_nothing_is_read_from_a_store(monkeypatch, room):
    monkeypatch.setattr(pair_store.tempfile, "TemporaryFile", lambda **_: FullDisk(room))
    store = PairStore(8)  # spills what is added
    parts = [np.arange(10, dtype=np.uint64)] * (room + 1)
    with pytest.raises(OSError, match="No space left"):
        for part in parts:
            store.add(part)
    with pytest.raises(OSError, match="No space left"):
        list(store.parts())
    with pytest.raises(OSError, match="No space left"):
        store.finish()


def test_an_update_with_a_full_disk_for_temporary_files_covers_no_file(tmp_path, monkeypatch):
    """The pairs of every file may be lost, not only those of the file that was read then."""
    def write_files(numbers):
        for number in numbers:
            write(tmp_path / "t" / f"{number}.parquet", range(1000 * number, 1000 * number + 1000))
        age(tmp_path / "t")

    write_files([0])
    index = build(tmp_path / "t", "ssn", KMS) and Index.open(tmp_path / "t", KMS)
    write_files(range(1, 8))
    spilled, original = itertools.count(), PairStore._spill_run

    def spill_run(store, run):
        if next(spilled) == 1:
            monkeypatch.setattr(store, "_spill", FullDisk())
        original(store, run)

    monkeypatch.setattr(PairStore, "_spill_run", spill_run)
    with pytest.raises(OSError, match="No space left"):
        update_indexes(index._table, ["ssn"], CachedKms(KMS), budget=8 * 1500)
    covered = Index.open(tmp_path / "t", KMS).column("ssn").coverage(index._table.listing())
    assert not covered.places


# --- what cannot be built ------------------------------------------------------------------------

def test_a_folder_without_files_has_no_index(tmp_path):
    with pytest.raises(FileNotFoundError, match="no Parquet files"):
        build(tmp_path, "ssn", KMS)
    assert list(tmp_path.iterdir()) == []


def test_an_index_of_a_column_without_encryption_must_be_intended(tmp_path):
    write(tmp_path / "a.parquet", ["v1"], encryption=None)
    with pytest.raises(ColumnError, match="anyone can learn which values exist"):
        build(tmp_path, "ssn", KMS)
    assert not (tmp_path / "_index").exists()
    assert build(tmp_path, "ssn", encryption=None).to_dict()["indexed"] == 1


def test_a_segment_is_written_while_it_is_made(tmp_path, monkeypatch):
    """Memory does not hold a whole segment."""
    written = []
    monkeypatch.setattr(segment_writer, "_BUFFER", 1000)
    original = segment_writer.SegmentFile.flush
    monkeypatch.setattr(segment_writer.SegmentFile, "flush", lambda self: written.append(
        self._waiting_size) or original(self))
    write(tmp_path / "a.parquet", [f"{number}" for number in range(20_000)])
    build(tmp_path, "ssn", KMS)
    assert len(written) > 2 and Index.open(tmp_path, KMS).verify().ok
