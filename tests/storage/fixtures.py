"""Fixtures: an S3 server, and folders on several filesystems."""

import uuid

import pytest

from tests.servers import chosen
from tests.storage.s3 import S3Server
from tests.storage.stores import coarse_store, local_store, objects_store, server_store

#: for a few tests also a server
ON_SERVER = pytest.mark.parametrize("store", ["local", "coarse", "objects", "s3"], indirect=True)


@pytest.fixture(scope="session")
def s3():
    """Start an S3 server, or the store that ``--server`` names, before Spark starts its workers."""
    server = chosen.start() if chosen.is_store() else S3Server()
    yield server
    server.stop()


@pytest.fixture(params=["local", "coarse", "objects"])
def store(request, tmp_path, monkeypatch):
    if request.param == "local":
        return local_store(tmp_path, monkeypatch)
    if request.param == "coarse":
        return coarse_store(tmp_path)
    if request.param == "objects" and not chosen.is_store():
        return objects_store()
    return server_store(request.getfixturevalue("s3"), uuid.uuid4().hex)


@pytest.fixture
def local(tmp_path, monkeypatch):
    return local_store(tmp_path, monkeypatch)
