"""Erasures of folders into which somebody else may write, who has no key."""

import json
import shutil
from dataclasses import replace

import pytest

from secure_bloom import erase
from secure_bloom.errors import UnsupportedError
from secure_bloom.index import identity
from tests.erasing.helpers import ENCRYPTION, KMS, numbers_in, ssn, write_people
from tests.index.planting import plant


def test_a_planted_index_hides_no_row(tmp_path, monkeypatch):
    """It denies the rows of an encrypted file; only the others would be compared with it."""
    write_people(tmp_path / "a.parquet", range(8), use_dictionary=False)  # which would tell
    write_people(tmp_path / "0.parquet", range(100, 104), encryption=None)
    for number in range(1, 5):
        shutil.copy(tmp_path / "0.parquet", tmp_path / f"{number}.parquet")
    monkeypatch.setattr(identity.SystemRandom, "sample",
                        lambda self, paths, count: sorted(paths, reverse=True)[:count])
    plant(tmp_path, "ssn", KMS)
    result = erase(tmp_path, "ssn", ssn(3), KMS, max_share=1)
    assert (result.rows_removed, result.is_complete) == (1, True)
    assert 3 not in [number for path in tmp_path.glob("*.parquet") for number in numbers_in(path)]


def test_key_material_behind_a_link_is_not_copied(tmp_path):
    """It may be another file, which only the user who erases may read."""
    lake = tmp_path / "lake"
    encryption = replace(ENCRYPTION, internal_key_material=False)
    path = write_people(lake / "a.parquet", range(8), encryption=encryption)
    private = tmp_path / "private.json"
    material = lake / f"_KEY_MATERIAL_FOR_{path.name}.json"
    private.write_text(json.dumps(json.loads(material.read_text()) | {"password": "secret"}))
    material.unlink()
    material.symlink_to(private)
    with pytest.raises(UnsupportedError, match="a link leads from here out of the table"):
        erase(lake, "ssn", ssn(3), KMS, max_share=1)
    assert numbers_in(path) == list(range(8))
    assert not any("secret" in one.read_text() for one in lake.glob("_KEY*") if one != material)
