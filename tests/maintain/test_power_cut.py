"""A power cut at any point leaves the old file or the new one, and the work can be done again."""

import os

import pytest

from secure_bloom import ParquetFile, attach, seal, strip, verify_file
from secure_bloom.keys import rotate_master_keys
from tests.maintain.helpers import KEYS, KMS, TABLE, leaking
from tests.maintain.power import Recorder, disks, until_the_power_is_cut

OPERATIONS = {
    "attach": lambda path: attach(path, {"number": True, "city": True}, KMS, replace=True),
    "strip": lambda path: strip(path, KMS),
    "seal": lambda path: seal(path, KMS),
    "rotate": lambda path: rotate_master_keys(path, KMS, old="pii", new="other"),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS)
CHECKSUM = b"what Hadoop keeps beside local files"


@pytest.fixture
def path(tmp_path):
    (tmp_path / ".a.parquet.crc").write_bytes(CHECKSUM)
    return leaking(tmp_path / "a.parquet")


def folder(path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.parent.iterdir()}


@every_operation
def test_every_state_of_the_disk(path, monkeypatch, operation):
    before = folder(path)
    with monkeypatch.context() as patch:
        recorder = Recorder(patch)
        OPERATIONS[operation](path)
    new, old = path.read_bytes(), before[str(path)]
    assert new != old and folder(path) == {str(path): new}
    kinds = [kind for kind, *_ in recorder.operations]
    assert kinds[0] == "create" and kinds[-2:] == ["rename", "sync folder"]
    assert kinds.count("write") >= 5 and "unlink" in kinds

    seen = set()
    for point in range(len(recorder.operations) + 1):
        for disk in disks(before, recorder.operations[:point]):
            content = disk[str(path)]
            assert content in (old, new)
            if content == new:  # Spark would take it for damaged with the checksum of the old one
                assert f"{path.parent}/.a.parquet.crc" not in disk
            seen.add((point, content == new))
    assert {is_new for point, is_new in seen if point == len(recorder.operations)} == {True}
    assert {is_new for _, is_new in seen} == {False, True}


def test_the_model_of_the_disk_finds_what_is_wrong(path, monkeypatch):
    """Without fsync of the file, a power cut may leave a file that is neither."""
    before = folder(path)
    with monkeypatch.context() as patch:
        recorder = Recorder(patch)
        strip(path, KMS)
    new, operations = path.read_bytes(), [o for o in recorder.operations if o[0] != "sync"]
    found = {disk[str(path)] for point in range(len(operations) + 1)
             for disk in disks(before, operations[:point])}
    assert found - {before[str(path)], new}


@pytest.mark.slow
@every_operation
def test_stopped_after_every_single_step_and_done_again(path, monkeypatch, operation):
    before = folder(path)
    steps = 0
    while True:
        steps += 1
        for file, content in before.items():
            with open(file, "wb") as out:
                out.write(content)
        with monkeypatch.context() as patch:
            recorder = Recorder(patch, stop_after=steps)
            with until_the_power_is_cut():
                OPERATIONS[operation](path)
        if len(recorder.operations) < steps:
            break
        file = ParquetFile(path, KMS)
        assert file.read().equals(TABLE)
        OPERATIONS[operation](path)
        assert os.listdir(path.parent) == ["a.parquet"] \
            or set(os.listdir(path.parent)) == {"a.parquet", ".a.parquet.crc"}
        assert ParquetFile(path, KMS).read().equals(TABLE)
    assert steps > 10
    if operation == "seal":
        assert verify_file(path, KMS).ok
    assert set(KEYS) == {"footer", "pii", "other"}
