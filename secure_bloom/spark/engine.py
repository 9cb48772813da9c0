"""Which engine reads or writes: Spark's own Parquet reader and writer, or Python tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from secure_bloom.display import Summarized
from secure_bloom.errors import SecureBloomError
from secure_bloom.spark.native.application import Application
from secure_bloom.spark.options.options import FORMAT, Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from secure_bloom.spark.source import SecureParquet

EngineName = Literal["auto", "native", "python"]

#: the data sources that ``register`` made, by session
registered: WeakKeyDictionary[SparkSession, type[SecureParquet]] = WeakKeyDictionary()

_SESSION_OPTIONS = f"spark.datasource.{FORMAT}."

_log = logging.getLogger("secure_bloom.spark")


class ImpossibleError(Exception):
    """Why Spark's own reader or writer is not used."""


@dataclass(frozen=True, repr=False)
class Engine(Summarized):
    """Which engine made the files of a write, and why.

    Attributes
    ----------
    name : {"native", "python"}
        Spark's own Parquet writer, or the Python tasks of ``secure_parquet``.
    reason : str
    """

    name: Literal["native", "python"]
    reason: str

    def _headline(self) -> str:
        return f"{self.name}: {self.reason}"

    def log(self, verb: str, path: str) -> Engine:
        """Write a log line at level INFO, and return this engine."""
        _log.info("%s: %s by engine %s: %s", path, verb, self.name, self.reason)
        return self


def check_name(engine: str) -> None:
    """Raise ValueError if there is no such engine."""
    if engine not in ("auto", "native", "python"):
        raise ValueError(f"engine must be auto, native or python, not {engine!r}")


def check_session(spark: SparkSession) -> None:
    """Raise ImpossibleError if the session does not allow Spark's own reader and writer."""
    if not hasattr(spark, "_jsparkSession"):
        raise ImpossibleError("Spark Connect does not provide access to Spark's JVM")
    if spark not in registered:
        raise ImpossibleError("secure_bloom.spark.register was not called with this session")
    try:
        Application(spark)
    except SecureBloomError:
        raise ImpossibleError("secure_bloom.spark.native.enable was not called") from None


def source_options(spark: SparkSession, path: str, given: Mapping[str, Any]) -> Options:
    """Return the options that the data source would receive, with those of the session."""
    session = {name.removeprefix(_SESSION_OPTIONS): value
               for name, value in spark.conf.getAll.items() if name.startswith(_SESSION_OPTIONS)}
    options = Options({**session, **{name.lower(): _text(value) for name, value in given.items()},
                       "path": path})
    source = registered[spark]
    return options.with_default_kms(source.environment).with_default_policy(source.policy)


def _text(value: object) -> str | None:
    """Return the value of an option as PySpark passes it."""
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)
