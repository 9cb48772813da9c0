"""What is public is typed: mypy knows right calls from wrong ones."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import secure_bloom
import secure_bloom.spark
import secure_bloom.spark.native
from secure_bloom.arrow.writer_options import WriterOptions

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted(HERE.glob("*_calls.py"))
_ERROR = re.compile(r"(?:.*[/\\])?(\w+\.py):(\d+): error: .*\[([a-z-]+)\]")


@pytest.fixture(scope="module")
def reported() -> dict[str, list[tuple[int, str]]]:
    """The errors in all programs by file, each with its line and code."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--strict",
         "--ignore-missing-imports", "--follow-imports=silent",
         "--cache-dir", str(ROOT / ".mypy_cache" / "programs"),
         *(str(path) for path in PROGRAMS)],
        cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, list[tuple[int, str]]] = {}
    for name, line, code in _ERROR.findall(done.stdout):
        found.setdefault(name, []).append((int(line), code))
    return found


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("program", ["right_calls.py", "right_spark_calls.py"])
def test_a_program_of_right_calls_is_accepted(reported, program):
    assert reported.get(program, []) == []


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("program", ["wrong_calls.py", "wrong_spark_calls.py"])
def test_each_wrong_call_is_rejected_in_its_line(reported, program):
    expected = [(number, code)
                for number, line in enumerate((HERE / program).read_text().split("\n"), 1)
                if "# error: " in line
                for code in line.split("# error: ")[1].split(", ")]
    assert sorted(reported[program]) == sorted(expected)


@pytest.mark.sweep
@pytest.mark.slow
def test_the_package_is_typed_also_where_pyspark_is_not_installed(tmp_path):
    config = tmp_path / "pyproject.toml"
    config.write_text((ROOT / "pyproject.toml").read_text() + """
[[tool.mypy.overrides]]
module = ["py4j.*", "pyspark.*"]
follow_imports = "skip"
""")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(config),
         "--cache-dir", str(ROOT / ".mypy_cache" / "without_pyspark")],
        cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", ["secure_bloom/__init__.py", "secure_bloom/index/__init__.py",
                                  "keys/__init__.py"])
def test_the_lazy_names_are_those_that_type_checkers_see(path):
    """Some names of ``keys`` are imported at once, for both."""
    tree = ast.parse((ROOT / path).read_text())
    [home] = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
              and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_HOME"]
    packages = dict.fromkeys(secure_bloom._PACKAGES, "secure_bloom") \
        if path == "secure_bloom/__init__.py" else {}
    [block] = [node for node in tree.body if isinstance(node, ast.If)
               and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"]
    assert {alias.asname: node.module for node in block.body for alias in node.names} \
        == home | packages


def test_the_import_of_the_package_imports_only_what_finds_its_names():
    code = ("import sys; before = set(sys.modules); import secure_bloom; "
            "print([name for name in set(sys.modules) - before if name.partition('.')[0] in "
            "('pyarrow', 'numpy', 'numba', 'pandas', 'pyspark', 'cryptography', 'thrift')"
            " or name.startswith('secure_bloom.')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['secure_bloom.public_names']"


def test_every_public_name_is_there():
    for name in secure_bloom.__all__:
        assert getattr(secure_bloom, name).__module__.startswith("secure_bloom.")
    assert secure_bloom.Keyring is secure_bloom.keys.Keyring
    assert secure_bloom.open_kms is secure_bloom.keys.open_kms


def test_the_options_for_pyarrow_are_those_of_pyarrow():
    ours = {"self", "where", "schema", "filesystem"}
    refused = {"encryption_properties", "bloom_filter_options", "options"}
    theirs = set(inspect.signature(pq.ParquetWriter.__init__).parameters) - ours - refused
    passed_on = {"coerce_timestamps", "allow_truncated_timestamps", "data_page_size"}
    assert WriterOptions.__annotations__.keys() == theirs | passed_on
    assert all(f"\n{name} : " in inspect.getdoc(pq.ParquetWriter) for name in passed_on)


FUNCTIONS = [getattr(module, name)
             for module in (secure_bloom, secure_bloom.spark, secure_bloom.spark.native)
             for name in module.__all__ if inspect.isfunction(getattr(module, name))]


@pytest.mark.parametrize("function", FUNCTIONS,
                         ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_the_help_of_a_function_explains_each_parameter_itself(function):
    text = inspect.getdoc(function)
    parameters = text.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    named = [name.strip(" *") for line in parameters.split("\n") if not line.startswith(" ")
             for name in line.partition(" : ")[0].split(",")]
    assert set(named) == set(inspect.signature(function).parameters)
    assert not re.search(r"^ +(See|As for)\b", parameters, re.MULTILINE)
