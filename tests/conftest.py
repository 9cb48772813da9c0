"""Fixtures for all tests: peers and stores. Some variables of the environment are not used."""

import functools
import os
import time

import pytest

from secure_bloom.keys.keyring_file import SealingKey
from secure_bloom.storage import versions
from tests.browser import browser, open_page
from tests.peers.fixtures import arrow_cpp, arrow_rs, parquet_java
from tests.sharing import pytest_xdist_make_scheduler
from tests.storage.fixtures import local, s3, store
from tests.tiers import (
    pytest_addoption,
    pytest_collection,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_ignore_collect,
    pytest_terminal_summary,
)

__all__ = ["arrow_cpp", "arrow_rs", "browser", "local", "open_page", "parquet_java",
           "pytest_addoption", "pytest_collection", "pytest_collection_finish",
           "pytest_collection_modifyitems", "pytest_configure", "pytest_ignore_collect",
           "pytest_terminal_summary", "pytest_xdist_make_scheduler", "s3", "store"]

# pip refuses the last one beside --no-build-isolation, with which tests build the packages.
for _name in ("SECURE_BLOOM_KEYRING", "SECURE_BLOOM_KMS", "SECURE_BLOOM_POLICY",
              "PIP_BUILD_CONSTRAINT"):
    os.environ.pop(_name, None)

_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE of Linux, from which files have their times


@pytest.fixture(scope="session", autouse=True)
def make_at_full_cost():
    """Lower the cost of new passphrases of keyrings; returns what makes them at full cost."""
    make = SealingKey.make
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SealingKey, "make", staticmethod(functools.partial(make, n=2**10)))
        yield make


@pytest.fixture(scope="session", autouse=True)
def short_waits_for_the_clock():
    """Readers of new files wait for two ticks of this machine's clock, and not for the slowest."""
    tick = time.clock_getres(_COARSE_CLOCK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "_CLOCK_STEP", int(2 * tick * 1e9))
        yield


@pytest.fixture
def settled(monkeypatch):
    """Files may be indexed as soon as they are written."""
    from secure_bloom.index import update
    monkeypatch.setattr(update, "_SETTLED_NS", 0)


@pytest.fixture
def listings(monkeypatch):
    """The folders of tables that are listed from now on, to compare them with an index."""
    from secure_bloom.index import table
    found, original = [], table.visible_files
    monkeypatch.setattr(table, "visible_files", lambda *arguments, **options: found.append(
        arguments[1]) or original(*arguments, **options))
    return found
