"""docs/lakehouse.md: each row of its tables of operations names a test."""

import base64
import re

import pytest

from secure_bloom.errors import KeyNotFoundError
from tests.cases import for_each
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "lakehouse.md").read_text()
TESTS = set(re.findall(r"^def (test_\w+)\(", "\n".join(
    path.read_text() for path in (ROOT / "tests" / "lakehouse").glob("test_*.py")), re.MULTILINE))
TABLES = re.findall(r"^\| to do \| result \| test \|\n\|-.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
PEERS = (ROOT / "tests" / "lakehouse" / "conftest.py").read_text()


def test_the_page_has_a_table_of_operations_for_each_format_that_was_tried():
    assert re.findall(r"^### (.*), operation by operation$", TEXT, re.MULTILINE) \
        == ["Iceberg", "Delta Lake"]
    assert len(TABLES) == 2


def test_the_page_names_the_versions_that_are_tried():
    spark = re.findall(r'^SPARK = "(.*)"$', PEERS, re.MULTILINE)
    iceberg, delta = re.findall(r"_2\.13:([\d.]+)", PEERS)
    assert f"Spark {spark[0]} with Iceberg {iceberg} and Delta Lake {delta}," in TEXT


@for_each("row", [row for table in TABLES for row in table.splitlines()])
def test_each_row_names_a_test_that_exists(row):
    _, result, tests = (cell.strip() for cell in row.strip("|").rsplit("|", 2))
    assert re.match(r"works|refused|leaks|cannot", result)
    assert set(re.findall(r"`(test_\w+)`", tests)) & TESTS


def test_every_named_test_exists():
    assert set(re.findall(r"`(test_\w+)`", TEXT)) - TESTS == set()


@pytest.mark.slow
def test_the_class_for_aws_unwraps_what_icebergs_client_wraps(monkeypatch):
    import boto3  # slow: both take a second
    from moto import mock_aws

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    [example] = re.findall(r"^```python\n(import base64\n.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    with mock_aws():
        admin = boto3.client("kms")
        key = admin.create_key()["KeyMetadata"]["KeyId"]
        wrapped = admin.encrypt(KeyId=key, Plaintext=bytes(16))["CiphertextBlob"]
        names = {}
        exec(example, names)
        kms, text = names["IcebergAwsKms"](key), base64.b64encode(wrapped).decode()
        assert kms.unwrap_key(text, key) == bytes(16)
        with pytest.raises(KeyNotFoundError):
            kms.unwrap_key(text, f"arn:aws:kms:eu-central-1:999999999999:key/{key}")
