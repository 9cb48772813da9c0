"""A small part of the soak, and its runner."""

import os
import time
from collections import Counter

import pytest

from tests.soak import runner
from tests.soak.check import Case, Check
from tests.soak.checks import CHECKS
from tests.soak.report import PAGE, table
from tests.soak.runner import Tried, load, run, save, try_seed

_SEEDS = {"false_positives": 20, "tampering": 5, "swaps": 5, "hostile_bytes": 5}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_some_cases_of_each_check(name, request):
    if name == "differential":  # skipped where a peer is missing
        request.getfixturevalue("parquet_java"), request.getfixturevalue("arrow_cpp")
    for seed in range(_SEEDS.get(name, 2)):
        done = try_seed(name, seed)
        print(f"python -m tests.soak --repeat {name}:{seed}")
        assert not done.failures, done.failures[0]["error"]


def test_a_case_is_determined_by_its_seed(tmp_path):
    draws = [Case.of("a", seed, tmp_path).random.random() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def _fails(case: Case) -> None:
    raise AssertionError("as planned")


def test_a_failure_has_its_seed(monkeypatch):
    monkeypatch.setitem(CHECKS, "planned", Check("planned", "", "", 1, _fails))
    [failure] = try_seed("planned", 3).failures
    assert failure["seed"] == 3 and "as planned" in failure["error"]


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
    worker = runner._Worker()
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
    shown = table({name: Tried(2, 30, 1.0, 0, Counter(found=4)) for name in CHECKS}, {"date": "x"})
    assert shown.count("| 30 ") == len(CHECKS) and "found: 4" in shown
