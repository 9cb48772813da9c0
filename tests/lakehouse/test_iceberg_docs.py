"""The examples of docs/lakehouse.md and the reports of docs/peers about Iceberg."""

import re

import pytest

import secure_bloom
from tests.docs.pages import ROOT, section
from tests.lakehouse.iceberg import KMS, PEOPLE, pyiceberg_table, ssn

ICEBERG = section("lakehouse.md", "Iceberg")


def examples(text: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def database(spark):
    for catalog in ("iceberg", "encrypted"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.db")


def test_the_examples_of_the_page(spark, database, capsys):
    [create] = examples(ICEBERG, "sql")
    spark.sql(create.replace("people", "encrypted.db.read_me"))
    spark.sql(f"INSERT INTO encrypted.db.read_me {PEOPLE}")
    location = pyiceberg_table(spark, "encrypted.db.read_me").metadata_location
    with_pyiceberg, _, with_spark = examples(ICEBERG)
    names = {"spark": spark, "secure_bloom": secure_bloom, "location": location, "kms": KMS}
    exec(with_pyiceberg, names)
    assert capsys.readouterr().out == f"[{{'ssn': '{ssn(7)}', 'amount': 7}}]\n"
    exec(with_spark.replace("db.people", "db.read_me"), names)
    assert names["rows"].count_rows() == 2000


@pytest.mark.parametrize("name", ["iceberg-ignored-encryption", "iceberg-plaintext-statistics",
                                  "pyiceberg-plaintext-append"])
def test_a_report_can_be_reproduced(spark, database, capsys, name):
    page = (ROOT / "docs" / "peers" / f"{name}.md").read_text()
    [example] = examples(page)
    exec(example, {"spark": spark})
    [printed] = re.findall(r"^It prints (.*)\.$", page, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == re.findall(r"`([^`]*)`", printed)
