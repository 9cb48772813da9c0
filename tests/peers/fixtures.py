"""Session fixtures: the peers, started when the first test asks for one."""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.peers import adapter
from tests.peers.arrow_cpp import ArrowCpp
from tests.peers.arrow_rs import ArrowRs
from tests.peers.parquet_java import ParquetJava
from tests.peers.process import PeerUnavailable

Got = TypeVar("Got")


@pytest.fixture(scope="session")
def parquet_java() -> Iterator[ParquetJava]:
    """A running parquet-java."""
    with available(ParquetJava) as peer:
        yield peer


@pytest.fixture(scope="session")
def arrow_cpp() -> Iterator[ArrowCpp]:
    """A running Arrow C++ program."""
    with available(ArrowCpp) as peer:
        yield peer


@pytest.fixture(scope="session")
def arrow_rs() -> Iterator[ArrowRs]:
    """A running arrow-rs, which is fetched: only for tests with that mark."""
    with available(ArrowRs, is_fetched=True) as peer:
        yield peer


def adapter_command(name: str) -> list[str]:
    """The command line of an adapter of `adapter.NAMES`."""
    return available(lambda: adapter.command(name), is_fetched=name in adapter.FETCHED)


def available(get: Callable[[], Got], *, is_fetched: bool = False) -> Got:
    """What a peer needs; without its tools the test is skipped.

    Under CI=true the test fails instead, unless the peer is fetched: a registry may be out of
    reach.
    """
    try:
        return get()
    except PeerUnavailable as error:
        if os.environ.get("CI") == "true" and not is_fetched:
            pytest.fail(f"no peer: {error}")
        pytest.skip(f"no peer: {error}")
