"""What an audit says of a whole lake: whether anything is encrypted, and totals of columns."""

import json
import tracemalloc

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from secure_bloom import EncryptionConfiguration, attach, audit, write_table
from secure_bloom.auditing.page import render_page
from secure_bloom.auditing.result import (
    AuditResult,
    ColumnAudit,
    ColumnTotals,
    FileAudit,
    new_finding,
)
from secure_bloom.auditing.sarif import to_sarif
from secure_bloom.cli import main
from secure_bloom.cli.report import render_audit
from secure_bloom.policy import Policy
from tests.counting import CountingHandler
from tests.maintain.helpers import ENCRYPTED, KMS, SIGNED, TABLE, UNIFORM, leaking

MANY = 20_000


@pytest.fixture
def lake(tmp_path):
    """Three files without encryption, of which one has a filter."""
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(3):
        pq.write_table(TABLE, folder / f"{number}.parquet")
    attach(folder / "2.parquet", {"ssn": True})
    return folder


def run(*arguments, code: int):
    done = CliRunner().invoke(main, ["audit", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.stdout


# --- no encryption -------------------------------------------------------------------------------

def test_a_lake_without_encryption_is_called_that_first(lake, tmp_path):
    out = run(lake, "--html", tmp_path / "a.html", "--sarif", tmp_path / "a.sarif", code=0)
    first = f"No file is encrypted: 3 files in {lake}, 0 errors, 0 warnings"
    assert out.splitlines()[0] == first
    found = json.loads(run(lake, "--json", code=0))
    assert (found["encrypted_files"], found["unencrypted_files"]) == (0, 3)
    page = (tmp_path / "a.html").read_text()
    assert "No file is encrypted: 3 files." in page and "everything was checked" not in page
    [one] = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    assert [note["message"]["text"] for note in one["invocations"][0][
        "toolExecutionNotifications"]] == [first]
    assert repr(audit(lake)).startswith("<AuditResult No file is encrypted: 3 files")


def test_a_single_file_without_encryption(lake):
    assert run(lake / "0.parquet", code=0).startswith("No file is encrypted: 1 file in ")


def test_what_a_policy_demands_is_an_error_all_the_same(lake):
    result = audit(lake, policy=Policy(("ssn", "name")))
    assert not result.ok and result.lacks_encryption
    text = render_audit(result)
    assert text.startswith("No file is encrypted: 3 files") and "6 errors" in text.splitlines()[0]
    assert text.count("is not encrypted; the policy requires it") == 2
    assert "No file is encrypted: 3 files. 6 errors found" in render_page(result)


def test_files_that_cannot_be_read_may_be_encrypted(lake):
    (lake / "broken.parquet").write_bytes(b"PAR1 no Parquet")
    result = audit(lake)
    assert result.summary.startswith("No file is encrypted: 4 files (3 of them can be read) in ")
    assert [file.encryption for file in result.files] == ["none"] * 3 + ["unknown"]
    assert (result.encrypted_files, result.unencrypted_files) == (0, 3)


@pytest.mark.parametrize("encryption", [SIGNED, ENCRYPTED, UNIFORM])
@pytest.mark.parametrize("keys", [None, KMS])
def test_one_encrypted_file_is_enough(lake, encryption, keys):
    table = TABLE.rename_columns([f"{name} 2" for name in TABLE.column_names])
    if encryption is not UNIFORM:
        encryption = EncryptionConfiguration("footer", {"pii": ["ssn 2"]},
                                             plaintext_footer=encryption is SIGNED)
    write_table(table, lake / "z.parquet", bloom_filters={}, encryption=encryption, keys=KMS)
    result = audit(lake, keys)
    unknown = ", 1 file unknown" if keys is None and not encryption.plaintext_footer else ""
    assert result.summary == f"{lake}: 4 files, 0 errors, 0 warnings{unknown}"
    assert (result.encrypted_files, result.unencrypted_files) == (1, 3)
    assert "No file is encrypted" not in render_page(result) + json.dumps(to_sarif(result))


def test_nothing_that_can_be_read_is_not_without_encryption(tmp_path):
    assert audit(tmp_path).summary == f"{tmp_path}: 0 files, 0 errors, 0 warnings"
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no Parquet")
    assert audit(tmp_path).summary == f"{tmp_path}: 1 file, 1 error, 0 warnings, 1 file unknown"


# --- totals --------------------------------------------------------------------------------------

def test_totals_of_columns(lake, tmp_path):
    write_table(TABLE, lake / "own.parquet", bloom_filters={"ssn": True}, encryption=SIGNED,
                keys=KMS)
    write_table(TABLE.select(["ssn", "city"]), lake / "uniform.parquet", bloom_filters={},
                encryption=UNIFORM, keys=KMS)
    leaking(lake / "leaking.parquet", columns=("ssn", "city"))
    result = audit(lake, KMS, policy=Policy(("number",)))
    assert result.totals() == [
        #                                files own footer none plain errors
        ColumnTotals("city", 6, 0, 1, 5, 1, 5, 0),
        ColumnTotals(column="number", files=5, column_key=0, footer_key=0, unencrypted=5,
                     plaintext_filters=0, errors=5, warnings=0),
        ColumnTotals("ssn", 6, 2, 1, 3, 2, 4, 0),
        ColumnTotals("name", 5, 2, 0, 3, 0, 3, 0)]
    lines = [line.split() for line in render_audit(result).splitlines()]
    assert ["ssn", "6", "2", "1", "3", "2", "0", "4", "0"] in lines
    found = result.to_dict()
    assert found["columns"][2] == {
        "column": "ssn", "files": 6, "column_key": 2, "footer_key": 1, "unencrypted": 3,
        "plaintext_filters": 2, "errors": 4, "warnings": 0, "unknown": 0}
    assert "<tr><td>ssn</td><td>6</td><td>2</td><td>1</td><td>3</td><td>2</td><td>0</td>" \
        "<td>4</td><td>0</td></tr>" in render_page(result)
    assert "<td>ssn</td><td>6</td>" in result._repr_html_()


def test_one_file_needs_no_totals(lake):
    assert "column key" not in render_audit(audit(lake / "0.parquet"))


def test_a_column_that_is_encrypted_in_part_is_not_encrypted():
    result = AuditResult("a", [FileAudit("f", "signed footer", [
        ColumnAudit("ssn", encryption=None, plain_filters=3)])])
    assert result.totals() == [ColumnTotals("ssn", 1, unencrypted=1, plaintext_filters=1)]


def test_json_is_the_same_in_one_piece_and_in_many(lake):
    leaking(lake / "leaking.parquet")
    for result in (audit(lake), audit(lake, KMS, policy=Policy(("city",))), AuditResult("a")):
        assert json.loads("".join(result.json_parts())) == json.loads(json.dumps(result.to_dict()))


# --- many files ----------------------------------------------------------------------------------

def large(**options) -> AuditResult:
    files = [FileAudit(f"data/part-{i:06}.parquet", "none",
                       [ColumnAudit("ssn", "leaking", True, filters=1, plain_filters=1, **options),
                        ColumnAudit("city")], [f"file {i}"] if i % 2 else ["filters"])
             for i in range(MANY)]
    findings = [new_finding("unencrypted", "m", "r", file.file, "ssn") for file in files]
    return AuditResult("data", files, findings)


@pytest.mark.slow
def test_text_of_a_large_lake_is_short():
    lines = render_audit(large()).splitlines()
    assert len(lines) < 80 and lines[0].startswith("No file is encrypted: 20,000 files in data")
    assert sum("20,000 files (data/part-000000.parquet, " in line for line in lines) == 1
    assert "... and 19,980 more columns of files in --json or --html" in lines


@pytest.mark.slow
def test_a_page_of_a_large_lake_is_short():
    assert len(render_page(large())) < 400_000


@pytest.mark.slow
def test_many_columns_are_cut_off_everywhere_but_in_json():
    columns = [ColumnAudit(f"c{i}", "open", filters=1, bytes=9, fill=.5, fpp=.1)
               for i in range(2000)]
    result = AuditResult("data", [FileAudit(f"{i}", "none", columns) for i in range(20)],
                         [new_finding("leak", "m", "r", "0", f"c{i}") for i in range(2000)])
    assert len(render_audit(result).splitlines()) < 120
    assert len(render_page(result)) < 250_000
    assert len(result.to_dict()["columns"]) == 2000


def test_long_names_are_cut_off_everywhere_but_in_json():
    name = "n" * 100_000
    result = AuditResult("data", [FileAudit(str(i), "none", [ColumnAudit(
        name, "open", filters=1, bytes=9, fill=.5, fpp=.1)]) for i in range(30)],
        [new_finding("leak", "m", "r", str(i), name) for i in range(30)])
    assert len(render_audit(result)) < 20_000 and len(render_page(result)) < 50_000
    assert name in "".join(result.json_parts())


class _Same(CountingHandler):
    """A folder in which every name is the same small file."""

    def __init__(self, data: bytes, number: int):
        super().__init__("same")
        self._data, self._number = data, number

    def get_file_info(self, paths):
        return [pa_fs.FileInfo(path, pa_fs.FileType.Directory if path == "lake" else
                               pa_fs.FileType.File, size=len(self._data)) for path in paths]

    def get_file_info_selector(self, selector):
        if selector.base_dir != "lake":
            return []
        return [pa_fs.FileInfo(f"lake/{i:08}.parquet", pa_fs.FileType.File, size=len(self._data))
                for i in range(self._number)]

    def open_input_file(self, path):
        return pa.PythonFile(pa.BufferReader(self._data), mode="r")


@pytest.mark.slow
@pytest.mark.sweep
def test_each_file_of_a_lake_takes_little_memory(tmp_path):
    """What files have in common is kept once: here 60 columns."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({f"column_{i}": [1] for i in range(60)}), path)

    def memory(number: int) -> int:
        filesystem = pa_fs.PyFileSystem(_Same(path.read_bytes(), number))
        tracemalloc.start()
        result = audit("lake", policy=Policy(("column_7",)), filesystem=filesystem)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(result.files) == len(result.findings) == number
        assert len(result.files[-1].columns) == 60
        return size

    memory(10)
    assert (memory(600) - memory(100)) / 500 < 1500  # bytes; 60 records take 10,000
