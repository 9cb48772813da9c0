"""The examples of docs/engines.md run as they stand there, in their order."""

from pathlib import Path

import pytest

from tests.doc_examples import check_outputs

TEXT = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()


@pytest.mark.sweep
def test_examples(tmp_path):
    (tmp_path / "people").mkdir()
    check_outputs(TEXT, tmp_path)


def test_every_engine_has_a_section():
    for name in ("DuckDB", "Polars", "DataFusion", "pandas", "Dask", "Ray"):
        assert f"\n## {name}\n" in TEXT
