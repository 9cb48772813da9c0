"""Keys that are not given: SECURE_BLOOM_KEYRING and SECURE_BLOOM_KMS."""

import json
import os
import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile, read_table, verify_file, write_table
from secure_bloom.cli import main
from secure_bloom.errors import (
    AuthenticationError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyringError,
)
from secure_bloom.keys import (
    NO_KEYS,
    InMemoryKms,
    Keyring,
    from_environment,
    list_master_keys,
    rotate_master_keys,
)
from secure_bloom.keys.environment import EnvironmentKms, environment_kms
from secure_bloom.keys.uri import absolute_uri
from tests.cli.test_cli import on_terminal

TABLE = pa.table({"ssn": ["012", "034"], "city": ["Rome", "Oslo"]})
FILTERS = {"ssn": True, "city": True}
ENCRYPTION = EncryptionConfiguration("footer", {"pii": ["ssn"]})


@pytest.fixture
def keyring(tmp_path) -> Keyring:
    keyring = Keyring.create(tmp_path / "keys.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    return keyring


@pytest.fixture
def encrypted(tmp_path, keyring):
    path = tmp_path / "encrypted" / "a.parquet"
    path.parent.mkdir()
    write_table(TABLE, path, bloom_filters=FILTERS, encryption=ENCRYPTION, keys=keyring)
    return path


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "plain" / "a.parquet"
    path.parent.mkdir()
    write_table(TABLE, path, bloom_filters=FILTERS)
    return path


@pytest.fixture(params=["keyring", "kms"])
def named(request, keyring, monkeypatch):
    """The keyring, named in the environment in one of two ways."""
    if request.param == "keyring":
        monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(keyring.path))
    else:
        monkeypatch.setenv("SECURE_BLOOM_KMS", f"keyring:{keyring.path}")
    return keyring


BROKEN = {
    "missing keyring": {"SECURE_BLOOM_KEYRING": "/nowhere/keys.json"},
    "missing keyring by URI": {"SECURE_BLOOM_KMS": "keyring:/nowhere/keys.json"},
    "unknown scheme": {"SECURE_BLOOM_KMS": "nokms:x"},
    "no URI": {"SECURE_BLOOM_KMS": "keys.json"},
    "both": {"SECURE_BLOOM_KMS": "keyring:a", "SECURE_BLOOM_KEYRING": "a"},
}


@pytest.fixture(params=BROKEN)
def broken(request, monkeypatch):
    """An environment that names nothing that can be used; its variables."""
    for name, value in BROKEN[request.param].items():
        monkeypatch.setenv(name, value)
    return list(BROKEN[request.param])


def test_keys_that_are_given_win(encrypted, keyring, broken):
    assert read_table(encrypted, keys=keyring).equals(TABLE)
    with pytest.raises(KeyNotFoundError, match="'footer'"):
        read_table(encrypted, keys=InMemoryKms({}))


def test_no_keys_means_not_those_of_the_environment_either(encrypted, named):
    for source in (encrypted, encrypted.parent, encrypted.read_bytes()):
        with pytest.raises(KeyNotFoundError, match="pass keys"):
            read_table(source, keys=NO_KEYS)
    assert list_master_keys(encrypted, NO_KEYS).hidden == 1
    assert verify_file(encrypted, NO_KEYS).missing_keys
    assert repr(NO_KEYS) == "NO_KEYS" and pickle.loads(pickle.dumps(NO_KEYS)) is NO_KEYS


def test_plaintext_does_not_depend_on_the_environment(tmp_path, plain, broken):
    assert read_table(plain).equals(TABLE)
    assert read_table(plain.parent, filters=[("ssn", "==", "012")]).num_rows == 1
    assert ParquetFile(plain).might_contain("ssn", ["012"]).all()
    assert verify_file(plain).ok
    write_table(TABLE, plain.with_name("new.parquet"), bloom_filters=FILTERS)
    assert list_master_keys(plain.parent).plaintext == 2
    assert secure_bloom.strip(plain).changed


def test_a_broken_environment_is_named_where_a_key_is_needed(tmp_path, encrypted, broken):
    for attempt in (lambda: ParquetFile(encrypted), lambda: read_table(encrypted),
                    lambda: read_table(encrypted.read_bytes()), from_environment,
                    lambda: write_table(TABLE, tmp_path / "x", bloom_filters={},
                                        encryption=ENCRYPTION)):
        with pytest.raises(KeyringError) as caught:
            attempt()
        assert all(name in str(caught.value) for name in broken)
    assert not (tmp_path / "x").exists()


def test_without_any_keys_it_is_as_before(tmp_path, encrypted):
    with pytest.raises(KeyNotFoundError, match="pass keys"):
        ParquetFile(encrypted)
    with pytest.raises(TypeError, match="SECURE_BLOOM_KEYRING"):
        write_table(TABLE, tmp_path / "x", bloom_filters={}, encryption=ENCRYPTION)
    with pytest.raises(KeyNotFoundError, match="neither SECURE_BLOOM_KEYRING nor"):
        from_environment()
    with pytest.raises(TypeError, match="keys must be a KmsClient"):
        rotate_master_keys(tmp_path, old="a", new="b")
    assert environment_kms() is None


def test_an_empty_variable_names_nothing(encrypted, keyring, monkeypatch):
    monkeypatch.setenv("SECURE_BLOOM_KMS", "")
    assert environment_kms() is None
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(keyring.path))
    assert read_table(encrypted).equals(TABLE)


def test_wrong_keys_of_the_environment_are_not_missing_ones(tmp_path, keyring, monkeypatch):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, bloom_filters=FILTERS, keys=keyring,
                encryption=EncryptionConfiguration("footer", {"pii": ["ssn"]},
                                                   plaintext_footer=True))
    data = bytearray(path.read_bytes())
    data[60] ^= 1  # in a page of ssn
    path.write_bytes(data)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(keyring.path))
    with pytest.raises(AuthenticationError):
        read_table(path)
    with pytest.raises(KeyNotFoundError):
        read_table(path, keys=NO_KEYS)


def test_the_kms_is_opened_once_and_its_cache_is_shared(encrypted, named, monkeypatch):
    calls, unwrap = [], Keyring.unwrap_key

    def counting(self, wrapped_key, name):
        calls.append(name)
        return unwrap(self, wrapped_key, name)

    monkeypatch.setattr(Keyring, "unwrap_key", counting)
    for _ in range(3):
        assert read_table(encrypted).equals(TABLE)
        read_table(encrypted.parent)
    assert sorted(calls) == ["footer", "pii"]


def test_settings_later_in_the_process_count(encrypted, keyring, tmp_path, monkeypatch):
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(tmp_path / "other.json"))
    with pytest.raises(KeyringError):
        read_table(encrypted)
    Keyring.create(tmp_path / "other.json")
    with pytest.raises(KeyNotFoundError, match="no master key named"):
        read_table(encrypted)
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(keyring.path))
    assert read_table(encrypted).equals(TABLE)


def test_relative_paths_are_those_of_the_folder_in_which_they_were_read(tmp_path, keyring,
                                                                        monkeypatch):
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "secret?%"
    for name, value in (("SECURE_BLOOM_KEYRING", "keys.json"), ("SECURE_BLOOM_KMS",
                                                                "keyring:./keys.json")):
        monkeypatch.setenv(name, value)
        kms = environment_kms()
        monkeypatch.chdir("/")
        assert pickle.loads(pickle.dumps(kms)).client.names() == ["footer", "pii"]
        monkeypatch.delenv(name)
        monkeypatch.chdir(tmp_path)
    assert absolute_uri("keyring:a%3Fb?passphrase-file=secret%3F%25&") == \
        f"keyring:{tmp_path}/a%3Fb?passphrase-file={tmp_path}/secret%3F%25"
    assert str(secret) not in absolute_uri("awskms:?profile=x") == "awskms:?profile=x"


class Instance(InMemoryKms):
    kms_instance_id = "instance 7"


def test_what_the_client_says_of_its_instance_goes_into_the_file(tmp_path, monkeypatch):
    kms = EnvironmentKms(None, "awskms:")
    monkeypatch.setattr(kms, "_client", Instance({"footer": b"f" * 16}))
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, bloom_filters={}, keys=kms,
                encryption=EncryptionConfiguration("footer", uniform_encryption=True))
    use = list_master_keys(path, NO_KEYS).master_keys[0]
    assert (use.kms_instance_id, use.kms_instance_url) == ("instance 7", "DEFAULT")
    assert not hasattr(kms, "anything_else")


def test_a_keyring_with_a_passphrase_says_how_to_give_it(tmp_path, keyring, encrypted, monkeypatch):
    keyring.set_passphrase("SECRET pass phrase 1")
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(keyring.path))
    with pytest.raises(KeyringError, match=r"passphrase-file=.*SECURE_BLOOM_KEYRING"):
        read_table(encrypted)
    secret = tmp_path / "passphrase"
    secret.touch(0o600)
    secret.write_text("SECRET pass phrase 1")
    monkeypatch.delenv("SECURE_BLOOM_KEYRING")
    monkeypatch.setenv("SECURE_BLOOM_KMS", f"keyring:{keyring.path}?passphrase-file={secret}")
    assert read_table(encrypted).equals(TABLE)


def test_nothing_of_a_key_is_in_what_is_pickled_or_shown(named, keyring):
    kms = environment_kms()
    assert kms.client.export("pii") == keyring.export("pii")
    assert repr(kms).startswith("<EnvironmentKms by SECURE_BLOOM_K")
    assert keyring.export("pii") not in pickle.dumps(kms)
    assert pickle.loads(pickle.dumps(kms)) is kms


# --- the commands --------------------------------------------------------------------------------

def run(*arguments, stdin=None):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def test_the_commands_take_the_keys_of_the_environment(tmp_path, named):
    source, path = tmp_path / "in.csv", tmp_path / "new.parquet"
    source.write_text("ssn,city\n012,Rome\n")
    named.add("new")
    write = ["write", source, path, "--bloom", "ssn,city"]
    result = run(*write, "--footer-key", "footer", "--column-key", "pii:ssn")
    assert result.exit_code == 0, result.stderr
    assert run("inspect", path).exit_code == 0
    assert run("probe", path, "--column", "ssn", "--value", "012").exit_code == 0
    assert run("verify", path).exit_code == 0
    assert json.loads(run("keys", "list", path, "--json").stdout)["hidden"] == 0
    assert run("keys", "rotate", path, "--from", "pii", "--to", "new").exit_code == 0
    assert run("strip", path, "--column", "ssn").exit_code == 0
    assert run(*write, "--overwrite").exit_code == 2  # keys do not ask for encryption
    assert run(*write, "--overwrite", "--plaintext").exit_code == 0
    assert pq.read_table(path).num_rows == 1


@pytest.mark.parametrize("option", ["--keyring", "--keys"])
def test_options_of_a_command_win_over_the_environment(encrypted, keyring, broken, option):
    value = keyring.path if option == "--keyring" else f"keyring:{keyring.path}"
    assert run("inspect", encrypted, option, value).exit_code == 0
    missing = str(value) + ".none"
    assert run("inspect", encrypted, option, missing).exit_code == 4


def test_a_command_without_options_says_what_is_wrong_with_the_environment(encrypted, plain,
                                                                           broken):
    result = run("inspect", encrypted)
    assert result.exit_code == 4, result.output
    assert all(name in result.stderr for name in broken)
    for arguments in (["inspect", plain], ["verify", plain],
                      ["probe", plain, "--column", "ssn", "--value", "012"],
                      ["write", plain, plain.with_name("x"), "--plaintext"]):
        assert run(*arguments).exit_code == 0


@pytest.mark.slow
def test_a_command_asks_for_the_passphrase_only_when_a_key_is_needed(
        encrypted, plain, keyring, monkeypatch):
    keyring.set_passphrase("SECRET pass phrase 1")
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(keyring.path))
    assert on_terminal("inspect", plain, answers=[])[0] == 0
    code, shown = on_terminal("inspect", encrypted, answers=["SECRET pass phrase 1"])
    assert code == 0 and "SECRET" not in shown
    copies = [encrypted.with_name(f"{number}.parquet") for number in range(8)]
    for copy in copies:
        copy.write_bytes(encrypted.read_bytes())
    code, shown = on_terminal("strip", encrypted.parent, answers=["SECRET pass phrase 1"])
    assert code == 0 and shown.count("Passphrase of") == 1


@pytest.mark.slow
def test_importing_the_library_reads_no_keys(keyring):
    code = "import secure_bloom, secure_bloom.keys, secure_bloom.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, **BROKEN["both"]}, check=False)
    assert done.returncode == 0, done.stderr
    assert issubclass(KeyringError, KeyRetrievalError)
