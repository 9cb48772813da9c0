import random

import pyarrow as pa
import pytest

from secure_bloom.arrow.dictionaries import compact_dictionaries, nothing
from secure_bloom.arrow.leaves import leaf_arrays

WORDS = ["a", "b", None, "c", "secret", "b"]


class _Boxed(pa.ExtensionType):
    def __init__(self, storage: pa.DataType):
        super().__init__(storage, "boxed")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> "_Boxed":
        return cls(storage)


def _words(size: int, rng: random.Random, ordered: bool = False) -> pa.DictionaryArray:
    kind = rng.choice([pa.string(), pa.large_binary(), pa.string_view()])
    width = rng.choice([pa.int8(), pa.uint16(), pa.int64()])
    numbers = [rng.choice([0, 1, 2, 3, 5, None]) for _ in range(size)]
    return pa.DictionaryArray.from_arrays(pa.array(numbers, width), pa.array(WORDS).cast(kind),
                                          ordered=ordered)


def _nested(rng: random.Random) -> pa.Array:
    """Return 20 rows of a random nesting; what its nulls and its ends hide has any value."""
    array: pa.Array = _words(60, rng, rng.random() < 0.3)
    for _ in range(rng.randrange(4)):
        hidden = [rng.random() < 0.3 for _ in range(60)]
        offsets = pa.array(sorted(rng.choices(range(len(array) + 1), k=61)), pa.int32())
        kind = rng.randrange(6)
        if kind == 0 and len(array) == 60:
            array = pa.StructArray.from_arrays([array, array.slice(0)], ["x", "y"],
                                              mask=pa.array(hidden))
        elif kind == 1:
            array = pa.ListArray.from_arrays(offsets, array, mask=pa.array(hidden))
        elif kind == 2:
            array = pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), array)
        elif kind == 3:
            keys = pa.array(range(len(array))).dictionary_encode()
            array = pa.MapArray.from_arrays(offsets, keys, array)
        elif kind == 4 and len(array) % 2 == 0:
            array = pa.FixedSizeListArray.from_arrays(array, 2)
        else:
            array = pa.ExtensionArray.from_storage(_Boxed(array.type), array)
    return array.slice(3, max(0, min(20, len(array) - 5)))


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_left_but_the_values_of_rows(seed):
    for number in range(60):
        array = _nested(random.Random(f"{seed}:{number}"))
        table = pa.table({"a": pa.chunked_array([array, array.slice(4)])})
        found = compact_dictionaries(table, nothing)
        assert found.schema.equals(table.schema)
        assert found.to_pylist() == table.to_pylist()
        found.validate(full=True)
        for chunk in found["a"].chunks:
            assert chunk.type == array.type
        for leaf, *others in zip(*map(leaf_arrays, found["a"].chunks), strict=True):
            if not pa.types.is_dictionary(leaf.type):
                continue  # keys of maps
            used = {value for one in (leaf, *others) for value in one.indices.to_pylist()}
            assert used - {None} == set(range(len(leaf.dictionary))) or not any(
                leaf.dictionary.to_pylist())
            assert all(one.dictionary.equals(leaf.dictionary) for one in others)


def test_the_order_of_entries_stays_and_a_scale_is_whole():
    indices = pa.array([5, 3, None, 0], pa.int8())
    for ordered, kept in ((False, ["a", "c", "b"]), (True, WORDS)):
        array = pa.DictionaryArray.from_arrays(indices, pa.array(WORDS), ordered=ordered)
        [found] = compact_dictionaries(pa.record_batch([array], ["a"])).columns
        assert found.dictionary.to_pylist() == kept and found.type == array.type
        assert found.to_pylist() == array.to_pylist()


@pytest.mark.slow
def test_a_large_dictionary_costs_no_more_than_its_rows():
    array = pa.DictionaryArray.from_arrays(pa.array([7, 900_000, 7]), pa.array(range(1_000_000)))
    [found] = compact_dictionaries(pa.record_batch([array], ["a"])).columns
    assert found.dictionary.to_pylist() == [7, 900_000] and found.to_pylist() == [7, 900_000, 7]


def test_a_dictionary_without_unused_values_is_the_same_object():
    array = pa.array(["a", "b", "a"]).dictionary_encode()
    table = pa.table({"a": array})
    assert compact_dictionaries(table)["a"].chunk(0).dictionary.buffers()[1].address \
        == array.dictionary.buffers()[1].address


@pytest.mark.parametrize("rows", [0, 3])
def test_rows_without_values_keep_no_entry(rows):
    array = pa.DictionaryArray.from_arrays(pa.array([None] * rows, pa.uint64()), pa.array(WORDS))
    [found] = compact_dictionaries(pa.record_batch([array], ["a"])).columns
    assert found.to_pylist() == [None] * rows and "secret" not in found.dictionary.to_pylist()
