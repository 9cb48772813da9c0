"""Arrays that are made without pandas are those of pyarrow."""

import pyarrow as pa
import pytest

from secure_bloom.sbbf import light_arrow
from tests.cases import for_each

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(),
            pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
VALUES = {
    **{arrow_type: [3, 0, 127] for arrow_type in INTEGERS},
    pa.float32(): [0.5, -0.0, float("inf")], pa.float64(): [0.1, -0.0, 1e300],
    pa.bool_(): [True, False, True] * 5,
    **{text: ["", "ä", "b\0c"] for text in (pa.string(), pa.large_string())},
    **{binary: [b"", b"\xff", b"b\0c"] for binary in (pa.binary(), pa.large_binary())},
    pa.date32(): [0, 1],
}


@pytest.mark.parametrize("arrow_type", VALUES, ids=str)
def test_an_array_is_the_one_of_pyarrow(arrow_type):
    for values in ([], VALUES[arrow_type]):
        made = light_arrow.array(values, arrow_type)
        made.validate(full=True)
        assert made.equals(pa.array(values, arrow_type))
    assert light_arrow.scalar(VALUES[arrow_type][0], arrow_type) == made[0]


@for_each("arrow_type", INTEGERS)
@for_each("chunks", [[], [[]], [[1, 2]], [[1], [2, 3]]])
def test_numbers_keep_their_type_in_numpy(arrow_type, chunks):
    numbers = pa.chunked_array(chunks, arrow_type)
    found = light_arrow.to_numpy(numbers)
    assert found.dtype == arrow_type.to_pandas_dtype() and found.tolist() == numbers.to_pylist()


def test_texts_that_are_too_long_for_its_offsets_are_made_by_pyarrow(monkeypatch):
    monkeypatch.setattr(light_arrow, "_MAX_BYTES", 2)
    assert light_arrow.array(["ab", "c"], pa.string()).equals(pa.array(["ab", "c"]))
