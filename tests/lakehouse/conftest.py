"""A Spark session with Iceberg and Delta, whose newest releases are for one version of Spark."""

import os
import sys
from importlib.metadata import version

import pytest

from tests.lakehouse import iceberg
from tests.peers.maven import classpath
from tests.peers.process import PeerUnavailable
from tests.spark.helpers import QUICK_JVM

SPARK = "4.1"
ICEBERG = f"org.apache.iceberg:iceberg-spark-runtime-{SPARK}_2.13:1.12.0"
JARS = (ICEBERG, f"io.delta:delta-spark_{SPARK}_2.13:4.4.0",
        "org.apache.parquet:parquet-hadoop:1.16.0:tests")  # has a KMS
_EXTENSIONS = ("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
               "io.delta.sql.DeltaSparkSessionExtension")


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One local session: the catalog ``iceberg`` has Iceberg's tables, Spark's own has Delta's.

    The catalog ``encrypted`` has Iceberg tables that Iceberg encrypts.
    """
    if not version("pyspark").startswith(f"{SPARK}."):
        pytest.skip(f"Iceberg and Delta are tried with Spark {SPARK}: run `make test-peers`")
    try:
        jars = [*classpath(*JARS), iceberg.kms_jar(classpath(ICEBERG))]
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import secure_bloom.spark
    folder = tmp_path_factory.mktemp("lakehouse")
    session = (SparkSession.builder.master("local[2]").appName("secure_bloom lakehouse tests")
               .config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
               .config("spark.sql.shuffle.partitions", "2")
               .config("spark.driver.host", "127.0.0.1")
               .config("spark.driver.extraJavaOptions", QUICK_JVM)
               .config("spark.jars", ",".join(map(str, jars)))
               .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
               .config("spark.sql.extensions", ",".join(_EXTENSIONS))
               .config("spark.sql.catalog.spark_catalog",
                       "org.apache.spark.sql.delta.catalog.DeltaCatalog")
               .config("spark.sql.catalog.iceberg", "org.apache.iceberg.spark.SparkCatalog")
               .config("spark.sql.catalog.iceberg.type", "hadoop")
               .config("spark.sql.catalog.iceberg.warehouse", str(folder / "iceberg"))
               .config(map=iceberg.encrypted_catalog(folder))
               .getOrCreate())
    secure_bloom.spark.register(session)
    yield session
    session.stop()
