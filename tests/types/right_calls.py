"""A user's program, which mypy accepts. It is never run."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import arro3.core
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
import pyarrow.parquet.encryption as pe

import secure_bloom
from secure_bloom import (
    BloomFilterInfo,
    BloomFilterOptions,
    EncryptionConfiguration,
    ExplicitKeys,
    Keyring,
    ParquetFile,
    ParquetWriter,
    Policy,
    SplitBlockBloomFilter,
    UniformKey,
    VerifyResult,
)
from secure_bloom.display import ChangeResult
from secure_bloom.errors import KeyRetrievalError, OperationInterrupted, SecureBloomError
from secure_bloom.keys import NO_KEYS, InMemoryKms, KeyEncryptionKeys, KmsClient
from secure_bloom.policy import ColumnRule, TableRules

KEY = b"0123456789abcdef"
table = pa.table({"a": [1, 2]})


class Kms:
    """A KMS client of one's own, which inherits nothing."""

    def wrap_key(self, key: bytes, master_key: str) -> bytes:
        return key

    def unwrap_key(self, wrapped: str, master_key: str) -> bytes:
        return wrapped.encode()


class ArrowKms(pe.KmsClient):  # type: ignore[misc]  # pyarrow has no types
    """One that was written for pyarrow."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return key_bytes

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return wrapped_key.encode()


def write(folder: Path, keyring: Keyring) -> None:
    config = EncryptionConfiguration("footer", {"pii": ["a"]})
    secure_bloom.write_table(table, "x.parquet")
    secure_bloom.write_table(table, "x.parquet", sensitive=["a"], keys=keyring)
    secure_bloom.write_table(table, folder / "x.parquet", bloom_filters=True, encryption=config,
                             keys=keyring, row_group_size=1000, compression="zstd",
                             filesystem=pa_fs.LocalFileSystem())
    secure_bloom.write_table(table, io.BytesIO(), bloom_filters=["a"], encryption=UniformKey(KEY))
    secure_bloom.write_table(table, "x", bloom_filters={
        "a": True, "b": BloomFilterOptions(fpp=0.1), "c": {"ndv": 10}}, encryption=config,
        keys=KeyEncryptionKeys(Kms(), ["footer"]))
    with ParquetWriter("x.parquet", table.schema, keys=Kms(), encryption=config,
                       version="2.6", use_dictionary=["a"]) as writer:
        writer.write_table(table, row_group_size=10)
        writer.write(table.to_batches()[0])
        assert_type(writer, ParquetWriter)
        assert_type(writer.num_bytes, int)


class Frame:
    """A data frame of one's own, which inherits nothing."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return table.__arrow_c_stream__(requested_schema)


class Batch:
    """A batch of one's own."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        raise NotImplementedError


def frames() -> Iterator[pl.DataFrame]:
    yield pl.DataFrame({"a": [1]})


def everything(frame: pl.DataFrame, relation: duckdb.DuckDBPyRelation, arro: arro3.core.Table,
               pandas: pd.DataFrame, dataset: ds.Dataset, batches: Iterator[pa.RecordBatch],
               writer: ParquetWriter, scanner: ds.Scanner, keyring: Keyring) -> None:
    secure_bloom.write_table(frame, "x")
    secure_bloom.write_table(frame.lazy(), "x", bloom_filters=True)
    secure_bloom.write_table(relation, "x")
    secure_bloom.write_table(arro, "x")
    secure_bloom.write_table(pandas, "x")
    secure_bloom.write_table(dataset, "x")
    secure_bloom.write_table(scanner, "x")
    secure_bloom.write_table(batches, "x")
    secure_bloom.write_table(frames(), "x")
    secure_bloom.write_table([Frame(), Frame()], "x")
    secure_bloom.write_table(Batch(), "x")
    writer.write(frame)
    writer.write_table(relation, row_group_size=100)
    result = secure_bloom.write_dataset(
        frame, Path("t"), partition_by="day", mode="append", bloom_filters=["a"], keys=keyring,
        policy="policy.toml", row_group_size=1000, max_rows_per_file=10**6, compression="zstd",
        encryption=EncryptionConfiguration("footer", {"pii": ["a"]}))
    assert_type(result.rows, int)
    assert_type(result.encrypted_filters, int)
    secure_bloom.write_dataset(frames(), "s3://bucket/t", partition_by=["a", "b"])


def read(folder: Path, kms: KmsClient) -> None:
    secure_bloom.read_table("x.parquet")
    secure_bloom.find([folder, "x"], "a", ["x"], kms, columns=["b"], on_error=print)
    secure_bloom.read_table(folder, keys=kms, columns=["a"], require_encryption=True,
                            filters=[("a", "==", 1), ("b", "in", ["x", "y"])])
    secure_bloom.read_table(b"PAR1", keys=ArrowKms(), filters=[[("a", "<", 1)], [("b", "=", None)]])
    secure_bloom.read_table(io.BytesIO(), keys=ExplicitKeys(KEY, {"a": KEY}))
    secure_bloom.read_table(folder, folder / "keyring.json")
    secure_bloom.read_table(folder, on_missing_key="null")
    secure_bloom.dataset(folder, kms, on_missing_key="null").to_table()
    secure_bloom.verify_file("x.parquet", "awskms:?region=eu-west-1")
    with open("x.parquet", "rb") as file, ParquetFile(file, NO_KEYS) as parquet:
        assert_type(parquet.bloom_filters, list[BloomFilterInfo])
        assert_type(parquet.prune([("a", "==", 1)]), list[int])
        answers: np.ndarray[Any, Any] = parquet.might_contain("a", [1, 2])
        assert answers.any()
        filter_ = parquet.read_bloom_filter(0, "a")
        assert_type(filter_, SplitBlockBloomFilter | None)
        if filter_ is not None and filter_.check(5):
            filter_.insert([1, 2])
    result = secure_bloom.verify_file("x.parquet", kms, columns=["a"])
    assert_type(result, VerifyResult)
    for finding in result.findings:
        assert_type(finding.row_groups, tuple[int, ...])


def maintain(folder: Path) -> None:
    keys = InMemoryKms({"footer": KEY})
    result = secure_bloom.attach(folder, {"a": True}, keys, dry_run=True, advance=print)
    assert_type(result.failed, dict[str, str])
    secure_bloom.seal("x.parquet", keys)
    secure_bloom.strip("x.parquet", columns=["a"])
    assert_type(secure_bloom.audit(folder, keys).ok, bool)


def policies(folder: Path, keyring: Keyring) -> None:
    policy = Policy(["a"], footer_key="footer", columns={
        "b": "pii", "c": ColumnRule(bloom_filter=True), "d": {"plaintext": False}},
        tables=[TableRules("*/people", columns={"name": "crm"})])
    secure_bloom.write_table(table, "x", policy=policy, keys=keyring)
    secure_bloom.write_table(table, "x", policy=folder / "policy.toml", keys=keyring)
    secure_bloom.read_table("x", keyring, require_encryption=policy)
    secure_bloom.attach("x", keys=keyring, policy="policy.toml")
    secure_bloom.seal("x", keyring, policy=policy)
    secure_bloom.audit("x", policy=Policy.read("policy.toml"))
    for column in policy.for_path("/x").columns_of(["a"]).values():
        assert_type(column.key, str | None)


def errors(uri: str) -> str | None:
    try:
        assert_type(secure_bloom.open_kms(uri), KmsClient)
    except KeyRetrievalError as error:
        return error.column
    except SecureBloomError as error:
        assert_type(error.row_group, int | None)
        assert_type(error.result, ChangeResult | None)
    except OperationInterrupted as error:
        assert_type(error.result.failed, dict[str, str])
    return None


def lazy_frames() -> int:
    lazy = secure_bloom.scan("people", "keyring.json", with_source=True)
    people = secure_bloom.dataset("people")
    return int(secure_bloom.scan(people).collect().height) + len(lazy.collect_schema())
