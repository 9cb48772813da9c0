"""The data source ``secure_parquet``, as Spark sees it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from secure_bloom.spark.folder import Folder
from secure_bloom.spark.kms import with_environment
from secure_bloom.spark.reader import SecureParquetReader
from secure_bloom.spark.writer import SecureParquetWriter


class SecureParquet(DataSource):
    """Parquet files, encrypted, with Bloom filters that are encrypted where their columns are."""

    environment: str | None = None  # see :mod:`secure_bloom.spark.kms`; ``register`` sets it
    is_inferred = False  # whether Spark has asked for the schema; it pickles this object afterwards

    @classmethod
    def name(cls) -> str:
        """What users write in ``format(...)``."""
        return "secure_parquet"

    def folder(self) -> Folder:
        """The folder to read."""
        return Folder(self._options())

    def _options(self) -> Mapping[str, str]:
        return with_environment(self.options, self.environment)

    def schema(self) -> StructType:
        """The schema of the files in the folder."""
        self.is_inferred = True
        return self.folder().schema()

    def reader(self, schema: StructType) -> SecureParquetReader:
        """See :class:`SecureParquetReader`."""
        return SecureParquetReader(self.folder(), schema, self.is_inferred)

    def writer(self, schema: StructType, overwrite: bool) -> SecureParquetWriter:
        """See :class:`SecureParquetWriter`."""
        return SecureParquetWriter(self._options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool):
        """See :class:`secure_bloom.spark.streaming.SecureParquetStreamWriter`."""
        from secure_bloom.spark.streaming import SecureParquetStreamWriter  # PySpark 4.1
        return SecureParquetStreamWriter(self._options(), schema, overwrite)
