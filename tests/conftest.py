"""Fixtures for all tests: the peers. Keys that the environment names are for none of them."""

import os

from tests.peers.fixtures import arrow_cpp, parquet_java

__all__ = ["arrow_cpp", "parquet_java"]

for _name in ("SECURE_BLOOM_KEYRING", "SECURE_BLOOM_KMS"):
    os.environ.pop(_name, None)
