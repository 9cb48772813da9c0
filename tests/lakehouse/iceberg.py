"""A catalog whose tables Iceberg encrypts, and tables of it."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from secure_bloom.keys import InMemoryKms
from tests.peers.process import cached_build, find_tool, run_compiler

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

MASTER_KEY = bytes(range(16))
KMS = InMemoryKms({"pii": MASTER_KEY})
ENCRYPTED = "'encryption.key-id'='pii', 'format-version'='3'"
FILTER = "'write.parquet.bloom-filter-enabled.column.ssn'='true'"
#: 2,000 people, as a query
PEOPLE = "SELECT format_string('%09d', id * 7919 % 1000003) ssn, id amount FROM range(2000)"
_KMS_SOURCE = Path(__file__).with_name("IcebergKms.java")


def kms_jar(jars: Sequence[Path]) -> Path:
    """Return a jar with the KMS class; ``jars`` are Iceberg's."""
    def build(folder: Path) -> None:
        classes = folder / "classes"
        run_compiler([find_tool("javac"), "-cp", ":".join(map(str, jars)), "-d", str(classes),
                      str(_KMS_SOURCE)])
        shutil.make_archive(str(folder / "kms"), "zip", classes)
        (folder / "kms.zip").rename(folder / "kms.jar")
    return cached_build([_KMS_SOURCE], f"KMS for {jars}", build) / "kms.jar"


def encrypted_catalog(folder: Path) -> dict[str, str]:
    """Return Spark's configuration of the catalog ``encrypted``.

    Iceberg encrypts only in catalogs of Hive and REST. Hive's metastore is part of Spark; it has
    its database in memory here.
    """
    catalog = "spark.sql.catalog.encrypted"
    return {catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "hive",
            f"{catalog}.warehouse": str(folder / "encrypted"),
            f"{catalog}.encryption.kms-impl": "IcebergKms",
            f"{catalog}.tests.master-key": MASTER_KEY.hex(),
            "spark.sql.catalog.iceberg.encryption.kms-impl": "IcebergKms",  # not used there
            "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
            "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:hive;create=true",
            "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
            "spark.hadoop.hive.metastore.schema.verification": "false"}


def ssn(number: int) -> str:
    """Return the number of one of the :data:`PEOPLE`."""
    return f"{number * 7919 % 1000003:09}"


def data_files(spark, name: str) -> dict[str, bytes | None]:
    """Return the key metadata of a table's live data files, by path."""
    rows = spark.table(f"{name}.data_files").select("file_path", "key_metadata").collect()
    return {row.file_path.removeprefix("file:"): row.key_metadata for row in rows}


def folder_of(spark, name: str) -> Path:
    """Return the folder of a table."""
    [path, *_] = data_files(spark, name)
    return Path(path).parents[1]


def pyiceberg_table(spark, name: str) -> "StaticTable":
    """Return the current version of a table, as pyiceberg opens it by its metadata file."""
    from pyiceberg.table import StaticTable
    log = spark.table(f"{name}.metadata_log_entries").orderBy("timestamp").collect()
    return StaticTable.from_metadata(log[-1].file)
