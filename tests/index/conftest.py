"""Files of these tests are settled as soon as they are written."""

import pytest


@pytest.fixture(autouse=True)
def all_settled(settled):
    """For all of them."""
