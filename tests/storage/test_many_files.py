"""An operation on many files: outcomes, what ends it, and its progress."""

import _thread
import copy
import pickle
import signal
import threading
from dataclasses import dataclass, field

import pytest

from secure_bloom.display import ChangeResult
from secure_bloom.errors import (
    FormatError,
    KeyringError,
    KmsUnavailableError,
    MissingExtraError,
    OperationInterrupted,
    UnknownColumnError,
)
from secure_bloom.storage.many_files import ManyFiles, result_on_error

PATHS = [f"{number:03}" for number in range(100)]


@dataclass(repr=False)
class Result(ChangeResult):
    changed: list[str] = field(default_factory=list)
    unchanged: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    dry_run: bool = False

    def _headline(self) -> str:
        return self._counts(len(self.changed), "to do", "done")


def ended(error, work, *, threads=1) -> BaseException:
    """The exception that ends an operation."""
    files = ManyFiles(work, PATHS)
    with pytest.raises(error) as caught, result_on_error(lambda: Result(*files.outcomes())):
        files.run(threads)
    return caught.value


def test_outcomes_are_in_the_order_of_the_paths():
    """The first file of each thread ends last."""
    slow = threading.Barrier(3)

    def work(path, advance):
        if path in ("000", "001"):
            slow.wait()
        if path == PATHS[-1]:
            slow.wait()
        number = int(path)
        if number % 5 == 1:
            raise FormatError("damaged", column="ssn", row_group=2)
        if number % 5 == 2:
            raise PermissionError("denied")
        return None if number % 5 == 3 else path.upper()

    files = ManyFiles(work, PATHS)
    files.run(3)
    changed, unchanged, failed = files.outcomes()
    assert changed == [path for path in PATHS if int(path) % 5 in (0, 4)] and unchanged == 20
    assert list(failed.items()) == [
        (path, "row group 2, column ssn: damaged" if int(path) % 5 == 1 else "denied")
        for path in PATHS if int(path) % 5 in (1, 2)]


@pytest.mark.parametrize("error", [KmsUnavailableError, KeyringError, MissingExtraError])
def test_an_error_that_is_not_about_a_file_ends_it_with_the_result(error):
    def work(path, advance):
        if path == "007":
            raise error("no answer")
        if path == "003":
            raise FormatError("damaged")
        return None if path == "004" else path

    found = ended(error, work)
    assert str(found) == "file 007: no answer"
    assert found.result == Result(["000", "001", "002", "005", "006"], 1, {"003": "damaged"})


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_other_exceptions_pass_unchanged(error):
    def work(path, advance):
        raise error("oh")

    assert not hasattr(ended(error, work), "result")


def test_what_has_not_begun_when_it_stops_never_begins():
    """The thread takes its next file before the caller knows of the error."""
    started = []

    def work(path, advance):
        started.append(path)
        if path == "007":
            raise KmsUnavailableError("no answer")
        return path

    assert ended(KmsUnavailableError, work).result == Result(PATHS[:7])
    assert started == PATHS[:8]


def test_a_file_that_has_begun_is_completed_when_it_stops():
    begun, stopped = threading.Event(), threading.Event()

    def work(path, advance):
        if path == "000":
            begun.set()
            assert stopped.wait(60)
            return path
        assert begun.wait(60)
        stopped.set()
        raise KmsUnavailableError("no answer")

    assert ended(KmsUnavailableError, work, threads=2).result.changed == ["000"]


@pytest.fixture
def interrupted():
    """Set once SIGINT has come; a process in the background of a shell ignores it."""
    event = threading.Event()

    def interrupt(*_):
        event.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    yield event
    signal.signal(signal.SIGINT, before)


def test_an_interruption_has_the_result_and_is_a_keyboard_interrupt(interrupted):
    def work(path, advance):
        if path == "002":
            _thread.interrupt_main()
        if path > "002":
            assert interrupted.wait(60)
        return path

    found = ended(KeyboardInterrupt, work)
    assert type(found) is OperationInterrupted
    done = found.result.changed
    assert done == PATHS[:len(done)] and 2 <= len(done) < len(PATHS)
    assert pickle.loads(pickle.dumps(found)).result == found.result


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_keeps_its_attributes_in_another_process(again):
    error = UnknownColumnError("there is none", file="a", row_group=3, column="b")
    error.similar, error.result = "c", Result(["a"])
    error = again(error)
    assert type(error) is UnknownColumnError
    assert str(error) == "file a, row group 3, column b: there is none"
    assert (error.similar, error.result) == ("c", Result(["a"]))


@pytest.mark.parametrize("threads", [1, 3])
def test_progress_reaches_1_and_never_goes_back(threads):
    told = []

    def work(path, advance):
        for step in range(1, 11):
            advance(step / 10)
            if step == 7 and int(path) % 3 == 0:
                raise FormatError("damaged")
        return path

    ManyFiles(work, PATHS[:7], told.append).run(threads)
    assert told == sorted(told) and told[-1] == 1.0
    assert len({round(fraction, 3) for fraction in told}) > 40  # also within files


def test_rounding_does_not_move_progress_back():
    """As floats, (0 + (1.0 + 0.1 + 0.3)) / 3 > (1 + (0.1 + 0.3)) / 3."""
    told, all_told, one_done = [], threading.Barrier(3), threading.Event()

    def work(path, advance):
        advance({"000": 1.0, "001": 0.1, "002": 0.3}[path])
        all_told.wait(60)
        assert path == "000" or one_done.wait(60)
        return path

    def tell(fraction):
        told.append(fraction)
        if len(told) == 4:
            one_done.set()

    ManyFiles(work, PATHS[:3], tell).run(3)
    assert told == sorted(told) and told[-1] == 1.0
