"""In local mode, the data source runs in a Python with secure_bloom, whatever the workers use."""

import os
import shlex
import subprocess
import sys
import venv
import warnings
from types import SimpleNamespace

import pyarrow as pa
import pyspark
import pytest

import secure_bloom
from secure_bloom import write_table
from secure_bloom.spark import worker_python
from secure_bloom.spark.worker_python import fitting_python
from tests.spark.helpers import own_spark
from tests.support import run_python

PROGRAM = """
import secure_bloom.spark

python, folder = sys.argv[1:]
secure_bloom.spark.register(spark)
writer = spark.range(5).write.format("secure_parquet").option("plaintext", "true")
writer.mode("append").save(folder)
assert spark.read.format("secure_parquet").load(folder).count() == 5
assert len(secure_bloom.spark.attach(spark, folder, {"id": True}).changed) == 1
assert spark.sparkContext.pythonExec == python  # that of the user's own functions
"""


@pytest.fixture
def bare(tmp_path) -> str:
    """A Python in which nothing is installed."""
    venv.create(tmp_path / "bare", symlinks=True)
    return str(tmp_path / "bare" / "bin" / "python")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(worker_python, "_fitting", {})


def session(python, master="local[2]"):
    return SimpleNamespace(_jsparkSession=None,
                           sparkContext=SimpleNamespace(pythonExec=python, master=master))


def used(spark) -> str:
    with fitting_python(spark):
        return spark.sparkContext.pythonExec


def program(path, text) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.spark
@pytest.mark.sweep
def test_a_bare_python_of_the_workers_does_not_matter(tmp_path, bare):
    result = own_spark(PROGRAM, bare, tmp_path / "t", PYSPARK_PYTHON=bare, PYTHONPATH="",
                       settings={"spark.master": "local[1]"})
    assert result.returncode == 0, result.stderr


def _pyspark_of_a_worker(spark) -> tuple[str, list[str]]:
    """Return where a worker has imported PySpark from, and its PYTHONPATH."""
    def found(batches):
        import pyspark
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"file": [pyspark.__file__], "path": [os.environ["PYTHONPATH"]]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(found, "file string, path string").collect()
    return row["file"], row["path"].split(os.pathsep)


@pytest.mark.sweep
@pytest.mark.spark
def test_workers_import_the_pyspark_that_is_installed(spark):
    archive, others = _pyspark_of_a_worker(spark)  # of the user's own functions, as Spark starts it
    assert "pyspark.zip" in archive
    own = spark.sparkContext.pythonExec
    with fitting_python(spark):
        installed, path = _pyspark_of_a_worker(spark)
        assert spark.sparkContext.pythonExec != own
    assert spark.sparkContext.pythonExec == own
    assert installed == pyspark.__file__
    home = os.path.dirname(pyspark.__file__)
    assert path == ([entry for entry in others if not entry.startswith(home)] or [""])


@pytest.mark.slow
@pytest.mark.parametrize("used, unused", [
    ("source.schema()", "secure_bloom.spark.reading.reader secure_bloom.spark.writing.writer"),
    ("source.reader(source.schema())", "secure_bloom.spark.writing.writer"),
    ("source.writer(StructType().add('id', 'long'), False)", "secure_bloom.spark.reading.reader")])
def test_a_process_of_sparks_imports_what_it_needs_only(tmp_path, used, unused):
    write_table(pa.table({"id": [1]}), tmp_path / "t.parquet")
    printed = run_python(f"""
import sys
from pyspark.sql.types import StructType
from secure_bloom.spark.source import SecureParquet
source = SecureParquet({{"path": {str(tmp_path)!r}, "plaintext": "true"}})
{used}
print([name for name in {unused.split()} if name in sys.modules])""")
    assert printed == "[]\n"


@pytest.mark.parametrize("before, after", [
    ("/spark home/python/lib/pyspark.zip:/spark home/jars/core.jar", ""),
    ("/spark home/lib.zip:/mine:/with space/*:/spark home/x", "/mine:/with space/*"),
    ("/spark homes/lib.zip", "/spark homes/lib.zip")])
def test_only_the_archives_of_spark_are_taken_out_of_the_path(tmp_path, before, after):
    launcher = tmp_path / "python"
    launcher.write_text(worker_python._LAUNCHER.format(home=shlex.quote("/spark home"),
                                                       python=shlex.quote(sys.executable)))
    launcher.chmod(0o755)
    shown = subprocess.run(
        [launcher, "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "a b"],
        env={"PYTHONPATH": before}, capture_output=True, text=True, check=True).stdout
    assert shown == f"{after} ['a b']\n"


@pytest.mark.parametrize("home", [None, "/none", os.path.dirname(os.__file__)])
def test_with_another_pyspark_than_the_installed_one_workers_run_as_spark_says(tmp_path, home):
    jvm = SimpleNamespace(System=SimpleNamespace(getenv=lambda name: home))
    context = SimpleNamespace(_temp_dir=str(tmp_path), _jvm=jvm)
    assert worker_python._without_archives(context, sys.executable) == sys.executable


def test_each_python_has_a_launcher_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_python, "_output", lambda command: str(tmp_path / "init"))
    jvm = SimpleNamespace(System=SimpleNamespace(getenv=lambda name: str(tmp_path)))
    context = SimpleNamespace(_temp_dir=str(tmp_path), _jvm=jvm)
    names = ["a-b", "a_b", "a b"]
    for name in names:
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{name}'\n")
        (tmp_path / name).chmod(0o755)
    for name in names * 2:
        launcher = worker_python._without_archives(context, str(tmp_path / name))
        assert subprocess.run([launcher], capture_output=True, text=True).stdout == f"{name}\n"
    assert len([*tmp_path.glob("python-*")]) == len(names)


def test_a_python_that_fits_is_used_and_looked_at_once(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(worker_python, "fault", lambda python: calls.append(python))
    for _ in range(3):
        assert used(session("/some/python")) == "/some/python"
    assert calls == ["/some/python"]


def test_one_that_does_not_fit_is_looked_at_once(tmp_path, bare, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spark = session(bare)
    assert used(spark) == sys.executable and spark.sparkContext.pythonExec == bare
    monkeypatch.setattr(worker_python, "fault", None)  # not called again
    assert used(session(bare)) == sys.executable


def test_the_python_itself_is_asked(tmp_path, bare, monkeypatch):
    assert worker_python.fault(sys.executable) is None
    assert "does not have secure_bloom" in worker_python.fault(bare)
    # It is found in the current folder, but its dependencies are not.
    monkeypatch.chdir(os.path.dirname(os.path.dirname(secure_bloom.__file__)))
    assert "or its dependencies" in worker_python.fault(bare)
    assert worker_python.fault(str(tmp_path / "none")) == "cannot be run"
    own = f"[{sys.version_info[0]}, {sys.version_info[1]}]"
    older = program(tmp_path / "older", f"echo '[{own}, \"0.0.1\"]'")
    assert worker_python.fault(older) == (
        f"has secure_bloom 0.0.1, but the driver has {secure_bloom.__version__}")
    other = program(tmp_path / "other", f"echo '[[3, 8], \"{secure_bloom.__version__}\"]'")
    assert worker_python.fault(other).startswith("is Python 3.8, but the driver uses 3.")


def test_a_warning_of_one_line_says_what_to_do_where_no_python_fits(bare, monkeypatch):
    monkeypatch.setattr(worker_python, "fault", lambda python: "does not have secure_bloom")
    with pytest.warns(UserWarning, match="install secure_bloom .* there, or set PYSPARK_PYTHON "
                                         "to a Python .* before the session") as caught:
        assert used(session(bare)) == bare
    [warning] = caught
    assert "\n" not in str(warning.message) and bare in str(warning.message)


def test_on_a_cluster_nothing_is_looked_at(monkeypatch):
    monkeypatch.setattr(worker_python, "fault", None)
    for master in ("yarn", "spark://host:7077", "k8s://host", "local-cluster[1,1,1024]"):
        assert used(session("/some/python", master)) == "/some/python"
    monkeypatch.delenv("SPARK_LOCAL_REMOTE", raising=False)
    with fitting_python(SimpleNamespace()):  # a Spark Connect session
        pass


def test_a_local_connect_server_can_only_be_warned_about(monkeypatch, bare, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_LOCAL_REMOTE", "1")
    monkeypatch.setenv("PYSPARK_PYTHON", bare)
    with pytest.warns(UserWarning, match="PYSPARK_PYTHON"), fitting_python(SimpleNamespace()):
        pass
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings(action="error"), fitting_python(SimpleNamespace()):
        pass
