"""A Parquet file as far as its footer describes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import pyarrow as pa

from secure_bloom.arrow.pages import pyarrow_errors
from secure_bloom.arrow.schema import arrow_schema
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn


class DescribedFile(ABC):
    """A file whose footer is known.

    Attributes
    ----------
    keys : KeyRetriever or None
        Where the data keys of this file come from; None if it is read without keys.
    stored_footer : bytes
        The footer as it is stored.
    footer : Footer
    """

    keys: KeyRetriever | None
    stored_footer: bytes
    footer: Footer

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the file, as used in errors."""

    @property
    def num_row_groups(self) -> int:
        """Number of row groups."""
        return len(self.footer.row_groups)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.footer.num_rows

    @property
    def columns(self) -> list[LeafColumn]:
        """The leaf columns."""
        return self.footer.columns

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        with pyarrow_errors(self.name, self.keys):
            return arrow_schema(self.footer.schema_file())
