"""docs/errors.md: every error has its section, and each message there is one that is raised."""

import inspect
import os
import re
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, Policy, UniformKey, errors
from secure_bloom.arrow import masking
from secure_bloom.keys import CachedKms, Keyring, VaultKms
from secure_bloom.keys.kek import KeyEncryptionKey
from secure_bloom.keys.master_key_check import MasterKeyCheck
from secure_bloom.parquet import thrift
from secure_bloom.parquet.thrift import Struct
from secure_bloom.sbbf import kernel_choice

TEXT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
#: name of a class -> the typical message of its section
MESSAGES = dict(re.findall(r"^### (\w+)\n\n```text\n(.*?)\n```", TEXT, re.MULTILINE | re.DOTALL))
PUBLIC = {name for name, value in vars(errors).items() if inspect.isclass(value)
          and issubclass(value, BaseException) and value.__module__ == errors.__name__}
BASES = {"SecureBloomError", "FileError"}  # raised only as one of their subclasses

PEOPLE = pa.table({"ssn": ["078-05-1120"], "city": ["Rome"]})
ENCRYPTION = EncryptionConfiguration("footer", {"pii": ["ssn"]})
POLICY = Policy(footer_key="footer", columns={"ssn": "pii"})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder of each case, with a keyring and an encrypted file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VAULT_TOKEN", raising=False)
    keyring = Keyring.create("keyring.json")
    for name in ("footer", "pii"):
        keyring.add(name)
    secure_bloom.write_table(PEOPLE, "people.parquet", bloom_filters=["ssn"],
                             encryption=ENCRYPTION, keys=keyring)
    return tmp_path


def read(keys="keyring.json", **options):
    return secure_bloom.read_table("people.parquet", keys, **options)


def change_people(change):
    path = Path("people.parquet")
    path.write_bytes(change(path.read_bytes()))


def truncated(_):
    change_people(lambda data: data[:100])
    read()


def tampered(_):
    change_people(lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:])
    read()


def without_the_column_key(_):
    Keyring("keyring.json").subset("analyst.json", ["footer"], passphrase=None)
    read("analyst.json")


def encrypted_in_an_unknown_way(_):
    file = secure_bloom.ParquetFile("people.parquet", "keyring.json")
    chunk = file.footer.row_groups[0][0]
    chunk.to_change().set(8, thrift.STRUCT, Struct([[3, thrift.STRUCT, Struct()]]))
    data = Path("people.parquet").read_bytes()[:file.footer.start] + file.footer.to_bytes()
    Path("people.parquet").write_bytes(data)
    read()


def masked(monkeypatch):
    monkeypatch.setattr(masking, "_warned", set())  # each process warns once
    Keyring("keyring.json").subset("analyst.json", ["footer"], passphrase=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read("analyst.json", on_missing_key="null")


def other_keys(_):
    other = Keyring.create("other.json")
    for name in ("footer", "pii"):
        other.add(name)
    read(other)


def no_token(_):
    VaultKms("http://127.0.0.1:1").wrap_key(bytes(16), "pii")


def no_response(_):
    VaultKms("http://127.0.0.1:1", token="t", attempts=1).wrap_key(bytes(16), "pii")


def not_a_keyring(_):
    Path("keyring.json").write_text("{}")
    read()


def no_keyring(_):
    Path("keyring.json").unlink()
    read()


def another_master_key(_):
    check = MasterKeyCheck(CachedKms(Keyring("keyring.json")), ["pii"])
    Path("keyring.json").unlink()
    replacement = Keyring.create("keyring.json")
    replacement.add("pii")
    check.verify(CachedKms(replacement))


def used_up(_):
    key = KeyEncryptionKey.make(CachedKms(Keyring("keyring.json")), "pii", 16)
    key._invocations = 2**32
    key.wrap(bytes(16))


def no_key_metadata(_):
    secure_bloom.write_table(PEOPLE, "uniform.parquet", encryption=UniformKey(bytes(range(16))))
    secure_bloom.read_table("uniform.parquet", "keyring.json")


def replaced(_):
    file = secure_bloom.ParquetFile("people.parquet", "keyring.json")
    change_people(lambda data: data + data)
    file.read()


def delta(_):
    Path("delta/_delta_log").mkdir(parents=True)
    Path("delta/_delta_log/00000000000000000000.json").touch()
    secure_bloom.write_table(PEOPLE, "delta/part.parquet")
    secure_bloom.read_table("delta")


def boolean_filter(_):
    secure_bloom.write_table(pa.table({"active": [True]}), "active.parquet",
                             bloom_filters=["active"])


def not_in_policy(_):
    secure_bloom.write_table(PEOPLE, "people.parquet", policy=POLICY, keys="keyring.json",
                             encryption=EncryptionConfiguration("footer", {"pii": ["city"]}))


def slip(_):
    policy = Policy(footer_key="footer", columns={"sssn": "pii", "city": "pii"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        secure_bloom.write_table(PEOPLE, "people.parquet", policy=policy, keys="keyring.json")


def no_such_kernels(monkeypatch):
    monkeypatch.setenv(kernel_choice.VARIABLE, "fast")
    kernel_choice.chosen.__wrapped__()  # what was chosen in this process is kept


class WithoutPolars:
    def find_spec(self, name, *_):
        if name == "polars":
            raise ModuleNotFoundError("No module named 'polars'")


def no_polars(monkeypatch):
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    monkeypatch.setattr(sys, "meta_path", [WithoutPolars(), *sys.meta_path])
    secure_bloom.scan("people.parquet", "keyring.json")


def damaged_index(_):
    os.mkdir("table")
    os.rename("people.parquet", "table/people.parquet")
    old = os.stat("table/people.parquet").st_mtime - 60
    os.utime("table/people.parquet", (old, old))
    secure_bloom.index.build("table", ["ssn"], "keyring.json")
    [segment] = Path("table/_index/ssn").glob("*.seg")
    segment.write_bytes(bytes(len(segment.read_bytes())))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        secure_bloom.read_table("table", "keyring.json", filters=[("ssn", "==", "078-05-1120")])


def attach_with_spark(*args, **kwargs):
    import secure_bloom.spark
    secure_bloom.spark.attach(*args, **kwargs)


def not_as_requested(_):
    pytest.importorskip("pyspark")
    from secure_bloom.spark import native
    native.verify("people.parquet", keys="keyring.json",
                  encryption=EncryptionConfiguration("footer", {"pii": ["ssn", "city"]}))


def weak_passphrase(_):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Keyring.create("weak.json", "a word")


def unknown_option(_):
    pytest.importorskip("pyspark")
    from secure_bloom.spark.options.options import Options
    Options({"bloom_filter": "ssn"}).check_names()


CAUSES = {
    "KeyNotFoundError": without_the_column_key,
    "UnknownEncryptionError": encrypted_in_an_unknown_way,
    "KeyAccessError": no_token,
    "KeyUnwrapError": other_keys,
    "KmsUnavailableError": no_response,
    "KeyringError": not_a_keyring,
    "KeyringNotFoundError": no_keyring,
    "MasterKeyChangedError": another_master_key,
    "KeyExhaustedError": used_up,
    "KeyRetrievalError": no_key_metadata,
    "FormatError": truncated,
    "AuthenticationError": tampered,
    "EncryptionMismatchError": not_as_requested,
    "ChangedMeanwhileError": replaced,
    "CommitError": lambda _: secure_bloom.write_dataset(PEOPLE, "people.parquet"),
    "UnsupportedError": delta,
    "ColumnError": boolean_filter,
    "UnknownColumnError": lambda _: read(filters=[("snn", "==", "078-05-1120")]),
    "PredicateError": lambda _: read(filters=[("ssn", "==", 5)]),
    "PolicyError": not_in_policy,
    "RenamedError": lambda _: attach_with_spark(None, "people", True, keyring="keyring.json"),
    "ArgumentError": lambda _: secure_bloom.write_table(PEOPLE, "a", compression="zst"),
    "OptionError": unknown_option,
    "KernelChoiceError": no_such_kernels,
    "MissingExtraError": no_polars,
    "IndexWarning": damaged_index,
    "PolicyWarning": slip,
    "WeakPassphraseWarning": weak_passphrase,
    "MissingKeyWarning": masked,
}


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_the_message_is_one_that_is_raised(name, folder, monkeypatch):
    with pytest.raises(getattr(errors, name)) as caught:
        CAUSES[name](monkeypatch)
    assert type(caught.value).__name__ == name
    message = str(caught.value).replace(str(folder), "/data")
    assert re.sub(r"[0-9a-f]{32}\.seg", "5c0e….seg", message) == MESSAGES[name]


def test_every_error_has_a_section():
    sections = set(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE))
    assert sections == PUBLIC - BASES
    assert set(re.findall(r"`(\w+)`", TEXT)) >= BASES


def test_every_section_says_cause_and_remedy():
    for section in TEXT.split("\n### ")[1:]:
        name = section.split("\n")[0]
        assert "\n**Cause:** " in section and "\n**Remedy:** " in section, name
