"""A file that this process has just written: its footer is in memory."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pyarrow.fs as pa_fs

from secure_bloom.keys.retrieval import Keys, key_retriever
from secure_bloom.parquet.footer import Footer
from secure_bloom.reading.described_file import DescribedFile
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.source import Source


class WrittenFile(DescribedFile):
    """A complete file of this process, which is only opened if its values must be read.

    Opening so young a file by its path waits until a later change would change its time.

    Parameters
    ----------
    path : str
    filesystem : pyarrow.fs.FileSystem
    stored_footer, magic : bytes
        The footer as it was written, and the last 4 bytes of the file.
    keys : Keys
    """

    def __init__(self, path: str, filesystem: pa_fs.FileSystem, stored_footer: bytes, magic: bytes,
                 keys: Keys):
        self._path, self._filesystem, self._reading_keys = path, filesystem, keys
        self.stored_footer, self.keys = stored_footer, key_retriever(keys)
        self.footer = Footer(stored_footer, magic, self.keys)

    @property
    def name(self) -> str:
        """Path of the file."""
        return self._path

    def opened(self) -> AbstractContextManager[OpenFile]:
        """Open the file."""
        return OpenFile(Source(self._path, self._filesystem), self._reading_keys)
