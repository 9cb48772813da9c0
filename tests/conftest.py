"""Fixtures for all tests: the peers."""

from tests.peers.fixtures import arrow_cpp, parquet_java

__all__ = ["arrow_cpp", "parquet_java"]
