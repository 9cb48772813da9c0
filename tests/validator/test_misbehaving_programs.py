"""Programs that hang, write without end, or leave children: each is killed, and the run goes on."""

import dataclasses
import json
import re
import shlex
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner

from secure_bloom.cli import main
from secure_bloom.validator import ExternalProgram, line_process, load_cases, run_cases

VECTORS = Path(__file__).parents[2] / "vectors"
AAD = load_cases(VECTORS, ["aad"])
CASE = next(case for case in AAD if case.outcome == "invalid_ordinal")
GOOD = "print('invalid_ordinal', flush=True)"


def program(tmp_path, code, **options) -> ExternalProgram:
    """A program that runs the code at its first start, and then answers as it should.

    It notes the numbers of its processes in the file ``pids``.
    """
    source = f"""
import os, signal, subprocess, sys, time
def note(pid):
    with open({str(tmp_path / 'pids')!r}, 'a') as file: file.write(f'{{pid}} ')
def forever(): time.sleep(3600)
note(os.getpid())
if not os.path.exists({str(tmp_path / 'started')!r}):
    open({str(tmp_path / 'started')!r}, 'w').close()
{''.join(f'    {line}' + chr(10) for line in code.strip().splitlines())}
for line in sys.stdin:
    {GOOD}
"""
    return ExternalProgram(shlex.join([sys.executable, "-c", source]), **options)


def running(tmp_path) -> list[int]:
    """The noted processes that still run."""
    return [pid for pid in pids(tmp_path) if is_running(pid)]


def pids(tmp_path) -> list[str]:
    return (tmp_path / "pids").read_text().split()


def is_running(pid) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition) -> bool:
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


CHILD = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n" \
        "note(child.pid)\n"

MISBEHAVIOURS = {  # what the program does; seconds that it has; the message
    "closes its output and lives on": ("""
sys.stdin.readline()
os.close(1)
forever()""", 60, "closed its standard input or output and kept running"),
    "closes its input and lives on": ("""
os.close(0)
forever()""", 1, "no answer within 1 seconds"),
    "writes before it is asked": ("""
os.write(1, b'ready' + chr(10).encode())
note(os.getpid())
forever()""", 60, "wrote before it was asked"),
    "writes a line without end": ("""
sys.stdin.readline()
while True: os.write(1, b'x' * 65536)""", 60, "more than the 16384 bytes"),
    "answers with a long line": ("""
sys.stdin.readline()
os.write(1, b'x' * 20000 + b'\\n')
forever()""", 60, "more than the 16384 bytes"),
    "writes lines without end": ("""
sys.stdin.readline()
while True: os.write(1, b'x\\n' * 32768)""", 60, "unknown outcome 'x'"),
    "writes errors without end": ("""
while True: os.write(2, b'x' * 65536)""", 1, "no answer within 1 seconds"),
    "ignores the signal to end": ("""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
forever()""", 1, "no answer within 1 seconds"),
    "leaves a child that holds the pipes": (CHILD + """
sys.stdin.readline()
print('the last words', file=sys.stderr, flush=True)
os._exit(7)""", 60, "exit code 7.*the last words"),
    "hangs with a child that holds the pipes": (
        CHILD + "forever()", 1, "no answer within 1 seconds"),
    "leaves a child in a session of its own that holds the pipes": ("""
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(20)'], start_new_session=True)
sys.stdin.readline()
os._exit(7)""", 60, "exit code 7"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_it_is_killed_and_counted_as_failed_and_the_run_goes_on(tmp_path, name):
    code, seconds, message = MISBEHAVIOURS[name]
    with program(tmp_path, code, timeout=seconds) as other:
        wait_until((tmp_path / "started").exists)
        wait_until(lambda: "before" not in name or len(pids(tmp_path)) == 2)
        tracemalloc.start()
        try:
            first, = run_cases([CASE], other)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        other._timeout = 60  # for the start of the next one
        _, *others = run_cases([CASE] * 3, other)  # one line too many is noticed at the second case
    assert first.result == "failed" and re.search(message, first.message), first.message
    assert peak < 2_000_000
    assert [result.result for result in others] == ["passed", "passed"]
    assert wait_until(lambda: not running(tmp_path)), running(tmp_path)


@pytest.mark.slow
def test_a_program_that_does_not_read_a_long_question_runs_out_of_time():
    long = dataclasses.replace(CASE, input={**CASE.input, "aad_prefix": "00" * 2_000_000})
    with ExternalProgram(shlex.join([sys.executable, "-c", "import time; time.sleep(3600)"]),
                         timeout=1) as other:
        result, = run_cases([long], other)
    assert result.message == "no answer within 1 seconds"


@pytest.mark.slow
def test_a_program_that_ignores_the_end_of_its_input_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(line_process, "_TIME_TO_END", 0.5)
    code = CHILD + f"sys.stdin.readline()\n{GOOD}\nforever()"
    with program(tmp_path, code) as other:
        result, = run_cases([CASE], other)
    assert result.result == "passed"
    assert wait_until(lambda: not running(tmp_path))


def test_messages_are_short_however_long_the_reply_is(tmp_path):
    reply = "print('skip\\treason=' + 'x' * 16000, flush=True); forever()"
    with program(tmp_path, f"sys.stdin.readline()\n{reply}") as other:
        result, = run_cases([CASE], other)
        other._stop(kill=True)
    assert result.result == "skipped" and len(result.message) == 2000


def test_an_answer_without_a_line_end_before_the_end_counts(tmp_path):
    code = "sys.stdin.readline()\nos.write(1, b'invalid_ordinal')\nos._exit(0)"
    with program(tmp_path, code) as other:
        result, = run_cases([CASE], other)
    assert result.result == "passed"


@pytest.mark.slow
def test_the_command_takes_a_time_limit(tmp_path):
    cases = json.loads((VECTORS / "aad.json").read_text())
    (tmp_path / "aad.json").write_text(json.dumps({**cases, "cases": cases["cases"][:1]}))
    run = CliRunner().invoke
    silent = shlex.join([sys.executable, "-c", "import time; time.sleep(3600)"])
    one = ["validate", str(tmp_path)]
    done = run(main, [*one, "--against", silent, "--timeout", "1"])
    assert done.exit_code == 1 and "no answer within 1 seconds" in done.output
    assert run(main, [*one, "--against", silent, "--timeout", "0"]).exit_code == 2
    wrong = run(main, [*one, "--timeout", "1"])
    assert wrong.exit_code == 2 and "--against" in wrong.output
