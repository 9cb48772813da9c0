"""The command doctor."""

import json
import os

import pytest
from click.testing import CliRunner

from secure_bloom.cli import doctor, main
from secure_bloom.keys import InMemoryKms, Keyring


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


def test_it_names_every_package_of_a_kms(without_spark):
    """A KMS client needs all packages of its extra that others do not bring along."""
    _, found = run()
    assert {"boto3", "azure-identity", "azure-keyvault-keys", "google-cloud-kms", "google-crc32c",
            "urllib3", "python-pkcs11"} <= found.keys()


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

    [finding] = doctor._keys(lambda: Liar({"pii": b"k" * 16}), "pii")
    assert finding.state == "problem" and "another key" in finding.detail


@pytest.mark.parametrize("option", [["--keys", "none.json"], ["--keys", "nowhere:x"]])
def test_a_kms_of_an_option_that_cannot_be_opened_is_a_problem(option):
    code, found = run(*option)
    assert code == 1 and option[1][:7] in found["keys"]["detail"]


@pytest.mark.parametrize("error", [ValueError("odd"), OSError("odd"), RuntimeError()], ids=repr)
def test_any_error_of_a_kms_is_a_problem(error):
    class Odd(InMemoryKms):
        def wrap_key(self, key_bytes, master_key_identifier):
            raise error

    [finding] = doctor._keys(lambda: Odd({"pii": b"k" * 16}), "pii")
    assert finding.state == "problem" and finding.detail == (str(error) or "RuntimeError")


def test_a_package_that_is_missing_is_a_problem_only_if_it_is_required():
    found = [doctor._package("no-such-package", "install it", is_required=required)
             for required in (True, False)]
    assert [one.state for one in found] == ["problem", "note"]
    assert all(one.remedy == "install it" for one in found)


@pytest.mark.parametrize("version, state", [
    ('openjdk version "17.0.2"', "ok"), ('java version "1.8.0_292"', "problem"), ("?", "problem"),
    ("\udcff", "problem"), (f'version "{"0" * 5000}1"', "problem")], ids=lambda text: text[:9])
def test_the_version_of_java(version, state, tmp_path, monkeypatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_bytes(os.fsencode(f"#!/bin/sh\necho '{version}' >&2\n"))
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


@pytest.mark.parametrize("output", ["", "hello", "1", "[1, 2]", "\udcff"], ids=ascii)
def test_a_program_that_is_not_python_is_no_python_for_the_workers(tmp_path, output):
    pytest.importorskip("pyspark")
    from secure_bloom.spark.worker_python import fault
    program = tmp_path / "program"
    program.write_bytes(os.fsencode(f"#!/bin/sh\necho '{output}'\n"))
    program.chmod(0o755)
    assert fault(str(program)) == "cannot be run as Python"
