"""Errors as Spark shows them: the cause and the remedy, not a traceback of this library.

Spark's Python workers send an error to the JVM as the text of its traceback, with the message last.
With ``SPARK_HIDE_TRACEBACK`` in their environment, they send only the message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from secure_bloom.errors import SecureBloomError

_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Make Spark show errors that are raised on purpose, and I/O errors, without a traceback.

    Other errors are faults of this library, and keep their traceback.
    """
    try:
        yield
    except (SecureBloomError, OSError):
        if _is_worker():
            os.environ[_HIDE] = "1"  # for this error only: the worker exits after it
        raise


def _is_worker() -> bool:
    """Whether this process is one of Spark's Python workers, rather than a driver or a test."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
