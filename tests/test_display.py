"""Names and results as people see them: short, on one line, harmless."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pytest

import secure_bloom
from secure_bloom import ParquetFile, ParquetWriter, SplitBlockBloomFilter, write_table
from secure_bloom.auditing.result import AuditResult, ColumnAudit, FileAudit
from secure_bloom.display import MAX_NAME, Result, Summarized, names, shown
from secure_bloom.errors import ColumnError, FormatError, UnknownColumnError
from secure_bloom.findings import Finding
from secure_bloom.keys import list_master_keys, rotate_master_keys
from secure_bloom.keys.operations.inventory import Inventory, MasterKeyUse
from secure_bloom.keys.operations.rotation import RotationResult
from secure_bloom.maintain.change import FileChange
from secure_bloom.maintain.folders import MaintainResult
from secure_bloom.parquet.bloom_filter import BloomFilterInfo
from secure_bloom.parquet.schema import LeafColumn, find_column, leaf_columns
from secure_bloom.storage.summary import CommitSummary
from secure_bloom.verify.findings import FilterCheck, VerifyResult
from tests.counting import CountingHandler
from tests.maintain.helpers import KEYS, KMS, SIGNED, TABLE
from tests.parquet.test_schema import element, root

HOSTILE = "<script>alert('x')</script>&\"\x1b[31m\u202e\n"
LONG = "n" * 100_000
MANY = 5000


# --- names ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "expected"), [
    ("ssn", "ssn"), ("address.city", "address.city"), ("stra\u00dfe", "stra\u00dfe"), ("", ""),
    ("a\x1b[31mb", "a\\x1b[31mb"), ("a\nb\tc", "a\\nb\\tc"), ("\u202eabc", "\\u202eabc"),
    ("n" * 100, "n" * 100), ("b" * 67 + "m" * 100 + "e" * 33, "b" * 66 + "\u2026" + "e" * 33)])
def test_names_are_shown_without_what_steers_a_terminal_and_not_too_long(name, expected):
    assert shown(name) == expected


@pytest.mark.parametrize("name", [LONG, "\x1b" * 10_000, HOSTILE * 1000, "\U000e0001" * 300])
@pytest.mark.parametrize("limit", [20, MAX_NAME, 500])
def test_no_name_is_longer_than_it_may_be(name, limit):
    assert len(shown(name, limit)) <= limit and shown(name, limit).isprintable()


def test_some_of_many_names():
    assert names(["a", "b"]) == "a, b"
    assert names(map(str, range(MANY))) == "0, 1, 2 and 4,997 more"
    assert names([LONG, "b"]).endswith("\u2026" + "n" * 33 + ", b")


# --- errors --------------------------------------------------------------------------------------

def test_errors_show_the_names_that_they_carry_in_short():
    error = ColumnError("wrong", file="f", row_group=3, column=LONG)
    assert len(str(error)) < 200 and error.column == LONG
    assert str(FormatError("wrong", column=HOSTILE)).isprintable()
    assert str(FormatError("first\nsecond \x1b[31m")) == "first\nsecond \\x1b[31m"
    assert len(str(FormatError(LONG))) < 2100


@pytest.mark.parametrize("name", [LONG, HOSTILE])
@pytest.mark.parametrize("asked", ["x", "g", LONG + "x", HOSTILE + "x"])
def test_errors_about_columns_list_names_in_short(name, asked):
    leaves = leaf_columns([root(3), element(name, "INT32"), element("g", children=30),
                           *[element(name, "INT32")] * 30, element("z", "INT32")])
    with pytest.raises(ColumnError) as caught:
        find_column(leaves, asked)
    assert len(str(caught.value)) < 3000 and str(caught.value).isprintable()


def test_an_unknown_column_is_perhaps_another_one():
    leaves = leaf_columns([root(3), element("ssn", "INT32"), element("city", "INT32"),
                           element("Phone", "INT32")])
    for asked, similar in (("snn", "ssn"), ("citty", "city"), ("phone", "Phone"), ("zip", None),
                           (LONG, None)):
        with pytest.raises(UnknownColumnError) as caught:
            find_column(leaves, asked)
        assert caught.value.similar == similar
        assert ("did you mean" in str(caught.value)) == (similar is not None)
        assert "existing columns: ssn, city, Phone" in str(caught.value)


def test_many_long_names_are_not_compared(monkeypatch):
    """Comparing takes time by the square of their length."""
    import difflib
    compared = []
    monkeypatch.setattr(difflib, "get_close_matches",
                        lambda name, known, *_: compared.extend(known) or [])
    leaves = leaf_columns([root(1001), *(element(f"{i}", "INT32") for i in range(1000)),
                           element(LONG, "INT32")])
    with pytest.raises(UnknownColumnError):
        find_column(leaves, "x")
    assert len(compared) == 200 and max(map(len, compared)) <= MAX_NAME


# --- results -------------------------------------------------------------------------------------

class _Text(HTMLParser):
    def __init__(self, html: str):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def results(name: str) -> list[Summarized]:
    """One of each kind, large, with a name everywhere."""
    findings = tuple(Finding("leak", "error", name, name, name, (i,)) for i in range(MANY))
    checks = tuple(FilterCheck(i, name, not_checked=name) for i in range(MANY))
    columns = [ColumnAudit(name, "leaking", True, True, 1, 2, 0.5, 0.1)] * MANY
    files = [FileAudit(name, "signed footer", columns, [name])]
    audit_findings = [Finding("leak", "error", name, name, name, (1,) * MANY, name)] * MANY
    changes = [FileChange(name, (name,) * MANY, 3, 4, 5, (name,))] * MANY
    failed = {f"{i}{name[:1000]}": name for i in range(MANY)}
    uses = [MasterKeyUse(name, 3, [name] * MANY, name, name, name)] * MANY
    return [
        VerifyResult(name, findings, checks), VerifyResult(name, (), checks),
        VerifyResult(name, not_checked=name), findings[0], checks[0],
        AuditResult(name, files, audit_findings), files[0], columns[0], audit_findings[0],
        AuditResult(name, [FileAudit(name)] * MANY),
        MaintainResult(changes, 7, failed), MaintainResult([], 0, failed, True), changes[0],
        RotationResult([name] * MANY, 3, failed, [name] * MANY),
        Inventory(3, 3, 3, 3, uses, failed), uses[0],
        CommitSummary(name, name, 10**12, 10**12, 10**15, 10**9, 10**9, 10**15,
                      {path: path for path in failed}, [name] * MANY, [name] * MANY),
        BloomFilterInfo(10**6, name, 10**12, 10**9, 10**9, True),
        LeafColumn(10**6, name, (name,) * 10, find_column(leaf_columns([
            root(1), element("a", "INT32")]), "a").type)]


@pytest.mark.parametrize("name", [LONG, HOSTILE, "ssn"], ids=["long", "hostile", "plain"])
def test_reprs_of_results_have_one_short_line(name):
    for result in results(name):
        text = repr(result)
        assert len(text) < 120 and text.isprintable()
        assert re.match(rf"<{type(result).__name__} .+>$", text)


@pytest.mark.slow
@pytest.mark.parametrize("name", [LONG, HOSTILE, "ssn"], ids=["long", "hostile", "plain"])
def test_notebooks_get_a_small_table_in_which_names_are_text(name):
    for result in results(name):
        html = result._repr_html_()
        page = _Text(html)
        assert set(page.tags) <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}, html
        assert len(html) < 30_000 and page.tags.count("tr") <= 21, html
        assert page.text.isprintable() and type(result).__name__ in page.text, html


def test_tables_say_what_they_leave_out():
    page = _Text(results("ssn")[0]._repr_html_())
    assert page.text.endswith("and 4,980 more")
    assert "leak" in page.text and page.tags.count("td") == 100


@pytest.mark.parametrize(("row_groups", "expected"), [
    ((), "f: error (leak): column c: m"), ((4,), "f: error (leak): row group 4, column c: m"),
    ((0, 2, 3, 5), "f: error (leak): row groups 0, 2, 3 and 1 more, column c: m")])
def test_a_finding_says_that_it_concerns_more_than_one_row_group(row_groups, expected):
    assert str(Finding("leak", "error", "m", "f", "c", row_groups)) == expected


@pytest.fixture
def file(tmp_path) -> Path:
    write_table(TABLE, tmp_path / "people.parquet", bloom_filters={"ssn": True, "city": True},
                encryption=SIGNED, keys=KMS, row_group_size=10)
    return tmp_path / "people.parquet"


def test_what_is_open_or_was_done_is_said_in_short(file, tmp_path):
    opened = ParquetFile(file, KMS)
    writer = ParquetWriter(pa.BufferOutputStream(), TABLE.schema, bloom_filters={"ssn": True})
    filter_ = opened.read_bloom_filter(0, "ssn")
    things = [
        opened, opened.footer, opened.columns[0], opened.bloom_filters[0], filter_, writer,
        ParquetWriter(tmp_path / f"{'x' * 200}", TABLE.schema, bloom_filters={}),
        secure_bloom.verify_file(file, KMS), secure_bloom.audit(file, KMS),
        secure_bloom.attach(file, {"name": True}, KMS), secure_bloom.strip(file, KMS),
        list_master_keys(file, KMS), rotate_master_keys(file, KMS, old="pii", new="other"),
        SplitBlockBloomFilter(3)]
    for thing in things:
        text = repr(thing)
        assert len(text) < 120 and text.isprintable() and text.startswith("<"), text
        assert "<table>" in thing._repr_html_() or "<p>" in thing._repr_html_()
        assert not any(repr(key)[2:-1] in text + thing._repr_html_() for key in KEYS.values())
    assert repr(opened.footer) == "<Footer 4 columns, 10 row groups, 100 rows, signed, AES_GCM_V1>"
    assert "ssn" in opened._repr_html_() and "string" in opened._repr_html_()
    assert "closed" not in repr(writer)
    writer.close()
    assert "closed" in repr(writer)


GIVEN = {secure_bloom.EncryptionConfiguration, secure_bloom.UniformKey, secure_bloom.Policy,
         secure_bloom.BloomFilterOptions}  # dataclasses that users make
RESULTS = {one for module in (secure_bloom, secure_bloom.index, secure_bloom.keys)
           for one in (getattr(module, name) for name in module.__all__)
           if dataclasses.is_dataclass(one)} - GIVEN


def test_each_result_has_a_short_repr_and_a_form_for_json(file, tmp_path):
    """Their types are the public dataclasses."""
    plain = tmp_path / "plain"
    plain.mkdir()
    secure_bloom.write_table(TABLE, plain / "one.parquet")
    index = secure_bloom.index.build(plain, ["name"], encryption=None)
    erased = secure_bloom.erase(plain / "one.parquet", "name", ["nobody" * 50], max_share=1)
    data = secure_bloom.dataset(file, KMS)
    data.to_table()
    waiting = [
        secure_bloom.verify_file(file, KMS), secure_bloom.audit(file, KMS), erased, data.report,
        secure_bloom.attach(file, {"name": True}, KMS), list_master_keys(file, KMS), index,
        rotate_master_keys(file, KMS, old="pii", new="other"),
        secure_bloom.write_dataset(TABLE, tmp_path / "folder")]
    seen = set()
    while waiting:
        one = waiting.pop()
        seen.add(type(one))
        text = repr(one)
        assert text.startswith("<") and len(text) < 120 and text.isprintable()
        assert json.loads(json.dumps(one.to_dict())).keys() >= {
            field.name for field in dataclasses.fields(one) if field.name[0] != "_"}
        for value in vars(one).values() if hasattr(one, "__dict__") else ():
            waiting += [part for part in (value if isinstance(value, list | tuple) else [value])
                        if isinstance(part, Result)]
    assert {secure_bloom.VerifyResult, secure_bloom.Counts, secure_bloom.ErasedValue} <= seen
    assert len(RESULTS) > 20 and all(issubclass(one, Result) for one in RESULTS)


def test_tab_completion_lists_the_packages():
    assert {"errors", "index", "keys", "spark", "write_table"} <= set(dir(secure_bloom))
    assert secure_bloom.errors.CommitError.__module__ == "secure_bloom.errors"


def test_a_repr_reads_nothing(file):
    """Notebooks show results without being asked: that must cost no request to a store."""
    handler = CountingHandler()
    opened = ParquetFile(str(file), KMS, filesystem=pa_fs.PyFileSystem(handler))
    before = handler.bytes_read.copy()
    assert repr(opened) and opened._repr_html_() and repr(opened.footer)
    assert handler.bytes_read == before
