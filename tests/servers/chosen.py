"""The server that tests of object stores run with: ``pytest --server minio``.

A server takes the place of the store in memory and of the stand-in, in the same tests. Tests that
need neither are left out.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest

from tests.servers.building import NotBuilt

#: name -> module and class
SERVERS = {"minio": ("tests.servers.minio", "Minio"),
           "minio-s3fs": ("tests.servers.fsspec_clients", "MinioS3fs"),
           "azurite": ("tests.servers.azurite", "Azurite"),
           "azurite-adlfs": ("tests.servers.fsspec_clients", "AzuriteAdlfs"),
           "gcs": ("tests.servers.gcs", "Gcs"),
           "gcs-gcsfs": ("tests.servers.fsspec_clients", "GcsGcsfs"),
           "vault": ("tests.servers.vault", "Vault")}
#: fixture -> of its parameters the one in whose place the server comes
_PLACES = {"store": "objects", "on_s3": "s3", "filesystem": "server"}

name: str | None = None


def load(server: str) -> Any:
    """Return the class of a server."""
    module, cls = SERVERS[server]
    return getattr(import_module(module), cls)


def is_store() -> bool:
    """Whether a server is chosen that is an object store."""
    return name is not None and load(name).fixture == "s3"


def start() -> Any:
    """Start the server; skip the test if it cannot be built here."""
    assert name is not None
    try:
        return load(name)()
    except NotBuilt as error:
        pytest.skip(str(error))


def needs_server(item: Any) -> bool:
    """Whether a test needs the server, and not another store."""
    assert name is not None
    if item.path.parent.name == "servers":
        return True
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    places = [parameters[one] == place for one, place in _PLACES.items() if one in parameters]
    if places:
        return all(places)
    return load(name).fixture in inspect.signature(item.function).parameters
