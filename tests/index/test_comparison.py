"""An update sees listed files as lookups do, though it keeps none of the entries."""

from dataclasses import replace

import pyarrow.fs as pa_fs
from hypothesis import example, given
from hypothesis import strategies as st

from secure_bloom.index.building import SegmentBuilder
from secure_bloom.index.column_index import ColumnIndex
from secure_bloom.index.comparison import Comparison
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Manifest, Restamp
from secure_bloom.index.stamps import Stamp
from tests.index.helpers import INT64, entry
from tests.support import examples

PATHS = [f"{number}.parquet" for number in range(4)]
ROW_GROUPS = {path: number % 3 for number, path in enumerate(PATHS)}
STAMPS = st.builds(Stamp, st.integers(1, 3), st.just(5), st.sampled_from(["a", "ö"]))
SEGMENTS = st.lists(st.dictionaries(st.sampled_from(PATHS), st.tuples(
    STAMPS, st.booleans(), st.sampled_from([b"1" * 16, b"2" * 16]))), max_size=4)


@examples(100)
@given(segments=SEGMENTS, changes=st.dictionaries(st.sampled_from(PATHS), st.none() | STAMPS),
       restamped=st.dictionaries(st.sampled_from(PATHS), STAMPS))
@example(segments=[{PATHS[0]: (Stamp(1, 5), False, b"1" * 16)}], changes={},
         restamped={PATHS[0]: Stamp(2, 5)})  # it is as it was before the restamp
def test_a_comparison_and_a_coverage_are_the_same(tmp_path_factory, segments, changes, restamped):
    listing = {path: file[0] for files in segments for path, file in files.items()} | changes
    listing = {path: stamp for path, stamp in listing.items() if stamp is not None}
    index = built(str(tmp_path_factory.mktemp("t")), segments, restamped)
    comparison, coverage = Comparison(index, listing), index.coverage(listing)
    assert comparison.uncovered == coverage.uncovered
    assert comparison.covered() == [path for path in listing if path in coverage.places]
    assert comparison.removed == {path for path, _ in index.places} - listing.keys()

    versions = {path: [stamp for other, stamp in index.places if other == path] for path in listing}
    assert comparison.has_several_versions == any(len(some) > 1 for some in versions.values())
    assert comparison.earlier.keys() == {path for path in coverage.uncovered if versions[path]}
    assert comparison.row_groups == index.num_row_groups(coverage)
    assert all(one.row_groups == ROW_GROUPS[path] for path, some in comparison.others.items()
               for one in some)


def built(table: str, segments, restamped) -> ColumnIndex:
    folder = IndexFolder(pa_fs.LocalFileSystem(), table, "id")
    manifest = Manifest.new("id", None, None, is_exclusive=True)
    infos = []
    folder.filesystem.create_dir(folder.path)
    for files in filter(None, segments):
        builder = SegmentBuilder(manifest.key, INT64)
        for path, (stamp, is_void, content) in files.items():
            one = entry(0, ROW_GROUPS[path])._replace(path=path, content=content, **stamp._asdict())
            builder.add_file(one.void() if is_void else one)
        infos.append(builder.write(folder.filesystem, folder.path))
        builder.close()
    body = replace(manifest.body, segments=tuple(infos), restamped={
        path: Restamp(*stamp, b"1" * 16, b"f" * 16) for path, stamp in restamped.items()})
    return ColumnIndex(folder, replace(manifest, body=body))
