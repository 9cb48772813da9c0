import pytest

from secure_bloom.keys import remote
from tests.servers.fixtures import vault

__all__ = ["vault"]


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts of a KMS client, which are not made."""
    made = []
    monkeypatch.setattr(remote, "sleep", made.append)
    return made
