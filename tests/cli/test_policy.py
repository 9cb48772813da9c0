"""Policies on the command line: what is refused, and with which exit code."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from secure_bloom import EncryptionConfiguration, ParquetFile, UniformKey, write_table
from secure_bloom.cli import main
from secure_bloom.keys import Keyring

TABLE = pa.table({"ssn": ["078", "079"], "city": ["Rome", "Oslo"], "amount": [1, 2],
                  "home": [{"street": "s", "zip": 1}, {"street": "t", "zip": 2}]})
POLICY = """
footer_key = "footer"
sensitive = ["home.street"]
[columns]
ssn = { key = "pii", bloom_filter = { fpp = 0.001 } }
city = { bloom_filter = true }
[[tables]]
path = "vip"
[tables.columns]
city = "pii"
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in a folder with a keyring, a policy and a plaintext file."""
    monkeypatch.chdir(tmp_path)
    keyring = Keyring.create("keys.json")
    keyring.add("footer")
    keyring.add("pii")
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "data").mkdir()
    pq.write_table(TABLE, "data/a.parquet")

    def run(*arguments, code=0, keys=True):
        options = ["--keyring", "keys.json"] if keys else []
        done = CliRunner().invoke(main, [*map(str, arguments), *options])
        assert done.exit_code == code, done.output
        return done.output
    return run


def keyring():
    return Keyring("keys.json")


def test_write_makes_a_file_from_the_policy(run, tmp_path):
    out = run("write", "data/a.parquet", "b.parquet", "--policy", "policy.toml")
    assert "1 encrypted" in out and "1 plaintext" in out
    with ParquetFile("b.parquet", keyring()) as file:
        assert {info.column: info.encrypted for info in file.bloom_filters} \
            == {"ssn": True, "city": False}
        assert file.read().equals(TABLE)
    assert run("policy", "check", "policy.toml", "b.parquet").count("1 meet the policy") == 1
    (tmp_path / "vip").mkdir()
    run("write", "data/a.parquet", "vip/b.parquet", "--policy", "policy.toml", "--bloom", "amount")
    with ParquetFile("vip/b.parquet", keyring()) as file:
        assert {info.column: info.encrypted for info in file.bloom_filters} \
            == {"ssn": True, "city": True, "amount": False}


@pytest.mark.parametrize("options", [
    ["--plaintext"], ["--footer-key", "footer"], ["--footer-key", "footer", "--column-key",
                                                  "pii:ssn"],
    ["--footer-key", "pii", "--column-key", "pii:ssn,home.street"]], ids=" ".join)
@pytest.mark.parametrize("source", ["data/a.parquet", "people.csv"])
def test_write_refuses_options_that_weaken_the_policy(run, tmp_path, options, source):
    (tmp_path / "people.csv").write_text("ssn,home.street\n078,s\n")
    before = set(tmp_path.iterdir())
    out = run("write", source, "b.parquet", "--policy", "policy.toml", *options, code=2)
    assert "policy" in out and "b.parquet" in out and set(tmp_path.iterdir()) == before


def test_write_accepts_options_that_add(run):
    run("write", "data/a.parquet", "b.parquet", "--policy", "policy.toml", "--footer-key", "footer",
        "--column-key", "pii:ssn,home,city")
    run("policy", "check", "policy.toml", "b.parquet")
    Path("open.toml").write_text('sensitive = ["phone"]')
    run("write", "data/a.parquet", "d.parquet", "--policy", "open.toml", "--plaintext", keys=False)
    assert not ParquetFile("d.parquet").footer.is_encrypted
    Path("open.toml").write_text('columns = { "*" = { plaintext = true } }')
    run("write", "data/a.parquet", "e.parquet", "--policy", "open.toml", keys=False)
    out = run("write", "b.parquet", "f.parquet", "--policy", "open.toml", code=3)
    assert "the source is encrypted, but the target would not be" in out


def test_readers_refuse_what_does_not_meet_the_policy(run):
    for command in (["inspect"], ["probe", "--column", "ssn", "--value", "078"]):
        out = run(*command, "data/a.parquet", "--policy", "policy.toml", code=5)
        assert "not encrypted" in out
    assert "not encrypted" in run("verify", "data/a.parquet", "--policy", "policy.toml", code=1)
    run("write", "data/a.parquet", "b.parquet", "--policy", "policy.toml")
    run("inspect", "b.parquet", "--policy", "policy.toml")
    run("probe", "b.parquet", "--column", "ssn", "--value", "078", "--policy", "policy.toml")
    run("verify", "b.parquet", "--policy", "policy.toml")


def test_attach_and_seal(run):
    assert "specify the columns: --bloom or --policy" in run("attach", "data", code=2)
    assert "not encrypted" in run("attach", "data", "--policy", "policy.toml", code=3)
    assert "not encrypted" in run("seal", "data", "--policy", "policy.toml", code=3)
    write_table(TABLE, "data/a.parquet", keys=keyring(), encryption=EncryptionConfiguration(
        "footer", {"pii": ["ssn", "home.street"]}))
    assert "1 file changed" in run("attach", "data", "--policy", "policy.toml")
    assert "1 need no change" in run("seal", "data", "--policy", "policy.toml")
    assert "1 file changed" in run("attach", "data", "--policy", "policy.toml", "--bloom", "amount")


def test_check_says_which_file_breaks_which_rule(run):
    write_table(TABLE, "data/b.parquet", encryption=EncryptionConfiguration(
        "footer", {"pii": ["ssn"], "footer": ["home"]}), keys=keyring())
    write_table(TABLE, "data/c.parquet", encryption=EncryptionConfiguration(
        "footer", uniform_encryption=True), keys=keyring())
    out = run("policy", "check", "policy.toml", "data", code=1)
    assert "3 files: 1 meet the policy, 2 do not, 0 not fully checked" in out
    assert run("policy", "check", Path("policy.toml").absolute().as_uri(), "data", code=1) == out
    assert "a.parquet: column ssn: the column is sensitive and its data is not encrypted" in out
    assert "'ssn' in columns" in out and "c.parquet: column ssn" in out and "b.parquet" not in out
    result = json.loads(run("policy", "check", "policy.toml", "data", "--json", code=1))
    assert not result["ok"] and [
        [violation["kind"] for violation in file["violations"]] for file in result["files"]] \
        == [["unencrypted"] * 2, [], ["master-key"]]


def test_check_tells_what_was_not_checked(run, tmp_path):
    (tmp_path / "empty").mkdir()
    assert not json.loads(run("policy", "check", "policy.toml", "empty", "--json", code=3))["ok"]
    run("policy", "check", "policy.toml", "nothing", code=3)
    write_table(TABLE, "data/a.parquet", encryption=UniformKey(b"k" * 16))
    out = run("policy", "check", "policy.toml", "data", code=4, keys=False)
    assert not json.loads(run("policy", "check", "policy.toml", "data", "--json", code=4,
                              keys=False))["ok"]
    assert "not checked in" in out and "0 meet the policy, 0 do not, 1 not fully checked" in out
    (tmp_path / "data" / "a.parquet").write_bytes(b"PAR1 nothing")
    assert "not checked" in run("policy", "check", "policy.toml", "data", code=3)


def test_check_of_a_schema(run):
    with pa.OSFile("file.arrow", "wb") as sink, pa.ipc.new_file(sink, TABLE.schema):
        pass
    with pa.OSFile("stream.arrow", "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema):
        pass
    with open("message.arrow", "wb") as sink:
        sink.write(TABLE.schema.serialize())
    for arguments in (["file.arrow"], ["stream.arrow"], ["message.arrow"],
                      ["data/a.parquet", "--schema"]):
        out = run("policy", "check", "policy.toml", *arguments, keys=False)
        assert "home.street" in out and "fpp 0.001" in out
        Path("bare.toml").write_text('sensitive = ["ssn"]')
        out = run("policy", "check", "bare.toml", *arguments, code=1, keys=False)
        assert "add footer_key" in out and "column ssn" in out
        run("policy", "check", "bare.toml", *arguments, "--json", code=1, keys=False)
    Path("text.arrow").write_text("ssn text")
    assert "Arrow schema" in run("policy", "check", "policy.toml", "text.arrow", code=3)
    assert "--at is for schemas" in run("policy", "check", "policy.toml", "data", "--at", "/x",
                                        code=2)


def test_a_policy_that_is_not_valid(run):
    Path("bad.toml").write_text("sensitiv = []")
    Path("both.toml").write_text("[columns]\n'ss?' = 'a'\n'?sn' = 'b'")
    for bad, words in (("bad.toml", "'sensitiv'"), ("both.toml", "contradict")):
        for command in (["policy", "check", bad, "data"], ["audit", "data", "--policy", bad],
                        ["policy", "check", bad, "data/a.parquet", "--schema"],
                        ["policy", "explain", bad, "data/a.parquet"],
                        ["write", "data/a.parquet", "b.parquet", "--policy", bad],
                        ["inspect", "data/a.parquet", "--policy", bad]):
            assert words in run(*command, code=2)


def test_explain_names_the_rule_of_each_column(run):
    out = run("policy", "explain", "policy.toml", "data/a.parquet", keys=False)
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert "yes" in rows["ssn"] and "pii" in rows["ssn"] and "'ssn' in columns" in rows["ssn"]
    assert "footer" in rows["home.street"] and "in sensitive" in rows["home.street"]
    assert "no" in rows["home.zip"] and "'" not in rows["home.zip"]

    def column(*options):
        result = json.loads(run("policy", "explain", "policy.toml", "data/a.parquet", "--json",
                                *options, keys=False))
        return result["columns"][1]
    assert column() == {
        "column": "city", "encrypted": False, "required_key": None, "key": None, "rule": None,
        "bloom_filter": {"fpp": 0.01, "ndv": None, "max_bytes": None}, "filter_possible": True,
        "filter_rule": "'city' in columns"}
    at = column("--at", "s3://bucket/vip/a.parquet")
    assert (at["key"], at["rule"]) == ("pii", "'city' in columns of table 'vip'")


def test_until_when_plaintext_is_accepted(run):
    text = Path("policy.toml").read_text()
    Path("until.toml").write_text(f"accept_plaintext_until = 2027-01-31\n{text}")
    pq.write_table(pa.table({"ssn": ["a"]}), "plain.parquet")
    for command, code in (("explain", 0), ("check", 1)):  # of a file that must be encrypted still
        assert "readers accept files without encryption until 2027-01-31 (UTC)" in run(
            "policy", command, "until.toml", "plain.parquet", code=code)


def test_a_name_cannot_control_the_terminal(run):
    table = pa.table({"\x1b[2J": ["x"]})
    pq.write_table(table, "data/a.parquet")
    Path("all.toml").write_text('default = "encrypt"')
    for command in ("check", "explain"):
        out = run("policy", command, "all.toml", "data/a.parquet",
                  code=1 if command == "check" else 0)
        assert "\x1b" not in out
