"""``null_bitmap``: against another implementation of Roaring bitmaps, and broken."""

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom.errors import FormatError
from secure_bloom.lance.null_rows import NullRowsBuilder, read_null_rows
from tests.support import examples

pyroaring = pytest.importorskip("pyroaring", reason="needs pyroaring to compare with")

SHAPES = {
    "empty": [],
    "one": [7],
    "last of a container": [65_535],
    "first of the next": [65_536],
    "largest": [2**32 - 1],
    "fullest array": range(0, 8192, 2),
    "smallest bits": range(0, 8194, 2),
    "whole container": range(65_536),
    "several": [1, *range(70_000, 90_000), 200_000, *range(400_000, 400_003)],
}


def rows_of(buffer):
    rows = {}
    for fragment_id, first, last in read_null_rows(buffer):
        for a, b in zip(first.tolist(), last.tolist(), strict=True):
            rows.setdefault(fragment_id, set()).update(range(a, b + 1))
    return rows


def roaring(rows, runs=False):
    """Rows in a Roaring bitmap; added one by one, as otherwise it makes runs of them by itself."""
    bitmap = pyroaring.BitMap()
    for row in rows:
        bitmap.add(row)
    if runs:
        bitmap.run_optimize()
    return bitmap


def tree(bitmaps):
    """A buffer with Roaring bitmaps by another implementation."""
    parts = [struct.pack("<I", len(bitmaps))]
    for fragment_id, bitmap in sorted(bitmaps.items()):
        data = bitmap.serialize()
        parts += [struct.pack("<II", fragment_id, len(data)), data]
    return b"".join(parts)


def built(rows, portion=10**9):
    builder = NullRowsBuilder()
    for fragment_id, values in rows.items():
        array = np.array(values, dtype=np.uint64)
        for start in range(0, array.size, portion):
            builder.add(fragment_id, array[start:start + portion])
    return builder.to_bytes()


@pytest.mark.parametrize("portion", [1, 1000, 10**9])
@pytest.mark.parametrize("name", SHAPES)
def test_written_as_another_implementation_writes_it(name, portion):
    rows = list(SHAPES[name])
    if portion == 1 and len(rows) > 10_000:
        rows = rows[:10_000]
    bitmaps = {5: roaring(rows)} if rows else {}
    assert built({5: rows}, portion) == tree(bitmaps)


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_reads_what_another_implementation_writes(name, runs):
    bitmap = roaring(SHAPES[name], runs)
    expected = {3: set(SHAPES[name])} if len(bitmap) else {}
    assert rows_of(tree({3: bitmap})) == expected


ROWS = st.lists(st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 200_000)), max_size=50)


@given(st.dictionaries(st.integers(0, 2**32 - 1), ROWS.map(set).filter(len), max_size=4),
       st.booleans())
@examples(200)
def test_any_rows(rows, runs):
    buffer = built({fragment_id: sorted(values) for fragment_id, values in rows.items()})
    assert buffer == tree({fragment_id: roaring(values) for fragment_id, values in rows.items()})
    assert rows_of(buffer) == rows
    assert rows_of(tree({fragment_id: roaring(values, runs)
                         for fragment_id, values in rows.items()})) == rows


def test_fragments_may_come_in_any_order():
    assert built({9: [1], 2: [3]}) == built({2: [3], 9: [1]})


def test_a_whole_fragment():
    assert list(read_null_rows(struct.pack("<III", 1, 6, 0))) == [(6, [0], [2**32 - 1])]


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("name", ["several", "smallest bits", "one"])
def test_every_truncation_is_an_error(name, runs):
    buffer = tree({3: roaring(SHAPES[name], runs)})
    for size in {*range(min(len(buffer), 300)), *range(max(0, len(buffer) - 40), len(buffer))}:
        with pytest.raises(FormatError):
            list(read_null_rows(buffer[:size]))
    with pytest.raises(FormatError, match="after its end"):
        list(read_null_rows(buffer + b"\0"))


@given(st.binary(max_size=60), st.integers(0, 3))
@examples(300)
def test_any_bytes_give_rows_or_a_format_error(data, kind):
    heads = [b"", struct.pack("<III", 1, 0, len(data)),
             struct.pack("<IIII", 1, 0, len(data) + 4, 12346),
             struct.pack("<IIII", 1, 0, len(data) + 4, 12347)]
    with suppress(FormatError):
        list(read_null_rows(heads[kind] + data))


def test_fragments_containers_and_rows_have_to_be_in_order():
    one, two = roaring([7]).serialize(), roaring([7, 70_000]).serialize()
    for first, second in ((3, 2), (3, 3)):
        buffer = struct.pack("<III", 2, first, len(one)) + one \
            + struct.pack("<II", second, len(one)) + one
        with pytest.raises(FormatError, match="fragments are not in order"):
            list(read_null_rows(buffer))
    for keys in ((1, 0), (1, 1)):  # at 8 and 12: keys of the two containers
        swapped = two[:8] + struct.pack("<HHHH", keys[0], 0, keys[1], 0) + two[16:]
        with pytest.raises(FormatError, match="containers are not in order"):
            list(read_null_rows(struct.pack("<III", 1, 0, len(swapped)) + swapped))
    for rows in ((9, 7), (7, 7)):
        swapped = roaring([7, 9]).serialize()[:-4] + struct.pack("<HH", *rows)
        with pytest.raises(FormatError, match="rows are not in order"):
            list(read_null_rows(struct.pack("<III", 1, 0, len(swapped)) + swapped))


def test_claims_are_not_believed():
    for buffer in (struct.pack("<I", 2**32 - 1), struct.pack("<III", 1, 0, 2**32 - 1),
                   struct.pack("<IIIII", 1, 0, 8, 12346, 2**32 - 1),
                   struct.pack("<IIII", 1, 0, 4, 12347 | 0xFFFF << 16)):
        with pytest.raises(FormatError):
            list(read_null_rows(buffer))
