"""Summary files beside the data files, which may have values of erased rows in statistics."""

from __future__ import annotations

import posixpath

import pyarrow.fs as pa_fs

from secure_bloom.erasing.user_metadata import metadata_with_values
from secure_bloom.errors import SecureBloomError
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.reader import ParquetFile
from secure_bloom.storage.inside import check_inside, delete_file
from secure_bloom.storage.local_files import remove_checksum
from secure_bloom.storage.summary_files import summaries_of
from secure_bloom.storage.visibility import table_of


def summaries_with_values(filesystem: pa_fs.FileSystem, path: str) -> list[str]:
    """Return the summary files of a file or folder that may have values of rows.

    One that has only a schema has none. It stays.
    """
    return [one for one in summaries_of(filesystem, path) if _may_have_values(filesystem, one)]


def remove_summaries(filesystem: pa_fs.FileSystem, path: str) -> list[str]:
    """Remove these files; readers find what they say in the data files. Returns their paths.

    Raises UnsupportedError, and removes none, if a link leads to one outside of the table.
    """
    found = summaries_with_values(filesystem, path)
    is_folder = filesystem.get_file_info(path).type == pa_fs.FileType.Directory
    table = table_of(path if is_folder else posixpath.dirname(path))
    for one in found:
        check_inside(filesystem, table, posixpath.dirname(one))
    for one in found:
        if filesystem.type_name == "local":
            remove_checksum(one)
        delete_file(filesystem, table, one)
    return found


def _may_have_values(filesystem: pa_fs.FileSystem, path: str) -> bool:
    try:
        with ParquetFile(path, NO_KEYS, filesystem=filesystem) as file:
            return bool(file.num_row_groups) or file.footer.may_have_extensions \
                or bool(metadata_with_values(file))
    except SecureBloomError:  # it has row groups of other files, is encrypted, or is damaged
        return True
