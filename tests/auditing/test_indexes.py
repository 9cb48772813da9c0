"""An audit names indexes that leak, are damaged, or are stale."""

import json
import os

import pyarrow as pa
import pytest
from click.testing import CliRunner

from secure_bloom import EncryptionConfiguration, audit, index, write_table
from secure_bloom.auditing.page import render_page
from secure_bloom.auditing.sarif import to_sarif
from secure_bloom.cli import main
from secure_bloom.keys import InMemoryKms
from secure_bloom.policy import Policy

KMS = InMemoryKms({"footer": b"f" * 16, "pii": b"p" * 16})
ENCRYPTED = {"encryption": EncryptionConfiguration("footer", {"pii": ["ssn"]}), "keys": KMS}
OPEN_FOOTER = {"encryption": EncryptionConfiguration("footer", {"pii": ["ssn"]},
                                                     plaintext_footer=True), "keys": KMS}


def write(path, start=0, **options):
    path.parent.mkdir(exist_ok=True)
    write_table(pa.table({"ssn": [f"078-05-{i:04}" for i in range(start, start + 40)],
                          "city": ["Rome"] * 40}), path, **options)
    os.utime(path, (1_700_000_000, 1_700_000_000))


def found(result) -> list[tuple]:
    return [(finding.kind, finding.severity, finding.column) for finding in result.findings]


@pytest.fixture
def leaking(tmp_path):
    """An index of plaintext files, to which an encrypted one was added."""
    table = tmp_path / "people"
    write(table / "a.parquet")
    index.build(table, "ssn", encryption=None)
    write(table / "b.parquet", 40, **OPEN_FOOTER)
    return table


@pytest.mark.parametrize("keys", [None, KMS], ids=["stranger", "keys"])
def test_an_index_without_encryption_of_an_encrypted_column_is_a_leak(leaking, keys):
    result = audit(leaking, keys)
    assert not result.ok
    assert found(result) == [("unencrypted", "error", "ssn"), ("index", "error", "ssn"),
                             ("stale-index", "note", "ssn")]
    leak = result.findings[1]
    assert leak.file == str(leaking / "_index" / "ssn") and "files encrypt the column" \
        in leak.message
    assert leak.evidence == ("40 fingerprints of values in 1 file can be read without any key",)
    assert [total.errors for total in result.totals() if total.column == "ssn"] == [2]


def test_the_folder_above_and_the_reports_name_it_too(leaking, tmp_path):
    result = audit(leaking.parent, KMS)
    assert ("index", "error", "ssn") in found(result)
    [run] = to_sarif(result)["runs"]
    assert {one["ruleId"]: one["level"] for one in run["results"]} \
        == {"index": "error", "stale-index": "note", "unencrypted": "error"}
    page = render_page(result)
    assert "An index without encryption of a sensitive column" in page and "Note: " in page
    shown = CliRunner().invoke(main, ["audit", str(leaking.parent)])
    assert shown.exit_code == 1 and "error (index): " in shown.stdout
    assert "note (stale-index): " in shown.stdout
    assert "078-05" not in json.dumps(result.to_dict()) + shown.stdout


def test_the_policy_decides_for_columns_that_no_file_encrypts(tmp_path):
    write(tmp_path / "people" / "a.parquet")
    index.build(tmp_path / "people", ["ssn", "city"], encryption=None)
    assert found(audit(tmp_path, KMS)) == []
    result = audit(tmp_path, KMS, policy=Policy(["ssn"]))
    assert found(result) == [("unencrypted", "error", "ssn"), ("index", "error", "ssn")]
    assert "the policy requires that the column is" in result.findings[1].message


def test_an_encrypted_index_has_no_finding(tmp_path):
    write(tmp_path / "people" / "a.parquet", **ENCRYPTED)
    index.build(tmp_path / "people", "ssn", KMS)
    for keys in None, KMS:
        assert found(audit(tmp_path, keys, policy=Policy(["ssn"]))) == []


def test_a_stale_index_is_a_note(tmp_path):
    write(tmp_path / "people" / "a.parquet", **ENCRYPTED)
    index.build(tmp_path / "people", "ssn", KMS)
    write(tmp_path / "people" / "b.parquet", 40, **ENCRYPTED)
    result = audit(tmp_path, KMS)
    assert result.ok and result.complete
    assert found(result) == [("stale-index", "note", "ssn")]
    assert "does not cover 1 file," in result.findings[0].message
    assert found(audit(tmp_path)) == []  # not known without keys


def test_a_changed_index_does_not_authenticate(tmp_path):
    write(tmp_path / "people" / "a.parquet", **ENCRYPTED)
    index.build(tmp_path / "people", "ssn", KMS)
    [segment] = (tmp_path / "people" / "_index" / "ssn").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[-30] ^= 1  # in the footer
    segment.write_bytes(data)
    assert found(audit(tmp_path, KMS)) == [("authentication", "error", "ssn")]
    segment.unlink()
    [finding] = audit(tmp_path, KMS).findings
    assert finding.column == "ssn" and "missing" in finding.message


def test_one_file_has_no_index(leaking):
    assert found(audit(leaking / "b.parquet", KMS)) == []
