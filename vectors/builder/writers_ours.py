"""Good files by secure_bloom: every mode with every column type, and mixes of what is sensitive."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version

import pyarrow as pa

from secure_bloom import BloomFilterOptions
from secure_bloom.keys.retrieval import KmsKeys, key_retriever
from tests.modes import MODES, Mode, mode
from vectors.builder.columns import GROUPS, Column, pick, table
from vectors.builder.reseal import reseal
from vectors.builder.small import OURS
from vectors.builder.vector import FileKeys, FileVector
from vectors.builder.vectorize import good, read_plainly

ORIGIN = f"{OURS}, pyarrow {version('pyarrow')}"
ROWS, GROUP_ROWS = 11, 6
LEAN = {"use_dictionary": False, "write_statistics": False, "write_page_index": False,
        "store_schema": False, "compression": "none", "store_decimal_as_integer": True}


def ours() -> Iterator[FileVector]:
    """All files of this writer."""
    for number, how in enumerate(MODES):
        for group, columns in GROUPS.items():
            yield _of_mode(how, number, group, columns)
    for mix in MIXES:
        yield mix.vector()


def _of_mode(how: Mode, number: int, group: str, columns: list[Column]) -> FileVector:
    """A file with all columns of a group, every other one sensitive where the mode has a choice.

    Which ones alternates from mode to mode.
    """
    paths = [column.path for column in columns][number % 2::2]
    options = {"use_deprecated_int96_timestamps": True} if group == "numbers" else {}
    rows = table(columns, range(ROWS))
    return _vector(f"ours-{str(how).replace(' ', '-')}-{group}", how, columns, rows,
                   {"kc1": paths[::2], "kc2": paths[1::2]}, None, row_group_size=GROUP_ROWS,
                   bloom_filters=dict.fromkeys((column.path for column in columns), True),
                   **LEAN, **options)


@dataclass(frozen=True)
class Mix:
    """A file with one thing that is special; by default 3 row groups, filters on all columns."""

    name: str
    comment: str
    mode: str = "columns double gcm 128"
    column_keys: dict[str, list[str]] = field(default_factory=lambda: {"kc1": ["id"]})
    columns: tuple[str, ...] = ("id", "real", "name", "day", "tags")
    filters: dict[str, bool | BloomFilterOptions] | None = None
    rows: int = 15
    options: dict = field(default_factory=dict)

    def vector(self) -> FileVector:
        """The file."""
        columns = pick(*self.columns)
        filters = self.filters if self.filters is not None \
            else dict.fromkeys((column.path for column in columns), True)
        options = {"row_group_size": 6, **LEAN, **self.options}
        return _vector(f"ours-{self.name}", mode(self.mode), columns,
                       table(columns, range(self.rows)), self.column_keys, self.comment,
                       bloom_filters=filters, **options)


_ALL = {"kc1": ["id", "name", "tags.list.element"], "kc2": ["real", "day"]}
_PAGES = {"use_dictionary": ["name", "day"], "write_statistics": True, "write_page_index": True,
          "store_schema": True, "data_page_size": 16, "write_batch_size": 2,
          "compression": "zstd"}
MIXES = [
    Mix("all-sensitive", "every column has a key of its own", column_keys=_ALL),
    Mix("signed-all-sensitive", "every column has a key of its own, the footer is readable",
        "signed columns double gcm 192", _ALL),
    Mix("one-sensitive", "one column is encrypted, the others are plain"),
    Mix("signed-one-sensitive", "one column is encrypted, the others and the footer are readable",
        "signed columns single gcm 128"),
    Mix("two-master-keys", "the columns' keys are wrapped with different master keys",
        "columns single gcm 256", {"kc1": ["id", "day"], "kc2": ["name"]}),
    Mix("nested-sensitive", "the elements of a list are encrypted",
        column_keys={"kc2": ["tags.list.element"]}),
    Mix("signed-nested-sensitive", "the elements of a list are encrypted, the footer is readable",
        "signed columns double ctr 256", {"kc2": ["tags.list.element"]}),
    Mix("filters-on-plain", "an encrypted file whose filters are all plain",
        column_keys={"kc1": ["id", "name"]}, filters={"real": True, "tags.list.element": True}),
    Mix("filters-on-sensitive", "the plain columns have no filters",
        column_keys={"kc1": ["id"], "kc2": ["name"]}, filters={"id": True, "name": True}),
    Mix("filter-of-last-column", "one filter, that of the last column",
        column_keys=_ALL, filters={"tags.list.element": True}),
    Mix("pages-gcm", "dictionaries, several pages, page indexes, statistics, ZSTD",
        column_keys={"kc1": ["id"], "kc2": ["name", "day"]}, columns=("id", "name", "day"),
        options=_PAGES, rows=12),
    Mix("pages-ctr", "the same under AES_GCM_CTR_V1: pages without tags, filters with them",
        "columns double ctr 128", {"kc1": ["id", "name"]}, ("id", "name", "day"), rows=12,
        options=_PAGES),
    Mix("pages-v2", "data pages of version 2", "uniform double gcm 128",
        columns=("id", "name", "tags"), options={"data_page_version": "2.0"}),
    Mix("sizes", "bitsets of 32 bytes to 4 KiB", column_keys={"kc1": ["id"], "kc2": ["name"]},
        columns=("id", "real", "name", "day"), rows=6, filters={
            "id": BloomFilterOptions(ndv=1), "real": BloomFilterOptions(ndv=50, fpp=0.1),
            "name": BloomFilterOptions(ndv=400), "day": BloomFilterOptions(ndv=3000)}),
    Mix("crowded", "40 values in one block: filters that are often wrong",
        column_keys={"kc1": ["id", "tags.list.element"]}, columns=("id", "name", "tags"),
        options={"row_group_size": 40}, rows=40,
        filters=dict.fromkeys(("id", "name", "tags.list.element"), BloomFilterOptions(ndv=1))),
    Mix("only-nulls", "filters without values", column_keys={"kc1": ["name"]},
        columns=("name", "real"), options={"row_group_size": 1}, rows=4),
]


def _vector(name: str, how: Mode, columns: list[Column], rows: pa.Table,
            column_keys: dict[str, list[str]], comment: str | None, **options) -> FileVector:
    sink = io.BytesIO()
    how.write(rows, sink, {key: paths for key, paths in column_keys.items() if paths}, **options)
    data, keys = sink.getvalue(), FileKeys()
    if how.is_encrypted:
        before = read_plainly(data, _written_with(how))
        data, keys = reseal(data, key_retriever(how.keys), name)
        assert read_plainly(data, keys) == before, name
    return good(name, data, ORIGIN, keys, rows, columns, comment)


def _written_with(how: Mode) -> FileKeys:
    """The keys of a file that is not sealed again yet, as far as pyarrow needs them."""
    keys = key_retriever(how.keys)
    if isinstance(keys, KmsKeys):
        from tests.modes import MASTER_KEYS
        return FileKeys(master_keys=MASTER_KEYS)
    return FileKeys(keys.footer_key(None), aad_prefix=keys.aad_prefix)
