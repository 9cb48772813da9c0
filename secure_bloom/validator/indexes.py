"""The answers of secure_bloom to test vectors of the data-set index."""

from __future__ import annotations

import numpy as np
import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.lookup import located
from secure_bloom.index.stamps import Stamp
from secure_bloom.keys.cache import CachedKms
from secure_bloom.parquet.row_ranges import ALL_PARTS
from secure_bloom.sbbf.probes import ValueHashes
from secure_bloom.validator.cases import Answer, Case
from secure_bloom.validator.files import kms_of


def look_up(case: Case, hashes: np.ndarray) -> Answer:
    """Look hashes of values up in the index next to a case."""
    keys = case.input.get("master_keys")
    kms = None if keys is None else CachedKms(kms_of(keys))
    listing = {path: Stamp(int(size), int(time), tag) for path, size, time, tag in
               (one.rsplit(":", 3) for one in case.input["files"])}
    try:
        return _answered(_opened(case, kms), listing, hashes)
    except SecureBloomError:
        return "refused", {}


def _opened(case: Case, kms: CachedKms | None) -> ColumnIndex:
    folder = IndexFolder(pa_fs.LocalFileSystem(), "", case.input["column"])
    folder.path = str(case.folder)  # not below a table
    manifest = folder.open_newest(kms)
    if manifest is None:
        raise SecureBloomError("there is no manifest", file=folder.path)
    return ColumnIndex(folder, manifest)


def _answered(index: ColumnIndex, listing: dict[str, Stamp], hashes: np.ndarray) -> Answer:
    coverage = index.coverage(listing)
    found: set[tuple[int, str, int, int]] = set()
    probes = ValueHashes(hashes, np.arange(hashes.size), np.empty(0, np.int64))
    for hits in index.find_hashes(lambda _: probes):
        found.update((value, path, group, parts)
                     for value, path, _, group, parts in located(coverage, hits))
    return "answered", {"found": [_text(*one) for one in sorted(found)],
                        "uncovered": sorted(coverage.uncovered)}


def _text(value: int, path: str, group: int, parts: int) -> str:
    return f"{value}:{path}:{group}" + ("" if parts == ALL_PARTS else f":{parts:08x}")
