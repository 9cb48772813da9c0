"""AES-GCM modules and their additional authenticated data. This room knows no file and no KMS.

Specification: parquet-format, ``Encryption.md``, sections 4.4 and 5.
"""
