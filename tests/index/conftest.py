"""Files of these tests are settled as soon as they are written."""

import pytest

from secure_bloom.index import update


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    monkeypatch.setattr(update, "_SETTLED_NS", 0)
