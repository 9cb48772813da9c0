"""A mistake that all files of a folder have is said once; others are said with their files."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from secure_bloom import attach, strip
from secure_bloom.cli import main
from secure_bloom.errors import ColumnError, KmsUnavailableError, UnknownColumnError
from secure_bloom.maintain import folders

OPERATIONS = {
    "attach": lambda path, *columns, **options: attach(path, dict.fromkeys(columns, True),
                                                       **options),
    "strip": lambda path, *columns, **options: strip(path, columns=columns, **options),
}


@pytest.fixture
def lake(tmp_path) -> Path:
    """12 files, of which 4 have one column more."""
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(12):
        columns = {"ssn": ["a", "b"], "city": ["x", "y"], "flag": [True, False]}
        more = {"phone": ["1", "2"]} if number < 4 else {}
        pq.write_table(pa.table(columns | more), folder / f"{number:02}.parquet")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run(*arguments, code: int):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("columns", [("snn",), ("ssn", "snn"), ("snn", "zzz")])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_column_that_no_file_has(lake, operation, columns, dry_run):
    before = contents(lake)
    with pytest.raises(UnknownColumnError) as caught:
        OPERATIONS[operation](lake, *columns, dry_run=dry_run)
    assert str(caught.value) \
        == "column snn: none of the 12 files has such a column; did you mean 'ssn'?"
    assert caught.value.column == "snn" and caught.value.result is None
    assert contents(lake) == before


def test_a_column_that_cannot_have_a_filter_in_any_file(lake):
    before = contents(lake)
    with pytest.raises(ColumnError, match=r"column flag: .*BOOLEAN.* \(in all 12 files\)"):
        attach(lake, {"city": True, "flag": True})
    assert contents(lake) == before


def test_files_that_cannot_be_read_do_not_hide_it(lake):
    (lake / "broken.parquet").write_bytes(b"no Parquet")
    with pytest.raises(ColumnError, match="none of the 12 readable files") as caught:
        attach(lake, {"snn": True})
    assert list(caught.value.result.failed) == [str(lake / "broken.parquet")]


def test_where_nothing_can_be_read_nothing_is_known_about_columns(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.parquet").write_bytes(b"no Parquet")
    assert len(attach(tmp_path, {"snn": True}).failed) == 3


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_column_that_some_files_have(lake, operation):
    result = OPERATIONS[operation](lake, "phone")
    assert len(result.failed) == 8 and len(result.changed) + result.unchanged == 4
    assert all("no such column" in message for message in result.failed.values())


def test_different_mistakes_are_not_one(lake):
    """Each file lacks one of the columns, but none is missing everywhere."""
    for number in range(4):
        path = lake / f"{number:02}.parquet"
        pq.write_table(pq.read_table(path).drop_columns(["city"]), path)
    result = attach(lake, {"city": True, "phone": True})
    assert not result.changed and len(result.failed) == 12


def test_one_file_alone_is_named(lake):
    path = lake / "05.parquet"
    result = attach(path, {"snn": True})
    assert "no such column" in result.failed[str(path)] and "snn" in str(result.mistake)
    done = run("attach", path, "--bloom", "snn", code=2)
    assert f"file {path}, column snn: there is no such column" in done.stderr
    assert done.stdout == ""


def test_a_folder_with_one_file_says_what_the_file_has(tmp_path):
    pq.write_table(pa.table({"ssn": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(ColumnError, match="existing columns: ssn"):
        strip(tmp_path, columns=["city"])


@pytest.mark.parametrize("error", [KmsUnavailableError, KeyboardInterrupt])
def test_an_operation_that_is_stopped_is_told_what_was_done(lake, monkeypatch, error):
    """A mistake does not take the place of what ends everything."""
    def stopping(plan, file):
        if file.name == str(lake / "03.parquet"):
            raise error("it is down")

    (lake / "01.parquet").write_bytes(b"no Parquet")
    pq.write_table(pa.table({"city": ["x"]}), lake / "02.parquet")
    monkeypatch.setattr(folders, "check_keys", stopping)
    with pytest.raises(error) as caught:
        attach(lake, {"ssn": True}, files_at_once=1)
    result = caught.value.result
    assert [change.file for change in result.changed] == [str(lake / "00.parquet")]
    assert list(result.failed) == [str(lake / "01.parquet"), str(lake / "02.parquet")]


# --- on the command line -------------------------------------------------------------------------

@pytest.mark.parametrize("arguments", [("attach", "--bloom", "ssn,snn"),
                                       ("strip", "--column", "snn"),
                                       ("strip", "--column", "snn", "--dry-run"),
                                       ("attach", "--bloom", "snn", "--json")])
def test_it_is_one_line_and_wrong_usage(lake, arguments):
    command, *options = arguments
    before = contents(lake)
    done = run(command, lake, *options, code=2)
    assert done.stdout == "" and done.stderr.splitlines() == [
        "secure-bloom: error: column snn: none of the 12 files has such a column; "
        "did you mean 'ssn'?"]
    assert contents(lake) == before


def test_files_that_cannot_be_read_are_said_besides(lake):
    for number in range(5):
        (lake / f"broken{number}.parquet").write_bytes(b"no Parquet")
    done = run("attach", lake, "--bloom", "snn", code=2)
    assert done.stderr.count("\n") == 1 and "5 failed" in done.stdout
    assert f"5 files ({lake}/broken0.parquet, {lake}/broken1.parquet, " \
        f"{lake}/broken2.parquet and 2 more files: see --json): this is not" in done.stdout
    found = json.loads(run("attach", lake, "--bloom", "snn", "--json", code=2).stdout)
    assert len(found["failed"]) == 5


def test_what_several_files_lack_is_said_once_and_json_has_all(lake):
    out = run("strip", lake, "--column", "phone", code=3).stdout
    assert out.count("there is no such column") == 1 and "8 files (" in out
    assert "and 5 more files: see --json" in out and out.count(".parquet") == 3
    result = json.loads(run("strip", lake, "--column", "phone", "--json", code=3).stdout)
    assert len(result["failed"]) == 8


def test_many_different_messages_are_cut_off_in_text_only(lake):
    for number in range(40):
        pq.write_table(pa.table({f"c{number}": [1]}), lake / f"other{number}.parquet")
    done = run("strip", lake, "--column", "phone", code=3)
    assert len(done.stdout.splitlines()) < 30
    assert "more such messages: see --json" in done.stdout


def test_verify_of_several_files(lake):
    files = sorted(lake.iterdir())
    done = run("verify", *files, "--column", "snn", code=2)
    assert done.stdout == "" and done.stderr.splitlines() == [
        "secure-bloom: error: column snn: none of the 12 files has such a column; "
        "did you mean 'ssn'?"]
    assert run("verify", *files, "--column", "snn", "--json", code=2).stdout == ""
    (lake / "broken.parquet").write_bytes(b"no Parquet")
    done = run("verify", *files, lake / "broken.parquet", "--column", "snn", code=2)
    assert "none of the 12 readable files" in done.stderr


def test_verify_goes_on_with_files_that_have_the_column(lake):
    attach(lake, {"ssn": True})
    files = sorted(lake.iterdir())
    done = run("verify", *files, "--column", "phone", code=3)
    assert done.stdout.count("there is no such column") == 1 and "8 files (" in done.stdout
    assert done.stdout.count("no Bloom filters") == 4 and not done.stderr
    result = json.loads(run("verify", *files, "--column", "phone", "--json", code=3).stdout)
    assert sum("no such column" in (file["not_checked"] or "") for file in result["files"]) == 8
    assert run("verify", files[0], files[-1], "--column", "ssn", code=0)


def test_an_audit_says_once_that_a_name_of_the_policy_matches_nothing(lake, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('sensitive = ["snn"]')
    out = run("audit", lake, "--policy", policy, code=0).stdout
    assert out.count("'snn' is sensitive according to the policy, but matches no column") == 1
