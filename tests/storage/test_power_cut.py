"""A power cut at any moment of a commit: all files are old, or all are new, and stay so."""

import random
import shutil

import pytest

from tests.soak.disk import record, restore
from tests.storage.stores import Store, later_jobs, local_store

DISKS = 150


@pytest.fixture
def base(tmp_path, monkeypatch):
    store = local_store(tmp_path / "base", monkeypatch)
    store.write(1, 2, directory="day=1")
    return store


def copy(store, folder) -> Store:
    shutil.copytree(store.folder, folder)
    return Store(store._make, str(folder))


def overwrite(store, filesystem):
    other = Store(lambda: filesystem, store.folder)
    other.write(3, 4, overwrite=True, directory="day=2")


def roll_back(store, filesystem):
    """A job whose files have their names already when it fails."""
    job = Store(lambda: filesystem, store.folder)
    failing = job.job(True)
    staged = job.stage(failing, 3, directory="day=2")

    def no_space(record):
        raise OSError(28, "no space left on device")

    failing._write_record = no_space
    with pytest.raises(OSError, match="no space"):
        failing.commit([staged])


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "new"), [(overwrite, [3, 4]), (roll_back, [1, 2])])
def test_every_state_of_the_disk(base, tmp_path, monkeypatch, operation, new):
    run = copy(base, tmp_path / "run")
    events = record(lambda filesystem: operation(run, filesystem), tmp_path / "run",
                    tmp_path / "notes")
    assert run.values() == new
    for seed in range(DISKS):
        choose = random.Random(seed)
        at = choose.choice([len(events), choose.randrange(len(events) + 1)])
        after = Store(base._make, str(tmp_path / f"disk {seed}"))
        restore(tmp_path / "base", events[:at], tmp_path / f"disk {seed}", choose)
        seen = after.values()
        assert seen == new or (seen == [1, 2] and at < len(events)), (seed, at)
        later_jobs(after, monkeypatch)
        assert after.values() == after.all_values() == seen, (seed, at)
        shutil.rmtree(after.folder)
