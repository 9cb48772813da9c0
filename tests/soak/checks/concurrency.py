"""Jobs of nine processes on one data set: no row is lost, duplicated or wrong at any moment.

Each job notes in a journal what it is about to write or erase, and what it has written or erased.
So a reader knows which rows must be there, and which may be: a row that was written before it began
to read, and that no erasure had begun to remove when it ended; and no other row than those.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from pyarrow.parquet.encryption import EncryptionConfiguration

import secure_bloom
from secure_bloom.errors import ChangedMeanwhileError, CommitError, SecureBloomError
from secure_bloom.index import Index
from secure_bloom.keys import InMemoryKms, rotate_master_keys
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.visibility import data_files
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check

ENCRYPTION = EncryptionConfiguration("kf", column_keys={"kc1": ["ssn"]})
OTHER = EncryptionConfiguration("kf", column_keys={"kc2": ["ssn"]})
_MOST_ROWS = 600  # in the data set; then writers wait for erasures
_MOST_ATTEMPTS = 100  # of one erasure, while other jobs change the same files


def _try(case: Case) -> None:
    folder = case.folder / "lake"
    journal = Journal(case.folder / "journal")
    seeds = [case.random.randrange(2**32) for _ in _ROLES]
    deadline = time.monotonic() + case.seconds
    scene = Scene(folder, journal, case.random, 0, deadline)
    _write(scene)
    secure_bloom.index.build(folder, "ssn", scene.kms)
    children = [_fork(Scene(folder, journal, random.Random(seed), number, deadline), role)
                for number, (seed, role) in enumerate(zip(seeds, _ROLES, strict=True), 1)]
    failed = [role.__name__ for role, child in zip(_ROLES, children, strict=True)
              if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    assert not failed, f"{failed}: " + journal.errors.read_text()[-6000:]
    _read(scene)
    _look_up(scene)
    case.tried += round(case.seconds)
    case.counts += Counter(journal.known().events)


@dataclass
class Known:
    """What the journal says about rows, by id."""

    writing: set[int] = field(default_factory=set)
    wrote: set[int] = field(default_factory=set)
    erasing: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)  # erased, or never written because of an error
    events: Counter[str] = field(default_factory=Counter)


class Journal:
    """Notes of all processes, in the order in which they were made."""

    def __init__(self, path: Path):
        self.path, self.errors = path, path.with_name("errors")
        path.touch()

    def note(self, what: str, ids: Iterable[int] = ()) -> None:
        """Add a line; one call of write for each, so that lines do not mix."""
        line = f"{what}:{','.join(map(str, ids))}\n".encode()
        with open(self.path, "ab", buffering=0) as file:
            file.write(line)

    def known(self) -> Known:
        """Return what is known at this moment."""
        known = Known()
        for line in self.path.read_text().splitlines():
            what, _, ids = line.partition(":")
            found = getattr(known, what, None)
            if isinstance(found, set):
                found.update(map(int, ids.split(",")))
            else:
                known.events[what] += 1
        return known


@dataclass
class Scene:
    """The data set, as one of the processes sees it."""

    folder: Path
    journal: Journal
    random: random.Random
    number: int
    deadline: float
    kms: InMemoryKms = field(default_factory=lambda: InMemoryKms(MASTER_KEYS))
    jobs: int = 0

    def is_over(self) -> bool:
        """Whether the time is up, or another process has failed."""
        return time.monotonic() >= self.deadline or self.journal.errors.exists()

    def present(self) -> list[int]:
        """Return the rows that are there, and that no erasure has begun to remove."""
        known = self.journal.known()
        return sorted(known.wrote - known.erasing)


# --- what the processes do -----------------------------------------------------------------------

def _new_ids(scene: Scene) -> range:
    """Return ids for new rows, once the data set has room for them; none if the time is up."""
    while len(scene.present()) > _MOST_ROWS:
        time.sleep(0.05)
        if scene.is_over():
            return range(0)
    scene.jobs += 1
    first = (scene.number * 10**6 + scene.jobs) * 100
    return range(first, first + scene.random.choice([1, 20, 60]))


def _write(scene: Scene) -> None:
    ids = _new_ids(scene)
    if not ids:
        return
    scene.journal.note("writing", ids)
    try:
        secure_bloom.write_dataset(_rows(ids), scene.folder, mode="append", encryption=ENCRYPTION,
                                   keys=scene.kms, bloom_filters=["ssn"], row_group_size=10)
    except SecureBloomError as error:
        if "unknown" not in str(getattr(error, "__notes__", "")):
            scene.journal.note("gone", ids)
        raise
    scene.journal.note("wrote", ids)


def _erase(scene: Scene) -> None:
    present = scene.present()
    if not present:
        return
    few = len(present) < _MOST_ROWS / 2
    first = scene.random.randrange(len(present))
    ids = scene.random.sample(present, min(len(present), 3)) if few else present[first:first + 150]
    scene.journal.note("erasing", ids)
    for _ in range(_MOST_ATTEMPTS):
        with contextlib.suppress(ChangedMeanwhileError, CommitError):
            if secure_bloom.erase(scene.folder, "ssn", list(map(_ssn, ids)), scene.kms,
                                  max_share=1).ok:
                scene.journal.note("gone", ids)
                return
        scene.journal.note("erase, tried again")
    raise AssertionError("an erasure was never complete")


def _read(scene: Scene) -> None:
    before = scene.journal.known()
    table = secure_bloom.read_table(scene.folder, scene.kms)
    after = scene.journal.known()
    ids = table["id"].to_pylist()
    found = set(ids)
    assert len(found) == len(ids), f"duplicated: {[i for i, n in Counter(ids).items() if n > 1]}"
    assert not (lost := before.wrote - after.erasing - found), f"lost: {sorted(lost)}"
    assert not (wrong := found - after.writing | found & before.gone), f"wrong: {sorted(wrong)}"
    assert table["ssn"].to_pylist() == list(map(_ssn, ids))


def _look_up(scene: Scene) -> None:
    """Ask for single rows, through filters and the index."""
    present = scene.present()
    ids = scene.random.sample(present, min(len(present), 2))
    values = list(map(_ssn, ids))
    if not ids:
        return
    rows = secure_bloom.find(scene.folder, "ssn", values, scene.kms)["id"].to_pylist()
    places = Index.open(scene.folder, scene.kms).lookup("ssn", values)
    some = secure_bloom.read_table(scene.folder, scene.kms, filters=[("ssn", "in", values)])
    erasing = scene.journal.known().erasing
    assert set(rows) <= set(ids) and set(some["id"].to_pylist()) <= set(ids)
    for number, groups in zip(ids, places.row_groups, strict=True):
        if number not in erasing:
            assert rows.count(number) == some["id"].to_pylist().count(number) == 1, number
            assert groups or places.uncovered, f"{number} is not in the index"


def _rotate(scene: Scene) -> None:
    old, new = scene.random.sample(["kc1", "kc2"], 2)
    rotate_master_keys(scene.folder, scene.kms, old=old, new=new)
    Index.open(scene.folder, scene.kms).rotate(old=old, new=new)
    time.sleep(0.1)


def _attach(scene: Scene) -> None:
    secure_bloom.attach(scene.folder, ["id"], scene.kms, replace=scene.random.random() < 0.3)
    secure_bloom.seal(scene.folder, scene.kms)
    time.sleep(0.1)


def _encrypt(scene: Scene) -> None:
    """Put a file in plaintext beside the others, and encrypt all, at times with other keys."""
    ids = _new_ids(scene)
    if scene.random.random() < 0.3:
        secure_bloom.reencrypt(scene.folder, scene.kms)
    elif ids:
        path = scene.folder / f"foreign-{ids[0]}.parquet"
        scene.journal.note("writing", ids)
        hidden = path.with_name(f".{path.name}")
        pq.write_table(_rows(ids), hidden)
        hidden.rename(path)
        scene.journal.note("wrote", ids)
    encryption = scene.random.choice([ENCRYPTION, OTHER])
    if secure_bloom.encrypt(scene.folder, scene.kms, encryption=encryption).ok:
        scene.journal.note("encrypt, all")
        _check_encrypted(scene)


def _check_encrypted(scene: Scene) -> None:
    """Only this process writes plaintext: so there is none, and no other brings it back."""
    for path in data_files(pa_fs.LocalFileSystem(), str(scene.folder)):
        with contextlib.suppress(FileNotFoundError), OpenFile(path, scene.kms) as file:
            assert file.footer.is_encrypted, path


def _index(scene: Scene) -> None:
    index = Index.open(scene.folder, scene.kms)
    index.update()
    if scene.random.random() < 0.3:
        index.compact()
        index.vacuum()


_ROLES: list[Callable[[Scene], None]] = [_write, _write, _read, _look_up, _erase, _rotate, _attach,
                                         _index, _encrypt]


# --- processes -----------------------------------------------------------------------------------

def _fork(scene: Scene, role: Callable[[Scene], None]) -> int:
    """Play a role in a fork of this process; return its id."""
    parent, name = os.getpid(), role.__name__[1:].replace("_", " ")
    child = os.fork()
    if child:
        return child
    try:
        while os.getppid() == parent and not scene.is_over():
            try:
                role(scene)
                scene.journal.note(name)
            except (ChangedMeanwhileError, CommitError) as error:
                scene.journal.note(f"{name}, {type(error).__name__}")
            except FileNotFoundError as error:
                if "no index" not in str(error):
                    raise
                scene.journal.note(f"{name}, no index")  # until it is made anew with other keys
        os._exit(0)
    except BaseException:
        with open(scene.journal.errors, "a") as file:
            traceback.print_exc(file=file)
        os._exit(1)


def _rows(ids: range) -> pa.Table:
    return pa.table({"id": ids, "ssn": list(map(_ssn, ids))})


def _ssn(number: int) -> str:
    return f"s{number}"


CHECK = Check("concurrency", "concurrent jobs lose, duplicate and change no row",
              "seconds with nine processes", 3600, _try)
