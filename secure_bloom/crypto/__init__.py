"""AES-GCM modules and their additional authenticated data, independent of files and KMS.

Specification: parquet-format, ``Encryption.md``, sections 4.4 and 5.
"""
