"""Spark's logs, event log, web pages and temporary folders hold no key."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from secure_bloom.keys import Keyring, kek
from tests.soak.check import Case, Check
from tests.test_secrets import forms

_SECONDS = 110.0  # and those of the case, on a busy machine
_PAGES = ("jobs/", "stages/", "environment/", "executors/", "SQL/", "storage/")


def _try(case: Case) -> None:
    left, keys = case.folder / "left", case.folder / "keys"  # keyrings hold keys by design
    left.mkdir()
    keys.mkdir()
    ring = Keyring.create(keys / "keys.json")
    for name in ("footer", "pii", "new"):
        ring.add(name, case.random.randbytes(16))
    environment = {"TMPDIR": str(left), "SPARK_LOCAL_DIRS": str(left),
                   "PYSPARK_PYTHON": sys.executable}
    with open(left / "out", "wb") as out:
        subprocess.run([sys.executable, "-m", __name__, str(left), str(keys)], check=True,
                       stdout=out, stderr=out, env={**os.environ, **environment},
                       timeout=_SECONDS + case.seconds)
    secrets = {ring.export(name) for name in ring.names()} \
        | {base64.b64decode(line) for line in (keys / "told").read_text().split()}
    files = [path for path in left.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in files) and len(secrets) > 3
    assert sum(path.name.startswith("page ") for path in files) == len(_PAGES)
    found = [str(path.relative_to(left)) for path in files
             if any(form in path.read_bytes() for key in secrets for form in forms(key))]
    assert not found, f"a key is in {found}"
    case.tried += len(files)
    case.counts["keys"] += len(secrets)


def _run(left: Path, keys: Path) -> None:
    """Write, read, find and rotate with Spark; save the pages of its web interface."""
    from pyspark.sql import SparkSession

    import secure_bloom.spark
    from secure_bloom.spark import native
    ring = Keyring(keys / "keys.json")
    _spy(keys / "told")
    (left / "events").mkdir()
    settings = {"spark.ui.enabled": "true", "spark.ui.port": "0",
                "spark.driver.host": "127.0.0.1", "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": f"file://{left}/events", "spark.log.level": "INFO",
                "spark.sql.shuffle.partitions": "2"}
    builder = SparkSession.builder.master("local[2]").appName("secrets")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    secure_bloom.spark.register(spark)
    native.enable(spark)
    frame = spark.range(100).selectExpr("id", "cast(id as string) as ssn")
    encryption = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]})
    options = {"keys": str(ring.path), "parquet.encryption.footer.key": "footer",
               "parquet.encryption.column.keys": "pii: ssn"}
    frame.write.format("secure_parquet").options(**options).mode("append") \
        .save(f"{left}/by the source")
    secure_bloom.spark.write(frame, f"{left}/by Spark", keys=ring, encryption=encryption)
    for name in ("by the source", "by Spark"):
        rows = spark.read.format("secure_parquet").options(keys=str(ring.path)) \
            .load(f"{left}/{name}")
        assert rows.where("ssn = '7'").count() == 1
        assert secure_bloom.spark.read(spark, f"{left}/{name}", keys=ring).count() == 100
    page = spark.sparkContext.uiWebUrl.rsplit(":", 1)[1]
    for name in _PAGES:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/{name}", timeout=30) as answer:
            (left / f"page {name[:-1]}").write_bytes(answer.read())
    spark.stop()


def _spy(path: Path) -> None:
    """Note the keys that this process wraps."""
    real = kek.wrap_locally

    def wrap_locally(key: bytes, plaintext: bytes, aad: bytes) -> str:
        with open(path, "ab") as file:
            file.write(base64.b64encode(key) + b"\n" + base64.b64encode(plaintext) + b"\n")
        return real(key, plaintext, aad)

    path.touch()
    kek.wrap_locally = wrap_locally


CHECK = Check("spark_secrets", "Spark's logs, event log, web pages and temporary folders hold no "
              "key", "files", 100, _try, is_extra=True)


if __name__ == "__main__":
    _run(Path(sys.argv[1]), Path(sys.argv[2]))
