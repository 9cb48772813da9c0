"""Dask over the fragments of data sets of encrypted files."""

import pickle

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom import ExplicitKeys, UniformKey
from tests.engines.conftest import ROW_GROUPS, ssn

pytestmark = pytest.mark.slow  # to import it takes a second


def frame_of(fragment) -> pd.DataFrame:
    """Return the rows of a fragment; Dask calls this in its workers."""
    return fragment.to_table().to_pandas()


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_frame_of_all_files(people, scheduler):
    source = people.open()
    frame = dd.from_map(frame_of, list(source.get_fragments()))
    assert frame.npartitions == 3
    with dask.config.set(scheduler=scheduler):
        found = frame.compute().reset_index(drop=True)
    assert found.astype(object).where(found.notna(), None).to_dict("list") \
        == people.rows.to_pydict()


def test_a_filter_chooses_files_and_row_groups(people):
    source = people.open()
    condition = pc.field("ssn") == ssn(123)
    fragments = list(source.filter(condition).get_fragments())
    assert [fragment.row_groups for fragment in fragments] == [[2]]
    frame = dd.from_map(frame_of, fragments)
    with dask.config.set(scheduler="threads"):
        assert frame.compute()["id"].tolist() == [123]
    [fragment] = source.get_fragments(condition)
    assert fragment.to_table().num_rows == 50
    assert source.report.row_groups.total == ROW_GROUPS and source.report.row_groups.read == 1


def test_other_processes_read_fragments(tmp_path):
    for name in range(2):
        secure_bloom.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / f"{name}.parquet",
                                 bloom_filters={"x": True}, encryption=UniformKey(b"k" * 16))
    fragments = list(secure_bloom.dataset(tmp_path, ExplicitKeys(b"k" * 16)).get_fragments())
    assert [frame_of(pickle.loads(pickle.dumps(one)))["x"].tolist() for one in fragments] \
        == 2 * [[1, 2, 3]]
