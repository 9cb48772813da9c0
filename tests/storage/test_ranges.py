"""Parts of a file that are read together, or at the same time, or when they are asked for."""

import numpy as np
import pytest

from secure_bloom.errors import FormatError
from secure_bloom.storage.ranges import Ranges
from secure_bloom.storage.source import Source
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET

SIZE = 10_000_000
DATA = np.random.default_rng(3).bytes(SIZE)


@pytest.fixture(params=["local", "store"])
def source(request, tmp_path):
    if request.param == "local":
        (tmp_path / "file").write_bytes(DATA)
        return Source(str(tmp_path / "file"))
    filesystem = Objects(new_objects())
    with filesystem.open_output_stream(f"{BUCKET}/file") as stream:
        stream.write(DATA)
    return Source(f"{BUCKET}/file", filesystem)


def test_each_range_is_read_once_and_others_when_they_are_asked_for(source):
    wanted = [(0, 10), (20, 5), (5_000_000, 1000), (SIZE - 3, 3)]
    ranges = Ranges(source, wanted)
    assert 1018 <= ranges.num_bytes < 20_000
    for start, length in [*wanted, (12, 3), (5_000_100, 7)]:
        before = ranges.num_bytes
        assert ranges.read_at(length, start) == DATA[start:start + length]
        assert ranges.num_bytes == before
    assert ranges.read_at(5, 2_000_000) == DATA[2_000_000:2_000_005]
    assert ranges.num_bytes == before + 5


@pytest.mark.parametrize("where", [(SIZE - 2, 3), (-1, 2), (5, -1), (2**62, 2**62)])
def test_what_is_not_in_the_file_is_an_error(source, where):
    with pytest.raises(FormatError, match="beyond the file"):
        Ranges(source, [(0, 1), where])
    with pytest.raises(FormatError, match="beyond the file"):
        Ranges(source, [(0, 1)]).read_at(where[1], where[0])
