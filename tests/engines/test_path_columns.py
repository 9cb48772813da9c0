"""A column that only names of folders have is refused where it must be encrypted."""

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, Policy
from secure_bloom.errors import AuthenticationError
from tests.maintain.helpers import KMS

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("polars")

WAYS = {"read_table": secure_bloom.read_table,
        "dataset": lambda *place, **how: secure_bloom.dataset(*place, **how).to_table(),
        "DuckDB": lambda *place, **how: duckdb.from_arrow(
            secure_bloom.dataset(*place, **how)).fetchall(),
        "Polars": lambda *place, **how: secure_bloom.scan(*place, **how).collect(),
        "find": lambda path, keys, **how: secure_bloom.find(path, "ssn", ["5"], keys, **how)}


@pytest.mark.parametrize("folder", ["city=Evil", "CITY=Evil"])
def test_invented_columns_are_refused_by_every_reader(tmp_path, folder):
    """Whoever can rename folders can add a column, and nothing authenticates it."""
    (tmp_path / folder).mkdir()
    secure_bloom.write_table(pa.table({"ssn": ["5"]}), tmp_path / folder / "a.parquet", keys=KMS,
                             encryption=EncryptionConfiguration("footer", {"pii": ["ssn"]}))
    for name, read in WAYS.items():
        for required in (["city"], {"city": "pii"}, Policy(["city"]), Policy(["*ity", "ssn"])):
            with pytest.raises(AuthenticationError, match="path"):
                read(tmp_path, KMS, require_encryption=required)
                pytest.fail(f"{name}: {required}")
        assert len(read(tmp_path, KMS, require_encryption=["ssn"])) == 1, name
