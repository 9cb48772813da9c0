"""A misspelt name in a policy neither writes plaintext in silence, nor goes unnoticed."""

import io
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from secure_bloom import EncryptionConfiguration, ParquetFile, ParquetWriter, Policy, write_table
from secure_bloom.cli import main
from secure_bloom.datasets.writing import write_dataset
from secure_bloom.errors import PolicyError, PolicyWarning
from secure_bloom.keys import Keyring
from secure_bloom.policy import TableRules
from secure_bloom.storage.visibility import parquet_files

TABLE = pa.table({"ssn": ["078", "079"], "city": ["Rome", "Oslo"],
                  "home": [{"street": "s"}, {"street": "t"}], "tags": [["t"], ["u"]]})
SLIP = {"footer_key": "footer", "columns": {"sssn": "pii"}}
OPEN = {**SLIP, "columns": {"*": {"plaintext": True}}}


@pytest.fixture
def keyring(tmp_path):
    keyring = Keyring.create(tmp_path / "keys.json")
    keyring.add("footer")
    keyring.add("pii")
    return tmp_path / "keys.json"


def by_writer(path, policy, keys, plaintext):
    with ParquetWriter(path, TABLE.schema, policy=policy, keys=keys,
                       plaintext=plaintext) as writer:
        writer.write(TABLE)


def by_command(path, policy, keys, plaintext):
    source, rules = path.parent / "source", path.parent / "policy.toml"
    pq.write_table(TABLE, source)
    rules.write_text(policy.to_toml())
    done = CliRunner().invoke(main, [
        "write", str(source), str(path), "--policy", str(rules), "--keyring", str(keys),
        *["--plaintext"] * plaintext])
    if done.exit_code:
        assert done.exit_code == 2
        raise PolicyError(done.output)
    if "secure-bloom: warning: " in done.output:
        warnings.warn(done.output, PolicyWarning, stacklevel=1)


WAYS = {
    "write_table": lambda path, policy, keys, plaintext: write_table(
        TABLE, path, policy=policy, keys=keys, plaintext=plaintext),
    "ParquetWriter": by_writer,
    "write_dataset": lambda path, policy, keys, plaintext: write_dataset(
        TABLE, path, policy=policy, keys=keys, plaintext=plaintext),
    "command": by_command}


def files(path):
    return parquet_files(pa.fs.LocalFileSystem(), str(path)) if path.exists() else []


@pytest.mark.filterwarnings("ignore::secure_bloom.errors.PolicyWarning")
@pytest.mark.parametrize("way", WAYS)
def test_plaintext_is_written_only_if_it_is_asked_for_by_name(tmp_path, keyring, way):
    path, write = tmp_path / "out", WAYS[way]
    for given in (SLIP, {"columns": {"sssn": "pii"}}, {"sensitive": ["sssn"]},
                  {**SLIP, "tables": [TableRules("elsewhere", ["ssn"])]},
                  {"columns": {"city": {"plaintext": True}, "sssn": "pii"}}):
        with pytest.raises(PolicyError) as raised:
            write(path, Policy(**given), keyring, False)
        assert str(path) in str(raised.value)
        assert "no column would be encrypted" in str(raised.value)
        assert "(did you mean 'ssn'?)" in str(raised.value)
        assert not files(path)
    write(path, Policy(**SLIP), keyring, True)
    write(tmp_path / "public", Policy(tables=[TableRules("*/public", **{
        "columns": OPEN["columns"]})], columns={"ssn": "pii"}), keyring, False)
    for found in (path, tmp_path / "public"):
        [file] = files(found)
        assert not ParquetFile(file).footer.is_encrypted
    with pytest.raises(PolicyError, match=r"column ssn.*in columns"):
        write(tmp_path / "other", Policy(columns={"ssn": "pii"}), keyring, True)
    assert not files(tmp_path / "other")


def test_an_encrypted_footer_encrypts_every_column(tmp_path, keyring):
    """So a slip is a wrong key, and not plaintext."""
    with pytest.warns(PolicyWarning, match="did you mean 'ssn'"):
        write_table(TABLE, tmp_path / "a", policy=Policy(**SLIP, encrypted_footer=True),
                    keys=keyring)
    with ParquetFile(tmp_path / "a", keyring) as file:
        assert {chunk.encryption for chunk in file.footer.column_chunks()} == {"footer key"}


@pytest.mark.parametrize("way", WAYS)
def test_a_rule_that_matches_no_column_is_a_warning(tmp_path, keyring, way):
    policy = Policy(["ssn"], footer_key="footer", columns={
        "CITY": "pii", "home": {"bloom_filter": True}, "str?et": "pii", "tags.bag.element": "pii",
        "Cty": {"bloom_filter": True}}, tables=[TableRules("elsewhere", ["nothing"])])
    with pytest.warns(PolicyWarning) as caught:
        WAYS[way](tmp_path / "out", policy, keyring, False)
    [message] = [str(one.message).split("policy;")[0] for one in caught]
    assert str(tmp_path / "out") in message
    assert "rule 'str?et' in columns" in message
    assert "rule 'Cty' in columns (did you mean 'city'?)" in message
    assert message.count("rule ") == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WAYS[way](tmp_path / "again", Policy(["ssn", "*"], footer_key="footer"), keyring, False)


def test_a_partition_column_is_a_column_of_what_is_written(tmp_path, keyring):
    policy = Policy(footer_key="footer", columns={"ssn": "pii", "city": {"plaintext": True}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_dataset(TABLE, tmp_path / "t", policy=policy, keys=keyring, partition_by="city")


def test_plaintext_contradicts_encryption_and_nothing_else(tmp_path):
    encryption = EncryptionConfiguration("footer", {"pii": ["ssn"]})
    for write in (lambda **given: write_table(TABLE, io.BytesIO(), **given),
                  lambda **given: write_dataset(TABLE, tmp_path / "t", **given)):
        with pytest.raises(TypeError, match="plaintext=True contradicts encryption"):
            write(encryption=encryption, plaintext=True)
        with pytest.raises(TypeError, match="pass plaintext=True"):
            write(keys="keys.json")
        write(keys="keys.json", plaintext=True)


def test_check_lists_rules_that_match_nothing_in_any_file(tmp_path, monkeypatch, keyring):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "day=1").mkdir(parents=True)
    (tmp_path / "policy.toml").write_text("""
        sensitive = ["sssn", "phone"]
        columns = { Ssn = { bloom_filter = true }, day = { plaintext = true } }
        [[tables]]
        path = "peple"
        sensitive = ["city"]
        """)
    pq.write_table(TABLE.select(["ssn"]), "data/day=1/a.parquet")
    pq.write_table(TABLE.select(["city"]), "data/b.parquet")

    def check(*arguments, code=6):
        done = CliRunner().invoke(main, ["policy", "check", "policy.toml", *arguments])
        assert done.exit_code == code, done.output
        begin = "no column of any file matches rule "
        return [line.removeprefix(begin) for line in done.output.splitlines()
                if line.startswith(begin)]

    sssn, phone = "'sssn' in sensitive (did you mean 'ssn'?)", "'phone' in sensitive"
    of_table = "'city' in sensitive of table 'peple' (did you mean 'city'?)"
    assert check("data") == [of_table, sssn, phone]
    ssn = "'Ssn' in columns"
    assert check("data/b.parquet") == ["'sssn' in sensitive", phone, ssn, "'day' in columns"]
    assert check("data/day=1/a.parquet", "--schema", code=1) == [sssn, phone, "'day' in columns"]
    pq.write_table(pa.table({"phone": ["1"]}), "data/c.parquet")
    assert check("data", code=1) == [of_table, sssn]  # something else is wrong
