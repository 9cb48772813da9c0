"""Split-block Bloom filters: what they hash, how large they are, what they answer.

This room knows no file and no key. Specification: parquet-format, ``BloomFilter.md``.
"""
