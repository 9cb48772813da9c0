"""Columns as named by options, and their settings in the metadata of the schema.

The metadata of a Spark field may contain ``{"secure_bloom.key": "pii"}``: the field is sensitive,
and is encrypted with that master key. It may also contain ``{"secure_bloom.bloom_filter": true}``.
On a group, either applies to all its leaves. Field names in a schema keep their case, so metadata
is never ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from secure_bloom.arrow import masking
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.display import choices
from secure_bloom.errors import ColumnError, OptionError
from secure_bloom.parquet.schema import LeafColumn, named_columns
from secure_bloom.spark.options.names import same_names
from secure_bloom.spark.options.options import ON_MISSING_KEY

OUR_METADATA = "secure_bloom."
KEY = OUR_METADATA + "key"
BLOOM_FILTER = OUR_METADATA + "bloom_filter"
MASKED = masking.MASKED.decode()  #: the key of the column may have been missing when it was read

Path = tuple[str, ...]


class Columns:
    """The columns of the rows to write.

    ``metadata`` is the Spark metadata of fields, by path in the Parquet schema. Raises OptionError
    if metadata of secure_bloom is malformed, or two columns have the same name.
    """

    def __init__(self, schema: pa.Schema, metadata: Mapping[Path, Mapping[str, Any]] | None = None):
        self.schema = schema
        self.leaves = parquet_leaves(schema)
        self._metadata = metadata or {}
        self._paths = dict.fromkeys(".".join(leaf.parts[:depth]) for leaf in self.leaves
                                    for depth in range(1, len(leaf.parts) + 1))
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise OptionError("there are two columns of this name; rename one", column=name)
        for path, entries in self._metadata.items():
            _check_metadata(".".join(path), entries)

    def find(self, name: str, option: str, *, keeps_case: bool = True) -> list[LeafColumn]:
        """Return the leaf column with this dotted path, or the leaves of the group with this path.

        An exact match is preferred; otherwise the path is matched ignoring case. Option names do
        not keep their case, so for them (``keeps_case=False``) an exact match would be a guess.
        """
        found = same_names(name, self._paths, keeps_case=keeps_case)
        if not found:
            raise OptionError(f"there is no column {name!r}"
                              + choices(name, [leaf.path for leaf in self.leaves]), option=option)
        _check_one(name, found, option, "write it exactly as in the schema" if keeps_case else
                   "use option bloom_filters, whose value preserves case")
        try:
            return named_columns(self.leaves, found[0])
        except ColumnError as error:
            raise OptionError(f"column {error.column}: {error.message}", option=option) from None

    def find_leaf(self, name: str, option: str, *, keeps_case: bool = True) -> LeafColumn:
        """Return the one leaf column with this dotted path."""
        leaves = self.find(name, option, keeps_case=keeps_case)
        if len(leaves) > 1 or leaves[0].path.lower() != name.lower():
            raise OptionError("this is a group of columns; specify one of its leaf columns: "
                              + ", ".join(leaf.path for leaf in leaves), option=option)
        return leaves[0]

    def find_field(self, name: str, option: str) -> str:
        """Return the name of a top-level column."""
        found = same_names(name, self.schema.names)
        if not found:
            raise OptionError(f"there is no top-level column {name!r}"
                              + choices(name, self.schema.names), option=option)
        _check_one(name, found, option, "write it exactly as in the schema")
        return found[0]

    def marked(self, entry: str) -> Iterator[tuple[list[LeafColumn], Any]]:
        """Yield the leaves and the entry's value for every field with this metadata entry."""
        for path, entries in self._metadata.items():
            if entry in entries:
                leaves = [leaf for leaf in self.leaves if leaf.parts[:len(path)] == path]
                if not leaves:  # continuing would leave a sensitive column unencrypted
                    raise OptionError(f"metadata {entry} refers to a field that is not in the "
                                      "files", column=".".join(path))
                yield leaves, entries[entry]

    def sensitive(self) -> Iterator[tuple[str, str]]:
        """Yield path and master key of every leaf that the schema marks as sensitive."""
        for leaves, key in self.marked(KEY):
            for leaf in leaves:
                yield leaf.path, key.strip()


def _check_one(name: str, found: list[str], option: str, advice: str) -> None:
    if len(found) > 1:
        raise OptionError(f"{name!r} may mean {' or '.join(found)}, which differ in case only: "
                          f"{advice}, or rename one of them", option=option)


def _check_metadata(path: str, entries: Mapping[str, Any]) -> None:
    for name, value in entries.items():
        if name == KEY:
            if isinstance(value, list):
                raise OptionError(
                    "the files that it was read from have different master keys: "
                    f"{', '.join(map(str, value))}; specify the one for the copy in metadata "
                    f"{KEY}", column=path)
            if not isinstance(value, str) or not value.strip():
                raise OptionError(f"metadata {KEY} must be the name of a master key", column=path)
        elif name == BLOOM_FILTER:
            if not isinstance(value, bool):
                raise OptionError(f"metadata {BLOOM_FILTER} must be true or false", column=path)
        elif name == MASKED:
            raise OptionError(
                f"it was read with option {ON_MISSING_KEY}, so values may be missing; read it "
                "without that option to copy it, drop the column, or remove "
                f"{MASKED} from its metadata to write the nulls", column=path)
        elif name.lower().startswith(OUR_METADATA):
            raise OptionError(f"metadata {name} is unknown; allowed: {KEY}, "
                              f"{BLOOM_FILTER}", column=path)
