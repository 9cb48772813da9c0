"""The tiers of tests leave out what they say, and the last one nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import tiers
from tests.tiers import LEFT_OUT, sweep_where

ROOT = Path(__file__).parent.parent


def test_each_tier_holds_the_one_before():
    check, test, everything = map(set, LEFT_OUT.values())
    assert check > test > everything == set()


@sweep_where(lambda number: number == 2)
@sweep_where(lambda number: number == 3, "soak")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_combinations_are_marked_by_their_parameters(request, number):
    marks = [bool(request.node.get_closest_marker(name)) for name in ("sweep", "soak")]
    assert marks == [number == 2, number == 3]
    assert number == 1 or tiers.tier == "all"


def test_what_uses_an_s3_server_is_marked(request, s3):
    assert request.node.get_closest_marker("slow") and tiers.tier != "check"


@pytest.mark.parametrize(("command", "tier"), [("check", "check"), ("test", "test"),
                                               ("test-all", "all")])
def test_each_tier_has_its_command(command, tier):
    [recipe] = re.findall(rf"^{command}:.*\n\t(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"--tier {tier} " in recipe


@pytest.mark.sweep
def test_each_process_gives_tests_the_same_names():
    """Else they cannot be shared out: names must not depend on the time, or on hash values."""
    names = [subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0",
                             "-p", "no:cacheprovider", "--tier", "all", "tests"], cwd=ROOT,
                            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
                            text=True, check=True).stdout.splitlines()[:-1] for seed in "12"]
    assert len(names[0]) > 10_000 and names[0] == names[1]


def test_ci_runs_all_but_the_soak():
    assert "set -- test test-sweep test-peers\nmake" in (ROOT / ".ci" / "run").read_text()


def test_the_check_tries_a_few_combinations_the_same_in_each_process(monkeypatch):
    items = [SimpleNamespace(nodeid=f"tests/test_x.py::{name}[{number}]")
             for name in ("test_many", "test_two") for number in range(30)
             if name == "test_many" or number < 2]

    def tried(tier):
        monkeypatch.setattr(tiers, "tier", tier)
        return [item.nodeid for item in tiers.few_combinations(items)]

    assert tried("test") == tried("all") == [item.nodeid for item in items]
    assert len(tried("check")) == 6 + 2
    assert tried("check") == tried("check")
    code = ("from types import SimpleNamespace; from tests import tiers; tiers.tier = 'check'; "
            f"items = [SimpleNamespace(nodeid=name) for name in {[i.nodeid for i in items]}]; "
            "print([item.nodeid for item in tiers.few_combinations(items)])")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, check=True,
                          capture_output=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    assert done.stdout == f"{tried('check')}\n"


def test_the_check_tries_fewer_examples(monkeypatch):
    for tier, tried in (("check", [5, 20]), ("test", [12, 100]), ("all", [12, 100])):
        monkeypatch.setattr(tiers, "tier", tier)
        assert [tiers.number_of_examples(count) for count in (12, 100)] == tried
