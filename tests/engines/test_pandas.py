"""pandas frames from data sets of encrypted files."""

import pandas as pd
import pyarrow.compute as pc
import pytest

from tests.engines.conftest import ROW_GROUPS, ssn


def test_a_filtered_frame(people):
    source = people.open()
    condition = pc.field("ssn").isin([ssn(123), ssn(599)])
    found = source.to_table(filter=condition).to_pandas()
    wanted = people.rows.to_pandas()
    wanted = wanted[wanted["ssn"].isin([ssn(123), ssn(599)])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, wanted)
    assert source.report.row_groups.total == ROW_GROUPS and source.report.row_groups.read == 2


def test_frames_of_one_batch_at_a_time(people):
    frames = [batch.to_pandas() for batch in people.open().to_batches(["id"], batch_size=30)]
    assert len(frames) > ROW_GROUPS
    assert pd.concat(frames)["id"].tolist() == list(range(600))


@pytest.mark.skipif(not hasattr(pd.DataFrame, "from_arrow"), reason="since pandas 3")
def test_pandas_takes_the_stream_of_a_data_set(people):
    found = pd.DataFrame.from_arrow(people.open().filter([("ssn", "==", ssn(123))]))
    assert found["id"].tolist() == [123]
