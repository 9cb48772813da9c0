"""Jobs in separate Spark applications: a cluster, what it shows and stores, Spark Connect."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.fs as pa_fs
import pyspark
import pytest

from secure_bloom import ParquetFile
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys import Keyring
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.spark import native
from secure_bloom.storage.visibility import data_files
from tests.spark.helpers import QUICK_JVM, own_spark, uses_spark
from tests.test_secrets import forms

pytestmark = uses_spark

JOB = '''
import json, logging, os, sys, time, urllib.request
from pyspark.sql import SparkSession
from secure_bloom import EncryptionConfiguration
from secure_bloom.keys import Keyring
from secure_bloom.spark import native

place, pipe = sys.argv[1], os.fdopen(int(sys.argv[2]), "w")  # to the test, and to nobody else
logging.basicConfig(level=logging.DEBUG)  # also what py4j sends

class Telling(Keyring):
    def wrap_key(self, key, name):
        print(key.hex(), file=pipe, flush=True)
        return super().wrap_key(key, name)

kms = Telling(place + "/ring.json")
spark = (SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.port", "0")
         .config("spark.driver.host", "127.0.0.1").config("spark.log.level", "DEBUG")
         .config("spark.eventLog.enabled", "true").config("spark.eventLog.compress", "false")
         .config("spark.eventLog.rolling.enabled", "false")
         .config("spark.eventLog.dir", "file:" + place + "/events")
         .config("spark.executor.extraJavaOptions", "-Djava.io.tmpdir=" + place + "/tmp")
         .config("spark.sql.warehouse.dir", place + "/tables").getOrCreate())
native.enable(spark)
logging.disable(logging.DEBUG)  # for what only this test asks py4j
secret = spark.sparkContext._jsc.hadoopConfiguration().get("secure_bloom.native.secret.key")
logging.disable(logging.NOTSET)
for start in range(700, len(secret) - 40, 100):  # before is the public half
    print("text", secret[start:start + 40], file=pipe, flush=True)
encryption, filters = EncryptionConfiguration("pay", {"pii": ["ssn"]}), {"ssn": True}
options = native.write_options(encryption=encryption, bloom_filters=filters, keys=kms)
print(options)
frame = spark.range(0, 2000, 1, 4).selectExpr("id", "concat('ssn-', id) ssn", "id % 3 as day")
frame.write.options(**options).partitionBy("day").parquet(place + "/data")
frame.write.options(**options).saveAsTable("people")
print(spark.sql("describe extended people").collect())
for name, value in options.items():
    spark.conf.set(name, value)
spark.sql("insert into people select * from people limit 0")
print(spark.sql("set").collect())
for name in options:
    spark.conf.unset(name)
print(native.verify(place + "/data", encryption=encryption, bloom_filters=filters,
                    keys=kms).to_dict())
try:
    frame.selectExpr("id", "raise_error('this row is bad') as ssn").write.options(
        **options).parquet(place + "/bad")
except Exception as error:
    print(error)
keys = native.read_options(place + "/data", keys=kms)
print(keys)
people = spark.read.options(**keys).parquet(place + "/data")
people.createOrReplaceTempView("v")
people.where("ssn = 'ssn-77'").explain("extended")
print("rows", people.count(), people.where("ssn = 'ssn-77'").collect())
spark.sparkContext.addFile(place + "/ring.json.txt")  # Spark shows all settings again
time.sleep(2)
pages = ["jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/"]
pages += [f"SQL/execution/?id={number}" for number in range(8)]
application = f"api/v1/applications/{spark.sparkContext.applicationId}/"
pages += [application + what for what in ("environment", "sql", "jobs", "stages")]
for number, page in enumerate(pages):
    with urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}/{page}") as answer:
        with open(f"{place}/ui/{number}", "wb") as file:
            file.write(answer.read())
spark.stop()
print("finished")
'''


@pytest.fixture
def place(tmp_path) -> Path:
    for name in ("events", "tmp", "user's temporary files", "ui", "spark"):
        (tmp_path / name).mkdir()
    keyring = Keyring.create(tmp_path / "ring.json")
    keyring.add("pay")
    keyring.add("pii")
    (tmp_path / "ring.json.txt").write_text("no keys")
    for entry in Path(pyspark.__file__).parent.iterdir():  # its workers write to the jars' folder
        (tmp_path / "spark" / entry.name).symlink_to(entry)
    return tmp_path


def data_keys(place: Path) -> set[bytes]:
    kms, found = KmsKeys(Keyring(place / "ring.json")), set()
    for path in data_files(pa_fs.LocalFileSystem(), str(place / "data")):
        with ParquetFile(path, kms.kms) as file:
            found.add(kms.footer_key(file.footer.footer_key_metadata))
            found |= {kms.column_key("", chunk.key_metadata)
                      for chunk in file.footer.row_groups[0] if chunk.key_metadata}
    return found


@pytest.mark.sweep
def test_nothing_that_a_cluster_shows_or_keeps_holds_a_key(place):
    """Neither UI, event log, output, executor logs at DEBUG, options, nor temporary files."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        done = subprocess.Popen(
            [sys.executable, "-c", JOB, str(place), str(writer)], pass_fds=[writer], cwd=place,
            stdout=(place / "stdout").open("wb"), stderr=(place / "stderr").open("wb"),
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "TMPDIR": str(place / "tmp"),
                              "SPARK_HOME": str(place / "spark"),
                              "SPARK_LOCAL_DIRS": str(place / "user's temporary files"),
                              "JDK_JAVA_OPTIONS": QUICK_JVM})
        os.close(writer)
        told = pipe.read().splitlines()
        done.wait(timeout=300)
    output = (place / "stdout").read_text()
    assert "finished" in output, (place / "stderr").read_text()[-3000:]
    assert "rows 2000 [Row(id=77, ssn='ssn-77', day=2)]" in output
    assert "this row is bad" in output and "'encrypted_filters': 12" in output
    texts = {line.split()[1].encode() for line in told if line.startswith("text")}
    keys = {bytes.fromhex(line) for line in told if not line.startswith("text")}
    assert len(texts) > 10 and len(keys) == 2
    keys |= data_keys(place)
    assert len(keys) == 2 + 2 * 12
    ring = (place / "ring.json").read_text()
    keys |= {base64.b64decode(key) for key in re.findall(r'"([A-Za-z0-9+/=]{20,})"', ring)}
    (place / "ring.json").unlink()
    left = {path: path.read_bytes() for path in place.rglob("*")
            if path.is_file() and not (path.suffix == ".jar" and path.is_relative_to(
                place / "spark" / "jars"))}
    assert any(b"(redacted)" in content and b"secure_bloom.native.secret.key" in content
               for path, content in left.items() if path.parent.name == "ui")
    shown = b"".join(content for path, content in left.items() if path.parent.name == "ui")
    assert b"secure_bloom.native.write" in shown  # the options are shown, sealed
    events = b"".join(content for path, content in left.items() if path.parent.name == "events")
    assert b"SparkListenerEnvironmentUpdate" in events and b"(redacted)" in events
    logs = [content for path, content in left.items() if path.name == "stderr"]
    assert len(logs) == 3 and any(b"DEBUG" in log and b"parquet" in log for log in logs)
    assert b"py4j" in (place / "stderr").read_bytes()
    assert not [path for path, content in left.items() for text in texts if text in content]
    assert not [path for path, content in left.items() for key in keys
                if any(form in content for form in forms(key))]


CONNECT = '''
from secure_bloom import EncryptionConfiguration
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys import InMemoryKms
from secure_bloom.spark import native
assert "connect" in type(spark).__module__
kms, encryption = InMemoryKms({"k": bytes(16)}), EncryptionConfiguration("k", {"k": ["a"]})
for attempt in (lambda: native.enable(spark), lambda: native.read_options("x", keys=kms),
                lambda: native.write_options(encryption=encryption, bloom_filters={}, keys=kms)):
    try:
        attempt()
    except UnsupportedError as error:
        print(error)
spark.stop()
'''


def test_a_setting_with_which_spark_would_show_the_key(spark, monkeypatch):
    session, conf = spark.newSession(), spark.sparkContext.getConf()
    conf.set("spark.redaction.regex", "(?i)password")
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    with pytest.raises(UnsupportedError, match=r"spark\.redaction\.regex is '\(\?i\)password'"):
        native.enable(session)


@pytest.mark.usefixtures("connect_port")
@pytest.mark.sweep
def test_spark_connect_has_a_clear_error():
    pytest.importorskip("grpc")
    done = own_spark(CONNECT, remote=True)
    assert done.stdout.count("secure_parquet") == 3, done.stderr
