"""What an audit could not look into is unknown, in every report, and is never counted as 0."""

import json
import os

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from secure_bloom import EncryptionConfiguration, audit, write_table
from secure_bloom.auditing.page import render_page
from secure_bloom.auditing.sarif import to_sarif
from secure_bloom.cli import main
from secure_bloom.cli.report import render_audit
from secure_bloom.keys import Keyring
from tests.maintain.helpers import ENCRYPTED, KMS, TABLE, without


@pytest.fixture
def lake(tmp_path):
    """A folder with a file whose columns are known; the tests add others."""
    folder = tmp_path / "lake"
    folder.mkdir()
    write_table(TABLE, folder / "a.parquet", bloom_filters={"ssn": True}, encryption=ENCRYPTED,
                keys=KMS)
    return folder


def run(*arguments):
    done = CliRunner().invoke(main, [*map(str, arguments)])
    return done.exit_code, done.stdout


def test_a_file_that_cannot_be_looked_into_is_unknown_in_text_page_and_json(lake):
    write_table(TABLE, lake / "closed.parquet", bloom_filters={"ssn": True}, keys=KMS,
                encryption=EncryptionConfiguration("pii", {"pii": ["ssn"]}))
    (lake / "damaged.parquet").write_bytes((lake / "a.parquet").read_bytes()[:-5])
    result = audit(lake, without("pii"))
    closed, damaged = result.files[1:]
    assert closed.rows is damaged.rows is None and result.unknown_files == 2
    assert result.summary.endswith("3 files, 1 error, 0 warnings, 2 files unknown")
    ssn = next(one for one in result.totals() if one.column == "ssn")
    assert (ssn.plaintext_filters, ssn.unknown) == (0, 3)  # those of a.parquet are hidden
    assert "columns unknown" in repr(closed)
    text = render_audit(result).splitlines()
    assert ["ssn", "1", "1", "0", "0", "?", "3", "0", "0"] in [line.split() for line in text]
    assert ["city", "1", "0", "0", "1", "?", "2", "0", "0"] in [line.split() for line in text]
    assert ["ssn", "unknown", "?", "?"] in [line.split()[1:] for line in text]
    page = render_page(result)
    assert "The columns of 2 files are unknown" in page and 'class="leaking">?</b>' in page
    assert page.count('<td class="state unknown">? unknown</td>') == 2 * 2 + 1  # and of a.parquet
    assert page.count("unknown without its key") == 3  # bytes, bits set, false positives
    found = json.loads(json.dumps(result.to_dict()))
    assert (found["unknown_files"], found["not_audited_files"]) == (2, 0)
    assert [file["rows"] for file in found["files"]] == [100, None, None]
    column = found["files"][0]["columns"][0]
    assert (column["filters"], column["bytes"], column["plain_filters"]) == (None, None, None)
    assert run("audit", lake)[0] == 1


def test_without_a_policy_a_plain_column_is_not_called_insensitive(lake):
    columns = audit(lake, KMS).files[0].columns
    assert {one.column: one.sensitive for one in columns} \
        == {"ssn": True, "name": True, "city": None, "number": None}
    assert "not sensitive" not in render_page(audit(lake, KMS))


def test_files_that_are_not_parquet_are_not_audited(lake):
    (lake / "README.txt").write_text("What is in this folder")
    (lake / "rows.csv").write_text("ssn\n078-05-1120\n")
    (lake / "b.parquet").write_text("What is in this folder")
    (lake / "empty").touch()
    os.mkfifo(lake / "pipe")  # which is not even listed
    (lake / "_SUCCESS").touch()
    (lake / ".a.parquet.crc").write_bytes(b"crc\0")
    result = audit(lake, KMS)
    assert result.ok and not result.complete and not result.findings
    assert (result.not_audited_files, result.unknown_files) == (4, 0)
    assert result.summary == f"{lake}: 1 file, 0 errors, 0 warnings, 4 files not audited"
    assert {os.path.basename(file.file): (file.encryption, *file.not_checked)
            for file in result.files if not file.file.endswith("a.parquet")} == {
        "README.txt": ("not Parquet", "it is not a Parquet file"), "b.parquet": (
            "not Parquet", "it is not a Parquet file, in spite of its name"),
        "empty": ("not Parquet", "it is empty"),
        "rows.csv": ("not Parquet", "it is not a Parquet file")}
    assert f"not audited: {lake}/empty: it is empty" in render_audit(result)
    assert "not checked: it is not a Parquet file" in json.dumps(to_sarif(result))
    assert [one.unknown for one in result.totals()] == [0] * 4
    for path in (lake, lake / "README.txt"):
        assert run("audit", path)[0] in (3, 4)


@pytest.mark.parametrize("cut", [slice(0, -1), slice(0, 9), slice(1, None), slice(0, 4)])
def test_a_part_of_a_parquet_file_is_damaged_or_audited_but_never_another_format(lake, cut):
    pq.write_table(TABLE, lake / "b.parquet")
    (lake / "b.parquet").write_bytes((lake / "b.parquet").read_bytes()[cut])
    [file] = [one for one in audit(lake, KMS).files if one.file.endswith("b.parquet")]
    assert file.encryption != "not Parquet"


def test_totals_of_inspect_say_how_many_columns_hide_their_filters(lake):
    write_table(TABLE, lake / "b.parquet", bloom_filters={"city": True})
    keyring = Keyring.create(lake.parent / "keys.json")
    keyring.add("footer", b"f" * 16)
    text = run("inspect", lake, "--keyring", lake.parent / "keys.json")[1]
    assert "1 Bloom filter of 32 bytes, those of 2 columns unknown" in text
    assert json.loads(run("inspect", lake, "--json", "--keyring", lake.parent / "keys.json")[1]
                      )["files"][0]["columns"][0]["filter_bytes"] is None
