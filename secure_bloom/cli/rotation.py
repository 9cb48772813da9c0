"""What ``keys rotate`` does: rotate files, then the indexes below their folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from secure_bloom.display import count
from secure_bloom.errors import OperationInterrupted, SecureBloomError
from secure_bloom.index.finding import find_indexes
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.rotation import IndexRotation, rotate_indexes, update_rotated
from secure_bloom.keys import rotate_master_keys
from secure_bloom.keys.cache import CachedKms, cached
from secure_bloom.keys.kms import KmsClient
from secure_bloom.keys.operations.rotation import RotationResult
from secure_bloom.storage.many_files import Advance, result_on_error


@dataclass(repr=False)
class FolderRotation(RotationResult):
    """Result of a rotation of files and indexes; ``failed`` has both.

    Attributes
    ----------
    indexes : IndexRotation or None
        None: there are no indexes, or they were not reached.
    not_updated : dict of str to str
        Indexes that do not cover all files now, and why.
    """

    indexes: IndexRotation | None = None
    not_updated: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, files: RotationResult, indexes: IndexRotation | None = None) -> FolderRotation:
        """Combine two results."""
        failed = {**files.failed, **({} if indexes is None else indexes.failed)}
        return cls(files.rotated, files.unchanged, failed, files.master_keys, files.dry_run,
                   indexes)


def rotate(path: str, kms: KmsClient, *, old: str, new: str, dry_run: bool,
           advance: Advance) -> FolderRotation:
    """Rotate the files of a folder, then its indexes, and bring these up to date.

    The errors are those of :func:`rotate_master_keys`; their ``result`` is a FolderRotation.
    """
    folders = find_indexes(path)
    share = 0.5 if folders else 1.0
    with _as_result(FolderRotation.of):
        files = rotate_master_keys(path, kms, old=old, new=new, dry_run=dry_run,
                                   advance=lambda fraction: advance(share * fraction))
    if not folders:
        return FolderRotation.of(files)
    with _as_result(lambda indexes: FolderRotation.of(files, indexes)):
        indexes = rotate_indexes(folders, cached(kms), old=old, new=new, dry_run=dry_run)
    result = FolderRotation.of(files, indexes)
    changed = [folder for folder in folders
               if any(path.startswith(f"{folder.table}/") for path in files.rotated)]
    if not dry_run:
        with result_on_error(lambda: result):
            _update(changed, cached(kms), result, advance)
    advance(1.0)
    return result


@contextmanager
def _as_result(make: Callable[[Any], FolderRotation]) -> Iterator[None]:
    """Convert the partial result of an error that passes through."""
    try:
        yield
    except (SecureBloomError, OperationInterrupted) as error:
        if error.result is not None:
            error.result = make(error.result)
        raise


def _update(folders: Sequence[IndexFolder], kms: CachedKms, result: FolderRotation,
            advance: Advance) -> None:
    """Update the indexes of rotated files; note those that cannot be updated."""
    for number, folder in enumerate(folders):
        def advance_in_index(fraction: float, number: int = number) -> None:
            advance(0.5 + (number + fraction) / len(folders) / 2)

        try:
            updated = update_rotated(folder, kms, advance_in_index)
        except (SecureBloomError, OSError) as error:  # everything is rotated nevertheless
            result.not_updated[folder.path] = str(error)
            continue
        reasons = [*updated.uncovered.values(), *updated.failed.values()]
        if reasons:
            result.not_updated[folder.path] = \
                f"{count(len(reasons), 'file')} not covered: {reasons[0]}"
