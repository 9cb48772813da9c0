"""Cover further files by the index of one column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from secure_bloom.errors import ChangedMeanwhileError, SecureBloomError
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.column_segments import SegmentMaker, Segments, SentKey
from secure_bloom.index.comparison import Comparison
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Body, Listed, Manifest
from secure_bloom.index.publishing import discard_if_replaced, publish_manifest
from secure_bloom.index.stamps import Stamp
from secure_bloom.keys.cache import CachedKms


class ColumnUpdate:
    """An update of one index: what it covers, and how further segments are published.

    Parameters
    ----------
    folder : IndexFolder
    index : ColumnIndex
        The version to start from.
    kms : CachedKms or None
    listing : mapping of str to Stamp
    """

    def __init__(self, folder: IndexFolder, index: ColumnIndex, kms: CachedKms | None,
                 listing: Mapping[str, Stamp]):
        self.folder, self._index, self._kms, self._listing = folder, index, kms, listing
        self._comparison = Comparison(index, listing)
        self.key = SentKey(index.manifest)
        self.uncovered = self._comparison.uncovered
        self.earlier: Mapping[str, Sequence[bytes]] = self._comparison.earlier

    @property
    def column(self) -> str:
        """Dotted path of the column."""
        return self.folder.column

    def maker(self, table: str, budget: int) -> SegmentMaker:
        """Return what makes segments of files that are not covered, in this process."""
        return SegmentMaker(self.folder.filesystem, table, self.column, self.key, self.earlier,
                            budget)

    def finish(self, made: Sequence[Segments], generation: str | None) -> None:
        """Publish what was made.

        ``generation`` is that of the table if all its files are covered then, else None.
        """
        removed = self._comparison.removed
        started = set(self._index.manifest.body.segments)
        listed = None if generation is None else self._listed(made)

        def change(body: Body) -> Body:
            # A merge meanwhile may have dropped files of which only the new stamp was noted.
            if body.is_exclusive and generation is not None \
                    and started.issubset(body.segments):
                return replace(body, generation=generation, removed=tuple(sorted(removed)),
                               listed=listed)
            return body.without_generation()

        publish_segments(self.folder, self._kms, self.key, made, change)

    def _listed(self, made: Sequence[Segments]) -> Listed | None:
        """Return the totals of all listed files; None if the index knows versions of a file."""
        restamped = {path for one in made for path in one.restamped}
        if self._comparison.has_several_versions or not self.earlier.keys() <= restamped:
            return None
        groups = self._comparison.row_groups
        groups += sum(info.row_groups for one in made for info in one.segments)
        groups += sum(self._comparison.others[path][0].row_groups for path in restamped)
        return Listed.of(self._listing, groups).to_be_stored()


def publish_segments(folder: IndexFolder, kms: CachedKms | None, key: SentKey,
                     made: Sequence[Segments],
                     change: Callable[[Body], Body] = lambda body: body) -> Manifest | None:
    """Publish segments that were made with a key, and a further change.

    Returns the manifest that is the newest now; None if there is none.

    Raises
    ------
    ChangedMeanwhileError
        If the index has another key, because it was replaced, or deleted and built again.
    """
    def changed(manifest: Manifest) -> Manifest | None:
        if manifest.key != key.key:
            raise ChangedMeanwhileError("the index was replaced, or deleted and built again, "
                                        "meanwhile; update it", file=folder.path,
                                        column=folder.column)
        body = change(_with_segments(manifest.body, made))
        return None if body == manifest.body else replace(manifest, body=body)

    try:
        return publish_manifest(folder, kms, changed)
    except SecureBloomError:
        discard_if_replaced(folder, key.index_id, (info for one in made for info in one.segments))
        raise


def _with_segments(body: Body, made: Sequence[Segments]) -> Body:
    """Return the body with further segments."""
    listed = set(body.segments)  # perhaps by a try that seemed to fail
    restamped = dict(body.restamped)
    for one in made:
        restamped |= one.restamped
    return replace(body, restamped=restamped, segments=(
        *body.segments, *(info for one in made for info in one.segments if info not in listed)))
