"""The command doctor, and the page about the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from secure_bloom.cli import doctor, main
from secure_bloom.keys import InMemoryKms, Keyring
from tests.doc_examples import run_examples

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def run(*arguments: str) -> tuple[int, dict[str, dict]]:
    """Return the exit code, and the findings by subject."""
    done = CliRunner().invoke(main, ["doctor", "--json", *arguments])
    found = json.loads(done.stdout)
    problems = [one for one in found["findings"] if one["state"] == "problem"]
    assert done.exit_code == bool(problems) and found["ok"] == (not problems)
    return done.exit_code, {one["subject"]: one for one in found["findings"]}


@pytest.fixture
def keyring(tmp_path) -> str:
    path = tmp_path / "keys.json"
    Keyring.create(path).add("pii")
    return str(path)


@pytest.fixture
def without_spark(monkeypatch):
    """Java and Spark's Python are not looked for."""
    monkeypatch.setattr(doctor, "_spark", lambda: [])


@pytest.mark.slow
def test_it_says_what_is_installed():
    done = CliRunner().invoke(main, ["doctor"])
    assert "ok      pyarrow: " in done.stdout and "ok      kernels: " in done.stdout
    assert "SECURE_BLOOM_KEYRING" in done.stdout  # no keys


def test_a_master_key_is_tried(keyring, without_spark):
    _, found = run("--keyring", keyring, "--key", "pii")
    assert found["keys"]["state"] == "ok"
    assert found["keys"]["detail"] == "Keyring wraps and unwraps with 'pii'"


def test_an_unknown_master_key_is_a_problem(keyring, without_spark):
    code, found = run("--keyring", keyring, "--key", "other")
    assert code == 1 and found["keys"]["state"] == "problem" and found["keys"]["remedy"]


def test_a_keyring_of_the_environment_that_is_missing_is_a_problem(tmp_path, monkeypatch,
                                                                    without_spark):
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(tmp_path / "none.json"))
    code, found = run()
    assert code == 1 and "none.json" in found["keys"]["detail"]


def test_a_kms_that_returns_another_key_is_a_problem():
    class Liar(InMemoryKms):
        def unwrap_key(self, wrapped_key, master_key_identifier):
            return b"0" * 16

    [finding] = doctor._keys(Liar({"pii": b"k" * 16}), "pii")
    assert finding.state == "problem" and "another key" in finding.detail


def test_a_package_that_is_missing_is_a_problem_only_if_it_is_required():
    found = [doctor._package("no-such-package", "install it", is_required=required)
             for required in (True, False)]
    assert [one.state for one in found] == ["problem", "note"]
    assert all(one.remedy == "install it" for one in found)


@pytest.mark.parametrize("version, state", [
    ('openjdk version "17.0.2"', "ok"), ('java version "1.8.0_292"', "problem"), ("?", "problem")])
def test_the_version_of_java(version, state, tmp_path, monkeypatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor._java().state == state


def test_no_java_is_a_problem(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._java().state == "problem"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "cannot be run" in doctor._java().detail


@pytest.mark.slow
def test_a_python_without_secure_bloom_is_noted(monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/false")
    _, found = run()
    assert found["Python of Spark's workers"]["state"] == "note"


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    *_, doctor_, completion = run_examples(PAGE.read_text(), tmp_path)
    assert "Keyring wraps and unwraps with 'pii'" in doctor_.stdout
    assert completion.returncode == 0


def test_the_page_names_all_commands():
    text = PAGE.read_text()
    assert all(f"`{name}`" in text for name in main.commands)
