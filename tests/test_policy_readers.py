"""Every reader takes a policy, and refuses what an attacker has put in the place of a file."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    Policy,
    audit,
    dataset,
    erase,
    find,
    index,
    read_table,
    scan,
    verify_file,
    write_table,
)
from secure_bloom.cli import main
from secure_bloom.erasing.erasure import Erasure
from secure_bloom.errors import AuthenticationError, ColumnError, PolicyError, PolicyWarning
from secure_bloom.keys import Keyring

TABLE = pa.table({"ssn": ["a", "b"], "city": ["x", "y"]})
POLICY = Policy(columns={"ssn": "pii"})
PLANTED = "planted.parquet"

#: what reads all files of a folder, or the planted one
READERS = {
    "read_table": lambda path, **options: read_table(path / PLANTED, **options),
    "read_table of a folder": read_table,
    "ParquetFile": lambda path, **options: ParquetFile(path / PLANTED, **options),
    "dataset": lambda path, **options: dataset(path, **options).to_table(),
    "scan": lambda path, **options: scan(path, **options).collect(),
    "find": lambda path, **options: find(path, "city", ["x"], **options),
    "erase": lambda path, **options: erase(path, "city", ["x"], max_share=1, **options),
    "index.build": lambda path, **options: indexed(path, **options)}
PLANTS = {
    "a plaintext file": (TABLE, None),
    "a plaintext file without the column": (TABLE.select(["city"]), None),
    "a column under another key": (TABLE, {"other": ["ssn"]}),
    "a column without encryption": (TABLE, {"pii": ["city"]})}


def indexed(path, **options):
    for file, why in index.build(path, "city", encryption=None, **options).failed.items():
        raise AuthenticationError(why, file=file)


pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def keys(tmp_path):
    keyring = Keyring.create(tmp_path / "keys.json")
    for name in ("footer", "pii", "other"):
        keyring.add(name)
    return keyring.path


@pytest.fixture
def lake(tmp_path, keys):
    """A folder with a good file, and the policy beside it."""
    folder = tmp_path / "lake"
    folder.mkdir()
    put(folder / "good.parquet", keys)
    (tmp_path / "policy.toml").write_text(POLICY.to_toml())
    return folder


def put(path, keys, table=TABLE, column_keys=None):
    write_table(table, path, keys=keys, encryption=EncryptionConfiguration(
        "footer", column_keys or {"pii": ["ssn"]}))


def plant(path, keys, table, column_keys):
    if column_keys is None:
        write_table(table, path / PLANTED)
    else:
        put(path / PLANTED, keys, table, column_keys)


def forms(lake):
    path = lake.parent / "policy.toml"
    return POLICY, path, str(path), f"file://{path}"


@pytest.mark.slow
def test_every_reader_refuses_what_does_not_meet_the_policy(lake, keys):
    for what, planted in PLANTS.items():
        plant(lake, keys, *planted)
        for name, read in READERS.items():
            if planted[0] is not TABLE and name in ("read_table", "ParquetFile"):
                continue  # a single file without the column is not sensitive
            for policy in forms(lake):
                with pytest.raises(AuthenticationError) as raised:
                    read(lake, keys=keys, policy=policy)
                assert raised.value.file.endswith(PLANTED), (what, name)
    assert read_table(lake / "good.parquet", keys) == TABLE  # nothing was erased


ACCEPTING = READERS.keys() - {"index.build"}


def until(days):
    """The policy, which accepts plaintext until some days from now on."""
    return replace(POLICY, accept_plaintext_until=datetime.now(UTC).date() + timedelta(days))


@pytest.mark.slow
@pytest.mark.filterwarnings("error::secure_bloom.errors.PolicyWarning")
@pytest.mark.parametrize("what", PLANTS)
def test_plaintext_files_are_accepted_for_a_time(lake, keys, what):
    """Only by what reads rows, only files without any encryption, and only until then."""
    plant(lake, keys, *PLANTS[what])
    is_plaintext = PLANTS[what][1] is None
    is_sensitive = PLANTS[what][0] is TABLE
    for name in sorted(READERS, key="erase".__eq__):  # which changes files
        read = READERS[name]
        if not is_sensitive and name in ("read_table", "ParquetFile"):
            continue
        with pytest.raises(AuthenticationError):
            read(lake, keys=keys, policy=until(-2))
        if not (is_plaintext and name in ACCEPTING):
            with pytest.raises(AuthenticationError):
                read(lake, keys=keys, policy=until(1))
        elif is_sensitive:
            with pytest.warns(PolicyWarning, match="a file is not encrypted; the policy accepts"):
                read(lake, keys=keys, policy=until(1))
        else:
            read(lake, keys=keys, policy=until(1))


def test_what_vouches_for_a_file_stays_strict_for_that_time(lake, keys):
    plant(lake, keys, TABLE, None)
    assert not verify_file(lake / PLANTED, keys, policy=until(1)).ok
    [finding] = [one for one in audit(lake, keys, policy=until(1)).findings
                 if one.severity == "error"]
    assert finding.file.endswith(PLANTED)
    with pytest.raises(AuthenticationError):  # both must hold
        read_table(lake, keys, policy=until(1), require_encryption=["ssn"])
    with pytest.raises(PolicyError):
        write_table(TABLE.rename_columns(["sn", "city"]), lake / "new.parquet", keys=keys,
                    policy=until(1))
    write_table(TABLE, lake / "new.parquet", keys=keys,
                policy=replace(until(1), footer_key="footer"))
    assert ParquetFile(lake / "new.parquet", keys).footer.is_encrypted


@pytest.mark.slow
def test_every_reader_reads_what_meets_the_policy(lake, keys):
    put(lake / PLANTED, keys)
    put(lake / "without.parquet", keys, TABLE.select(["city"]), {"pii": ["city"]})
    for name, read in READERS.items():
        for policy in forms(lake):
            if name not in ("erase", "index.build"):
                read(lake, keys=keys, policy=policy)
    assert erase(lake, "city", ["x"], keys, max_share=1, policy=POLICY).ok


def test_nothing_is_erased_if_a_file_is_replaced_after_the_search(lake, keys, monkeypatch):
    put(lake / PLANTED, keys)
    search = Erasure.find

    def search_and_replace(self, advance):
        found = search(self, advance)
        plant(lake, keys, *PLANTS["a plaintext file"])
        return found

    monkeypatch.setattr(Erasure, "find", search_and_replace)
    for path in (lake, lake / PLANTED):
        with pytest.raises(AuthenticationError):
            erase(path, "city", ["x"], keys, max_share=1, policy=POLICY)
        assert sorted(file.name for file in lake.glob("*.parquet")) == ["good.parquet", PLANTED]
        assert read_table(lake / PLANTED) == TABLE
        put(lake / PLANTED, keys)


def test_an_index_does_not_cover_a_file_that_does_not_meet_the_policy(lake, keys):
    for path in (lake / "good.parquet", lake / PLANTED):
        put(path, keys)
    index.build(lake, "ssn", keys)
    plant(lake, keys, *PLANTS["a plaintext file"])
    result = index.Index.open(lake, keys).update(policy=lake.parent / "policy.toml")
    assert result.failed.keys() == {PLANTED} and "not encrypted" in result.failed[PLANTED]


def test_verify_reports_what_does_not_meet_the_policy(lake, keys):
    plant(lake, keys, *PLANTS["a column under another key"])
    for policy in forms(lake):
        assert verify_file(lake / "good.parquet", keys, policy=policy).ok
        [finding] = verify_file(lake / PLANTED, keys, policy=policy).findings
        assert finding.kind == "policy" and "'ssn' in columns" in finding.message


def test_a_file_must_meet_both_the_policy_and_what_is_required(lake, keys):
    put(lake / PLANTED, keys, column_keys={"pii": ["ssn"], "other": ["city"]})
    for required, is_met in ((True, True), (["city"], True), ({"city": "pii"}, False),
                             (Policy(columns={"city": "pii"}), False)):
        options = {"policy": POLICY, "require_encryption": required}
        if is_met:
            assert read_table(lake / PLANTED, keys, **options).equals(TABLE)
            continue
        with pytest.raises(AuthenticationError, match="city"):
            read_table(lake / PLANTED, keys, **options)
    with pytest.raises(AuthenticationError, match=r"ssn.*\(policy: 'ssn' in columns\)"):
        read_table(lake / PLANTED, keys, require_encryption=["ssn"],
                   policy=Policy(columns={"ssn": "other"}))
    with pytest.raises(ColumnError):
        read_table(lake / PLANTED, keys, require_encryption=["snn"], policy=POLICY)


COMMANDS = [["inspect"], ["probe", "--column", "ssn", "--value", "a"], ["verify"],
            ["find", "--column", "ssn", "--value", "a"],
            ["erase", "--column", "ssn", "--value", "a", "--yes"],
            ["index", "build", "--column", "ssn"]]


def test_commands_that_read_take_a_policy(lake, keys):
    plant(lake, keys, *PLANTS["a plaintext file"])
    policies = (str(lake.parent / "policy.toml"), f"file://{lake.parent / 'policy.toml'}")
    for command in COMMANDS:
        for policy in policies:
            result = CliRunner().invoke(main, [*command, str(lake), "--keyring", str(keys),
                                               "--policy", policy])
            assert result.exit_code in (1, 3, 5), (command, result.output)
            assert "not encrypted" in result.output, command
    both = CliRunner().invoke(main, [
        "inspect", str(lake / "good.parquet"), "--keyring", str(keys), "--policy", policies[0],
        "--require-encryption", "city"])
    assert both.exit_code == 5 and "column city" in both.output
    missing = CliRunner().invoke(main, ["inspect", str(lake), "--policy", "none.toml"])
    assert missing.exit_code == 2
