"""Split-block Bloom filters: what they hash, how large they are, and how they are queried.

This package knows nothing of files or keys. Specification: parquet-format, ``BloomFilter.md``.
"""
