"""A standalone cluster: a master and two workers, whose Python lacks the package.

The application ships an environment as an archive, as docs/platforms.md describes.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import venv
from pathlib import Path

import pytest

import secure_bloom
from secure_bloom.keys import Keyring

pytestmark = pytest.mark.sweep

#: what a team does with a table; prints a line of JSON for each step
APPLICATION = '''
import json, os, signal, sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
import secure_bloom.spark
from secure_bloom import EncryptionConfiguration

master, root = sys.argv[1:]
keys, table = f"{root}/keyring.json", f"{root}/people"
spark = (SparkSession.builder.master(master)
    .config("spark.archives", f"{root}/environment.tar.gz#environment")
    .config("spark.executor.memory", "900m").config("spark.driver.host", "127.0.0.1")
    .config("spark.task.maxFailures", "8").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").getOrCreate())
secure_bloom.spark.register(spark)
given = {"keys": keys, "encryption": EncryptionConfiguration("footer", {"pii": ["ssn"]}),
         "bloom_filters": ["ssn"], "index_columns": ["ssn"]}
people = spark.range(0, 4000, 1, 4).select("id", F.format_string("%09d", "id").alias("ssn"))

def say(step, value):
    print(json.dumps([step, value]), flush=True)

def count(path=table):
    return secure_bloom.spark.read(spark, path, keys=keys).distinct().count()

def processes(kind):
    """The processes of this cluster that run a class, by the folder in which they run."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if kind in (process / "cmdline").read_text() and \\
                    os.readlink(process / "cwd").startswith(f"{root}/worker"):
                yield int(process.name)
        except OSError:
            pass

def killed(kind, name):
    """Write slowly, and kill one of the processes after the first task has begun."""
    begun = f"{root}/{name} has begun"
    def slowly(row):
        open(begun, "w").close()
        time.sleep(0.002)
        return row
    def kill():
        while not os.path.exists(begun):
            time.sleep(0.1)
        victim.append(next(processes(kind)))
        os.kill(victim[0], signal.SIGKILL)
    victim = []
    threading.Thread(target=kill).start()
    slow = people.rdd.map(slowly).toDF(people.schema)
    written = secure_bloom.spark.write(slow, f"{root}/{name}", **given)
    say(name, [len(victim), written.rows, count(f"{root}/{name}")])

def place(_):
    time.sleep(1)
    return os.getcwd().split("/")[-4], secure_bloom.__file__.split("/")[-3:]

executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
while executors().size() < 3:  # the driver counts as one
    time.sleep(0.1)
say("places", sorted(spark.sparkContext.parallelize(range(8), 8).map(place).collect())[::7])
written = secure_bloom.spark.write(people, table, **given)
say("written", [written.files, written.rows])
stored = secure_bloom.spark.read(spark, table, keys=keys)
say("where", [row.id for row in stored.where("ssn = '000001234'").collect()])
arrivals = people.withColumn("id", F.col("id") + 4000)
if spark.version < "4.1":  # writes no streams from Python
    secure_bloom.spark.write(arrivals, table, mode="append", **given)
else:
    arrivals.write.parquet(f"{root}/arrivals")
    (spark.readStream.schema(people.schema).parquet(f"{root}/arrivals").writeStream
        .format("secure_parquet").option("checkpointLocation", f"{root}/checkpoint")
        .options(**{"keys": keys, "parquet.encryption.footer.key": "footer",
                    "parquet.encryption.column.keys": "pii: ssn", "index_columns": "ssn"})
        .trigger(availableNow=True).start(table).awaitTermination())
say("appended", count())
say("index", secure_bloom.spark.build_index(spark, table, "ssn", keys=keys).indexed)
say("erased", secure_bloom.spark.erase(spark, table, "ssn", ["000001234"], keys=keys).rows_removed)
say("left", count())
killed("CoarseGrainedExecutorBackend", "executor")
killed("deploy.worker.Worker", "worker")
spark.stop()
'''


@pytest.fixture
def cluster(tmp_path):
    """The URL of a cluster, each part in its own folder below ``tmp_path``."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    plain = {name: value for name, value in os.environ.items()
             if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "VIRTUAL"))}
    plain |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1",
              "PATH": f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"}
    running = []

    def start(name, kind, *arguments):
        (tmp_path / name).mkdir()
        with open(tmp_path / name / "log", "wb") as log:
            running.append(subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host",
                 "127.0.0.1", "--webui-port", "0", *arguments], cwd=tmp_path / name, env=plain,
                stdout=log, stderr=log, start_new_session=True))

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    try:
        start("master", "master.Master", "--port", port)
        while port not in (tmp_path / "master" / "log").read_text():
            time.sleep(0.1)
        for name in ("worker1", "worker2"):
            start(name, "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir",
                  str(tmp_path / name / "work"), f"spark://127.0.0.1:{port}")
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def make_environment(folder):
    """An environment with the package; its dependencies are those of the tests."""
    venv.create(folder, with_pip=False, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    shutil.copytree(Path(secure_bloom.__file__).parent, site / "secure_bloom")
    # The lines of other .pth files do not count there, so an editable install is not seen.
    (site / "dependencies.pth").write_text(
        "".join(f"{path}\n" for path in sys.path if path.endswith("-packages")))


def test_an_application_ships_its_environment_and_survives_what_dies(tmp_path, cluster):
    Keyring.create(tmp_path / "keyring.json", keys=["footer", "pii"])
    driver = tmp_path / "driver"
    driver.mkdir()
    make_environment(driver / "environment")  # in client mode, Spark does not unpack it there
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(driver / "environment", ".")
    (driver / "application.py").write_text(APPLICATION)
    done = subprocess.run(
        ["environment/bin/python", "application.py", cluster, str(tmp_path)], cwd=driver,
        env=os.environ | {"PYSPARK_PYTHON": "environment/bin/python"}, capture_output=True,
        text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-5000:]
    steps = dict(map(json.loads, done.stdout.splitlines()))
    shipped = ["site-packages", "secure_bloom", "__init__.py"]
    assert steps == {
        "places": [["worker1", shipped], ["worker2", shipped]], "written": [4, 4000],
        "where": [1234], "appended": 8000, "index": 0, "erased": 2, "left": 7998,
        "executor": [1, 4000, 4000], "worker": [1, 4000, 4000]}
