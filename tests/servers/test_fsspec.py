"""Stores through fsspec: when a file appears, and who of many creates it."""

import threading
import uuid

import pytest

from secure_bloom.index.exclusive_files import create_exclusively
from secure_bloom.storage.files import open_output
from tests.servers import chosen
from tests.storage.s3 import BUCKET

_WRITERS, _ROUNDS = 8, 25


@pytest.fixture
def server(s3):
    if not (chosen.name or "").endswith("fs"):
        pytest.skip("it runs with --server and a client of fsspec")
    return s3


@pytest.fixture
def folder(server):
    return f"{BUCKET}/{uuid.uuid4().hex}"


def found(server, folder):
    """Return the content of all files, as another process sees them."""
    fsspec = server.fsspec()
    return {path: fsspec.cat_file(path) for path in fsspec.find(folder)}


@pytest.mark.parametrize("size", [0, 10, 70 << 20], ids=["empty", "small", "large"])
def test_a_file_appears_under_its_name_and_as_a_whole(server, folder, size):
    """Clients upload 5 to 50 MiB at once."""
    filesystem, expected = server.filesystem_of(), {}
    for byte in (b"1", b"2"):
        output = open_output(f"{folder}/a", filesystem)
        output.write(byte * size)
        assert found(server, folder) == expected
        output.commit()
        expected = {f"{folder}/a": byte * size}
        assert found(server, folder) == expected
    output = open_output(f"{folder}/a", filesystem)
    output.write(b"3" * size)
    output.abort()
    del output
    assert found(server, folder) == expected


def test_of_many_that_create_a_file_at_once_one_succeeds(server, folder):
    """Each has a filesystem, and so connections, of its own."""
    filesystems = [server.filesystem_of() for _ in range(_WRITERS)]
    outcomes = {}
    barrier = threading.Barrier(_WRITERS)

    def write(number):
        for one in range(_ROUNDS):
            barrier.wait()
            try:
                create_exclusively(filesystems[number], f"{folder}/{one}", b"%d" % number)
                outcomes[one, number] = "created"
            except FileExistsError:
                outcomes[one, number] = "exists"
            except BaseException as error:
                outcomes[one, number] = error

    threads = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == _WRITERS * _ROUNDS
    assert set(outcomes.values()) == {"created", "exists"}
    winners = {f"{folder}/{one}": b"%d" % number for (one, number), outcome in outcomes.items()
               if outcome == "created"}
    assert list(outcomes.values()).count("created") == _ROUNDS
    assert found(server, folder) == winners
