"""The tiers of tests leave out what they say, and the last one nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import tiers
from tests.servers import chosen
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
    script = (ROOT / ".ci" / "run").read_text()
    assert "|| set -- test test-build test-sweep test-peers\n" in script


@pytest.mark.parametrize(("folder", "text", "marks"), [
    ("x", "import pytest\n\n\npytestmark = pytest.mark.slow  # builds\n", {"slow"}),
    ("x", "pytestmark = [*uses_spark, pytest.mark.usefixtures('y')]\n", {"spark", "usefixtures"}),
    ("x", "    pytestmark = pytest.mark.slow\n@pytest.mark.slow\ndef test_y():\n", set()),
    ("lakehouse", "", {"fetched"})])
def test_what_a_tier_leaves_out_is_not_imported(tmp_path, monkeypatch, folder, text, marks):
    module = tmp_path / folder / "test_module.py"
    module.parent.mkdir()
    module.write_text(text)
    assert tiers.marks_of_module(module) == marks
    for tier, left_out in LEFT_OUT.items():
        monkeypatch.setattr(tiers, "tier", tier)
        ignored = tiers.pytest_ignore_collect(module)
        assert ignored is (True if marks & set(left_out) else None)  # None leaves it to pytest
        assert tiers.pytest_ignore_collect(module.with_name("helpers.py")) is None


@pytest.mark.parametrize(("function", "parameters", "is_needed"), [
    (lambda store: 0, {"store": "objects", "n": 1}, True),
    (lambda store: 0, {"store": "local"}, False), (lambda store: 0, {"store": "s3"}, False),
    (lambda s3: 0, {}, True), (lambda tmp_path: 0, {}, False)])
def test_a_server_takes_the_place_of_the_store_in_memory(monkeypatch, function, parameters,
                                                         is_needed):
    monkeypatch.setattr(chosen, "name", "minio")
    item = SimpleNamespace(path=Path("tests/storage/test_x.py"), function=function,
                           callspec=SimpleNamespace(params=parameters))
    assert chosen.needs_server(item) is is_needed


def report(name, seconds):
    return SimpleNamespace(nodeid=f"{name}::test_x", duration=seconds)


def test_long_modules_come_first_and_tests_of_one_keep_their_order():
    spark = "tests/spark/test_x.py"
    items = [SimpleNamespace(nodeid=name) for name in ("a::2", "b::2", "c::1", "b::1", "new::1",
                                                       f"{spark}::1")]
    sorted_items = tiers.longest_first(items, {"a": 0, "b": 20, "c": 30, spark: 10})
    assert [item.nodeid for item in sorted_items] \
        == [f"{spark}::1", "new::1", "c::1", "b::2", "b::1", "a::2"]


@pytest.mark.sweep
def test_two_processes_run_the_modules_of_spark_and_one_each_other_module(tmp_path):
    for module in ("spark/test_a", "spark/test_b", "spark/test_c", "test_other"):
        path = tmp_path / "tests" / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import os, pytest\n@pytest.mark.parametrize('n', range(9))\n"
                        "def test(n):\n    with open('log', 'a') as file:\n"
                        "        print(__file__, os.getpid(), file=file)")
    subprocess.run([sys.executable, "-m", "pytest", "-n", "3", "--dist", "loadgroup",
                    "--no-loadscope-reorder", "-p", "tests.sharing", "tests"], cwd=tmp_path,
                   env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    processes: dict[str, set[str]] = {}
    for line in (tmp_path / "log").read_text().splitlines():
        path, process = line.split()
        processes.setdefault(Path(path).stem, set()).add(process)
    assert [len(one) for one in processes.values()] == [1] * 4
    assert processes["test_a"] == processes["test_c"] != processes["test_b"]


def test_durations_of_other_modules_stay_until_they_are_removed(tmp_path):
    for name in ("long.py", "short.py", "other.py"):
        (tmp_path / name).touch()
    (tmp_path / "tests").mkdir()
    path = tmp_path / "tests" / "durations.json"
    path.write_text('{"long.py": 2, "short.py": 9, "other.py": 4, "removed.py": 5}')
    tiers.record_durations([report("long.py", 3.4), report("long.py", 4), report("short.py", 0.2)],
                           path)
    assert json.loads(path.read_text()) == {"long.py": 7, "other.py": 4, "short.py": 0}


def test_the_summary_names_the_folders_that_took_longest():
    reports = [report("tests/keys/test_a.py", 2), report("tests/keys/test_b.py", 1),
               report("tests/spark/test_c.py", 30), report("tests/test_d.py", 1)]
    assert tiers.seconds_of_folders(reports) == (
        "seconds by folder: tests/spark 30, tests/keys 3, tests 1")


@pytest.mark.slow
def test_the_check_tries_a_few_combinations_the_same_in_each_process(monkeypatch):
    items = [SimpleNamespace(nodeid=f"tests/test_x.py::{name}[{number}]")
             for name in ("test_many", "test_two") for number in range(30)
             if name == "test_many" or number < 2]

    def tried(tier):
        monkeypatch.setattr(tiers, "tier", tier)
        return [item.nodeid for item in tiers.few_combinations(items)]

    assert tried("test") == tried("all") == [item.nodeid for item in items]
    assert len(tried("check")) == 2 + 2
    assert tried("check") == tried("check")
    code = ("from types import SimpleNamespace; from tests import tiers; tiers.tier = 'check'; "
            f"items = [SimpleNamespace(nodeid=name) for name in {[i.nodeid for i in items]}]; "
            "print([item.nodeid for item in tiers.few_combinations(items)])")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, check=True,
                          capture_output=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    assert done.stdout == f"{tried('check')}\n"


def test_the_check_tries_some_of_many_cases(monkeypatch):
    cases = list(range(30))
    monkeypatch.setattr(tiers, "tier", "check")
    chosen = tiers.few_cases(cases, "test_x")
    assert len(chosen) == 10 and chosen == sorted(set(chosen) & set(cases))
    assert tiers.few_cases(cases, "test_x") == chosen != tiers.few_cases(cases, "test_y")
    assert tiers.few_cases(cases[:4], "test_x") == cases[:4]
    monkeypatch.setattr(tiers, "tier", "test")
    assert tiers.few_cases(cases, "test_x") == cases


def test_the_check_tries_fewer_examples(monkeypatch):
    for tier, tried in (("check", [5, 10]), ("test", [12, 100]), ("all", [12, 100])):
        monkeypatch.setattr(tiers, "tier", tier)
        assert [tiers.number_of_examples(count) for count in (12, 100)] == tried
