"""What the indexes of a folder are, as far as it can be seen with the keys that are available."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secure_bloom.display import Result, count, shown
from secure_bloom.errors import (
    KMS_FAULTS,
    NO_KEY,
    ChangedMeanwhileError,
    FormatError,
    SecureBloomError,
)
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.comparison import Comparison
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import StoredManifest
from secure_bloom.index.opened_indexes import with_newest
from secure_bloom.index.stamps import Stamp
from secure_bloom.keys.cache import CachedKms


@dataclass(repr=False)
class IndexInfo(Result):
    """What is known about the index of one column.

    Attributes
    ----------
    path : str
        Folder of the index.
    column : str
        Dotted path of the column.
    version : int or None
        Of the newest manifest; None if no manifest can be read.
    is_encrypted : bool or None
        Whether the index is encrypted; None if no manifest can be read.
    master_key : str or None
        Name of the master key that wraps the index key.
    stored_bytes : int
        Size of all files of the index, including those that ``vacuum`` will delete.
    segments, files, row_groups, pairs, bytes : int or None
        Totals of the segments of this version. ``files`` and ``row_groups`` include files that do
        not exist any more. A pair is a distinct value of a row group. None: not known without the
        key.
    covered, uncovered : int or None
        Number of files of the table that the index covers, and that it does not cover.
    is_exclusive : bool or None
        Whether lookups may skip the listing of the table; see :func:`build`.
    hidden : str or None
        Why the key is not available.
    error : SecureBloomError or None
        Why the index cannot be used: it cannot be read, was changed, or is not complete.
    """

    path: str
    column: str
    version: int | None = None
    is_encrypted: bool | None = None
    master_key: str | None = None
    stored_bytes: int = 0
    segments: int | None = None
    files: int | None = None
    row_groups: int | None = None
    pairs: int | None = None
    bytes: int | None = None
    covered: int | None = None
    uncovered: int | None = None
    is_exclusive: bool | None = None
    hidden: str | None = None
    error: SecureBloomError | None = None

    def _headline(self) -> str:
        if self.error is not None:
            return f"{shown(self.column, 40)}: {self.error.message}"
        key = "not encrypted" if not self.is_encrypted else f"master key {self.master_key!r}"
        covered = self.hidden if self.covered is None or self.uncovered is None \
            else f"{count(self.covered, 'file')} covered, {self.uncovered:,} not covered"
        return f"{shown(self.column, 40)}: version {self.version}, {key}, {covered}"


def inspect_index(folder: IndexFolder, kms: CachedKms | None,
                  listing: Mapping[str, Stamp]) -> IndexInfo:
    """Return what can be seen of an index.

    Parameters
    ----------
    folder : IndexFolder
    kms : CachedKms or None
    listing : mapping of str to Stamp
        The files of the table.

    Raises
    ------
    KmsUnavailableError, KeyringError
        If the KMS does not respond, or the keyring cannot be read.
    """
    info = IndexInfo(folder.path, folder.column)
    try:
        info.stored_bytes = sum(file.size for file in folder.infos())
        stored = folder.newest()
        if stored is None:
            raise FormatError("the index has no complete manifest; build it again",
                              file=folder.path, column=folder.column)
        _add_manifest(info, stored)
        if stored.is_encrypted and kms is None:
            info.hidden = "no key"
            return info
        _add_content(info, with_newest(lambda: _open(folder, kms)), listing)
    except NO_KEY as error:
        info.hidden = error.message
    except KMS_FAULTS:
        raise
    except SecureBloomError as error:
        info.error = error
    except OSError as error:
        info.error = SecureBloomError(f"it cannot be read: {error}", file=folder.path,
                                      column=folder.column)
    return info


def _open(folder: IndexFolder, kms: CachedKms | None) -> ColumnIndex:
    # Not one that this process has open: the files may have been changed since then.
    manifest = folder.open_newest(kms)
    if manifest is None:
        raise ChangedMeanwhileError("the index was deleted meanwhile", file=folder.path,
                                    column=folder.column)
    return ColumnIndex(folder, manifest)


def _add_manifest(info: IndexInfo, stored: StoredManifest) -> None:
    info.version, info.is_encrypted = stored.version, stored.is_encrypted
    if stored.material is not None:
        info.master_key = stored.material.master_key_id


def _add_content(info: IndexInfo, index: ColumnIndex, listing: Mapping[str, Stamp]) -> None:
    body, uncovered = index.manifest.body, len(Comparison(index, listing).uncovered)
    segments = body.segments
    info.version, info.is_exclusive = index.manifest.version, body.is_exclusive
    info.segments = len(segments)
    info.files = sum(segment.files for segment in segments)
    info.row_groups = sum(segment.row_groups for segment in segments)
    info.pairs = sum(segment.pairs for segment in segments)
    info.bytes = sum(segment.size for segment in segments)
    info.covered, info.uncovered = len(listing) - uncovered, uncovered
