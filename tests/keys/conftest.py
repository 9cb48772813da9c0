import pytest

from secure_bloom.keys import attempts


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts of a KMS client, which are not made."""
    made = []
    monkeypatch.setattr(attempts, "sleep", made.append)
    return made
