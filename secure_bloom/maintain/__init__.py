"""Bloom filters of files that exist: attach them, remove them, encrypt those that leak, find leaks.

>>> from secure_bloom import attach
>>> attach("people.parquet", {"ssn": True}, keyring)                              # doctest: +SKIP
"""
