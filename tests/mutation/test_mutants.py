"""The faults that are put into modules, and what becomes of them."""

import json
from collections import Counter
from pathlib import Path

import pytest
from coverage import Coverage

from tests.mutation.covering import Covering
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.report import EXPLAINED, PAGE, ROOMS, Tried, explained, summary, survivors
from tests.mutation.runner import Workplace

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("source", "mutated"), [
    ("a < b", ["(a <= b)"]),
    ("a is not None", ["(a is None)"]),
    ("a < b < c", ["(a <= b < c)", "(a < b <= c)"]),
    ("a + b", ["(a - b)"]),
    ("a and b", ["(b)", "(a)", "(a or b)"]),
    ("not a", ["(a)"]),
    ("a if b else c", ["(c if b else a)"]),
    ("7", ["8"]),
    ("True", ["False"]),
    ("b'a'", ["b'ax'"]),
    ("'text'", []),
    ("f'{1 + 1}'", []),
    ("'a' + b", []),
])
def test_expressions_are_changed(source, mutated):
    line = f"x = {source}"
    assert sorted(one.applied_to(line) for one in mutants_of("m.py", line)) == sorted(
        f"x = {one}" for one in mutated)


@pytest.mark.parametrize(("source", "mutated"), [
    ("if a:\n    f()", ["if (not a):\n    f()", "if a:\n    pass"]),
    ("for a in b:\n    break", ["for a in b:\n    continue"]),
    ("for a in b:\n    continue", ["for a in b:\n    pass"]),
    ("raise E('ä')", ["pass"]),
    ("a += b", ["pass"]),
    ("def f() -> int | None:\n    return a", ["def f() -> int | None:\n    return None"]),
    ("def f(a: int = b):\n    return None", []),
    ("if TYPE_CHECKING:\n    f()", []),
])
def test_statements_are_changed(source, mutated):
    found = {one.applied_to(source) for one in mutants_of("m.py", source)}
    assert found == set(mutated)


@pytest.mark.slow
def test_every_mutant_of_the_core_is_valid_python():
    count = 0
    for room in ROOMS:
        for path in (ROOT / "secure_bloom" / room).rglob("*.py"):
            source = path.read_text()
            for mutant in mutants_of(str(path), source)[::20]:
                compile(mutant.applied_to(source), path, "exec")
                count += 1
    assert count > 200


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    (root / "secure_bloom" / "room").mkdir(parents=True)
    (root / "secure_bloom" / "__init__.py").touch()
    (root / "secure_bloom" / "room" / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    (root / "test_sums.py").write_text("""
import pytest
from secure_bloom.room.sums import add
@pytest.mark.parametrize("sum", [add(1, 1)])
def test_named(sum): assert sum == 2
def test_weak(): assert add(0, 0) == 0
def test_strong(): assert add(1, 2) == 3
def test_broken(): assert False
def test_endless():
    while add(0, 1) != 1: pass
""")
    return root


@pytest.fixture
def workplace(tree, tmp_path):
    return Workplace(tree, tmp_path / "place", "--rootdir", ".")


def mutant_of(tree: Path, after: str) -> Mutant:
    file = "secure_bloom/room/sums.py"
    [mutant] = [one for one in mutants_of(file, (tree / file).read_text()) if one.after == after]
    return mutant


@pytest.mark.sweep
@pytest.mark.slow
def test_a_mutant_is_killed_by_a_test_that_passes_without_it(tree, workplace):
    mutant = mutant_of(tree, "(a - b)")
    names = ["test_broken", "test_weak", "test_strong"]
    done = workplace.try_mutant(mutant, [f"test_sums.py::{name}" for name in names], 10)
    assert (done.outcome, done.test) == ("killed", "test_sums.py::test_strong")
    assert workplace.try_mutant(mutant, ["test_sums.py::test_weak"], 10).outcome == "survived"


@pytest.mark.sweep
@pytest.mark.slow
def test_a_mutant_that_cannot_be_imported_is_killed(tree, workplace):
    line = Mutant("secure_bloom/room/sums.py", 1, 0, 0, "deletion", "", "raise ValueError\n")
    done = workplace.try_mutant(line, ["test_sums.py::test_weak"], 10)
    assert (done.outcome, done.test) == ("killed", "test_sums.py")


@pytest.mark.sweep
@pytest.mark.slow
def test_a_mutant_that_renames_the_parameters_of_a_test_is_killed(tree, workplace):
    done = workplace.try_mutant(mutant_of(tree, "(a - b)"), ["test_sums.py::test_named[2]"], 10)
    assert done.outcome == "killed"


@pytest.mark.sweep
@pytest.mark.slow
def test_a_mutant_that_never_ends_is_killed_by_the_time_limit(tree, workplace, monkeypatch):
    monkeypatch.setattr("tests.mutation.runner._START", 1.0)
    done = workplace.try_mutant(mutant_of(tree, "(a - b)"), ["test_sums.py::test_endless"], 0.5)
    assert (done.outcome, done.test) == ("time", None)


def test_the_quick_tests_of_a_line_come_first(tmp_path):
    module = tmp_path / "secure_bloom" / "room" / "m.py"
    module.parent.mkdir(parents=True)
    module.write_text("def f():\n    return 1\na = 2\n")
    measured = Coverage(data_file=tmp_path / ".coverage", source=[tmp_path])
    data = measured.get_data()
    seconds = {"tests/room/t.py::slow": 9, "tests/room/t.py::quick": 1, "tests/x.py::quickest": .1}
    for test in [*seconds, "tests/room/t.py::failed"]:
        data.set_context(test)
        data.add_lines({str(module): [2]})
    data.set_context(next(iter(seconds)))  # it imports the module
    data.add_lines({str(module): [3]})
    data.write()
    (tmp_path / "seconds.json").write_text(json.dumps(seconds))
    covering = Covering(tmp_path, tmp_path)
    slow, quick, quickest = seconds
    assert covering.tests("secure_bloom/room/m.py", 2, 100) == [quick, slow, quickest]
    assert covering.tests("secure_bloom/room/m.py", 2, 5) == [quick]
    assert covering.tests("secure_bloom/room/m.py", 3, 100) == [quick, slow, quickest]
    assert covering.tests("secure_bloom/room/constants.py", 1, 100) == [quick, slow]
    assert covering.tests("secure_bloom/room/m.py", 99, 100) == [quick, slow, quickest]


@pytest.mark.slow
def test_each_explained_mutant_exists():
    """An explanation whose line has changed is not one any more."""
    for (file, line, after), reason in explained().items():
        source = (ROOT / file).read_text()
        lines = source.splitlines()
        assert any(one.after == after and lines[one.line - 1].strip() == line
                   for one in mutants_of(file, source)), (EXPLAINED.name, file, line, after)
        assert len(reason) > 20


def test_the_figures_leave_out_what_is_explained(monkeypatch):
    def tried(outcome, line):
        return Tried("secure_bloom/crypto/m.py", 1, line, "sign", "not a", "(a)", outcome, None, 3,
                     1.0)

    monkeypatch.setattr("tests.mutation.report.explanation", lambda one: one.source == "known")
    mutants = [tried("killed", "a"), tried("time", "a"), tried("survived", "a"),
               tried("survived", "known")]
    rows = summary(dict(enumerate(mutants)), Counter(crypto=1000, index=5))
    assert rows[2] == "| `crypto` | 1,000 | 4 | 2 | 1 | 1 | 66.7% |"
    assert rows[-1].startswith("| all | 1,005 | 4 |")
    assert survivors(dict(enumerate(mutants))) == [
        "- `secure_bloom/crypto/m.py:1: sign: not a -> (a)`"]
    assert "<!-- mutants -->" in PAGE.read_text() and "<!-- survivors -->" in PAGE.read_text()
