"""A data set of files in every mode of encryption."""

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom
from secure_bloom.errors import KeyRetrievalError
from tests.datasets.people import KMS
from tests.modes import MODES

ROWS = pa.table({"a": [f"a{number:03}" for number in range(300)], "b": range(300),
                 "c": [number / 3 for number in range(300)]})


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_rows_and_pruning_are_those_of_the_reader_of_single_files(tmp_path, mode):
    for number in range(2):
        mode.write(ROWS.slice(150 * number, 150), str(tmp_path / f"{number}.parquet"),
                   {"kc1": ["a"]}, bloom_filters=True, row_group_size=50)
    dataset = secure_bloom.dataset(tmp_path, mode.keys)
    assert dataset.to_table().equals(ROWS)
    wanted = pc.field("a") == "a120"
    assert dataset.to_table(filter=wanted).to_pydict() == ROWS.slice(120, 1).to_pydict()
    assert dataset.report.row_groups.read == 1
    for again in (dataset, pickle.loads(pickle.dumps(dataset))):
        [fragment] = again.get_fragments(wanted)
        assert fragment.to_table().equals(ROWS.slice(100, 50))


def test_key_material_beside_the_files(tmp_path):
    encryption = secure_bloom.EncryptionConfiguration("footer", {"pii": ["a"]},
                                                      internal_key_material=False)
    for number in range(3):
        secure_bloom.write_table(ROWS.slice(100 * number, 100), tmp_path / f"{number}.parquet",
                                 bloom_filters=True, encryption=encryption, keys=KMS)
    dataset = secure_bloom.dataset(tmp_path, KMS)
    assert dataset.to_table().equals(ROWS)
    assert dataset.to_table(filter=[("a", "==", "a120")]).num_rows == 1
    (tmp_path / "_KEY_MATERIAL_FOR_1.parquet.json").unlink()
    with pytest.raises(KeyRetrievalError, match=r"1\.parquet"):
        secure_bloom.dataset(tmp_path, KMS).to_table()
