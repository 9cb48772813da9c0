"""Copy ranges of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from secure_bloom.storage.files import Output

_AT_ONCE = 8 * 1024 * 1024  # bytes, where the kernel cannot copy


def copy_range(file: pa.NativeFile, read_at: Callable[[int, int], bytes | memoryview],
               output: Output, start: int, end: int) -> int:
    """Append a range of a file; return where the copy ends, which is earlier if the file does.

    The kernel copies between local files; some filesystems share the bytes, using no space. The
    rest is read by ``read_at``, which takes a number of bytes and an offset.
    """
    position = start
    with suppress(OSError, AttributeError):  # elsewhere, there are no descriptors
        while position < end:  # each call copies up to 2 GB
            copied = os.copy_file_range(file.fileno(), output.fileno(), end - position, position)
            if copied == 0:
                break
            position += copied
    while position < end and (data := read_at(min(_AT_ONCE, end - position), position)):
        output.write(data)
        position += len(data)
    return position
