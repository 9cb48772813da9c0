"""Servers that are not object stores; see ``tests/storage/fixtures.py`` for those."""

import pytest

from tests.servers import chosen


@pytest.fixture(scope="session")
def vault():
    if chosen.name != "vault":
        pytest.skip("it runs with --server vault")
    server = chosen.start()
    yield server
    server.stop()
