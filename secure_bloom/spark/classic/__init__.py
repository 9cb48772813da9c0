"""What ``register`` adds to a classic session, whose JVM is accessible: Java classes.

- ``secure_parquet.DefaultSource`` passes the options of catalog tables, and the conditions of
  queries, to the data source.
- ``SensitiveWrites`` makes Spark refuse to write sensitive columns with formats that do not
  encrypt.

With Spark Connect the JVM is not accessible, and they are not available.
"""

from __future__ import annotations

import logging
import zipfile
from typing import TYPE_CHECKING, Any

from secure_bloom.spark.java import build_jar, jvm_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

#: For the rules of Spark's optimizer that check writes, also those of other packages.
SHARED = tuple((__package__, name) for name in ("Installed.java", "StreamWrites.java"))
_SOURCES = (*((__package__, name) for name in ("Conditions.java", "Scans.java",
                                               "DefaultSource.java")),
            *SHARED, (__package__, "SensitiveWrites.java"))
_TABLES = "secure_parquet.DefaultSource"
_WRITES = "secure_bloom.spark.SensitiveWrites"
_log = logging.getLogger("secure_bloom.spark")


def extend(spark: SparkSession) -> None:
    """Add the classes to a session; repeated calls are harmless.

    In a Spark Connect session, nothing is done. If the platform denies access to the JVM, a warning
    is logged.
    """
    if not hasattr(spark, "_jsparkSession"):
        return
    try:
        loader = _loader(spark)
        if not _is_loaded(loader):
            _load(spark.sparkContext, loader)
        loader.loadClass(_WRITES).newInstance().install(spark._jsparkSession)
    except Exception as error:  # whatever py4j or the platform raises
        _log.warning("conditions of queries skip nothing, catalog tables do not receive their "
                     "options, and sensitive columns are not checked in Spark's own writers: %s",
                     error)


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source with a session, as ``spark.dataSource.register`` does.

    That method refuses a name that a loaded class has, so it cannot be used from the second
    session on.
    """
    if not hasattr(spark, "_jsparkSession") or not _is_loaded(_loader(spark)):
        spark.dataSource.register(source)
        return
    from pyspark.sql.udf import _wrap_function
    context = spark.sparkContext
    python = jvm_of(context).org.apache.spark.sql.execution.datasources.v2.python
    spark._jsparkSession.sessionState().dataSourceManager().registerDataSource(
        source.name(), python.UserDefinedPythonDataSource(_wrap_function(context, source)))


def _loader(spark: SparkSession) -> Any:
    """Return the class loader in which Spark looks for data source classes, in all threads."""
    jvm = jvm_of(spark.sparkContext)
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _is_loaded(loader: Any) -> bool:
    from py4j.protocol import Py4JJavaError
    if loader is None:
        return False
    try:
        loader.loadClass(_TABLES)
    except Py4JJavaError:  # the class does not exist
        return False
    return True


def _load(context: SparkContext, loader: Any) -> None:
    jar = build_jar(context, "secure-bloom-classic.jar", _SOURCES)
    loader.addURL(jvm_of(context).java.io.File(jar).toURI().toURL())
    with zipfile.ZipFile(jar) as file:
        for name in file.namelist():  # now, because the jar is removed with this SparkContext
            loader.loadClass(name.removesuffix(".class").replace("/", "."))
