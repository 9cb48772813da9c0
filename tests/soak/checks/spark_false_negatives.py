"""The same promise with Spark: written by its own writer or ours, asked by it and by others."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import secure_bloom
import secure_bloom.spark
from secure_bloom import EncryptionConfiguration
from secure_bloom.keys import Keyring
from secure_bloom.spark import native
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check
from tests.soak.lookups import check_filters, count_rows, questions, sample

_LOOKED_UP = 10_000


def _try(case: Case) -> None:
    spark, table = session(), _table(case)
    keys = Keyring.create(case.folder / "keys.json")
    for name, key in MASTER_KEYS.items():
        keys.add(name, key)
    pq.write_table(table, case.folder / "plain.parquet")
    frame = spark.read.parquet(str(case.folder / "plain.parquet"))
    writer, lake = case.random.choice(["Spark's writer", "ours"]), case.folder / "lake"
    arguments = {"keys": keys, "bloom_filters": table.column_names,
                 "encryption": EncryptionConfiguration("kf", {"kc1": table.column_names[:3]})}
    if writer == "ours":
        secure_bloom.spark.write(frame, lake, **arguments)
    else:
        frame.write.options(**native.write_options(**arguments)).parquet(str(lake))
    for name in table.column_names:
        for way, ask in _WAYS.items():
            number = ask(case, lake, keys, table, name)
            case.tried += number
            case.counts[f"{writer}, {way}"] += number


def _table(case: Case) -> pa.Table:
    """Return columns of types that Spark and Arrow both have, with nulls."""
    rows = case.random.choice([1, 200, 5000, 50_000])
    numbers = case.numpy.integers(-10**6, 10**6, rows)
    mask = pa.array(case.numpy.random(rows) < 0.1)
    values = {
        "number": pa.array(numbers), "small": pa.array((numbers % 100).astype("int8")),
        "text": pa.array([f"{number:x}ß" for number in numbers.tolist()]),
        "real": pa.array(numbers / 7), "bytes": pa.array([b"%d" % one for one in numbers.tolist()]),
        "day": pa.array((numbers // 100).astype("int32")).view(pa.date32()),
        "price": pa.array(numbers).cast(pa.decimal128(19, 0)).cast(pa.decimal128(20, 1))}
    return pa.table({name: pc.if_else(mask, pa.scalar(None, array.type), array)
                     for name, array in values.items()})


@functools.cache
def session() -> Any:
    """Return the session of this process."""
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.master("local[1]").appName("false negatives").config(
        "spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").config(
        "spark.log.level", "ERROR").config("spark.pyspark.python", sys.executable).getOrCreate()
    secure_bloom.spark.register(spark)
    native.enable(spark)
    return spark


# --- ways to ask ---------------------------------------------------------------------------------

def _filters(case: Case, lake: Path, keys: Keyring, table: pa.Table, name: str) -> int:
    return check_filters(lake, keys, name)


def _find(case: Case, lake: Path, keys: Keyring, table: pa.Table, name: str) -> int:
    values = sample(case, table[name], _LOOKED_UP)
    for some in questions(values):
        found = secure_bloom.find(lake, name, pa.array(some, table[name].type), keys)
        assert found.num_rows == count_rows(table[name], some), f"{name}: {len(some)} values"
    return len(values)


def _load(case: Case, lake: Path, keys: Keyring, table: pa.Table, name: str) -> int:
    values = sample(case, table[name], _LOOKED_UP)
    for some in questions(values):
        found = secure_bloom.spark.read(session(), lake, filters=[(name, "in", some)],
                                        keys=str(keys.path))
        assert found.count() == count_rows(table[name], some), f"{name}: {len(some)} values"
    return len(values)


def _native_read(case: Case, lake: Path, keys: Keyring, table: pa.Table, name: str) -> int:
    from pyspark.sql.functions import col

    values = sample(case, table[name], _LOOKED_UP)
    rows = session().read.options(**native.read_options(str(lake), keys)).parquet(str(lake))
    for some in questions(values):
        found = rows.where(col(name).isin(some)).count()
        assert found == count_rows(table[name], some), f"{name}: {len(some)} values"
    return len(values)


_WAYS = {"filters": _filters, "find": _find, "load": _load, "read by Spark": _native_read}

CHECK = Check("spark_false_negatives", "no value that Spark writes, or looks for, is missed",
              "values", 10**6, _try, is_extra=True)
