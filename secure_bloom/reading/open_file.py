"""An open Parquet file: one version of it, its footer, keys and filters, and how pyarrow reads it.

The footer and the filters are read here; pages are read and decrypted by pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import numpy as np
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from secure_bloom.arrow import masking
from secure_bloom.arrow.decryption import (
    ArrowAccess,
    SharedDecryption,
    is_read_alike,
    with_key_material,
    with_physical_types,
)
from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.arrow.page_columns import PageColumn
from secure_bloom.errors import KeyRetrievalError, UnsupportedError, error_location
from secure_bloom.keys.external import read_material
from secure_bloom.keys.retrieval import Keys, KmsKeys, key_retriever
from secure_bloom.parquet.bloom_filter import BloomFilterInfo
from secure_bloom.parquet.column_keys import ColumnKeys
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.parquet.tail import TAIL_SIZE, read_footer
from secure_bloom.policy.requirement import (
    FolderChecks,
    RequireEncryption,
    check_encryption,
    encryption_requirement,
)
from secure_bloom.pruning.expressions import columns_of
from secure_bloom.pruning.file_filters import FileFilters, FilterCache
from secure_bloom.reading.described_file import DescribedFile
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.storage.files import FileSource
from secure_bloom.storage.source import Source
from secure_bloom.storage.versions import FileVersion

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _of_one_version(method: Callable[Concatenate[OpenFile, _Arguments], _Result]) \
        -> Callable[Concatenate[OpenFile, _Arguments], _Result]:
    """Make a method raise ChangedMeanwhileError, instead of anything else, if the file changes."""
    @wraps(method)
    def checked(self: OpenFile, /, *args: _Arguments.args,
                **kwargs: _Arguments.kwargs) -> _Result:
        with self.source.one_version():
            return method(self, *args, **kwargs)
    return checked


class OpenFile(DescribedFile):
    """What the package does with a file; users have the members of :class:`.ParquetFile`.

    Parameters are as there, except that the source may be open, and that ``require_encryption``
    may be checks for the files of a folder.

    Attributes
    ----------
    source : Source
        The handle that all reads go through.
    keys : KeyRetriever or None
        Where the data keys of this file come from; None if it is read without keys.
    stored_footer, magic : bytes
        The footer as it is stored, and the last 4 bytes of the file.
    footer : Footer
    filters : FileFilters
    masks : bool
        Whether columns without key are masked.
    """

    def __init__(self, source: FileSource | Source, keys: Keys = None, *,
                 filesystem: pa_fs.FileSystem | None = None,
                 require_encryption: RequireEncryption | FolderChecks = None,
                 on_missing_key: OnMissingKey = "error",
                 filter_cache: FilterCache | None = None):
        self.masks = masking.is_masking(on_missing_key)
        self._read_alike: list[bool] = []  # one element, when known; shared with other handles
        self._page_columns: dict[str, PageColumn | None] = {}  # likewise
        checks = require_encryption if isinstance(require_encryption, FolderChecks) \
            else encryption_requirement(require_encryption)
        self.source = source if isinstance(source, Source) else Source(source, filesystem)
        self.keys = key_retriever(keys) if self.source.path is None else key_retriever(
            keys, partial(_key_material_beside, self.source), self.path)
        with error_location(file=self.name), self.source.one_version():
            self.stored_footer, self.magic = read_footer(self.source)
            self.footer = Footer(self.stored_footer, self.magic, self.keys,
                                 start=self.source.size - TAIL_SIZE - len(self.stored_footer))
            self._check_has_rows()
            check_encryption(self.footer, self.keys, checks, self.path)
        self.column_keys = ColumnKeys(self.footer, self.name)
        self.filters = FileFilters(self.source, self.footer, filter_cache)

    def _check_has_rows(self) -> None:
        """Raise UnsupportedError if this is only a summary of other files."""
        if self.footer.is_summary:
            raise UnsupportedError("this is a summary of the footers of other files, without rows "
                                   "of its own; open these files, or their folder")

    def close(self) -> None:
        """Close the file if it was opened by this object."""
        if self.source.path is not None:
            self.source.close()

    def opened(self) -> AbstractContextManager[OpenFile]:
        """Return a context manager with this object, which stays open."""
        return nullcontext(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Name of the file, as used in errors."""
        return self.source.name

    @property
    def path(self) -> str | None:
        """Path of the file, in the base filesystem of a subtree; None if the source has none."""
        return self.source.base_path

    @property
    def version(self) -> FileVersion | None:
        """The version of the open file; None if the source has no path."""
        return self.source.version

    def reopened(self, source: Source) -> OpenFile:
        """Return the same version of the file with another handle, and the same parsed footer."""
        assert source.version == self.version
        file = copy(self)
        file.source, file.filters = source, self.filters.reopened(source)
        return file

    @contextmanager
    def one_version(self) -> Iterator[None]:
        """A block that succeeds only if everything read in it is of one version.

        For reads that other methods do not check: :meth:`read_at`, and what pyarrow reads for
        :meth:`open_in_pyarrow`. Any error in the block is replaced by a ChangedMeanwhileError if
        the file has changed.
        """
        with self.source.one_version():
            yield
            self.source.note_read()

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Return raw bytes of the file; fewer at its end. See :meth:`one_version`."""
        return bytes(self.source.read_at(nbytes, offset))

    def column(self, path: str) -> LeafColumn:
        """Return the leaf column with this path. Raises ColumnError."""
        with error_location(file=self.name):
            return self.footer.column(path)

    def leaves(self, names: Iterable[str]) -> list[LeafColumn]:
        """Return the leaf columns with these paths, and those below them."""
        prefixes = tuple(f"{name}." for name in names)
        return [leaf for leaf in self.columns if f"{leaf.path}.".startswith(prefixes)]

    def page_column(self, name: str) -> PageColumn | None:
        """Return a top-level column, whose name is unique, for reading its pages one by one.

        None if only whole column chunks of it can be read.
        """
        if name not in self._page_columns:
            [index] = self.schema.get_all_field_indices(name)
            self._page_columns[name] = PageColumn.of(self.footer, self.schema.field(index),
                                                     self.leaves_by_name[name])
        return self._page_columns[name]

    @cached_property
    def leaves_by_name(self) -> dict[str, list[LeafColumn]]:
        """The leaf columns of each top-level column."""
        found: dict[str, list[LeafColumn]] = {}
        for leaf in self.columns:
            found.setdefault(leaf.parts[0], []).append(leaf)
        return found

    @cached_property
    def key_errors(self) -> dict[str, KeyRetrievalError]:
        """Why the key of each column whose metadata cannot be decrypted is not available."""
        return self.column_keys.missing_for_metadata()

    @_of_one_version
    def masked_columns(self, columns: Iterable[str] | None = None) -> dict[str, KeyRetrievalError]:
        """See :meth:`.ParquetFile.masked_columns`."""
        if not self.masks or not self.footer.is_encrypted:
            return {}
        return self.column_keys.missing(columns)

    @property
    def maskable_columns(self) -> frozenset[str]:
        """Names of the top-level columns whose key may be missing. No key is requested."""
        return self.column_keys.that_may_be_missing()

    def check_filtered(self, columns: Iterable[str]) -> None:
        """Check that none of the columns that a filter uses is masked.

        A filter would find nothing in a masked column, even if there are matching rows.

        Parameters
        ----------
        columns : iterable of str
            Dotted paths of columns or groups. Those that the file lacks are ignored.

        Raises
        ------
        KeyRetrievalError
            If ``on_missing_key`` is "null", and the key of one of them is not available.
        """
        if self.masks:
            with self.source.one_version():
                self.column_keys.check(self.leaves(columns))

    @_of_one_version
    def check_columns(self, columns: object = None,
                      row_groups: Iterable[int] | None = None) -> None:
        """See :meth:`.ParquetFile.check_columns`."""
        if self.footer.is_encrypted and self.keys is not None:
            names = _names_in(columns)
            leaves = self.columns if names is None else self.leaves(names)
            self.column_keys.check_names(leaves, row_groups)

    def read_key_material(self) -> Mapping[str, str]:
        """Return the key material that is in a file next to this one, by name.

        Raises
        ------
        KeyRetrievalError
            If there is none, or it cannot be parsed.
        ChangedMeanwhileError
            If this file has been replaced, so that the key material may belong to another file.
        """
        return _key_material_beside(self.source)

    @cached_property
    @_of_one_version
    def bloom_filters(self) -> list[BloomFilterInfo]:
        """See :attr:`.ParquetFile.bloom_filters`."""
        return self.filters.infos()

    @_of_one_version
    def read_bloom_filter(self, row_group: int, column: str) -> SplitBlockBloomFilter | None:
        """See :meth:`.ParquetFile.read_bloom_filter`."""
        return self.filters.read(row_group, self.column(column))

    @_of_one_version
    def might_contain(self, column: str, values: object) -> np.ndarray:
        """See :meth:`.ParquetFile.might_contain`."""
        return self.filters.might_contain(self.column(column), values,
                                          range(self.num_row_groups))

    def open_in_pyarrow(self, *, with_annotations: bool = True, **options: Any) \
            -> pq.ParquetFile:
        """Open the file in pyarrow, with the keys; errors are pyarrow's.

        It reads through this object, and therefore only until :meth:`close`; its reads are checked
        by :meth:`one_version`. pyarrow does not compare what encrypted columns say about themselves
        with the schema: call :meth:`check_columns` first.

        Parameters
        ----------
        with_annotations : bool
            False: read values as they are stored, by physical type alone.
        **options
            Options of :class:`pyarrow.parquet.ParquetFile`.
        """
        access = self.arrow_access() if with_annotations else with_physical_types(
            self.source.size, self.stored_footer, self.magic, self.keys)
        return pq.ParquetFile(access.file(self.source), metadata=access.metadata(),
                              decryption_properties=access.properties, **options)

    def arrow_access(self, row_groups: Iterable[int] | None = None,
                     shared: SharedDecryption | None = None) -> ArrowAccess:
        """Return how pyarrow reads the pages of some or all (None) row groups of this version.

        ``shared`` is what it has in common with other files, if they are read together.
        """
        if not self.footer.is_encrypted or self.keys is None:
            return ArrowAccess(self._end)
        if isinstance(self.keys, KmsKeys) and self._is_read_alike(row_groups):
            return ArrowAccess(self._end, (shared or SharedDecryption()).properties(self.keys.kms))
        return self._with_key_material

    @property
    def _end(self) -> bytes:
        """The footer up to the end of the file."""
        size = len(self.stored_footer).to_bytes(4, "little")
        return b"".join([self.stored_footer, size, self.magic])

    def _is_read_alike(self, row_groups: Iterable[int] | None) -> bool:
        if row_groups is not None:
            return is_read_alike(self.footer, row_groups)
        if not self._read_alike:
            self._read_alike.append(is_read_alike(self.footer, range(self.num_row_groups)))
        return self._read_alike[0]

    @cached_property
    def _with_key_material(self) -> ArrowAccess:
        assert self.keys is not None
        return with_key_material(self.source.size, self.stored_footer, self.magic, self.keys)


def _names_in(columns: object) -> Iterable[str] | None:
    """Return the columns that are read for some columns or expressions; None: perhaps all."""
    if not isinstance(columns, Mapping):
        return cast("Iterable[str] | None", columns)
    names: set[str] = set()
    for expression in columns.values():
        used = columns_of(expression)
        if used is None:
            return None
        names.update(used)
    return names


def _key_material_beside(source: Source) -> Mapping[str, str]:
    # Not a bound method: otherwise the file would stay open until garbage collection.
    assert source.path is not None
    material = read_material(source.filesystem, source.path)
    source.check_name()
    return material
