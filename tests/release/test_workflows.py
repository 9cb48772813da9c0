"""The workflows of CI run what make runs, with few permissions, and pin what they use."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.environments.cells import CELLS

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text())
             for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
STEPS = [pytest.param(step, id=f"{name}-{job}-{number}")
         for name, workflow in WORKFLOWS.items() for job, content in workflow["jobs"].items()
         for number, step in enumerate(content["steps"])]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def jobs():
    return [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]


def test_there_are_workflows_for_changes_for_every_night_and_for_releases():
    assert WORKFLOWS.keys() == {"checks", "nightly", "release"}
    run = " ".join(step.get("run", "") for job in jobs() for step in job["steps"])
    assert {"lint", "test", "test-sweep", "docs", "soak", "environments", "release"} \
        <= set(run.split())


@pytest.mark.parametrize("step", STEPS)
def test_a_step_runs_targets_of_make_or_a_pinned_action(step):
    assert ("run" in step) != ("uses" in step)
    if "uses" in step:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
        return
    program, *words = shlex.split(step["run"])
    assert program in (".ci/run", "make")
    targets = {word for word in words if "=" not in word}
    assert targets and targets <= TARGETS


@pytest.mark.parametrize("name", WORKFLOWS)
def test_pinned_actions_say_which_version_they_are(name):
    """And one action is pinned to the same commit everywhere."""
    text = "".join(path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    used = re.findall(r"uses: ([^@\s]+)@(\S+)(.*)", text)
    assert all(re.fullmatch(r" # v\d+\.\d+\.\d+", comment) for _, _, comment in used)
    assert len({action for action, _, _ in used}) == len(set(used))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_permissions_are_few(name):
    """Only the job that publishes can obtain a token, and it runs no code of the repository."""
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    for job, content in WORKFLOWS[name]["jobs"].items():
        if (name, job) == ("release", "publish"):
            assert content["permissions"] == {"id-token": "write"} and content["environment"]
            assert not [step for step in content["steps"] if "run" in step
                        or step["uses"].startswith("actions/checkout@")]
        else:
            assert "permissions" not in content
            checkout = content["steps"][0]
            assert checkout["uses"].startswith("actions/checkout@")
            assert checkout["with"]["persist-credentials"] is False
        assert content["timeout-minutes"] <= 240


def test_no_text_of_a_change_becomes_part_of_a_command():
    """Titles and names of branches are written by others."""
    assert [step for job in jobs() for step in job["steps"] if "${{" in step.get("run", "")] == []


def test_the_night_tries_every_cell_of_the_matrix():
    cells = WORKFLOWS["nightly"]["jobs"]["newest-and-oldest"]["strategy"]["matrix"]["include"]
    assert cells == [{"cell": cell.name, "python": cell.python} for cell in CELLS]
