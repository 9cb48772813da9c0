"""Repeated attempts to reach a KMS, for SDKs that do not limit their number or their pauses."""

from __future__ import annotations

import random
from collections.abc import Callable
from time import sleep
from typing import TypeVar

from secure_bloom.errors import KmsUnavailableError

_LONGEST_PAUSE = 10  # seconds
_Result = TypeVar("_Result")


def until_available(call: Callable[[], _Result], attempts: int) -> _Result:
    """Call a function until it does not raise KmsUnavailableError, at most ``attempts`` times.

    The pauses in between are at most 1, 2, 4, ... 10 seconds long, and at least half of that.
    """
    for pause in (min(2 ** number, _LONGEST_PAUSE) for number in range(attempts - 1)):
        try:
            return call()
        except KmsUnavailableError:
            sleep(pause * random.uniform(0.5, 1))
    return call()
