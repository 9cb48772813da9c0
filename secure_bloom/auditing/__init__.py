"""Find what the filters and the metadata of files reveal.

>>> from secure_bloom import audit
>>> audit("lake", keys=keyring)                                                   # doctest: +SKIP
"""
