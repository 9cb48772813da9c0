"""A power cut at any point leaves the old file or the new one, and the work can be done again."""

import os
import random
import shutil

import pyarrow.parquet as pq
import pytest

from secure_bloom import ParquetFile, attach, encrypt, seal, strip
from secure_bloom.keys import rotate_master_keys
from tests.maintain.helpers import ENCRYPTED, KMS, TABLE, leaking
from tests.soak.disk import record, restore

DISKS = 40
NAME, CHECKSUM = "a.parquet", ".a.parquet.crc"  # what Hadoop keeps beside local files
OPERATIONS = {
    "attach": lambda path, **on: attach(path, {"number": True, "city": True}, KMS, replace=True,
                                        **on),
    "strip": lambda path, **on: strip(path, KMS, **on),
    "seal": lambda path, **on: seal(path, KMS, **on),
    "rotate": lambda path, **on: rotate_master_keys(path, KMS, old="pii", new="other", **on),
    "encrypt": lambda path, **on: encrypt(path, KMS, encryption=ENCRYPTED, **on),
}


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_state_of_the_disk(tmp_path, operation):
    base, run, change = tmp_path / "base", tmp_path / "run", OPERATIONS[operation]
    base.mkdir()
    (base / CHECKSUM).write_bytes(b"checksum")
    if operation == "encrypt":
        pq.write_table(TABLE, base / NAME)
    else:
        leaking(base / NAME)
    old = (base / NAME).read_bytes()
    shutil.copytree(base, run)
    events = record(lambda filesystem: change(str(run / NAME), filesystem=filesystem), run,
                    tmp_path / "notes")
    new, seen = (run / NAME).read_bytes(), set()
    assert new != old and os.listdir(run) == [NAME]
    for seed in range(DISKS):
        choose, disk = random.Random(seed), tmp_path / f"disk {seed}"
        at = choose.choice([len(events), choose.randrange(len(events) + 1)])
        restore(base, events[:at], disk, choose)
        found = (disk / NAME).read_bytes()
        assert found == new or (found == old and at < len(events)), (seed, at)
        # Spark would take the new file for damaged with the checksum of the old one.
        assert found == old or not (disk / CHECKSUM).exists(), (seed, at)
        seen.add(found == new)
        assert not change(disk / NAME).failed
        assert {NAME} <= set(os.listdir(disk)) <= {NAME, CHECKSUM}
        assert ParquetFile(disk / NAME, KMS).read().equals(TABLE)
    assert seen == {False, True}
