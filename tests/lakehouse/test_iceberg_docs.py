"""The examples of docs/lakehouse.md and the reports of docs/peers about Iceberg."""

import re
from pathlib import Path

import pytest

import secure_bloom
from tests.lakehouse.iceberg import KMS, PEOPLE, pyiceberg_table, ssn

DOCS = Path(__file__).parents[2] / "docs"


def examples(name: str, language: str = "python") -> list[str]:
    """Return the examples of a page; of docs/lakehouse.md, those of the section on Iceberg."""
    text = (DOCS / name).read_text()
    section = text.partition("\n## Iceberg\n")[2].partition("\n## ")[0] or text
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def database(spark):
    for catalog in ("iceberg", "encrypted"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.db")


def test_the_examples_of_the_page(spark, database, capsys):
    [create] = examples("lakehouse.md", "sql")
    spark.sql(create.replace("people", "encrypted.db.read_me"))
    spark.sql(f"INSERT INTO encrypted.db.read_me {PEOPLE}")
    location = pyiceberg_table(spark, "encrypted.db.read_me").metadata_location
    with_pyiceberg, _, with_spark = examples("lakehouse.md")
    names = {"spark": spark, "secure_bloom": secure_bloom, "location": location, "kms": KMS}
    exec(with_pyiceberg, names)
    assert capsys.readouterr().out == f"[{{'ssn': '{ssn(7)}', 'amount': 7}}]\n"
    exec(with_spark.replace("db.people", "db.read_me"), names)
    assert names["rows"].count_rows() == 2000


@pytest.mark.parametrize("name", ["iceberg-ignored-encryption", "iceberg-plaintext-statistics",
                                  "pyiceberg-plaintext-append"])
def test_a_report_can_be_reproduced(spark, database, capsys, name):
    page = f"peers/{name}.md"
    [example] = examples(page)
    exec(example, {"spark": spark})
    [said] = re.findall(r"^It prints (.*)\.$", (DOCS / page).read_text(), re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == re.findall(r"`([^`]*)`", said)
