"""An audit takes the files of a folder without a log for one table."""

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from secure_bloom import EncryptionConfiguration, audit, write_table
from secure_bloom.auditing.compliance import check_files
from secure_bloom.auditing.page import render_page
from secure_bloom.policy import Policy, TableRules
from tests.maintain.helpers import ENCRYPTED, KMS, SIGNED, TABLE


def put(folder, name, table=TABLE, encryption=None):
    """Write a file below a folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(table, path, bloom_filters={}, encryption=encryption,
                keys=None if encryption is None else KMS)


def about(result) -> set[tuple]:
    return {(finding.file.rpartition("/")[2], finding.column) for finding in result.findings
            if finding.kind == "unencrypted"}


@pytest.mark.parametrize("keys", [None, KMS], ids=["stranger", "keys"])
def test_a_column_that_only_some_files_encrypt_is_an_error(tmp_path, keys):
    put(tmp_path / "t", "day=1/a.parquet", encryption=SIGNED)
    other_case = TABLE.rename_columns(["SSN", "name", "city", "number"])
    put(tmp_path / "t", "day=2/b.parquet", other_case)
    put(tmp_path / "t", "c.parquet", TABLE.select(["ssn", "city"]),
        EncryptionConfiguration("footer", {"pii": ["city"]}, plaintext_footer=True))
    put(tmp_path / "t", "empty.parquet", TABLE[:0])
    put(tmp_path / "t", "other.parquet", TABLE.select(["number"]))
    expected = {("b.parquet", "SSN"), ("b.parquet", "name"), ("b.parquet", "city"),
                ("c.parquet", "ssn"), ("a.parquet", "city")}
    for place, filesystem in (("t", pa_fs.SubTreeFileSystem(str(tmp_path),
                                                            pa_fs.LocalFileSystem())),
                              (tmp_path / "t", None)):
        result = audit(place, keys, filesystem=filesystem)
        assert about(result) == expected and len(result.findings) == 5 and not result.ok
    states = {file.file[-9:]: {column.column: column.state for column in file.columns}
              for file in result.files}
    assert states["b.parquet"] == {"SSN": "leaking", "name": "leaking", "city": "leaking",
                                   "number": "none"}
    assert states["y.parquet"]["ssn"] == "none"  # without rows
    assert [one.errors for one in result.totals() if one.column == "ssn"] == [1]
    # What the policy demands is reported once.
    assert about(audit(tmp_path / "t", keys, policy=Policy(["ssn"]))) \
        == expected | {("empty.parquet", "ssn")}


def test_a_finding_of_another_kind_does_not_hide_it(tmp_path):
    put(tmp_path, "a.parquet", encryption=SIGNED)
    write_table(TABLE, tmp_path / "b.parquet", bloom_filters={"ssn": True})
    result = audit(tmp_path, KMS, guesses=[TABLE["ssn"][0].as_py()])
    assert {one.kind for one in result.findings if one.column == "ssn"} \
        == {"guessed", "unencrypted"}


def test_a_column_that_is_encrypted_in_some_row_groups_counts_as_encrypted(tmp_path, monkeypatch):
    from secure_bloom.parquet.column_chunk import ColumnChunk
    write_table(TABLE, tmp_path / "a.parquet", bloom_filters={}, encryption=SIGNED, keys=KMS,
                row_group_size=50)
    put(tmp_path, "b.parquet")
    real = ColumnChunk.encryption
    monkeypatch.setattr(ColumnChunk, "encryption", property(
        lambda chunk: None if chunk.row_group == 1 else real.__get__(chunk)))
    assert about(audit(tmp_path, KMS)) >= {("a.parquet", "ssn"), ("b.parquet", "ssn")}


def test_a_policy_may_allow_plaintext_in_some_files(tmp_path):
    put(tmp_path, "people/a.parquet", encryption=SIGNED)
    put(tmp_path, "towns/b.parquet", TABLE.select(["name"]))
    policy = Policy(["ssn"], tables=[TableRules("towns", columns={"name": {"plaintext": True}})])
    assert about(audit(tmp_path, KMS, policy=Policy(["ssn"]))) == {("b.parquet", "name")}
    assert audit(tmp_path, KMS, policy=policy).ok


def test_where_footers_hide_columns_plaintext_files_are_not_fully_checked(tmp_path):
    put(tmp_path, "a.parquet", encryption=ENCRYPTED)
    put(tmp_path, "b.parquet")
    result = audit(tmp_path)
    assert result.missing_keys and result.files[1].not_checked == [
        "whether other files encrypt columns that are not encrypted here: the footers of 1 file "
        "are encrypted"]
    assert about(audit(tmp_path, KMS)) == {("b.parquet", "ssn"), ("b.parquet", "name")}


def test_values_of_encrypted_columns_in_names_of_folders(tmp_path):
    put(tmp_path, "a.parquet", encryption=SIGNED)
    put(tmp_path, "SSN=078-05-1120/b.parquet", TABLE.select(["number"]))
    put(tmp_path, "city=Rome/c.parquet", TABLE.select(["number"]))
    for place in (tmp_path, tmp_path / "SSN=078-05-1120"):
        policy = None if place == tmp_path else Policy(["ssn"])
        [finding] = audit(place, KMS, policy=policy).findings
        assert (finding.kind, finding.column, finding.file) == ("unencrypted", "SSN", str(place))
        assert finding.evidence == ("found in the paths of 1 file",)
        assert "078-05" not in finding.message + finding.remedy
    assert audit(tmp_path / "city=Rome", KMS).ok
    assert [(one.kind, one.column) for file in check_files(tmp_path, Policy(["ssn"]), KMS)
            for one in file.violations] == [("unencrypted", "SSN")]


def test_the_page_shows_such_a_column_as_leaking(tmp_path):
    put(tmp_path, "a.parquet", encryption=SIGNED)
    pq.write_table(pa.table({"ssn": ["1"]}), tmp_path / "b.parquet")
    page = render_page(audit(tmp_path, KMS))
    assert "✗ leaking" in page and "not sensitive" not in page
