"""Bloom filters of existing files: attach them, remove them, encrypt those that leak, find leaks.

>>> from secure_bloom import attach
>>> attach("people.parquet", {"ssn": True}, keyring)                              # doctest: +SKIP
"""
