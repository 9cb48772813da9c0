"""The Parquet file format as far as Bloom filters and encryption need it, and nothing else.

Low-level: most users want ``ParquetFile`` and ``ParquetWriter`` of :mod:`secure_bloom`.
Specifications: parquet-format, ``parquet.thrift``, ``BloomFilter.md`` and ``Encryption.md``.
"""
