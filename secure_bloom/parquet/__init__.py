"""The parts of the Parquet file format that Bloom filters and encryption need, and nothing else.

Low-level: most users want ``ParquetFile`` and ``ParquetWriter`` of :mod:`secure_bloom`.
Specifications: parquet-format, ``parquet.thrift``, ``BloomFilter.md`` and ``Encryption.md``.
"""
