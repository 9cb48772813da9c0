"""Rotate master keys of indexes: one new manifest for each, whose key the new master key wraps.

Segments do not change. Earlier manifests have the key as the old master key wrapped it, so they are
deleted as soon as the new one is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from secure_bloom.display import ChangeResult
from secure_bloom.errors import SecureBloomError
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Manifest
from secure_bloom.index.publishing import publish_manifest
from secure_bloom.index.table import Table
from secure_bloom.index.update import (
    TOO_YOUNG,
    UpdateResult,
    update_indexes,
    wait_until_settled,
)
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.operations.rewrapping import Rewrapping, Stop
from secure_bloom.storage.many_files import Advance, ManyFiles, result_on_error

_AT_ONCE = 4


@dataclass(repr=False)
class IndexRotation(ChangeResult):
    """Result of a rotation of indexes, or of a dry run.

    Attributes
    ----------
    rotated : list of str
        Folders of the indexes with the old master key, which now have the new one.
    unchanged : int
        Number of indexes that did not have the old master key.
    failed : dict of str to str
        Indexes that could not be rotated, and why. They are unmodified.
    master_keys : list of str
        All master keys of the indexes before the rotation.
    dry_run : bool
    """

    rotated: list[str] = field(default_factory=list)
    unchanged: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    master_keys: list[str] = field(default_factory=list)
    dry_run: bool = False

    def _headline(self) -> str:
        number = len(self.rotated)
        return (f"{number:,} {'index' if number == 1 else 'indexes'} "
                f"{'to rotate' if self.dry_run else 'rotated'}, {self.unchanged:,} unchanged, "
                f"{len(self.failed):,} failed")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return ("index", "error"), self.failed.items()


def rotate_indexes(folders: Sequence[IndexFolder], kms: CachedKms, *, old: str, new: str,
                   dry_run: bool = False) -> IndexRotation:
    """Rotate the master key of indexes; for the errors, see :meth:`Index.rotate`."""
    rewrapping = Rewrapping(kms, old, new, dry_run)
    by_path = {folder.path: folder for folder in folders}
    many = ManyFiles(lambda path, _: path if _rotate(by_path[path], rewrapping) else None,
                     list(by_path))

    def result() -> IndexRotation:
        return IndexRotation(*many.outcomes(), sorted(rewrapping.found), dry_run)

    with result_on_error(result):
        try:
            rewrapping.try_new_key()
            many.run(_AT_ONCE)
        except Stop as stop:
            raise stop.reason from stop.reason.__cause__
    return result()


def _rotate(folder: IndexFolder, rewrapping: Rewrapping) -> bool:
    """Rotate one index; return whether it had the old master key."""
    stored = folder.newest()
    if stored is None or stored.material is None:
        return False
    had_old = rewrapping.rewrapped(stored.material) is not None
    if rewrapping.dry_run:
        return had_old
    if had_old:
        publish_manifest(folder, rewrapping.kms, lambda manifest: _rewrapped(manifest, rewrapping))
    newest = folder.newest()
    if newest is None or newest.material is None:
        return False  # it was deleted meanwhile
    if newest.material.master_key_id == rewrapping.new:  # else it has another one
        folder.delete_before(newest.version)  # also what an interrupted rotation has left
    elif had_old:
        raise SecureBloomError("another program updated this index at the same moment; rotate "
                               "again", column=folder.column)
    return had_old


def _rewrapped(manifest: Manifest, rewrapping: Rewrapping) -> Manifest | None:
    material = None if manifest.material is None else rewrapping.rewrapped(manifest.material)
    return None if material is None else replace(manifest, material=material)


def update_rotated(folder: IndexFolder, kms: CachedKms | None,
                   advance: Advance | None = None) -> UpdateResult:
    """Update an index whose files have just been rotated; waits until they are old enough."""
    table = Table(folder.filesystem, folder.table)
    result = update_indexes(table, [folder.column], kms, advance=advance)
    if TOO_YOUNG in result.uncovered.values():
        wait_until_settled()
        result = update_indexes(table, [folder.column], kms, advance=advance)
    return result
