"""Session fixtures: the peers, started when the first test asks for one."""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.peers.arrow_cpp import ArrowCpp
from tests.peers.parquet_java import ParquetJava
from tests.peers.process import PeerUnavailable

Peer = TypeVar("Peer", ParquetJava, ArrowCpp)


@pytest.fixture(scope="session")
def parquet_java() -> Iterator[ParquetJava]:
    """A running parquet-java."""
    with _start(ParquetJava) as peer:
        yield peer


@pytest.fixture(scope="session")
def arrow_cpp() -> Iterator[ArrowCpp]:
    """A running Arrow C++ program."""
    with _start(ArrowCpp) as peer:
        yield peer


def _start(peer: Callable[[], Peer]) -> Peer:
    """The started peer; without its tools the test is skipped, but under CI=true it fails."""
    try:
        return peer()
    except PeerUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no peer: {error}")
        pytest.skip(f"no peer: {error}")
