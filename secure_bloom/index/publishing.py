"""Publish a new version of a manifest beside other writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from secure_bloom.errors import SecureBloomError
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Body, Manifest
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.keys.cache import CachedKms

TRIES = 100  #: of publishing a version


def publish(folder: IndexFolder, kms: CachedKms | None, change: Callable[[Body], Body | None],
            first: Callable[[], Manifest] | None = None) -> Manifest | None:
    """Apply a change to the newest manifest, and store the result as the next version.

    ``change`` is called again if another writer was faster, or seems to have been: the body may
    have the change already. It returns None if there is nothing to change. ``first`` makes the
    manifest of a new index.

    Returns the manifest that is the newest now; None if there is none.
    """
    def changed(manifest: Manifest) -> Manifest | None:
        body = change(manifest.body)
        return None if body is None else replace(manifest, body=body)

    return publish_manifest(folder, kms, changed, first)


def publish_manifest(folder: IndexFolder, kms: CachedKms | None,
                     change: Callable[[Manifest], Manifest | None],
                     first: Callable[[], Manifest] | None = None) -> Manifest | None:
    """Do the same with a change to the whole manifest, whose version is set here."""
    for _ in range(TRIES):
        newest, version = folder.newest_and_next(kms)
        if newest is None and first is not None:
            newest = first()
        changed = None if newest is None else change(newest)
        if changed is None:
            return newest
        if (published := stored_as_newest(folder, changed, version)) is not None:
            return published
    raise too_fast(folder)


def stored_as_newest(folder: IndexFolder, manifest: Manifest, version: int) -> Manifest | None:
    """Store a manifest as a version, and return it; None if another writer was faster."""
    manifest = manifest.next(manifest.body, version)
    try:
        folder.publish(manifest)
    except FileExistsError:
        return None
    # Later versions may be without this one: it was free because it was deleted.
    return manifest if max(folder.versions(), default=0) <= version else None


def too_fast(folder: IndexFolder) -> SecureBloomError:
    """Return the error for an index that other writers change all the time."""
    return SecureBloomError("other programs update this index faster than this one can; try again",
                            file=folder.path, column=folder.column)


def discard_if_replaced(folder: IndexFolder, index_id: bytes,
                        segments: Iterable[SegmentInfo]) -> None:
    """Delete segments that were made for an index which now has another key, if that is so.

    They show values to whoever has the old key, or to everyone if the index had no encryption.
    """
    newest = folder.newest()
    if newest is None or newest.index_id == index_id:
        return
    for info in segments:
        for name in info.file_names:
            with suppress(OSError):  # vacuum deletes it then
                folder.delete(folder.segment_path(name))


def drop_missing(folder: IndexFolder, kms: CachedKms | None) -> None:
    """Publish a version without segments of which a file does not exist any more, if there are any.

    Their files are then not covered, and an update can cover them again.
    """
    def change(body: Body) -> Body | None:
        stored = {info.base_name for info in folder.infos()}
        kept = tuple(info for info in body.segments if stored.issuperset(info.file_names))
        return None if len(kept) == len(body.segments) \
            else replace(body.without_generation(), segments=kept)

    publish(folder, kms, change)
