"""Fixtures for all tests: peers and stores. Some variables of the environment are not used."""

import os

from tests.browser import browser, open_page
from tests.peers.fixtures import arrow_cpp, arrow_rs, parquet_java
from tests.storage.fixtures import local, s3, store
from tests.tiers import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
)

__all__ = ["arrow_cpp", "arrow_rs", "browser", "local", "open_page", "parquet_java",
           "pytest_addoption", "pytest_collection_modifyitems", "pytest_configure",
           "pytest_terminal_summary", "s3", "store"]

# pip refuses the last one beside --no-build-isolation, with which tests build the packages.
for _name in ("SECURE_BLOOM_KEYRING", "SECURE_BLOOM_KMS", "PIP_BUILD_CONSTRAINT"):
    os.environ.pop(_name, None)
