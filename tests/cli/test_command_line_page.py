"""docs/command-line.md: its examples, the exit codes of its table, and completion."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom.cli import doctor, main, shared
from secure_bloom.keys import Keyring
from tests.cases import for_each
from tests.doc_examples import check_outputs
from tests.tiers import sweep_where

TEXT = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
BIN = Path(sys.executable).parent


@pytest.mark.sweep
def test_examples_print_what_the_page_says(tmp_path):
    pytest.importorskip("lance", reason="the page has examples for Lance")
    check_outputs(TEXT, tmp_path, SECURE_BLOOM_KEYRING="keys.json")


def _commands(group: click.Group, path: str = "secure-bloom"):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


@for_each(("path", "command"), list(_commands(main)))
def test_the_help_of_a_command_ends_with_examples_of_the_page(path, command):
    arguments = [*path.split()[1:], "--help"]
    shown = CliRunner().invoke(main, arguments).stdout.split("Examples:\n")
    assert len(shown) == 2
    examples = _lines(shown[1])
    assert examples and all(one.startswith(path) for one in examples)
    assert set(examples) <= {*_lines(TEXT), *re.findall(r"`(secure-bloom [^`]+)`", TEXT)}


def _lines(text: str) -> list[str]:
    """Commands, without what the shell does with their output."""
    lines = (" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines())
    return [re.sub(r" (\||>) .*", "", line).removeprefix("$ ") for line in lines if line]


#: a call for each code of the table
CALLS = {
    0: ["probe", "people.parquet", "--column", "ssn", "--value", "078-05-1120"],
    1: ["probe", "people.parquet", "--column", "ssn", "--value", "000-00-0000"],
    2: ["probe", "people.parquet", "--column", "nope", "--value", "1"],
    3: ["inspect", "people.csv"],
    4: ["inspect", "people.parquet", "--keyring", "empty.json"],
    5: ["probe", "changed.parquet", "--column", "ssn", "--value", "078-05-1120"],
    6: ["policy", "check", "policy.toml", "people.parquet"],
    70: ["doctor"],
    130: ["doctor"],
}


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A folder with an encrypted file, the same file with a changed filter, and two keyrings."""
    monkeypatch.chdir(tmp_path)
    Keyring.create("empty.json")
    keyring = Keyring.create("keys.json")
    keyring.add("footer")
    keyring.add("pii")
    Path("policy.toml").write_text('sensitive = ["ssn", "nothing"]')
    Path("people.csv").write_text("ssn,city\n078-05-1120,Rome\n219-09-9999,Oslo\n")
    done = CliRunner().invoke(main, ["write", "people.csv", "people.parquet", "--keyring",
                                     "keys.json", "--footer-key", "footer", "--column-key",
                                     "pii:ssn", "--bloom", "ssn,city"])
    assert done.exit_code == 0, done.stderr
    [ssn, _] = secure_bloom.ParquetFile("people.parquet", keyring).bloom_filters
    data = bytearray(Path("people.parquet").read_bytes())
    data[ssn.offset + ssn.length - 1] ^= 1
    Path("changed.parquet").write_bytes(data)


@pytest.mark.parametrize("code", CALLS)
def test_each_exit_code_of_the_table_occurs(people, code, monkeypatch):
    raised = {70: AssertionError("a bug"), 130: KeyboardInterrupt()}
    if code in raised:
        def fail(*_):
            raise raised[code]
        monkeypatch.setattr(doctor, "_spark", fail)
    done = CliRunner().invoke(main, CALLS[code], env={"SECURE_BLOOM_KEYRING": "keys.json"})
    assert done.exit_code == code, done.output


def test_the_table_has_all_exit_codes():
    section = TEXT.split("## Exit codes")[1].split("\n## ")[0]
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert codes - {shared.PIPE} == CALLS.keys() == {
        0, shared.BAD, shared.USAGE, shared.UNREADABLE, shared.KEY, shared.TAMPERED,
        shared.UNUSED_RULES, shared.FAULT, shared.ABORTED}
    assert shared.PIPE in codes  # see test_a_reader_that_has_enough_causes_no_message


@sweep_where(lambda typed, offered: typed != ["pro"])
@pytest.mark.slow
@pytest.mark.parametrize("typed, offered", [
    (["pro"], ["probe"]), (["keyring", "re"], ["remove", "rename"]),
    (["find", "--over"], ["--overwrite"])])
def test_completion_in_bash(typed, offered):
    [line] = re.findall(r"^eval .*$", TEXT, re.MULTILINE)
    words = " ".join(["secure-bloom", *typed])
    script = f"{line}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed)}\n" \
        "complete -p secure-bloom > /dev/null\n_secure_bloom_completion secure-bloom\n" \
        'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
    assert done.stdout.split() == offered, done.stderr
