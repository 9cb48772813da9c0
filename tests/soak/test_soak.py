"""A small part of the soak, and its runner."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from tests.soak import runner
from tests.soak.check import Case, Check
from tests.soak.checks import CHECKS, differential, nonces, secrets
from tests.soak.report import PAGE, STATE, table
from tests.soak.runner import CASE_SECONDS, Tried, load, run, save, try_seed

_NAMES = [name for name, one in CHECKS.items() if not one.is_extra]
#: one case takes many seconds
_HEAVY = ("false_negatives", "erasing", "nonces", "differential", "adversary")
#: in the sweep; else one
_SEEDS = {"false_negatives": 3, "false_positives": 20, "tampering": 5, "swaps": 5,
          "hostile_bytes": 5, "crashes": 4, "storage_faults": 3, "concurrency": 1,
          "adversary": 1}
_ON_A_STORE = 5  # a seed of storage_faults with which it uses S3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seconds"), [
    *((name, 1.0) for name in _NAMES if name not in _HEAVY),
    *(pytest.param(name, CASE_SECONDS, marks=pytest.mark.sweep) for name in _NAMES)])
def test_some_cases_of_each_check(name, seconds, request):
    if name == "differential":  # skipped where a peer is missing
        request.getfixturevalue("parquet_java"), request.getfixturevalue("arrow_cpp")
    for seed in range(1 if seconds < CASE_SECONDS else _SEEDS.get(name, 2)):
        done = try_seed(name, seed, seconds)
        print(f"python -m tests.soak --repeat {name}:{seed}")
        assert not done.failures, done.failures[0]["error"]


@pytest.mark.soak
def test_faults_of_an_object_store():
    done = try_seed("storage_faults", _ON_A_STORE)
    assert not done.failures, done.failures[0]["error"]
    assert any(what.startswith("S3") for what in done.counts)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["spark_secrets", "spark_false_negatives"])
def test_a_case_with_spark(name):
    """In a process of its own, whose session other tests do not share."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    done = subprocess.run([sys.executable, "-m", "tests.soak", "--repeat", f"{name}:0"],
                          capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(rf"{name}:0: [1-9]", done.stdout)


def test_the_search_for_secrets_finds_them(tmp_path):
    key, value = b"0123456789abcdef", "ssn-0123"
    for content in (key, key.hex().encode(), f"at {value}".encode()):
        assert secrets._holds(content, {key}, [value])
    assert not secrets._holds(b"nothing", {key}, [value])
    with open(tmp_path / "open", "wb+") as file:
        file.write(value.encode())
        file.flush()
        os.unlink(file.name)
        assert secrets._in_memory_files(set(), [value], tmp_path / "notes") \
            == [f"{file.name} (deleted)"]


def test_nonces_that_were_used_twice_are_noticed():
    found = [os.urandom(12) for _ in range(5)]
    nonces._check_distinct(b"".join(found))
    with pytest.raises(AssertionError, match="twice"):
        nonces._check_distinct(b"".join([*found, found[2]]))


def test_several_odd_stop_bytes_are_a_known_difference():
    header = bytes.fromhex("15401c1c00001c1c00201c1ce0000000")
    assert differential._our_outcome(header) == "malformed"
    assert differential._with_zero_stops(header, "decoded\tnum_bytes=32\theader_size=15")
    assert not differential._with_zero_stops(header, "decoded\tnum_bytes=64\theader_size=15")


def test_a_case_is_determined_by_its_seed(tmp_path):
    draws = [Case.of("a", seed, tmp_path, 1.0).random.random() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def _fails(case: Case) -> None:
    raise AssertionError("as planned")


def test_a_failure_has_its_seed(monkeypatch):
    monkeypatch.setitem(CHECKS, "planned", Check("planned", "", "", 1, _fails))
    [failure] = try_seed("planned", 3).failures
    assert failure["seed"] == 3 and "as planned" in failure["error"]


@pytest.mark.sweep
@pytest.mark.slow
def test_runs_add_up(tmp_path):
    state = tmp_path / "soak.json"
    cases = []
    for _ in range(2):
        tried = load(state)
        run(["swaps"], 0.1, 1, tried, lambda name, done: None)
        save(state, tried, {})
        cases.append((tried["swaps"].cases, tried["swaps"].next_seed))
    assert 0 < cases[0][0] < cases[1][0] and cases[0][1] < cases[1][1]
    assert not load(state)["swaps"].failures


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_process_that_dies_or_hangs_is_a_failure(how, monkeypatch):
    monkeypatch.setattr(runner, "_HANGS", 0.5)
    worker = runner._Worker(0.0)
    try:
        worker.name = "swaps"
        worker._seed.value, worker._begun.value = 17, time.monotonic()
        if how == "dies":
            os.kill(worker._process.pid, 9)
        else:
            time.sleep(0.6)
        name, done = worker.finish()
        assert name == "swaps" and done.failures[0]["seed"] == 17
        assert worker._process.is_alive()  # a new one
    finally:
        worker.stop()


def test_the_page_names_each_check():
    text = PAGE.read_text()
    assert all(f"**{name}**" in text for name in CHECKS)
    shown = table({name: Tried(2, 30) for name in CHECKS}, {"date": "x"})
    assert shown.count("| 30 ") == len(CHECKS)


def test_the_page_shows_what_was_tried():
    tried, about = load(STATE), json.loads(STATE.read_text())["about"]
    shown = PAGE.read_text().partition("<!-- tried -->\n")[2].partition("\n<!-- end of")[0]
    assert shown == table(tried, about)
