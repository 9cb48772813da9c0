"""Copy ranges of local files."""

from __future__ import annotations

import os
from contextlib import suppress

import pyarrow as pa

from secure_bloom.storage.files import Output


def copied_by_kernel(file: pa.NativeFile, output: Output, start: int, end: int) -> int:
    """Append a range of a file as far as the kernel can copy it; return where the copy ends.

    Some filesystems share the bytes, using no space. Nothing is copied from, or to, a file that is
    not a local one.
    """
    position = start
    with suppress(OSError, AttributeError):  # neither has a descriptor elsewhere
        while position < end:  # each call copies up to 2 GB
            copied = os.copy_file_range(file.fileno(), output.fileno(), end - position, position)
            if copied == 0:
                break
            position += copied
    return position
