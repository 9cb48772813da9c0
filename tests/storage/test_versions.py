"""Everything that is read of a file is of one version, however the file changes meanwhile."""

import gc
import io
import os
import pickle
import random
import threading
import time
from collections import Counter

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import (
    EncryptionConfiguration,
    ExplicitKeys,
    ParquetFile,
    UniformKey,
    audit,
    read_table,
    verify_file,
)
from secure_bloom.arrow import pages
from secure_bloom.arrow.few_row_groups import FilePart
from secure_bloom.cli.shared import UNREADABLE, exit_code
from secure_bloom.datasets import folder as reading
from secure_bloom.datasets import scan
from secure_bloom.errors import AuthenticationError, ChangedMeanwhileError, FormatError
from secure_bloom.keys import InMemoryKms, external, list_master_keys, rotate_master_keys
from secure_bloom.maintain.folders import change_files
from secure_bloom.reading import open_file, rows
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage import files, source, versions
from secure_bloom.storage.rewrite import Rewrite
from secure_bloom.storage.source import Source
from secure_bloom.storage.table_names import material_path
from tests.counting import CountingHandler
from tests.storage.objects import Objects, new_objects
from tests.storage.s3 import BUCKET
from tests.tiers import sweep_where

KMS = InMemoryKms({"footer": b"f" * 16, "pii": b"p" * 16, "other": b"o" * 16})
COLUMN_KEYS = EncryptionConfiguration("footer", {"pii": ["ssn"]})
WAYS = {"plain": (None, None, None), "kms": (COLUMN_KEYS, KMS, KMS),
        "explicit": (UniformKey(b"k" * 16), None, ExplicitKeys(b"k" * 16))}
OLD, NEW = list("abcd"), list("cxay")
WANTED = [("ssn", "==", "c")]


def content(values, way="plain") -> bytes:
    """A file with two rows in a row group."""
    encryption, kms, _ = WAYS[way]
    sink = io.BytesIO()
    secure_bloom.write_table(pa.table({"ssn": values, "n": range(len(values))}), sink,
                             row_group_size=2, bloom_filters={"ssn": True},
                             encryption=encryption, keys=kms)
    return sink.getvalue()


class Local:
    """A file of a local folder that is replaced by renaming, or overwritten in place.

    Its times are days apart, so that nothing depends on the steps of the clock.
    """

    filesystem = pa_fs.LocalFileSystem()

    def __init__(self, folder, way: str, in_place: bool = False):
        self.folder, self.path, self._in_place = str(folder), str(folder / "a.parquet"), in_place
        self._contents = content(OLD, way), content(NEW, way)
        self._day = 1

    def restore(self):
        self._write(self._contents[0], in_place=False)

    def replace(self):
        self._write(self._contents[1], self._in_place)

    def _write(self, data: bytes, in_place: bool):
        where = self.path if in_place else f"{self.folder}/.new"
        with open(where, "wb") as file:
            file.write(data)
        self._day += 1
        os.utime(where, (self._day * 86_400,) * 2)
        os.replace(where, self.path)


class Store:
    """An object; both versions have the same size and were written within the same second."""

    def __init__(self, way: str, filesystem=None):
        self.filesystem = filesystem or Objects(new_objects())
        self.folder, self.path = f"{BUCKET}/t", f"{BUCKET}/t/a.parquet"
        self._contents = content(OLD, way), content(NEW, way)

    def restore(self):
        files.write_file(self.filesystem, self.path, self._contents[0])

    def replace(self):
        files.write_file(self.filesystem, self.path, self._contents[1])


@pytest.fixture(params=["renamed", "overwritten", "uploaded"])
def place(request, tmp_path, way, monkeypatch):
    if request.param == "uploaded":
        monkeypatch.setattr(source, "_READ_AHEAD", 64)  # else one response has the whole file
        return Store(way)
    return Local(tmp_path, way, in_place=request.param == "overwritten")


class Steps:
    """Does something at the n-th of all steps of a read: before or after each access."""

    _PLACES = ((source, "open_file"), (Source, "read_at"), (Source, "read_tail"),
               (rows, "to_table"), (pages, "new_fragment"), (scan, "read_batches"),
               (pq.ParquetFile, "read"), (FilePart, "has"), (FilePart, "batches"),
               (OpenFile, "open_in_pyarrow"))

    def __init__(self, monkeypatch):
        self._lock, self._number, self._action = threading.RLock(), -1, None
        for owner, name in self._PLACES:
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, function):
        def wrapper(*args, **kwargs):
            self.step()
            result = function(*args, **kwargs)
            self.step()
            return result
        return wrapper

    def step(self):
        with self._lock:
            if self._action is not None:
                self._number -= 1
                if self._number < 0:
                    action, self._action = self._action, None
                    action()

    def run(self, number: int, action, operation):
        """What the operation returns or raises, and whether the step came."""
        self._number, self._action = number, action
        try:
            outcome = operation()
        except Exception as error:
            outcome = error
        came, self._action = self._action is None, None
        return outcome, came


def opened(place, keys, of=ParquetFile):
    return of(place.path, keys, filesystem=place.filesystem)


def by_tables(file, step):
    found = []
    for table in file.iter_tables(filters=[("n", ">=", 0)]):
        step()
        found += table.to_pylist()
    return found


def by_batches(file, step):
    found = []
    for batch in file.iter_batches(batch_rows=1):
        step()
        found += batch.to_pylist()
    return found


def by_pyarrow(file, step):
    with file.one_version():
        return file.open_in_pyarrow().read().to_pylist()


METHODS = {
    "read": lambda file, step: file.read(filters=WANTED).to_pylist(),
    "read all": lambda file, step: file.read().to_pylist(),
    "prune": lambda file, step: file.prune([*WANTED]),
    "might_contain": lambda file, step: file.might_contain("ssn", list("abcdxy")).tolist(),
    "filters": lambda file, step: [bytes(file.read_bloom_filter(group, "ssn").bitset)
                                   for group in range(2) if step() is None],
    "bloom_filters": lambda file, step: file.bloom_filters,
    "iter_tables": by_tables, "iter_batches": by_batches,
    "open_in_pyarrow": by_pyarrow,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", WAYS)
def test_no_method_mixes_two_versions(place, way, method, monkeypatch):
    """The file is replaced at each step of opening and reading it."""
    keys, steps = WAYS[way][2], Steps(monkeypatch)

    def operation():
        of = OpenFile if METHODS[method] is by_pyarrow else ParquetFile
        with opened(place, keys, of) as file:
            steps.step()
            return METHODS[method](file, steps.step)

    place.replace()
    new, _ = steps.run(0, lambda: None, operation)
    place.restore()
    old, came = steps.run(0, lambda: None, operation)
    assert came and not isinstance(old, Exception) and not isinstance(new, Exception)
    seen, number = Counter(), 0
    while came:
        place.restore()
        outcome, came = steps.run(number, place.replace, operation)
        kind = "old" if outcome == old else "new" if outcome == new else type(outcome).__name__
        assert kind in ("old", "new", "ChangedMeanwhileError"), (number, outcome)
        seen[kind] += 1
        number += 1
    assert number > 5
    if isinstance(place, Local) and not place._in_place:
        assert not seen["ChangedMeanwhileError"]  # an opened file is read to the end
    elif method != "bloom_filters":
        assert seen["ChangedMeanwhileError"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("filters", [None, WANTED])
def test_read_table_starts_again(place, way, what, filters, monkeypatch):
    keys, steps = WAYS[way][2], Steps(monkeypatch)

    def operation():
        where = place.path if what == "file" else place.folder
        return read_table(where, keys=keys, filters=filters,
                          filesystem=place.filesystem).to_pylist()

    place.replace()
    new = operation()
    place.restore()
    old, came, number = operation(), True, 0
    while came:
        place.restore()
        outcome, came = steps.run(number, place.replace, operation)
        assert outcome in (old, new), (number, outcome)
        number += 1
    assert number > 5


# --- an object that stays open -------------------------------------------------------------------

@pytest.mark.parametrize("way", WAYS)
def test_an_open_file_that_is_replaced_by_renaming_is_read_to_the_end(tmp_path, way):
    place = Local(tmp_path, way)
    place.restore()
    keys = WAYS[way][2]
    with opened(place, keys) as file, opened(place, keys, OpenFile) as inner:
        place.replace()
        assert file.read(filters=WANTED)["ssn"].to_pylist() == ["c"]
        assert file.prune(WANTED) == [1]
        assert [batch["ssn"].to_pylist() for batch in file.iter_batches(["ssn"])] == [OLD]
        os.unlink(place.path)
        assert file.read()["ssn"].to_pylist() == OLD
        assert inner.open_in_pyarrow().read()["ssn"].to_pylist() == OLD


@pytest.mark.parametrize("place", ["overwritten", "uploaded"], indirect=True)
@pytest.mark.parametrize("way", ["plain", "kms"])
def test_an_open_file_that_is_overwritten_says_so(place, way):
    place.restore()
    keys = WAYS[way][2]
    with opened(place, keys) as file, opened(place, keys, OpenFile) as inner:
        place.replace()
        for name, method in METHODS.items():
            with pytest.raises(ChangedMeanwhileError) as raised:
                method(inner if method is by_pyarrow else file, lambda: None)
            assert raised.value.file == place.path, name
            assert not isinstance(raised.value, FormatError | AuthenticationError)


def test_a_file_that_is_open_and_removed_from_a_store_says_so():
    place = Store("plain")
    place.restore()
    with opened(place, None) as file:
        place.filesystem.delete_file(place.path)
        with pytest.raises(ChangedMeanwhileError, match="replaced"):
            file.read()


def test_batches_of_an_overwritten_file_are_never_handed_out(tmp_path):
    place = Local(tmp_path, "plain", in_place=True)
    place.restore()
    with opened(place, None) as file:
        batches = file.iter_batches(batch_rows=1)
        first = [next(batches)["ssn"].to_pylist() for _ in range(2)]  # from the first row group
        place.replace()
        with pytest.raises(ChangedMeanwhileError):
            next(batches)
    assert first == [["a"], ["b"]]


def test_a_row_group_is_read_when_its_first_batch_is(tmp_path, monkeypatch):
    """On this rests how seldom ``iter_batches`` asks an object store for the version."""
    path = tmp_path / "a.parquet"
    rows = pa.table({"a": range(4000), "b": [str(i) * 50 for i in range(4000)]})
    pq.write_table(rows, path, row_group_size=1000, data_page_size=1000, compression="none")
    monkeypatch.setattr(Source, "check", lambda source: None)
    for filesystem in (pa_fs.LocalFileSystem(), pa_fs.PyFileSystem(CountingHandler())):
        good = path.read_bytes()
        with ParquetFile(str(path), filesystem=filesystem) as file:
            batches = file.iter_batches(batch_rows=100)
            found = [next(batches)]
            path.write_bytes(bytes(len(good)))
            found += [next(batches) for _ in range(9)]
            assert pa.Table.from_batches(found).equals(rows[:1000])
        path.write_bytes(good)


def test_a_store_is_asked_for_the_version_once_for_each_row_group(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(4000)}), path, row_group_size=1000)
    filesystem, asked = pa_fs.PyFileSystem(CountingHandler()), []
    current = versions.current_version
    with ParquetFile(str(path), filesystem=filesystem) as file:
        monkeypatch.setattr(versions, "current_version",
                            lambda *where: asked.append(where) or current(*where))
        assert sum(batch.num_rows for batch in file.iter_batches(batch_rows=100)) == 4000
    assert len(asked) <= 5


def test_a_store_is_not_asked_again_where_one_answer_held_it_all(monkeypatch):
    place = Store("plain")
    place.restore()
    monkeypatch.setattr(versions, "current_version", None)
    with opened(place, None) as file:
        place.replace()
        assert file.prune(WANTED) == [1] and len(file.bloom_filters) == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_nobody_uses_is_closed_at_once(tmp_path, way):
    place = Local(tmp_path, way)
    place.restore()
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()
    try:
        for _ in range(20):
            opened(place, WAYS[way][2]).read(filters=WANTED)
        assert len(os.listdir("/proc/self/fd")) < before + 10
    finally:
        gc.enable()


def test_a_user_s_mistake_stays_what_it_is(tmp_path):
    place = Local(tmp_path, "plain", in_place=True)
    place.restore()
    with opened(place, None) as file, pytest.raises(secure_bloom.errors.ColumnError):
        file.might_contain("none", "c")


def test_damage_stays_what_it_is(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(content(OLD, "kms")[:-50])
    with pytest.raises(FormatError):
        read_table(path, keys=KMS)
    data = content(OLD, "kms")
    path.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])
    with pytest.raises(AuthenticationError):
        read_table(path, keys=KMS)


# --- folders -------------------------------------------------------------------------------------

def numbered(folder, count: int, way="plain"):
    """Files whose values begin with their number."""
    for number in range(count):
        (folder / f"{number:02}.parquet").write_bytes(
            content([f"{number:02}{letter}" for letter in OLD], way))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_few_files_of_a_folder_are_open_at_a_time(tmp_path, way, monkeypatch):
    for module in (reading, scan):
        monkeypatch.setattr(module, "_OPEN_FILES", 3)
    numbered(tmp_path, 40, way)
    most, read_batches = [], scan.read_batches

    def counted(*args):
        leads = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
        most.append(sum(path.startswith(str(tmp_path)) for path in leads))
        return read_batches(*args)

    monkeypatch.setattr(scan, "read_batches", counted)
    assert read_table(tmp_path, keys=WAYS[way][2]).num_rows == 160
    assert 1 <= max(most) <= 9


def test_a_file_that_is_replaced_before_its_turn_is_looked_at_again(tmp_path, monkeypatch):
    for module in (reading, scan):
        monkeypatch.setattr(module, "_OPEN_FILES", 2)
    numbered(tmp_path, 7)
    read_batches, calls = scan.read_batches, []

    def replace_last(*args):
        calls.append(args)
        if len(calls) == 1:  # the wanted value moves to the other row group
            (tmp_path / "new").write_bytes(content(["06c", "x", "06a", "y"]))
            os.replace(tmp_path / "new", tmp_path / "06.parquet")
        return read_batches(*args)

    monkeypatch.setattr(scan, "read_batches", replace_last)
    found = read_table(tmp_path, filters=[("ssn", "in", ["00a", "06c"])])
    assert sorted(found["ssn"].to_pylist()) == ["00a", "06c"] and len(calls) == 1
    calls.clear()
    numbered(tmp_path, 7)
    wanted = [f"{number:02}c" for number in range(7)]
    found = read_table(tmp_path, filters=[("ssn", "in", wanted)])
    assert found["ssn"].to_pylist() == wanted and len(calls) == 4


def test_another_schema_starts_the_folder_again(tmp_path, monkeypatch):
    for module in (reading, scan):
        monkeypatch.setattr(module, "_OPEN_FILES", 1)
    numbered(tmp_path, 3)
    read_batches, calls = scan.read_batches, []

    def replace_last(*args):
        calls.append(args)
        if len(calls) == 1:
            pq.write_table(pa.table({"ssn": ["z"], "more": [1]}), tmp_path / "new")
            os.replace(tmp_path / "new", tmp_path / "02.parquet")
        return read_batches(*args)

    monkeypatch.setattr(scan, "read_batches", replace_last)
    found = read_table(tmp_path)
    assert found["more"].to_pylist() == [None] * 8 + [1]
    assert found["n"].to_pylist() == [*range(4), *range(4), None]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_reading_gives_up_after_ten_tries(tmp_path, what, monkeypatch):
    place = Local(tmp_path, "plain", in_place=True)
    place.restore()
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    tries = []

    def changing(read):
        def changed(*args):
            tries.append(args)
            place.replace()
            return read(*args)
        return changed

    monkeypatch.setattr(rows, "to_table", changing(rows.to_table))
    monkeypatch.setattr(scan, "read_batches", changing(scan.read_batches))
    with pytest.raises(ChangedMeanwhileError, match="try again") as raised:
        read_table(place.path if what == "file" else place.folder)
    assert raised.value.file == place.path and len(tries) == versions._TRIES == 10


# --- a race --------------------------------------------------------------------------------------

@pytest.mark.slow
@sweep_where(lambda what, kind, way: ((what == "file") + (kind == "renamed") + (way == "kms")) % 2)
@pytest.mark.parametrize("what", ["file", "folder"])  # half; any two still meet
@pytest.mark.parametrize("kind", ["renamed", "overwritten"])
@pytest.mark.parametrize("way", ["plain", "kms"])
def test_reads_beside_a_busy_writer_are_right_or_say_so(tmp_path, what, kind, way):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, stop = random.Random(seed), threading.Event()
    letters = [f"{number:02}" for number in range(20)]
    contents = [content(rng.sample(letters, len(letters)), way) for _ in range(10)]
    paths = [tmp_path / f"{number}.parquet" for number in range(4 if what == "folder" else 1)]
    for path in paths:
        path.write_bytes(contents[0])

    def write():
        writer = random.Random(seed + 1)
        while not stop.is_set():
            path, data = writer.choice(paths), writer.choice(contents)
            if kind == "renamed":
                (tmp_path / ".new").write_bytes(data)
                os.replace(tmp_path / ".new", path)
                time.sleep(writer.random() * 0.005)
            else:
                path.write_bytes(data)
                time.sleep(writer.random() * 0.1)

    seen, thread = Counter(), threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(50 if what == "file" else 15):
            value = rng.choice(letters)
            try:
                found = read_table(tmp_path if what == "folder" else paths[0], keys=WAYS[way][2],
                                   filters=[("ssn", "==", value)])["ssn"].to_pylist()
            except ChangedMeanwhileError:
                seen["told"] += 1
            except FormatError as error:  # the file is half written, and no writer is active
                assert kind == "overwritten" and "truncated" in str(error)
                seen["told"] += 1
            else:
                assert found == [value] * len(paths)
                seen["right"] += 1
    finally:
        stop.set()
        thread.join()
    assert seen["right"] and (kind == "overwritten" or not seen["told"])


# --- versions ------------------------------------------------------------------------------------

def test_objects_of_one_size_and_second_differ_by_their_etags(s3):
    place = Store("plain", s3.filesystem_of())
    found = []
    for write in (place.restore, place.replace, place.restore):
        write()
        found.append(versions.current_version(place.filesystem, place.path))
    assert found[0].size == found[1].size and found[0].mtime_ns is not None
    assert found[0] != found[1] and found[0].tag == found[2].tag
    subtree = pa_fs.SubTreeFileSystem(place.folder, place.filesystem)
    assert versions.current_version(subtree, "a.parquet") == found[2]
    file, version = versions.open_file(subtree, "a.parquet")
    assert version == found[2] and file.read_at(4, 0) == b"PAR1"


class FakeFsspec:
    """What pyarrow's handler needs of an fsspec filesystem, with a cache of what it has listed."""

    protocol = "fake"

    def __init__(self):
        self.cached, self.facts = None, {"name": "a", "size": 3, "type": "file", "ETag": "1"}

    def invalidate_cache(self, path=None):
        self.cached = None

    def info(self, path):
        self.cached = self.cached or dict(self.facts)
        return self.cached

    def isfile(self, path):
        return True

    def open(self, path, mode):
        return io.BytesIO(b"abc")


@pytest.mark.parametrize("fact", ["ETag", "mtime", "LastModified", "version_id", "generation"])
def test_fsspec_filesystems_are_asked_past_their_caches(fact):
    fake = FakeFsspec()
    fake.facts[fact] = "1"
    filesystem = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(fake))
    source = Source("a", filesystem)
    source.read_at(3, 0)
    source.check()
    fake.info("a")
    fake.facts[fact] = "2"
    source.read_at(3, 0)
    with pytest.raises(ChangedMeanwhileError):
        source.check()


def test_a_file_that_is_still_warm_is_opened_when_the_clock_has_moved_on(tmp_path, monkeypatch):
    """Within a step of the clock a file can be overwritten without any trace in its time."""
    path = tmp_path / "a.parquet"
    path.write_bytes(content(OLD))
    now = time.time_ns()
    os.utime(path, ns=(now, now))
    slept, sleep, here = [], time.sleep, threading.get_ident()

    def overwritten(seconds):
        if threading.get_ident() != here:  # a thread that another test has left
            sleep(seconds)
            return
        slept.append(seconds)
        path.write_bytes(content(NEW))
        os.utime(path, ns=(now, now))

    monkeypatch.setattr(versions, "_CLOCK_STEP", 20_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: now + 5_000_000)
    monkeypatch.setattr(time, "sleep", overwritten)
    with ParquetFile(path) as file:
        assert file.read(filters=WANTED)["ssn"].to_pylist() == ["c"]
        assert file.prune(WANTED) == [0]  # the whole file is new
    assert slept == [0.015]


def test_a_file_that_grows_while_it_is_opened_says_so(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    path.write_bytes(content(OLD)[:100])
    reopened = versions._reopened

    def grown(*arguments):
        with open(path, "ab") as file:
            file.write(content(OLD)[100:])
        return reopened(*arguments)

    monkeypatch.setattr(versions, "_reopened", grown)
    with pytest.raises(ChangedMeanwhileError):
        ParquetFile(path)


def test_a_file_that_only_loses_its_name_or_gets_another_mode_is_the_same(tmp_path):
    place = Local(tmp_path, "plain")
    place.restore()
    with opened(place, None) as file:
        os.chmod(place.path, 0o600)
        os.link(place.path, tmp_path / "b")
        os.unlink(place.path)
        assert file.read()["ssn"].to_pylist() == OLD


def test_the_error_can_be_pickled_and_has_an_exit_code():
    error = ChangedMeanwhileError("changed", file="a")
    assert str(pickle.loads(pickle.dumps(error))) == "file a: changed"
    assert exit_code(error) == UNREADABLE


# --- external key material -----------------------------------------------------------------------

def with_material(path, values, footer="footer", column="ssn"):
    encryption = EncryptionConfiguration(footer, {"pii": [column]}, internal_key_material=False,
                                         plaintext_footer=column != "ssn")
    secure_bloom.write_table(pa.table({column: values}), path, bloom_filters={column: True},
                             encryption=encryption, keys=KMS)


@pytest.fixture
def pair(tmp_path):
    """A file with its key material, and a function that puts others in their place."""
    (tmp_path / "new").mkdir()
    with_material(tmp_path / "a.parquet", OLD)
    with_material(tmp_path / "new" / "a.parquet", NEW, "other")

    def replace():
        for name in ("a.parquet", os.path.basename(material_path("a.parquet"))):
            os.replace(tmp_path / "new" / name, tmp_path / name)

    return tmp_path / "a.parquet", replace


def test_key_material_of_another_version_is_never_taken_for_a_forgery(pair, monkeypatch):
    path, replace = pair
    read_material = open_file.read_material
    monkeypatch.setattr(open_file, "read_material",
                        lambda *where: (replace(), monkeypatch.undo(), read_material(*where))[-1])
    with pytest.raises(ChangedMeanwhileError):
        ParquetFile(path, KMS)
    with ParquetFile(path, KMS) as file:
        assert file.read()["ssn"].to_pylist() == NEW


def test_pages_whose_key_material_was_replaced_say_that_the_file_has_changed(pair):
    path, replace = pair
    with ParquetFile(path, KMS) as file:
        replace()
        try:
            assert file.read()["ssn"].to_pylist() == OLD
        except ChangedMeanwhileError as error:
            assert error.file == str(path)


def test_an_inventory_is_of_one_version(pair, monkeypatch):
    from secure_bloom.keys.operations import inventory
    path, replace = pair
    with_material(path.parent / "b.parquet", OLD, "footer", "city")
    for name in ("b.parquet", os.path.basename(material_path("b.parquet"))):
        os.rename(path.parent / name, path.parent / name.replace("b.", "a."))
    read_footer = inventory.read_footer

    def replaced(source):
        found = read_footer(source)
        replace()
        monkeypatch.undo()
        return found

    monkeypatch.setattr(inventory, "read_footer", replaced)
    found = list_master_keys(path)
    assert [(use.name, use.used_for) for use in found.master_keys] \
        == [("other", ["footerKey"]), ("pii", ["columnKey0"])] and not found.failed


def test_a_rotation_takes_no_other_key_material_for_a_forgery(pair, monkeypatch):
    path, replace = pair
    read_material = external.read_material
    monkeypatch.setattr(external, "read_material",
                        lambda *where: (replace(), monkeypatch.undo(), read_material(*where))[-1])
    result = rotate_master_keys(path, KMS, old="pii", new="other")
    assert "replaced or changed" in result.failed[str(path)]


# --- functions that read a file more than once ---------------------------------------------------

@pytest.mark.parametrize("place", ["overwritten", "uploaded"], indirect=True)
@pytest.mark.parametrize("way", ["plain", "kms"])
def test_verify_finds_no_faults_in_a_file_that_changes(place, way, monkeypatch):
    steps, number, came, told = Steps(monkeypatch), 0, True, 0
    while came:
        place.restore()
        outcome, came = steps.run(number, place.replace, lambda: verify_file(
            place.path, WAYS[way][2], filesystem=place.filesystem))
        told += isinstance(outcome, ChangedMeanwhileError)
        assert isinstance(outcome, ChangedMeanwhileError) or outcome.ok, (number, outcome)
        number += 3
    assert told


@pytest.mark.parametrize("way", ["plain", "kms"])
def test_an_audit_is_of_one_version(place, way, monkeypatch):
    steps, number, came = Steps(monkeypatch), 0, True
    while came:
        place.restore()
        outcome, came = steps.run(number, place.replace, lambda: audit(
            place.path, WAYS[way][2], scan=True, filesystem=place.filesystem))
        assert not isinstance(outcome, Exception), outcome
        assert not outcome.findings, (number, outcome.findings)
        assert not any(file.not_checked for file in outcome.files)
        number += 3


@pytest.mark.parametrize("way", ["plain"])
def test_a_rewrite_never_takes_the_place_of_a_newer_version(place):
    place.restore()
    with Rewrite(place.filesystem, place.path) as rewrite:
        place.replace()
        with pytest.raises(ChangedMeanwhileError):
            rewrite.replace_tail(rewrite.source.size, [b"tail"])
    assert place.filesystem.open_input_file(place.path).read() == place._contents[1]


def test_a_rewrite_copies_what_it_has_opened(tmp_path):
    """Even where the old version comes back in time for the last check."""
    place = Local(tmp_path, "plain")
    place.restore()
    data = place._contents[0]
    with Rewrite(place.filesystem, place.path) as rewrite:
        os.rename(place.path, tmp_path / "kept")
        (tmp_path / "a.parquet").write_bytes(bytes(len(data)))

        def tail():
            os.replace(tmp_path / "kept", place.path)
            yield b"tail"

        rewrite.replace_tail(len(data), tail())
    assert (tmp_path / "a.parquet").read_bytes() == data + b"tail"


def test_a_link_that_leads_elsewhere_meanwhile_changes_neither_file(tmp_path, monkeypatch):
    contents = {}
    for name, values in (("one", OLD), ("other", NEW)):
        (tmp_path / name).write_bytes(content(values))
        contents[name] = (tmp_path / name).read_bytes()
    link, open_file = tmp_path / "a.parquet", source.open_file
    link.symlink_to("one")

    def switch(*where):
        found = open_file(*where)
        link.unlink(missing_ok=True)
        link.symlink_to("other")
        return found

    monkeypatch.setattr(source, "open_file", switch)
    assert "changed in the meantime" in secure_bloom.strip(link).failed[str(link)]
    assert all((tmp_path / name).read_bytes() == data for name, data in contents.items())


def test_a_plan_that_fails_because_the_file_changes_says_so(tmp_path):
    place = Local(tmp_path, "plain")
    place.restore()

    def planner(file):
        place.replace()
        raise FormatError("what stands there is no filter")

    result = change_files(place.path, None, planner, dry_run=False)
    assert "replaced or changed" in result.failed[place.path]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["kms"])
@pytest.mark.parametrize("operation", ["attach", "strip", "rotate"])
def test_changes_of_an_older_version_are_never_published(place, operation, monkeypatch):
    """The file is replaced at each step; it is the new one afterwards, changed or as it was."""
    operations = {
        "attach": lambda: secure_bloom.attach(place.path, {"ssn": True}, KMS, replace=True,
                                              filesystem=place.filesystem),
        "strip": lambda: secure_bloom.strip(place.path, KMS, filesystem=place.filesystem),
        "rotate": lambda: rotate_master_keys(place.path, KMS, old="pii", new="other",
                                             filesystem=place.filesystem)}
    steps, number, came, failed = Steps(monkeypatch), 0, True, 0
    while came:
        place.restore()
        outcome, came = steps.run(number, place.replace, operations[operation])
        assert not isinstance(outcome, Exception), outcome
        wanted = NEW if came else OLD
        assert read_table(place.path, keys=KMS, filesystem=place.filesystem)["ssn"].to_pylist() \
            == wanted, number
        for reason in outcome.failed.values():
            failed += 1
            assert "changed in the meantime" in reason or "or changed while" in reason, \
                (number, reason)
        number += 1
    assert failed


def test_no_path_stays_no_path():
    local = pa_fs.LocalFileSystem()
    assert versions.without_subtree(local, "") == (local, "")
    assert versions.without_subtree(local, "x") == (local, os.path.abspath("x"))
