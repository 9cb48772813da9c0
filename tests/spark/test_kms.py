"""A third-party KMS, named by its URI: few calls in a whole job, and no key left anywhere."""

import base64
import json
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.fs as pa_fs
import pytest

from secure_bloom import ParquetFile, read_table
from secure_bloom.keys import Keyring, list_master_keys
from tests.spark.helpers import QUICK_JVM, Tasks, uses_spark, visible
from tests.test_secrets import forms

pytestmark = uses_spark

# A package with an entry point, as installed in site-packages: a keyring that records its calls.
MODULE = '''
import os
from urllib.parse import urlsplit
from secure_bloom.keys import Keyring

class Counting(Keyring):
    def __init__(self, path, log):
        super().__init__(path)
        self.log = log
    def note(self, what, name, key):
        with open(self.log, "a") as file:  # short lines of several processes do not mix
            file.write(f"{what} {name} {os.getpid()} {key.hex()}\\\\n")
    def wrap_key(self, key, name):
        self.note("wrap", name, key)
        return super().wrap_key(key, name)
    def unwrap_key(self, wrapped, name):
        key = super().unwrap_key(wrapped, name)
        self.note("unwrap", name, key)
        return key

def open_counting(uri):
    path, log = uri.removeprefix("counting:").split("?log=")
    return Counting(path, log)
'''.replace("\\\\n", "\\n")

JOB = '''
import sys
from pyspark.sql import SparkSession
import secure_bloom.spark

folder, kms, events, what, *settings = sys.argv[1:]
builder = (SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false")
           .config("spark.driver.host", "127.0.0.1")
           .config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", "file:" + events))
for setting in settings:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
secure_bloom.spark.register(spark)

def options(frame, **more):
    return frame.format("secure_parquet").option("keys", kms).options(**more)

encryption = {"parquet.encryption.footer.key": "pay",
              "parquet.encryption.column.keys": "pay: salary; pii: ssn, name",
              "parquet.bloom.filter.enabled#ssn": "true"}
frame = spark.range(0, 2000, 1, 4).selectExpr(
    "id", "cast(id as string) ssn", "cast(-id as string) name", "id * 7 as salary")
if what == "fail":
    frame = frame.selectExpr("*", "if(id = 1500, raise_error('this row is bad'), 1) as bad")
if what == "read":
    print("rows", options(spark.read).load(folder).count())
else:
    options(frame.write, max_rows_per_file="10", **encryption, **(
        {"parquet.encryption.double.wrapping": "false"} if what == "single" else {}
    )).mode("append").save(folder)
print("finished")
'''


@pytest.fixture
def place(tmp_path) -> Path:
    keyring = Keyring.create(tmp_path / "ring.json")
    keyring.add("pay")
    keyring.add("pii")
    package = tmp_path / "site"
    (package / "counting_kms-1.0.dist-info").mkdir(parents=True)
    (package / "counting_kms.py").write_text(MODULE)
    (package / "counting_kms-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: counting-kms\nVersion: 1.0\n")
    (package / "counting_kms-1.0.dist-info" / "entry_points.txt").write_text(
        "[secure_bloom.kms]\ncounting = counting_kms:open_counting\n")
    for name in ("events", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path


def run(place: Path, what: str) -> tuple[subprocess.CompletedProcess, Counter]:
    """A Spark job of its own, and the calls that the KMS got."""
    log = place / f"{what}.log"
    path = os.pathsep.join([str(place / "site"), *sys.path])
    uri = f"counting:{place / 'ring.json'}?log={log}"
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(place / "data"), uri, str(place / "events"), what,
         f"spark.driver.extraJavaOptions={QUICK_JVM} -Djava.io.tmpdir={place / 'tmp'}",
         f"spark.local.dir={place / 'tmp'}"],
        capture_output=True, text=True, timeout=300, check=False, cwd=place,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path,
                          "TMPDIR": str(place / "tmp")})
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return done, Counter((what, name) for what, name, *_ in lines)


def keys_seen(place: Path) -> set[bytes]:
    """Keys that the KMS has seen; its log goes."""
    keys = set()
    for log in place.glob("*.log"):
        keys |= {bytes.fromhex(line.split()[-1]) for line in log.read_text().splitlines()}
        log.unlink()
    return keys


def test_the_driver_wraps_a_key_for_each_master_key(spark, tmp_path, keyring, encrypted,
                                                    monkeypatch):
    """Tasks ask no KMS, and no option that they receive has a key."""
    wrapped, wrap = [], Keyring.wrap_key
    monkeypatch.setattr(Keyring, "wrap_key", lambda self, key, name: wrapped.append(name)
                        or wrap(self, key, name))
    tasks = Tasks(spark, tmp_path / "t", encrypted, monkeypatch)
    assert sorted(wrapped) == ["footer", "pii"]
    keyring.path.rename(tmp_path / "elsewhere.json")
    tasks.writer.commit([tasks.run(), tasks.run()])
    assert sorted(wrapped) == ["footer", "pii"]
    options = pickle.dumps(tasks.writer._options)
    ring = Keyring(tmp_path / "elsewhere.json")
    assert not any(key in options for key in ring._master_keys().values())
    assert read_table(tmp_path / "t", keys=ring).num_rows == 200


@pytest.mark.sweep
def test_a_job_of_200_files_wraps_once_for_each_master_key(place):
    done, calls = run(place, "write")
    assert "finished" in done.stdout, done.stderr
    assert len(visible(place / "data")) == 200
    assert calls == {("wrap", "pay"): 1, ("wrap", "pii"): 1}
    done, calls = run(place, "read")
    assert "rows 2000" in done.stdout, done.stderr
    lines = [line.split() for line in (place / "read.log").read_text().splitlines()]
    by_process = Counter((name, process) for _, name, process, _ in lines)
    assert set(by_process.values()) == {1} and {name for _, name, *_ in lines} == {"pay", "pii"}
    inventory = list_master_keys(place / "data", Keyring(place / "ring.json"))
    assert [(use.name, use.files, use.used_for) for use in inventory.master_keys] \
        == [("pay", 200, ["footer", "salary"]), ("pii", 200, ["ssn", "name"])]

    class Counting(Keyring):
        calls = 0

        def unwrap_key(self, wrapped_key, master_key_identifier):
            self.calls += 1
            return super().unwrap_key(wrapped_key, master_key_identifier)

    kms = Counting(place / "ring.json")
    assert read_table(place / "data", keys=kms).num_rows == 2000
    for name in visible(place / "data")[:20]:
        with ParquetFile(name, kms, filesystem=pa_fs.SubTreeFileSystem(
                str(place / "data"), pa_fs.LocalFileSystem())) as file:
            assert file.read_bloom_filter(0, "ssn") is not None
    assert kms.calls == 2


@pytest.mark.sweep
def test_with_single_wrapping_the_tasks_ask_the_kms(place):
    done, calls = run(place, "single")
    assert "finished" in done.stdout, done.stderr
    assert calls[("wrap", "pay")] >= 400 and calls[("wrap", "pii")] >= 400
    # Each file, and the one without rows that the driver writes to memory, checks its master keys.
    assert calls[("unwrap", "pay")] == calls[("unwrap", "pii")] == 201
    assert read_table(place / "data", keys=Keyring(place / "ring.json")).num_rows == 2000


@pytest.mark.sweep
def test_nothing_that_a_failing_job_leaves_holds_a_key(place):
    """Neither its output, nor the event log, nor what Spark keeps in temporary files."""
    done, calls = run(place, "fail")
    assert "this row is bad" in done.stderr and "finished" not in done.stdout
    assert calls == {("wrap", "pay"): 1, ("wrap", "pii"): 1}
    keys = keys_seen(place)
    ring = json.loads((place / "ring.json").read_text())["keys"]
    keys |= {base64.b64decode(key) for key in ring.values()}
    (place / "ring.json").unlink()
    left = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    left |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    assert any("events" in str(path) for path in left) and len(keys) == 4
    assert re.search(rb"secure_parquet|secure_bloom", b"".join(left.values()))
    assert not [path for path, content in left.items() for key in keys
                if any(form in content for form in forms(key))]
