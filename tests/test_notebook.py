"""In a notebook and on a terminal: short tracebacks, tables, and progress of long operations."""

import io
import sys
import traceback

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import notebook, progress, read_table, write_dataset
from secure_bloom.errors import KeyringNotFoundError, SecureBloomError
from secure_bloom.progress import shown_progress
from tests.support import run_python


class Shell:
    """What IPython's shell does with a custom handler."""

    custom_exceptions = ()

    def set_custom_exc(self, kinds, handler):
        self.custom_exceptions, self.handler = kinds, handler

    def showtraceback(self, exc_tuple, tb_offset=None):
        self.shown = "".join(traceback.format_exception(*exc_tuple))


@pytest.fixture
def shell(monkeypatch):
    shell = Shell()
    module = type(sys)("IPython")
    module.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    return shell


def shown(shell) -> str:
    try:
        read_table("none.parquet", "none.json")
    except KeyringNotFoundError as error:
        assert error.__cause__ is not None
        shell.handler(shell, type(error), error, error.__traceback__)
        assert error.__cause__ is not None  # hidden, not lost
    return shell.shown


def test_tracebacks_show_only_the_users_frames(shell, monkeypatch):
    notebook.shorten_tracebacks()
    assert shell.custom_exceptions == (SecureBloomError,)
    text = shown(shell)
    assert 'read_table("none.parquet"' in text and "there is no such keyring" in text
    assert "secure_bloom/" not in text.replace("errors.", "") and "FileNotFoundError" not in text
    monkeypatch.setenv("SECURE_BLOOM_TRACEBACK", "full")
    text = shown(shell)
    assert "keyring_file.py" in text and "FileNotFoundError" in text


def test_the_users_own_cause_is_not_hidden(shell):
    notebook.shorten_tracebacks()
    cause = ZeroDivisionError("the user's")
    try:
        try:
            raise cause
        except ZeroDivisionError:
            read_table("none.parquet", "none.json")
    except SecureBloomError as error:
        shell.handler(shell, type(error), error, error.__traceback__)
    assert "the user's" in shell.shown and "FileNotFoundError" not in shell.shown
    try:
        raise SecureBloomError("mine") from cause
    except SecureBloomError as error:
        shell.handler(shell, type(error), error, error.__traceback__)
    assert "the user's" in shell.shown and "direct cause" in shell.shown


def test_a_handler_of_the_user_stays(shell):
    shell.custom_exceptions = (ValueError,)
    notebook.shorten_tracebacks()
    assert shell.custom_exceptions == (ValueError,)


@pytest.mark.slow
def test_ipython_shows_short_tracebacks():
    pytest.importorskip("IPython")
    out = run_python("""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell("import secure_bloom; secure_bloom.read_table('x', 'none.json')")
""")
    assert "there is no such keyring" in out and "keyring_file.py" not in out


def test_a_data_set_is_a_table(tmp_path):
    secure_bloom.write_table(pa.table({"<b>": [1]}), tmp_path / "x.parquet")
    html = secure_bloom.dataset(tmp_path)._repr_html_()
    assert "1 file, 1 column" in html and "<td>&lt;b&gt;</td><td>int64</td>" in html


# --- progress ------------------------------------------------------------------------------------

class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


def test_progress_is_shown_only_if_it_takes_long(monkeypatch):
    terminal = terminal_without_tqdm(monkeypatch)

    def run(seconds, given=None, advance=None):
        clock = iter([0, *[seconds] * 10])
        monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
        terminal.truncate(0)
        terminal.seek(0)
        with shown_progress("find", given, advance) as step:
            for fraction in (0.2, 0.1, 1.0):
                step(fraction)
        return terminal.getvalue()

    assert run(1.9) == ""
    assert run(2.1) == "\rfind:  20 %\rfind: 100 %\n"
    assert run(2.1, False) == "" and run(0, True).endswith("100 %\n")
    seen = []
    assert run(2.1, advance=seen.append) == "" and seen == [0.2, 0.1, 1.0]
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    assert run(2.1) == ""


@pytest.mark.parametrize("stream", [None, object()])
def test_a_program_without_standard_error_can_work(tmp_path, monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    written = write_dataset(pa.table({"x": [1]}), tmp_path / "folder")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    written = write_dataset(pa.table({"x": [1]}), tmp_path / "folder", mode="append")
    assert written.rows == 1


def test_tqdm_shows_the_progress_if_it_is_there(monkeypatch):
    calls = []

    class Bar:
        def __init__(self, **options):
            calls.append((options["desc"], options["initial"]))

        def update(self, steps):
            calls.append(steps)

        def close(self):
            calls.append("closed")

    module = type(sys)("tqdm.auto")
    module.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", type(sys)("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    with shown_progress("find", True) as step:
        step(0.25)
        step(0.5)
    assert calls == [("find", 250), 250, "closed"]


def test_long_operations_show_their_progress(tmp_path, monkeypatch):
    terminal = terminal_without_tqdm(monkeypatch)
    keyring = secure_bloom.Keyring.create(tmp_path / "k.json", keys=["footer", "pii"])
    table = pa.table({"ssn": [f"{number}" for number in range(100)]})
    folder = tmp_path / "folder"
    write_dataset(table, folder, keys=keyring, sensitive=["ssn"], bloom_filters=False,
                  progress=True)
    secure_bloom.attach(folder, ["ssn"], keyring, progress=True)
    secure_bloom.index.build(folder, ["ssn"], keyring, progress=True)
    secure_bloom.find(folder, "ssn", ["5"], keyring, progress=True)
    secure_bloom.audit(folder, keyring, progress=True)
    secure_bloom.erase(folder, "ssn", ["5"], keyring, progress=True)
    lines = terminal.getvalue().split("\n")
    for label in ("write", "attach", "index", "find", "audit", "erase"):
        assert any(line.startswith(f"\r{label}:") and line.endswith("100 %")
                   for line in lines), label
