"""Rewrite a Parquet or CSV file as a Parquet file with Bloom filters, row group by row group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from secure_bloom.arrow.encrypted_columns import resolve_columns
from secure_bloom.arrow.row_groups import DEFAULT_ROW_GROUP_ROWS, row_groups
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.cli.csv_file import CsvFile
from secure_bloom.encryption import Encryption
from secure_bloom.errors import AuthenticationError, UnsupportedError, error_location
from secure_bloom.keys.wrapping import WritingKeys
from secure_bloom.parquet.tail import MAGICS
from secure_bloom.policy.policy import NO_POLICY, Policy
from secure_bloom.policy.requirement import RequireEncryption
from secure_bloom.policy.sensitive import Sensitive, requested
from secure_bloom.policy.slips import warn_of_unused_rules
from secure_bloom.policy.writing import check_encryption, policy_for
from secure_bloom.reader import ParquetFile
from secure_bloom.sbbf.options import BloomFilters
from secure_bloom.storage.files import check_absent, open_output, resolve
from secure_bloom.storage.summary import WriteSummary
from secure_bloom.writer import ParquetWriter

MAX_ROW_GROUP_BYTES = 512 * 1024 * 1024  # of Arrow data: bounds memory, whatever the size of a row


def convert_file(source: str, target: str, *, overwrite: bool = False,
                 row_group_size: int | None = None, text_columns: Iterable[str] = (),
                 types: Mapping[str, pa.DataType] = MappingProxyType({}),
                 delimiter: str = ",", plaintext: bool = False,
                 advance: Callable[[float], None] = lambda fraction: None, keys: WritingKeys = None,
                 sensitive: Sensitive = None, bloom_filters: BloomFilters = None,
                 encryption: Encryption | None = None,
                 policy: Policy | str | None = None, require_encryption: RequireEncryption = None,
                 **writer: Any) -> WriteSummary:
    """Copy the rows of a file into a Parquet file, and return what was written.

    Parameters
    ----------
    source : str
        A Parquet file (recognized by its first bytes) or a CSV file with a header line.
    target : str
        May be the source itself. It is replaced after all rows have been written.
    overwrite : bool
        Whether to replace an existing target.
    row_group_size : int, optional
        Rows per row group. Default: as in a Parquet source, otherwise 1,048,576.
    text_columns, types, delimiter
        For a CSV file; see :class:`secure_bloom.cli.csv_file.CsvFile`.
    plaintext : bool
        Whether the target is to be written without encryption.
    advance : callable
        Called with the completed fraction, 0 to 1.
    keys : KmsClient, optional
        For the target and, if it is encrypted, for the source.
    require_encryption : optional
        For the source, as in :class:`secure_bloom.ParquetFile`.
    policy : Policy or path, optional
        For the target. Without ``encryption``, it makes the encryption, unless ``plaintext`` is
        set.
    sensitive, bloom_filters, encryption, **writer
        Arguments of :class:`secure_bloom.ParquetWriter`.

    Raises
    ------
    FileExistsError
        If the target exists, or is created meanwhile, and ``overwrite`` is false.
    PolicyError
        If the target would not meet the policy; or if no column would be encrypted by it, and
        plaintext was not asked for.
    """
    rules = policy_for(policy, target)
    check_target = None if overwrite else lambda: check_absent(*resolve(target))
    if check_target is not None:
        check_target()

    def options(schema: pa.Schema) -> dict[str, Any]:
        leaves = parquet_leaves(schema)
        with error_location(file=target):
            filters, chosen = requested(rules, sensitive, bloom_filters, encryption, leaves,
                                        plaintext=plaintext)
            if rules is not None:
                check_encryption(rules, resolve_columns(chosen, leaves), leaves)
        if rules is not None:
            warn_of_unused_rules(rules, leaves, target)
        return {**writer, "bloom_filters": filters, "encryption": chosen,
                "keys": None if chosen is None else keys}

    if is_parquet(source):
        with ParquetFile(source, keys, require_encryption=require_encryption,
                         policy=NO_POLICY) as file:
            chosen = options(file.schema)
            if file.footer.is_encrypted and chosen["encryption"] is None and not plaintext:
                raise UnsupportedError("the source is encrypted, but the target would not be; "
                                       "specify encryption, or plaintext", file=file.name)
            tables = _counted(file.iter_tables(), file.num_rows, advance)
            return _write(target, file.schema, tables, row_group_size, chosen, check_target)
    if require_encryption:
        raise AuthenticationError("a CSV file is not encrypted, but encryption is required",
                                  file=source)
    csv = CsvFile(source, delimiter=delimiter, text_columns=text_columns, types=types,
                  advance=advance)
    tables = row_groups(csv.batches(), csv.schema, row_group_size or DEFAULT_ROW_GROUP_ROWS,
                        MAX_ROW_GROUP_BYTES)
    return _write(target, csv.schema, tables, None, options(csv.schema), check_target)


def is_parquet(path: str) -> bool:
    """Whether a file starts as a Parquet file does."""
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would block
        raise UnsupportedError("it must be a regular file, because it is read more than once: "
                               "save the data to a file first", file=path)
    with open(path, "rb") as file:
        return file.read(4) in MAGICS


def _counted(tables: Iterable[pa.Table], num_rows: int, advance: Callable[[float], None]) \
        -> Iterator[pa.Table]:
    done = 0
    for table in tables:
        yield table
        done += table.num_rows
        advance(done / max(1, num_rows))


def _write(target: str, schema: pa.Schema, tables: Iterable[pa.Table], row_group_size: int | None,
           options: Any, check_target: Callable[[], None] | None) -> WriteSummary:
    with open_output(target) as output:
        with ParquetWriter(output, schema, policy=NO_POLICY, **options) as writer:
            for table in tables:
                writer.write_table(table, row_group_size)
        output.commit(check_target)
    assert writer.summary is not None  # it is closed
    return replace(writer.summary, file=target)
