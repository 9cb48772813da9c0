"""The command line: what it prints, where, and with which exit code."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import UniformKey
from secure_bloom.cli import main, report
from secure_bloom.kernels import native
from secure_bloom.keys import Keyring
from secure_bloom.sbbf.kernel_choice import chosen
from tests.support import COMPILED

ROWS = "id,ssn,city\n1,012,Rome\n2,034,Oslo\n3,056,Rome\n"


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(ROWS)
    return path


@pytest.fixture
def keyring(tmp_path):
    path = tmp_path / "keys.json"
    keys = Keyring.create(path)
    keys.add("footer")
    keys.add("pii")
    return path


@pytest.fixture
def encrypted(tmp_path, csv, keyring):
    path = tmp_path / "people.parquet"
    result = run("write", csv, path, "--keyring", keyring, "--footer-key", "footer",
                 "--column-key", "pii:ssn", "--bloom", "ssn,city")
    assert result.exit_code == 0, result.stderr
    return path


def test_write_encrypts_the_filters_of_sensitive_columns_only(encrypted, keyring):
    filters = secure_bloom.ParquetFile(encrypted, Keyring(keyring)).bloom_filters
    assert [(info.column, info.encrypted) for info in filters] == [("ssn", True), ("city", False)]
    table = secure_bloom.read_table(encrypted, keys=Keyring(keyring))
    assert table["ssn"].to_pylist() == ["012", "034", "056"]


@pytest.mark.parametrize(("value", "code"), [("012", 0), ("056", 0), ("999", 1)])
def test_probe_tells_by_its_exit_code(encrypted, keyring, value, code):
    result = run("probe", encrypted, "--keyring", keyring, "--column", "ssn", "--value", value)
    assert result.exit_code == code
    assert ("certainly absent" in result.stdout) == (code == 1)


def test_probe_as_json_does_not_repeat_the_value(encrypted, keyring):
    result = run("probe", encrypted, "--keyring", keyring, "--column", "ssn", "--value", "012",
                 "--json")
    answer = json.loads(result.stdout)
    assert answer["may_contain"] is True
    assert answer["row_groups"] == [{"row_group": 0, "may_contain": True, "has_filter": True}]
    assert "012" not in result.stdout


def test_probe_of_a_column_without_filter_cannot_exclude(encrypted, keyring):
    result = run("probe", encrypted, "--keyring", keyring, "--column", "id", "--value", "77")
    assert result.exit_code == 0
    assert "no Bloom filter" in result.stdout


@pytest.mark.parametrize(("column", "value"), [("id", "secret"), ("nope", "secret")])
def test_probe_refuses_what_is_no_value_of_the_column(encrypted, keyring, column, value):
    result = run("probe", encrypted, "--keyring", keyring, "--column", column, "--value", value)
    assert result.exit_code == 2
    assert "error:" in result.stderr and value not in result.stderr


def test_inspect_as_json(encrypted, keyring):
    result = json.loads(run("inspect", encrypted, "--keyring", keyring, "--json").stdout)
    assert result["rows"] == 3
    assert result["encryption"]["footer"] == "encrypted"
    assert result["encryption"]["footer_key"] == "footer"
    ssn = result["columns"][1]
    assert (ssn["column"], ssn["encryption"], ssn["key"]) == ("ssn", "column key", "pii")
    assert (ssn["filters"], ssn["filters_encrypted"], ssn["filter_bytes"]) == (1, 1, 32)


def test_inspect_shows_what_a_missing_key_hides(tmp_path, csv, keyring):
    path = tmp_path / "part.parquet"
    run("write", csv, path, "--keyring", keyring, "--footer-key", "footer", "--column-key",
        "pii:ssn", "--bloom", "ssn,city")
    only_footer = tmp_path / "only-footer.json"
    Keyring.create(only_footer).add("footer", Keyring(keyring)._master_keys()["footer"])
    result = run("inspect", path, "--keyring", only_footer)
    assert result.exit_code == 0
    assert "unknown: no key" in result.stdout


def test_options_of_filters_need_a_column(tmp_path, csv):
    result = run("write", csv, tmp_path / "x.parquet", "--plaintext", "--fpp", "0.1")
    assert result.exit_code == 2 and "specify --bloom, or omit --fpp" in result.stderr
    policy = tmp_path / "policy.toml"
    policy.write_text("")
    for option, value in ("fpp", "0.1"), ("ndv", "100"):
        result = run("attach", tmp_path, "--policy", policy, f"--{option}", value)
        assert result.exit_code == 2
        assert f"specify --bloom, or omit --{option}" in result.stderr


@pytest.mark.parametrize("option", ["--text", "--delimiter"])
def test_options_of_csv_files_are_refused_for_a_parquet_file(csv, tmp_path, option):
    source = tmp_path / "in.parquet"
    assert run("write", csv, source, "--plaintext").exit_code == 0
    value = {"--text": "id", "--delimiter": ";"}[option]
    result = run("write", source, tmp_path / "out.parquet", "--plaintext", option, value)
    assert result.exit_code == 2 and f"omit {option}" in result.stderr
    assert not (tmp_path / "out.parquet").exists()


def test_a_file_whose_column_cannot_be_checked_is_not_sealed(tmp_path, keyring, encrypted):
    """As whatever prevents a change: the files of a folder may have different reasons."""
    Keyring(keyring).subset(tmp_path / "other.json", ["footer"], passphrase=None)
    result = run("seal", encrypted, "--keyring", tmp_path / "other.json", "--json")
    assert result.exit_code == 3
    shown = json.loads(result.stdout)
    assert not shown["ok"] and "without their keys: ssn" in shown["failed"][str(encrypted)]


@pytest.mark.parametrize(("arguments", "code"), [
    (["inspect", "missing.parquet"], 3),
    (["inspect", "people.csv"], 3),
    (["inspect", "people.parquet"], 4),
    (["inspect", "people.parquet", "--keyring", "missing.json"], 4),
    (["inspect", "people.parquet", "--keyring", "other.json"], 4),
    (["write", "people.csv", "x.parquet", "--footer-key", "footer"], 2),
    (["write", "people.csv", "x.parquet", "--plaintext-footer"], 2),
    (["write", "people.csv", "x.parquet", "--keyring", "keys.json", "--footer-key", "footer",
      "--column-key", "ssn"], 2),
    (["write", "people.csv", "x.parquet", "--keyring", "keys.json", "--footer-key", "nope"], 4),
    (["write", "people.csv", "x.parquet", "--plaintext", "--bloom", "nope"], 2),
    (["write", "people.csv", "x.parquet", "--plaintext", "--bloom", "id", "--fpp", "1.5"], 2),
    (["write", "people.csv", "x.parquet", "--plaintext", "--fpp", "0.01"], 2),
    (["write", "people.csv", "x.parquet", "--plaintext", "--fpp", "2", "--bloom", ","], 2),
    (["write", "people.csv", "x.parquet", "--plaintext", "--text", "nope"], 2),
    (["write", "people.csv", "x.parquet", "--plaintext", "--keyring", "keys.json",
      "--footer-key", "footer"], 2),
    (["write", "people.csv", "x.parquet", "--keyring", "keys.json", "--column-key", "pii:ssn"], 2),
    (["write", "people.csv", "x.parquet", "--bloom", "id"], 2),
    (["write", "people.parquet", "x.parquet"], 2),
    (["write", "people.parquet", "x.parquet", "--plaintext"], 4),
    (["write", "people.parquet", "x.parquet", "--keyring", "keys.json"], 2),
    (["keyring", "add", "keys.json", "pii"], 4),
    (["keyring", "create", "keys.json"], 4),
])
def test_errors_have_a_message_and_a_code(tmp_path, monkeypatch, encrypted, arguments, code):
    monkeypatch.chdir(tmp_path)
    other = Keyring.create("other.json")
    other.add("footer")
    other.add("pii")
    before = set(tmp_path.iterdir())
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == "" and "rror: " in result.stderr
    assert set(tmp_path.iterdir()) == before


def test_tampering_has_a_code_of_its_own(encrypted, keyring):
    info = secure_bloom.ParquetFile(encrypted, Keyring(keyring)).bloom_filters[0]
    data = bytearray(encrypted.read_bytes())
    data[info.offset + info.length - 1] ^= 1
    encrypted.write_bytes(data)
    result = run("probe", encrypted, "--keyring", keyring, "--column", "ssn", "--value", "012")
    assert result.exit_code == 5
    assert f"file {encrypted}, row group 0, column ssn" in result.stderr


def test_write_keeps_the_row_groups_of_a_parquet_file(tmp_path):
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"a": range(10)}), source, row_group_size=4)
    assert run("write", source, target, "--bloom", "a", "--plaintext").exit_code == 0
    metadata = pq.read_metadata(target)
    assert [metadata.row_group(i).num_rows for i in range(3)] == [4, 4, 2]
    assert pq.read_table(target)["a"].to_pylist() == list(range(10))
    assert run("write", source, target, "--bloom", "a", "--row-group-size", "3", "--plaintext",
               "--overwrite").exit_code == 0
    assert pq.read_metadata(target).num_row_groups == 5


@pytest.mark.slow
def test_write_gathers_csv_rows_into_row_groups(tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.parquet"
    source.write_text("a\n" + "\n".join(map(str, range(100_000))))
    result = run("write", source, target, "--bloom", "a", "--row-group-size", "30000", "--json",
                 "--plaintext")
    assert json.loads(result.stdout)["row_groups"] == 4
    assert pq.read_table(target)["a"].to_pylist() == list(range(100_000))


def test_write_decrypts_only_when_told(tmp_path, encrypted, keyring):
    target = tmp_path / "plain.parquet"
    assert run("write", encrypted, target, "--keyring", keyring).exit_code == 2
    assert not target.exists()
    assert run("write", encrypted, target, "--keyring", keyring, "--plaintext").exit_code == 0
    assert pq.read_table(target)["city"].to_pylist() == ["Rome", "Oslo", "Rome"]


def test_write_says_how_to_encrypt_and_how_to_do_without(tmp_path, csv, keyring):
    target = tmp_path / "out.parquet"
    for options in ([], ["--keyring", keyring], ["--bloom", "ssn"]):
        result = run("write", csv, target, *options)
        assert result.exit_code == 2 and not target.exists()
        assert "--keys FILE --sensitive col,col" in result.stderr
        assert "--footer-key NAME" in result.stderr
        assert "--plaintext" in result.stderr
    result = run("write", csv, target, "--footer-key", "footer")
    assert result.exit_code == 2 and "--keys FILE or URI" in result.stderr
    assert run("write", csv, target, "--plaintext").exit_code == 0
    assert pq.read_table(target).num_rows == 3


def test_write_names_the_compressions_there_are(tmp_path, csv):
    result = run("write", csv, tmp_path / "out", "--plaintext", "--compression", "zip")
    assert result.exit_code == 2 and "'zstd'" in result.stderr
    assert not (tmp_path / "out").exists()
    assert run("write", csv, tmp_path / "out", "--plaintext", "--compression", "NONE") \
        .exit_code == 0


def test_write_refuses_what_exists_before_it_reads(tmp_path, csv, keyring, monkeypatch):
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")
    monkeypatch.setattr("secure_bloom.cli.convert.CsvFile", None)
    for name in ("link", "file", csv):
        result = run("write", csv, tmp_path / name, "--plaintext")
        assert result.exit_code == 2, result.output
        assert f"{tmp_path / name} exists" in result.stderr and "--overwrite" in result.stderr
    result = run("write", csv, tmp_path / "folder", "--plaintext", "--overwrite")
    assert result.exit_code == 2 and os.listdir(tmp_path / "folder") == []
    assert (tmp_path / "file").read_text() == "precious" and csv.read_text() == ROWS


def test_a_new_passphrase_needs_a_terminal(tmp_path):
    result = run("keyring", "create", tmp_path / "sealed.json", "--passphrase")
    assert result.exit_code == 4 and not (tmp_path / "sealed.json").exists()
    assert "no terminal to ask for a new passphrase" in result.stderr
    assert "--keys" not in result.stderr


def test_write_replaces_what_exists_in_one_step(tmp_path, csv):
    target = tmp_path / "out.parquet"
    target.write_text("precious")
    broken = tmp_path / "broken.csv"
    broken.write_text("a,b\n" + "1,2\n" * 500_000 + "1\n")
    before = set(tmp_path.iterdir())
    assert run("write", broken, target, "--plaintext", "--overwrite").exit_code == 2
    assert target.read_text() == "precious" and set(tmp_path.iterdir()) == before
    assert run("write", csv, target, "--plaintext", "--overwrite").exit_code == 0
    assert pq.read_table(target)["city"].to_pylist() == ["Rome", "Oslo", "Rome"]
    assert set(tmp_path.iterdir()) == before


def test_write_does_not_replace_what_came_to_exist_meanwhile(tmp_path, csv, monkeypatch):
    target, close = tmp_path / "out.parquet", secure_bloom.ParquetWriter.close

    def overtaken(writer):
        close(writer)
        target.write_text("precious")

    monkeypatch.setattr("secure_bloom.writer.ParquetWriter.close", overtaken)
    before = set(tmp_path.iterdir())
    result = run("write", csv, target, "--plaintext")
    assert result.exit_code == 2 and "--overwrite" in result.stderr
    assert target.read_text() == "precious" and set(tmp_path.iterdir()) == {*before, target}


@pytest.mark.parametrize("kind", ["same name", "symbolic link", "hard link"])
@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_write_onto_its_own_input_loses_nothing(tmp_path, csv, keyring, kind, source):
    path = tmp_path / "in"
    table = pa.table({"id": [1, 2], "ssn": ["012", "034"]})
    if source == "csv":
        path.write_text("id,ssn\n1,012\n2,034\n")
    else:
        pq.write_table(table, path)
    target = path if kind == "same name" else tmp_path / "other"
    if kind == "symbolic link":
        target.symlink_to(path)
    elif kind == "hard link":
        target.hardlink_to(path)
    before = path.read_bytes()
    options = ["--keyring", keyring, "--footer-key", "footer", "--bloom", "ssn"]
    assert run("write", path, target, *options).exit_code == 2
    assert run("write", path, target, *options, "--overwrite", "--bloom", "nope").exit_code == 2
    assert path.read_bytes() == target.read_bytes() == before
    assert run("write", path, target, *options, "--overwrite").exit_code == 0
    assert secure_bloom.read_table(target, keys=Keyring(keyring)).equals(table)


def test_whole_file_with_one_master_key(tmp_path, csv, keyring):
    path = tmp_path / "uniform.parquet"
    assert run("write", csv, path, "--keyring", keyring, "--footer-key", "footer",
               "--bloom", "id").exit_code == 0
    result = json.loads(run("inspect", path, "--keyring", keyring, "--json").stdout)
    assert {column["encryption"] for column in result["columns"]} == {"footer key"}


def test_explicit_key_files_say_that_a_keyring_cannot_open_them(tmp_path, keyring):
    path = tmp_path / "uniform.parquet"
    secure_bloom.write_table(pa.table({"a": [1]}), path, bloom_filters={"a": True},
                             encryption=UniformKey(b"0123456789012345"))
    result = run("inspect", path, "--keyring", keyring)
    assert result.exit_code == 4
    assert "ExplicitKeys" in result.stderr


def test_keyring_commands(tmp_path):
    path = tmp_path / "ring.json"
    assert run("keyring", "create", path).exit_code == 0
    assert run("keyring", "add", path, "one", "--bits", "128").exit_code == 0
    assert run("keyring", "add", path, "two").exit_code == 0
    assert run("keyring", "list", path).stdout.split() == ["one", "two"]
    listed = run("keyring", "list", path, "--json").stdout
    assert json.loads(listed)["keys"] == ["one", "two"]
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    assert run("keyring", "list", path).exit_code == 4


def test_keys_are_removed_and_renamed(tmp_path, keyring):
    result = run("keyring", "remove", keyring, "pii")
    assert result.exit_code == 2 and "data is lost" in result.stderr and "--yes" in result.stderr
    assert Keyring(keyring).names() == ["footer", "pii"]
    assert run("keyring", "remove", keyring, "nope", "--yes").exit_code == 4
    assert run("keyring", "remove", keyring, "pii", "--yes").exit_code == 0
    result = run("keyring", "rename", keyring, "footer", "f")
    assert result.exit_code == 0 and "can be opened only under that name" in result.stderr
    assert run("keyring", "rename", keyring, "footer", "g").exit_code == 4
    assert run("keyring", "rename", keyring, "f", "").exit_code == 2
    assert Keyring(keyring).names() == ["f"]


@pytest.mark.slow
def test_removing_a_key_is_asked_about_on_the_terminal(keyring):
    code, shown = on_terminal("keyring", "remove", keyring, "pii", answers=["n"])
    assert code == 130 and "is lost" in shown
    assert Keyring(keyring).names() == ["footer", "pii"]
    assert on_terminal("keyring", "remove", keyring, "pii", answers=["y"])[0] == 0
    assert Keyring(keyring).names() == ["footer"]


def test_a_reader_gets_a_keyring_with_some_keys(tmp_path, encrypted, keyring):
    reader = tmp_path / "reader.json"
    result = run("keyring", "subset", keyring, reader, "footer")
    assert result.exit_code == 0 and "with footer" in result.stderr
    at = ["probe", encrypted, "--keyring", reader]
    assert run(*at, "--column", "city", "--value", "Rome").exit_code == 0
    assert run(*at, "--column", "ssn", "--value", "012").exit_code == 4
    assert run("keyring", "subset", keyring, reader, "pii").exit_code == 4
    assert run("keyring", "subset", keyring, tmp_path / "new", "nope").exit_code == 4
    assert run("keyring", "subset", keyring, tmp_path / "new").exit_code == 2
    assert not (tmp_path / "new").exists() and Keyring(reader).names() == ["footer"]


@pytest.mark.parametrize("form", ["hex", "base64", "raw"])
@pytest.mark.parametrize("size", [16, 24, 32])
def test_a_key_is_exported_and_imported_as_it_was(tmp_path, keyring, form, size):
    key, ring = bytes(range(200, 200 + size)), Keyring(keyring)
    ring.add("one", key)
    new = tmp_path / "one.key"
    shown = run("keyring", "export", keyring, "one", "--format", form, "--to", "-")
    result = run("keyring", "export", keyring, "one", "--format", form, "--to", new)
    assert (shown.exit_code, result.exit_code, result.stdout) == (0, 0, "")
    assert new.read_bytes() == shown.stdout_bytes and new.stat().st_mode & 0o777 == 0o600
    again = run("keyring", "export", keyring, "one", "--format", form, "--to", new)
    assert again.exit_code == 2 and new.read_bytes() == shown.stdout_bytes
    other = tmp_path / "other.json"
    Keyring.create(other)
    result = run("keyring", "import", other, "two", "--format", form, stdin=shown.stdout_bytes)
    assert result.exit_code == 0, result.stderr
    assert f"{size * 8} bits" in result.stderr
    assert run("keyring", "import", other, "three", "--format", form, "--from", new).exit_code == 0
    assert Keyring(other)._master_keys() == {"two": key, "three": key}


@pytest.mark.parametrize(("form", "text"), [
    ("hex", "SECRET"), ("hex", "00" * 15), ("hex", "0" * 33), ("hex", ""), ("hex", "00" * 64),
    ("base64", "SECRET!!"), ("base64", "c2hvcnQ="), ("base64", "A" * 10_000), ("raw", "SECRET"),
    ("raw", "SECRET SECRET 16\n"), ("raw", "")])
def test_what_is_not_a_key_is_not_imported_and_not_shown(tmp_path, keyring, form, text):
    before = keyring.read_bytes()
    result = run("keyring", "import", keyring, "one", "--format", form, stdin=text)
    assert result.exit_code == 2, result.output
    assert "the input" in result.stderr and "SECRET" not in result.output
    assert keyring.read_bytes() == before


def test_a_key_is_neither_guessed_nor_shown_unasked(tmp_path, keyring):
    assert run("keyring", "import", keyring, "one", stdin="00" * 16).exit_code == 2
    assert run("keyring", "export", keyring, "pii", "--format", "hex").exit_code == 2
    assert run("keyring", "export", keyring, "no", "--format", "hex", "--to", "-").exit_code == 4
    (tmp_path / "link").symlink_to("nowhere")
    result = run("keyring", "export", keyring, "pii", "--format", "hex", "--to", tmp_path / "link")
    assert result.exit_code == 2 and not (tmp_path / "nowhere").exists()


def test_only_an_answer_exits_with_1(encrypted, keyring, monkeypatch):
    arguments = ("probe", encrypted, "--keyring", keyring, "--column", "ssn")
    assert run(*arguments, stdin="").exit_code == 2
    assert run(*arguments, stdin="078\r\n").exit_code == 1
    assert run(*arguments, stdin="012\r\n").exit_code == 0

    def fail(error):
        def probe_file(*_):
            raise error
        return probe_file

    for error, code in ((KeyboardInterrupt(), 130), (RuntimeError("oh"), 70)):
        monkeypatch.setattr(report, "probe_file", fail(error))
        assert run(*arguments, "--value", "012").exit_code == code


def test_names_from_files_cannot_steer_the_terminal(tmp_path):
    path = tmp_path / "names.parquet"
    secure_bloom.write_table(pa.table({"a\x1b[2J": [1]}), path, bloom_filters={})
    shown = run("inspect", path).stdout
    assert "\x1b" not in shown and "a\\x1b[2J" in shown


@pytest.mark.parametrize("arguments", [
    "inspect {table}", "verify {table}", "probe {table} --column a --value 1",
    "audit {table} --policy {policy}", "find {table} --column a --value 1",
    "policy check {policy} {table}"])
def test_names_of_files_and_columns_cannot_add_lines_to_a_result(tmp_path, arguments):
    table, policy = tmp_path / "t", tmp_path / "policy.toml"
    table.mkdir()
    policy.write_text('sensitive = ["a"]')
    for name in ("a\nforged.parquet", "b\nforged.parquet"):
        secure_bloom.write_table(pa.table({"a": [1], "b\nforged\x1b[2J": [1]}), table / name,
                                 bloom_filters=["a"])
    (table / "c\nforged.parquet").write_bytes(b"PAR1")
    found = run(*arguments.format(table=table, policy=policy).split()).output
    assert "forged" in found and "\x1b" not in found
    assert not [line for line in found.splitlines() if line.startswith("forged")]


def test_help_and_version():
    assert secure_bloom.__version__ in run("--version").stdout
    assert "probe" in run("--help").stdout


# --- keys ----------------------------------------------------------------------------------------

def test_a_kms_by_its_uri(encrypted, keyring):
    at = ["probe", encrypted, "--column", "ssn", "--value", "012"]
    for keys in (keyring, f"keyring:{keyring}"):
        assert run(*at, "--keys", keys).exit_code == run(*at, "--keyring", keys).exit_code == 0
    old = run(*at, "--kms", f"keyring:{keyring}")
    assert old.exit_code == 2 and "--kms is called --keys now" in old.stderr
    assert run(*at, "--keys", "nokms:x").exit_code == 2
    result = run(*at, "--keys", f"keyring:{keyring}.none")
    assert result.exit_code == 4 and "keyring create" in result.stderr


#: the command, in which new passphrases cost as little as in this process
_COMMAND = """
import functools
from secure_bloom.cli import main
from secure_bloom.keys.keyring_file import SealingKey
SealingKey.make = staticmethod(functools.partial(SealingKey.make, n=2**10))
main()
"""


def on_terminal(*arguments, answers) -> tuple[int, str]:
    """Run the command with a terminal, and answer what it asks for."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", _COMMAND, *map(str, arguments)])
    shown = b""
    for answer in answers:
        while not shown.endswith(b": "):  # the blank comes when it listens
            shown += os.read(terminal, 1000)
        os.write(terminal, answer.encode() + b"\n")
        shown += b"\n"
    with contextlib.suppress(OSError):  # Linux reports the end so
        while data := os.read(terminal, 1000):
            shown += data
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


@pytest.mark.slow
def test_a_passphrase_is_asked_for_on_the_terminal(tmp_path, csv):
    ring, secret = tmp_path / "sealed.json", tmp_path / "passphrase"
    code, shown = on_terminal("keyring", "create", ring, "--passphrase",
                              answers=["SECRET 1", "SECRET 1"])
    assert code == 0 and "SECRET" not in shown
    assert on_terminal("keyring", "add", ring, "footer", answers=["SECRET 1"])[0] == 0
    assert on_terminal("keyring", "list", ring, answers=["wrong"])[0] == 4
    code, _ = on_terminal("keyring", "passphrase", ring,
                          answers=["SECRET 1", "SECRET 2", "SECRET 2"])
    assert code == 0 and Keyring(ring, "SECRET 2").names() == ["footer"]
    result = run("keyring", "list", ring)
    assert result.exit_code == 4 and "passphrase-file=" in result.stderr
    secret.write_text("SECRET 2\n")
    secret.chmod(0o600)
    kms = ["--keys", f"keyring:{ring}?passphrase-file={secret}", "--footer-key", "footer"]
    assert run("write", csv, tmp_path / "x.parquet", *kms).exit_code == 0
    assert on_terminal("inspect", tmp_path / "x.parquet", "--keyring", ring,
                       answers=["SECRET 2"])[0] == 0
    assert on_terminal("keyring", "passphrase", ring, "--remove", answers=["SECRET 2"])[0] == 0
    assert run("keyring", "list", ring).stdout == "footer\n"


@pytest.mark.slow
def test_the_passphrase_of_a_subset_is_its_own(tmp_path, keyring):
    sealed, key = tmp_path / "sealed.json", b"SECRET SECRET SECRET SECRET SEC "
    Keyring(keyring).subset(sealed, ["pii"], passphrase="SECRET pass phrase 1")
    reader = tmp_path / "reader.json"
    code, shown = on_terminal("keyring", "subset", sealed, reader, "pii", answers=[
        "SECRET pass phrase 1", "SECRET pass phrase 2", "SECRET pass phrase 2"])
    assert code == 0 and "SECRET" not in shown
    assert Keyring(reader, "SECRET pass phrase 2").names() == ["pii"]
    code, _ = on_terminal("keyring", "subset", sealed, tmp_path / "open.json", "pii",
                          "--no-passphrase", answers=["SECRET pass phrase 1"])
    assert code == 0 and Keyring(tmp_path / "open.json").names() == ["pii"]
    code, shown = on_terminal("keyring", "import", keyring, "one", "--format", "raw", "--from",
                              _file(tmp_path / "key", key), answers=[])
    assert code == 0 and Keyring(keyring).export("one") == key
    code, shown = on_terminal("keyring", "import", keyring, "two", "--format", "hex",
                              answers=[key.hex()])
    assert code == 0 and key.hex() not in shown and Keyring(keyring).export("two") == key


def _file(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.slow
def test_the_old_passphrase_is_needed_for_a_new_one(tmp_path):
    ring = tmp_path / "sealed.json"
    Keyring.create(ring, "SECRET pass phrase 1").add("a")
    before = ring.read_bytes()
    assert run("keyring", "passphrase", ring, "--remove").exit_code == 4
    for options in ((), ("--remove",)):
        code, _ = on_terminal("keyring", "passphrase", ring, *options, answers=["SECRET wrong"])
        assert code == 4 and ring.read_bytes() == before


@pytest.mark.slow
def test_a_weak_passphrase_is_warned_about_on_standard_error(tmp_path):
    ring = tmp_path / "sealed.json"
    code, shown = on_terminal("keyring", "create", ring, "--passphrase",
                              answers=["SECRET 1", "SECRET 1"])
    assert code == 0 and "SECRET" not in shown
    assert "secure-bloom: warning: the passphrase is easily guessed: it has fewer than 12" in shown
    code, shown = on_terminal("keyring", "passphrase", ring, answers=[
        "SECRET 1", "SECRET pass phrase 2", "SECRET pass phrase 2"])
    assert code == 0 and "warning" not in shown
    assert Keyring(ring, "SECRET pass phrase 2").names() == []


@pytest.fixture
def choose_again():
    """Kernels are chosen again in the test, and again after it."""
    chosen.cache_clear()
    yield
    chosen.cache_clear()


@pytest.mark.parametrize(("value", "shown"), [
    ("numpy", "numpy\n"), ("built", f"{COMPILED[0]}: built kernels, tested on this machine\n")])
def test_warmup_says_which_kernels_are_used(value, shown, monkeypatch, choose_again):
    monkeypatch.setenv("SECURE_BLOOM_KERNELS", value)
    result = run("warmup")
    assert (result.exit_code, result.stdout) == (0, shown)


def test_warmup_says_why_built_kernels_are_not_used(monkeypatch, choose_again, tmp_path):
    monkeypatch.delenv("SECURE_BLOOM_KERNELS", raising=False)
    monkeypatch.setattr(native.load, "__defaults__", (None, tmp_path))
    result = run("warmup")
    assert result.exit_code == 0
    assert result.stdout.startswith("numpy; built kernels are not used: the package was built")


def test_warmup_refuses_unknown_kernels(monkeypatch, choose_again):
    monkeypatch.setenv("SECURE_BLOOM_KERNELS", "quick")
    result = run("warmup")
    assert result.exit_code == 2 and "it can be built, numpy, numba" in result.stderr


@pytest.mark.sweep
def test_warmup_compiles_with_numba_if_it_is_chosen(monkeypatch, choose_again):
    monkeypatch.setenv("SECURE_BLOOM_KERNELS", "numba")
    result = run("warmup")
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(r"numba: \d\d kernels in /\S+\n", result.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
def test_a_full_disk_below_the_output_is_a_message():
    for words in (["--help"], ["--version"], ["doctor", "--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, "-m", "secure_bloom", *words], stdout=full,
                                  stderr=subprocess.PIPE, text=True)
        assert done.returncode == 3
        assert done.stderr.startswith("secure-bloom: error: ") and done.stderr.count("\n") == 1


def test_another_pipe_that_breaks_is_an_error(monkeypatch):
    def fail(*_):
        raise BrokenPipeError("the KMS has ended the connection")
    monkeypatch.setattr("secure_bloom.cli.doctor._spark", fail)
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 3 and "the KMS has ended" in done.stderr


@pytest.mark.slow
def test_a_reader_that_has_enough_causes_no_message(tmp_path):
    secure_bloom.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    file = str(tmp_path / "x.parquet")
    for words in (["inspect", file], ["inspect", "--json", file], ["--help"]):
        with subprocess.Popen([sys.executable, "-m", "secure_bloom", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.close()
            process.stdout = None
            assert process.communicate()[1] == b""
        assert process.returncode == 141
