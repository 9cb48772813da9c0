"""What users see on errors: our message first, and no traceback of this library."""

import os

import pytest
from pyspark.sql import functions as F

from secure_bloom.errors import FormatError
from secure_bloom.spark import plain_errors
from tests.spark.helpers import PLAINTEXT, people, read, uses_spark, write

pytestmark = uses_spark


def shown(action) -> list[str]:
    """The lines of an error."""
    with pytest.raises(Exception) as caught:
        action()
    return str(caught.value).splitlines()


@pytest.mark.sweep
def test_errors_of_the_driver_say_what_happened_in_their_first_line(spark, tmp_path):
    write(people(spark, 1), tmp_path / "t", **PLAINTEXT)
    with_schema = spark.read.format("secure_parquet").schema("id long")
    for action, sentence in [
            (lambda: write(people(spark), tmp_path / "t"), "no encryption was requested"),
            (lambda: write(people(spark), tmp_path / "t", nonsense="1"), "nonsense: unknown"),
            (lambda: read(spark, tmp_path / "t", splitbytes="1"), "did you mean split_bytes?"),
            (lambda: read(spark, tmp_path / "none"), f"there is no folder {tmp_path}/none"),
            (lambda: with_schema.load(f"{tmp_path}/none").collect(), "there is no folder")]:
        first, *rest = shown(action)
        assert sentence in first
        assert not any("Traceback" in line or line.startswith("  File") for line in rest)


def test_errors_of_tasks_say_what_happened_before_anything_of_ours(spark, tmp_path):
    write(people(spark, 1), tmp_path / "t", **PLAINTEXT)
    (tmp_path / "t" / "z.parquet").write_bytes(b"PAR1 nothing in it")
    lines = shown(read(spark, tmp_path / "t").collect)
    assert lines[1].startswith(f"secure_bloom.errors.FormatError: file {tmp_path}/t/z.parquet: ")
    nulls = people(spark, 1).selectExpr("id", "'__HIVE_DEFAULT_PARTITION__' as p")
    lines = shown(lambda: write(nulls, tmp_path / "u", **PLAINTEXT, partition_by="p"))
    assert "change the value" in lines[1] and not any("Traceback" in line for line in lines)


@pytest.mark.sweep
def test_errors_of_users_keep_their_traceback(spark, tmp_path):
    @F.udf("bigint")
    def failing(number):
        raise ValueError("a fault of the user's function")

    write(people(spark, 1), tmp_path / "t", **PLAINTEXT)
    frame = read(spark, tmp_path / "t").withColumn("id", failing("id"))
    for action in (frame.collect, lambda: read(spark, tmp_path / "none"), frame.collect,
                   lambda: write(frame, tmp_path / "u", **PLAINTEXT)):
        lines = shown(action)
        if "there is no folder" not in lines[0]:
            assert any("Traceback" in line for line in lines)
            assert any("in failing" in line for line in lines)


def test_faults_of_this_library_keep_their_traceback(monkeypatch):
    monkeypatch.setenv(plain_errors._HIDE, "")
    monkeypatch.setattr(plain_errors, "_is_worker", lambda: True)
    with pytest.raises(KeyError), plain_errors.plain_errors():
        raise KeyError("a bug")
    assert not os.environ[plain_errors._HIDE]
    with pytest.raises(FormatError), plain_errors.plain_errors():
        raise FormatError("no bug")
    assert os.environ[plain_errors._HIDE]


def test_only_workers_of_spark_hide_tracebacks(monkeypatch):
    monkeypatch.setenv(plain_errors._HIDE, "")
    with pytest.raises(FormatError), plain_errors.plain_errors():
        raise FormatError("seen by a test")
    assert not os.environ[plain_errors._HIDE]
