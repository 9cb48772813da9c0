"""A filesystem for pyarrow whose files cannot be opened.

A data set has to be a ``FileSystemDataset``, because engines check the type. All its methods that
read rows are our own. Code that hands the C++ object to Arrow instead, for example to unite it with
other data sets, would bypass them, and gets an error from here.
"""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError


def _refuse(*_: Any) -> NoReturn:
    raise UnsupportedError("Arrow's C++ code cannot scan this data set by itself; pass it "
                           "dataset.to_table(), or dataset.scanner().to_reader()")


class RefusedFiles(pa_fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Raises UnsupportedError for every file."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RefusedFiles)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(RefusedFiles)

    def get_type_name(self) -> str:
        """Return the name of this kind of filesystem."""
        return "secure_bloom"

    def normalize_path(self, path: str) -> str:
        """Return the path."""
        return path

    create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = \
        move = copy_file = open_input_file = open_input_stream = open_output_stream = \
        open_append_stream = get_file_info = get_file_info_selector = staticmethod(_refuse)
