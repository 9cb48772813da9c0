"""The data source ``secure_parquet``, as Spark sees it.

Spark starts a Python process for each of its questions: schema, plan, rows, write, commit. Readers
and writers are imported where they are made, so that each process imports only what it needs.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from secure_bloom.errors import SecureBloomError, UnsupportedError
from secure_bloom.spark.options.conditions import NO_CONDITIONS
from secure_bloom.spark.options.options import FORMAT, RECEIPT, Options
from secure_bloom.spark.plain_errors import plain_errors

if TYPE_CHECKING:
    from secure_bloom.spark.reading.reader import SecureParquetReader
    from secure_bloom.spark.writing.streaming import SecureParquetStreamWriter
    from secure_bloom.spark.writing.writer import SecureParquetWriter


class SecureParquet(DataSource):
    """Encrypted Parquet files, in which a Bloom filter is encrypted exactly when its column is.

    Parameters
    ----------
    options : mapping of str to str
        The options of the read or write, as Spark passes them; the page "The Spark data source"
        lists them.
    """

    environment: str | None = None  # see :mod:`.spark.options.kms`; ``register`` sets it
    policy: str | None = None  # of the session, if it was set when ``register`` was called
    is_inferred = False  # whether Spark has asked for the schema; it pickles this object afterwards
    is_demanding = False  # whether the policy requires a column of that schema to be encrypted
    # of one scan; see :func:`.with_conditions`
    conditions, checkpoint = NO_CONDITIONS, ""

    def __init__(self, options: MutableMapping[str, str]):
        super().__init__(options)
        self._given = Options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name that users pass to ``format(...)``."""
        return FORMAT

    def _with_defaults(self, options: Options) -> Options:
        return options.with_default_kms(self.environment).with_default_policy(self.policy)

    @plain_errors()
    def schema(self) -> StructType:
        """Return the schema of the files in the folder."""
        from secure_bloom.spark.reading.folder import Folder
        if RECEIPT in self._given:
            from secure_bloom.spark.writing.receipts import receipt_schema
            return receipt_schema(self._given[RECEIPT])
        self.is_inferred = True
        folder = Folder(self._with_defaults(self._given.without_properties()))
        schema = folder.schema()
        self.is_demanding = folder.demanding
        return schema

    @plain_errors()
    def reader(self, schema: StructType) -> SecureParquetReader:
        """Return a :class:`SecureParquetReader`."""
        from secure_bloom.spark.reading.folder import Folder
        from secure_bloom.spark.reading.reader import SecureParquetReader
        folder = Folder(self._with_defaults(self._given))
        return SecureParquetReader(folder, schema, self.is_inferred, demanding=self.is_demanding,
                                   conditions=self.conditions)

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> SecureParquetWriter:
        """Return a :class:`SecureParquetWriter`."""
        from secure_bloom.spark.writing.writer import SecureParquetWriter
        return SecureParquetWriter(self._with_defaults(self._given), schema, overwrite)

    @plain_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a :class:`.SecureParquetStreamReader`."""
        from secure_bloom.spark.reading.folder import Folder
        from secure_bloom.spark.reading.stream import (
            BatchReader,
            FailingStreamReader,
            SecureParquetStreamReader,
        )
        try:
            folder = Folder(self._with_defaults(self._given))
            reader = BatchReader(folder, schema, self.is_inferred, demanding=self.is_demanding)
            return SecureParquetStreamReader(reader, folder,
                                             folder.options.checkpoint or self.checkpoint)
        except (SecureBloomError, OSError) as error:
            return FailingStreamReader(error)

    @plain_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> SecureParquetStreamWriter:
        """Return a :class:`.SecureParquetStreamWriter`."""
        try:
            from secure_bloom.spark.writing.streaming import SecureParquetStreamWriter
        except ImportError:
            raise UnsupportedError("to write a stream, PySpark 4.1 or newer is needed") from None
        return SecureParquetStreamWriter(self._with_defaults(self._given), schema, overwrite)
