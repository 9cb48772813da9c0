import sys

import pytest

import secure_bloom.spark
from secure_bloom.errors import MissingExtraError


def test_without_pyspark_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules
                 if name.startswith(("pyspark", "secure_bloom.spark."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r'pip install "secure_bloom\[spark\]"'):
        secure_bloom.spark.register(None)
