"""A policy is enforced where files are written and read."""

import io

import fsspec
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import secure_bloom
from secure_bloom import (
    BloomFilterOptions,
    EncryptionConfiguration,
    ExplicitKeys,
    ParquetFile,
    ParquetWriter,
    Policy,
    UniformKey,
    encryption,
    read_table,
    write_table,
)
from secure_bloom.arrow import encrypted_columns
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.datasets.search import Search
from secure_bloom.datasets.searched_rows import SearchedRows
from secure_bloom.errors import AuthenticationError, PolicyError
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet import schema
from secure_bloom.policy import TableRules
from secure_bloom.policy.requirement import FolderChecks, Requirement
from secure_bloom.policy.violations import violations
from secure_bloom.policy.writing import check_encryption
from tests.cases import for_each
from tests.forging import plaintext_file, with_open_metadata

pytestmark = pytest.mark.filterwarnings("ignore::secure_bloom.errors.PolicyWarning")


def kind(value: object) -> str:
    """Name a parameter; pytest numbers those of one name."""
    return type(value).__name__


KMS = InMemoryKms({name: name.encode().ljust(16, b".") for name in ("footer", "pii", "other")})
TABLE = pa.table({
    "ssn": ["a", "b"], "city": ["x", "y"], "amount": [1, 2], "flag": [True, False],
    "home": [{"street": f"s{i}", "zip": i} for i in range(2)], "tags": [["t"], ["u", "v"]]})
POLICY = Policy(["home"], footer_key="footer", columns={
    "ssn": {"key": "pii", "bloom_filter": {"fpp": 0.001}}, "city": {"bloom_filter": True},
    "fl*": {"bloom_filter": True}, "nowhere": "other"})
STRICT = Policy(encrypted_footer=True, footer_key="footer", default="encrypt",
                columns={"ssn": "pii", "amount": {"plaintext": True}})
uniform = EncryptionConfiguration("footer", uniform_encryption=True)
CONFIG = EncryptionConfiguration("footer", {"pii": ["ssn"], "footer": ["home"]})


def written(policy=POLICY, table=TABLE, **options) -> bytes:
    sink = io.BytesIO()
    write_table(table, sink, policy=policy, keys=KMS, **options)
    return sink.getvalue()


def unchecked(encryption=CONFIG, keys=KMS, **options) -> bytes:
    sink = io.BytesIO()
    write_table(TABLE, sink, encryption=encryption, keys=keys, **options)
    return sink.getvalue()


def keys_of(data, keys=KMS):
    """Return the master key of each encrypted column."""
    footer = ParquetFile(data, keys).footer
    return {chunk.column.path: footer.crypto.master_key(
        chunk.key_metadata if chunk.encryption == "column key" else footer.footer_key_metadata)
        for chunk in footer.column_chunks() if chunk.encryption is not None}


def filters_of(data):
    return {info.column: info.encrypted for info in ParquetFile(data, KMS).bloom_filters}


# --- writing -------------------------------------------------------------------------------------

def test_the_policy_makes_encryption_and_filters():
    data = written()
    assert keys_of(data) == {"ssn": "pii", "home.street": "footer", "home.zip": "footer"}
    assert filters_of(data) == {"ssn": True, "city": False}  # the flag cannot have one
    assert ParquetFile(data, KMS).footer.has_encrypted_footer
    assert read_table(data, KMS, require_encryption=POLICY).equals(TABLE)


def test_all_that_is_not_named_is_encrypted_with_the_footer_key():
    assert keys_of(written(STRICT)) == {
        "ssn": "pii", **dict.fromkeys(["city", "flag", "home.street", "home.zip",
                                       "tags.list.element"], "footer")}
    everything = Policy(default="encrypt", footer_key="footer")
    file = ParquetFile(written(everything), KMS)
    assert {chunk.encryption for chunk in file.footer.column_chunks()} == {"footer key"}
    assert set(keys_of(written(Policy(["*"], footer_key="footer"))).values()) == {"footer"}


def test_a_table_without_sensitive_columns_is_written_in_plaintext_on_request():
    data = written(POLICY, TABLE.select(["city"]), plaintext=True)
    assert not ParquetFile(data).footer.is_encrypted and filters_of(data) == {"city": False}
    footer = Policy(["ssn"], True, footer_key="footer")
    data = written(footer, TABLE.select(["city"]))
    assert ParquetFile(data, KMS).footer.has_encrypted_footer
    assert read_table(data, KMS, require_encryption=footer).num_rows == 2


@pytest.mark.parametrize(("asked", "expected"), [
    (None, {"ssn", "city"}), (False, set()), (["amount"], {"ssn", "city", "amount"}),
    ({"ssn": False}, {"city"}), ({"city": None, "ssn": True}, {"ssn"}), ([], {"ssn", "city"}),
    (True, {"ssn", "city", "amount", "home.street", "home.zip", "tags.list.element"})], ids=kind)
def test_the_policys_filters_are_for_columns_that_the_caller_does_not_name(asked, expected):
    assert set(filters_of(written(bloom_filters=asked))) == expected


def test_the_caller_chooses_the_size_of_the_filters_that_it_names():
    def size(**options):
        table = pa.table({"ssn": [str(i) for i in range(2000)]})
        [info] = ParquetFile(written(table=table, **options), KMS).bloom_filters
        return info.num_bytes
    assert size() == size(bloom_filters=True) == size(bloom_filters={"ssn": {"fpp": 0.001}})
    assert size(bloom_filters=["ssn"]) == size(bloom_filters={"ssn": BloomFilterOptions()}) < size()


def test_no_filter_may_be_the_policys_default():
    policy = Policy(columns={"city": {"bloom_filter": False}})
    table = TABLE.select(["city", "amount"])
    for asked, expected in ((True, {"amount"}), (["city"], {"city"})):
        data = written(policy, table, bloom_filters=asked, plaintext=True)
        assert set(filters_of(data)) == expected


def more(**column_keys):
    return EncryptionConfiguration("footer", {
        key: ["ssn", "home"] if paths is None else paths for key, paths in column_keys.items()})


@pytest.mark.parametrize("encryption", [
    more(pii=["ssn"], footer=["home"]), more(pii=None), more(pii=["ssn"], other=["home", "city"]),
    more(pii=["ssn", "city"], footer=["home.zip", "home.street"]),
    EncryptionConfiguration("footer", {"pii": ["ssn", "home"]}, plaintext_footer=True),
    EncryptionConfiguration("footer", {"pii": ["ssn", "home"]}, double_wrapping=False),
    pe.EncryptionConfiguration("footer", column_keys={"pii": ["ssn", "home"]})], ids=kind)
def test_options_may_add_to_the_policy(encryption):
    data = written(encryption=encryption)
    assert read_table(data, KMS, require_encryption=POLICY).equals(TABLE)


@pytest.mark.parametrize(("encryption", "column", "words"), [
    (more(pii=["ssn"]), "home.street", "plaintext"),
    (more(pii=["ssn", "home.street"]), "home.zip", "'home' in sensitive"),
    (more(pii=["home"]), "ssn", "'ssn' in columns"),
    (more(footer=None), "ssn", "'footer'; master key 'pii'"),
    (more(other=["home", "ssn"]), "ssn", "'pii' is required"), (uniform, "ssn", "'pii'"),
    (pe.EncryptionConfiguration("footer", uniform_encryption=True), "ssn", "'pii'"),
    (UniformKey(b"k" * 16), "ssn", "explicit key"),
    (EncryptionConfiguration("other", {"pii": ["ssn", "home"]}), None, "footer_key"),
    (EncryptionConfiguration("footer", {"pii": ["ssn", "home"]},
                             encryption_algorithm="AES_GCM_CTR_V1"), None, "AES_GCM_V1")],
    ids=range(10))
def test_a_write_that_weakens_the_policy_leaves_no_file(tmp_path, encryption, column, words):
    path = tmp_path / "a.parquet"
    for write in (lambda: write_table(TABLE, path, encryption=encryption, policy=POLICY, keys=None
                                      if isinstance(encryption, UniformKey) else NoKms()),
                  lambda: ParquetWriter(path, TABLE.schema, encryption=encryption, policy=POLICY)):
        with pytest.raises(PolicyError, match=words) as raised:
            write()
        assert raised.value.column == column and raised.value.file == str(path)
        assert list(tmp_path.iterdir()) == []


class NoKms(InMemoryKms):
    """Fails when it is asked for anything."""

    def __init__(self):
        super().__init__({})

    def wrap_key(self, key_bytes, master_key_identifier):
        raise AssertionError("the policy is checked first")


@pytest.mark.parametrize(("policy", "encryption", "words"), [
    (Policy(["ssn"], True), EncryptionConfiguration("k", {"k": ["ssn"]}, plaintext_footer=True),
     "footer would be written in plaintext"),
    (Policy(["ssn"], True), UniformKey(b"k" * 16, plaintext_footer=True), "plaintext"),
    (Policy(["ssn"]), None, "add footer_key"), (Policy(encrypted_footer=True), None, "footer_key"),
    (Policy(columns={"ssn": "pii"}), None, "add footer_key"),
    (Policy(columns={"ss?": "a", "?sn": "b"}), None, "contradict"),
    (STRICT, CONFIG, "default")], ids=kind)
def test_other_policies_that_are_not_met(tmp_path, policy, encryption, words):
    with pytest.raises(PolicyError, match=words):
        write_table(TABLE, tmp_path / "a", policy=policy, encryption=encryption)
    assert list(tmp_path.iterdir()) == []


def test_list_groups_of_other_names_are_encrypted_too():
    policy = Policy(footer_key="footer", columns={"tags.list.element": "pii"})
    data = written(policy, use_compliant_nested_type=False)
    assert keys_of(data) == {"tags.list.item": "pii"}
    read_table(data, KMS, require_encryption=policy)
    plain = EncryptionConfiguration("footer", {"pii": ["ssn"]})
    with pytest.raises(PolicyError, match="plaintext") as raised:
        written(policy, encryption=plain, use_compliant_nested_type=False)
    assert raised.value.column == "tags.list.item"
    data = unchecked(plain, use_compliant_nested_type=False)
    with pytest.raises(AuthenticationError):
        read_table(data, KMS, require_encryption=policy)


def test_wide_tables_are_not_searched_for_each_column(monkeypatch):
    seen = []

    def counted(leaves, path):
        leaves = list(leaves)
        seen.append(len(leaves))
        return schema.named_columns(leaves, path)

    for module in (encrypted_columns, encryption):
        monkeypatch.setattr(module, "named_columns", counted)
    wide = pa.table({f"c{number}": [number] for number in range(300)})
    data = written(Policy(footer_key="footer", default="encrypt", columns={"c1": "pii"}), wide)
    assert len(keys_of(data)) == 300 and sum(seen) <= 10 * 300


def test_columns_of_one_path_are_refused_not_left_open():
    table = pa.table({"a.b": ["x"], "a": [{"b": "y"}]})
    with pytest.raises(secure_bloom.errors.ColumnError):
        written(Policy(footer_key="footer", columns={"a.b": "pii"}), table)


def test_rules_of_tables_follow_the_path(tmp_path):
    policy = Policy(footer_key="footer", tables=[TableRules("customers", columns={"city": "pii"})])
    (tmp_path / "customers").mkdir()
    for path, keys in ((tmp_path / "customers" / "a.parquet", {"city": "pii"}),
                       (tmp_path / "a.parquet", {})):
        write_table(TABLE, path, policy=policy, keys=KMS, plaintext=not keys)
        assert keys_of(path) == keys
        assert read_table(path, KMS, require_encryption=policy).equals(TABLE)
        pq.write_table(TABLE, path)
    read_table(tmp_path / "a.parquet", KMS, require_encryption=policy)
    for read in (read_table, ParquetFile, lambda path, keys, **options: read_table(
            path.parent, keys, **options)):
        with pytest.raises(AuthenticationError, match="not encrypted"):
            read(tmp_path / "customers" / "a.parquet", KMS, require_encryption=policy)
    subtree = pa_fs.SubTreeFileSystem(str(tmp_path / "customers"), pa_fs.LocalFileSystem())
    with pytest.raises(AuthenticationError, match="not encrypted"):
        read_table("a.parquet", KMS, filesystem=subtree, require_encryption=policy)
    with pytest.raises(PolicyError, match="plaintext"):
        write_table(TABLE, "b.parquet", filesystem=subtree, policy=policy, keys=KMS,
                    encryption=CONFIG)
    for ask in (lambda: written(policy), lambda: read_table(
            written(policy.for_path("/x"), plaintext=True), require_encryption=policy)):
        with pytest.raises(PolicyError, match="for_path"):
            ask()


def test_rules_of_tables_follow_a_relative_path(tmp_path, monkeypatch):
    policy = Policy(footer_key="footer", tables=[TableRules("customers", columns={"city": "pii"})])
    (tmp_path / "customers" / "new").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "customers")
    local = pa_fs.LocalFileSystem()
    for filesystem, path, place in (
            (None, "a.parquet", "a.parquet"), (local, "a.parquet", "a.parquet"),
            (pa_fs.SubTreeFileSystem("new", local), "a.parquet", "new/a.parquet")):
        write_table(TABLE, path, policy=policy, keys=KMS, filesystem=filesystem)
        assert keys_of(place) == {"city": "pii"}
        write_table(TABLE, path, filesystem=filesystem)
        for name in (path, "."):
            with pytest.raises(AuthenticationError, match="not encrypted"):
                read_table(name, KMS, filesystem=filesystem, require_encryption=policy)


def test_a_policy_may_be_a_path(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(POLICY.to_toml())
    assert keys_of(written(path)) == keys_of(written(str(path))) == keys_of(written())
    with pytest.raises(TypeError, match="Policy"):
        written({"ssn": "pii"})
    with pytest.raises(TypeError, match="policy="):
        read_table(written(), KMS, require_encryption=path)
    path.write_text("sensitiv = []")
    with pytest.raises(PolicyError) as raised:
        written(path)
    assert raised.value.file == str(path)


# --- reading -------------------------------------------------------------------------------------

def refused(data, policy=POLICY, error=AuthenticationError, keys=KMS, **place):
    for ask in (lambda: ParquetFile(data, keys, require_encryption=policy),
                lambda: read_table(data, keys, require_encryption=policy),
                lambda: read_table(data, keys, columns=["amount"], require_encryption=policy)):
        with pytest.raises(error) as raised:
            ask()
        assert type(raised.value) is error and raised.value.file
        assert {name: getattr(raised.value, name) for name in place} == place
    return str(raised.value)


def test_a_column_or_footer_under_another_master_key_is_refused():
    refused(unchecked(more(other=["ssn"], pii=["home"])), column="ssn", row_group=0)
    refused(unchecked(EncryptionConfiguration("other", {"pii": ["ssn", "home"]})), column=None)
    refused(unchecked(uniform), column="ssn")
    data = unchecked(UniformKey(b"k" * 16), None)
    assert "KMS" in refused(data, keys=ExplicitKeys(b"k" * 16))
    assert read_table(data, ExplicitKeys(b"k" * 16), require_encryption=Policy(["ssn"])) == TABLE


def test_metadata_outside_of_the_module_of_its_column_is_refused():
    data = with_open_metadata(unchecked(), KMS, "ssn", (b"y", b"z"))
    assert "metadata" in refused(data, column="ssn")
    assert [violation.column for violation in violations(POLICY, ParquetFile(data, KMS).footer)] \
        == ["ssn"]


def test_a_plaintext_file_without_the_column_among_encrypted_ones_is_refused(tmp_path):
    """It would say that no row has the value that is looked for."""
    policy = Policy(footer_key="footer", columns={"ssn": "pii"})
    write_table(TABLE, tmp_path / "a.parquet", policy=policy, keys=KMS)
    write_table(TABLE.select(["city"]), tmp_path / "b.parquet", encryption=uniform, keys=KMS)
    assert read_table(tmp_path, KMS, require_encryption=policy).num_rows == 4
    write_table(TABLE.select(["city"]), tmp_path / "b.parquet")
    for filters in (None, [("ssn", "==", "a")]):
        with pytest.raises(AuthenticationError, match="other files") as raised:
            read_table(tmp_path, KMS, filters=filters, require_encryption=policy)
        assert raised.value.file == str(tmp_path / "b.parquet")


def test_a_plaintext_file_that_takes_the_place_of_one_that_was_checked_is_refused(tmp_path):
    """It is opened again for its rows, and has the same columns as before."""
    policy = Policy(footer_key="footer", columns={"ssn": "pii"})
    write_table(TABLE, tmp_path / "a.parquet", policy=policy, keys=KMS)
    write_table(TABLE.select(["city"]), tmp_path / "b.parquet", encryption=uniform, keys=KMS)
    dataset = secure_bloom.dataset(tmp_path, KMS, policy=policy)
    search = Search(tmp_path, "city", keys=KMS, policy=policy)
    assert dataset.to_table().num_rows == 4
    write_table(pa.table({"city": ["planted"]}), tmp_path / "b.parquet")
    for read in (dataset.to_table, dataset.count_rows, lambda: dataset.head(9),
                 lambda: list(dataset.get_fragments()),
                 lambda: list(SearchedRows(search, "planted").batches())):
        with pytest.raises(AuthenticationError, match="other files") as raised:
            read()
        assert raised.value.file == str(tmp_path / "b.parquet")
    write_table(TABLE.select(["city"]), tmp_path / "b.parquet", encryption=uniform, keys=KMS)
    assert dataset.to_table().num_rows == 4


def test_files_that_are_checked_at_the_same_time_are_all_taken_into_account():
    """A thread that finds nothing must not undo what another one found meanwhile."""
    class Interrupted(Policy):
        def of_leaves(self, leaves):
            found = super().of_leaves(leaves)
            if len(leaves) == 1:
                checks.check(sensitive, "b")  # as another thread would
            return found

    checks = FolderChecks(Requirement((Interrupted(["ssn"]),)))
    sensitive = ParquetFile(unchecked(), KMS).footer
    checks.check(ParquetFile(plaintext_file(TABLE.select(["city"]), [])).footer, "a")
    with pytest.raises(AuthenticationError, match="other files") as raised:
        checks.finish()
    assert raised.value.file == "a"


@pytest.mark.parametrize(("policy", "is_refused"), [
    (Policy(["day"]), True), (Policy(["DAY"]), True), (Policy(["d*"]), True),
    (Policy(["day.of"]), True), (Policy(columns={"day": "pii"}), True), (Policy(["city"]), False),
    (Policy(default="encrypt"), False),
    (Policy(["*"], columns={"day": {"plaintext": True}}), False)], ids=kind)
def test_values_in_paths_are_refused_for_columns_that_must_be_encrypted(tmp_path, policy,
                                                                        is_refused):
    (tmp_path / "day=1").mkdir()
    write_table(TABLE, tmp_path / "day=1" / "a.parquet", encryption=uniform, keys=KMS)
    if is_refused:
        with pytest.raises(AuthenticationError, match="path") as raised:
            read_table(tmp_path, KMS, require_encryption=policy)
        assert raised.value.column == "day"
    else:
        assert read_table(tmp_path, KMS, require_encryption=policy).num_rows == 2


CONFIGURATIONS = [None, CONFIG, uniform, more(pii=None), more(other=None), UniformKey(b"k" * 16),
                  more(pii=["ssn"], other=["home", "city", "flag", "tags"]), *(
    EncryptionConfiguration("footer", {"pii": ["ssn", "home"]}, **options) for options in (
        {"plaintext_footer": True}, {"encryption_algorithm": "AES_GCM_CTR_V1"},
        {"encryption_algorithm": "AES_GCM_CTR_V1", "plaintext_footer": True}))]
POLICIES = [POLICY, STRICT, Policy(["ssn"]), Policy(["ssn"], True), Policy(["phone"]),
            Policy(encrypted_footer=True), Policy(default="encrypt"), Policy(columns={"s*": "pii"}),
            Policy(["home"], footer_key="other")]


@pytest.mark.slow
@for_each("encryption", CONFIGURATIONS)
@for_each("policy", POLICIES)
def test_what_a_policy_lets_be_written_it_lets_be_read_and_nothing_else(policy, encryption):
    explicit = isinstance(encryption, UniformKey)
    keys = None if explicit or encryption is None else KMS
    data = unchecked(encryption, keys)
    reading = ExplicitKeys(b"k" * 16) if explicit else KMS

    def may_be_read():
        try:
            read_table(data, reading, require_encryption=policy)
        except AuthenticationError:
            return False
        return True

    try:
        check_encryption(policy, encryption, parquet_leaves(TABLE.schema))
        may_be_written = True
    except PolicyError:
        may_be_written = False
    reported = violations(policy, ParquetFile(data, reading).footer)
    assert may_be_written == may_be_read() == (not reported)


@pytest.mark.parametrize("wrapped", [False, True])
def test_rules_of_a_table_apply_to_relative_paths_of_fsspec(tmp_path, monkeypatch, wrapped):
    (tmp_path / "customers").mkdir()
    monkeypatch.chdir(tmp_path / "customers")
    filesystem = fsspec.filesystem("file")
    if wrapped:
        filesystem = pa_fs.PyFileSystem(pa_fs.FSSpecHandler(filesystem))
    policy = Policy(footer_key="footer", columns={"ssn": "pii"}, tables=[
        TableRules("*/customers", columns={"city": "other"})])
    write_table(TABLE, "a.parquet", policy=policy, keys=KMS, filesystem=filesystem)
    assert keys_of(tmp_path / "customers" / "a.parquet") == {"ssn": "pii", "city": "other"}
