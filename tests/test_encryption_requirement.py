"""Readers that require encryption get no answer from files that attackers have made."""

import io
import json
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from click.testing import CliRunner

from secure_bloom import (
    EncryptionConfiguration,
    ExplicitKeys,
    ParquetFile,
    UniformKey,
    audit,
    dataset,
    find,
    read_table,
    verify_file,
    write_table,
)
from secure_bloom.cli import main
from secure_bloom.errors import (
    AuthenticationError,
    ColumnError,
    KeyAccessError,
    KeyNotFoundError,
    KeyUnwrapError,
)
from secure_bloom.keys import InMemoryKms, Keyring
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.policy.requirement import parse_required
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.table_names import material_path
from secure_bloom.verify.measure import ColumnHashes
from tests.forging import (
    plaintext_file,
    stripped,
    under_another_name,
    with_footer_key_metadata,
    with_names_exchanged,
    with_open_metadata,
)
from tests.peers.keys import Keys, KeyTools
from tests.support import ArrowKms

KEYS = {"footer": b"f" * 16, "pii": b"p" * 16, "public": b"q" * 16}
KMS = InMemoryKms(KEYS)
TABLE = pa.table({
    "ssn": ["a", "b", "c", "d"], "city": ["w", "x", "y", "z"],
    "home": [{"street": f"s{i}", "zip": i} for i in range(4)],
    "tags": [[{"name": f"t{i}", "weight": i}] for i in range(4)]})
SENSITIVE = ["ssn", "home.street", "tags.list.element.name"]
FILTERS = dict.fromkeys(["ssn", "city", "home.street"], True)
KNOWN = [("ssn", "==", "c")]


def written(where=None, *, footer="footer", key="pii", columns=SENSITIVE, table=TABLE, keys=KMS,
            filters=FILTERS, **options) -> bytes:
    sink = io.BytesIO() if where is None else where
    write_table(table, sink, bloom_filters=filters, keys=keys, row_group_size=2,
                encryption=EncryptionConfiguration(footer, {key: columns}, **options))
    return sink.getvalue() if where is None else where.read_bytes()


FOOTERS = {"encrypted footer": {}, "signed footer": {"plaintext_footer": True}}
both_footers = pytest.mark.parametrize("options", FOOTERS.values(), ids=FOOTERS)
uniform = EncryptionConfiguration("footer", uniform_encryption=True)


def uniform_file(encryption=uniform, keys=KMS) -> bytes:
    sink = io.BytesIO()
    write_table(TABLE, sink, bloom_filters=FILTERS, encryption=encryption, keys=keys,
                row_group_size=2)
    return sink.getvalue()


def refused(data, required, error=AuthenticationError, keys=KMS, **place):
    """No way in gives an answer, and each says where."""
    for ask in (lambda: ParquetFile(data, keys, require_encryption=required),
                lambda: read_table(data, keys=keys, require_encryption=required),
                lambda: read_table(data, keys=keys, columns=["city"], filters=KNOWN,
                                   require_encryption=required)):
        with pytest.raises(error) as raised:
            ask()
        assert type(raised.value) is error and raised.value.file
        assert {name: getattr(raised.value, name) for name in place} == place
    return raised.value


def accepted(data, required, keys=KMS):
    file = ParquetFile(data, keys, require_encryption=required)
    assert file.read().equals(TABLE) and file.prune(KNOWN) == [1]
    assert read_table(data, keys=keys, filters=KNOWN, require_encryption=required).num_rows == 1


# --- what is demanded, and met -------------------------------------------------------------------

@both_footers
@pytest.mark.parametrize("required", [
    None, False, ["ssn"], ("home.street", "ssn"), {"ssn"},
    {"ssn": None, "home.street": None}.keys(),
    {"ssn": "pii"}, {"ssn": None, "home.street": "pii"}, dict.fromkeys(SENSITIVE, "pii")], ids=str)
def test_a_file_as_it_should_be_is_read(options, required):
    accepted(written(**options), required)


@pytest.mark.parametrize("required", [
    True, ["ssn", "home", "tags", "city"], {"home": "footer"}, {"ssn": "footer", "home.zip": None}],
    ids=str)
def test_the_key_of_the_footer_may_be_that_of_a_column(required):
    accepted(uniform_file(), required)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_explicit_keys_meet_a_demand(plaintext_footer):
    data = uniform_file(UniformKey(b"k" * 16, plaintext_footer=plaintext_footer), None)
    for required in (True, ["ssn", "home"]):
        accepted(data, required, ExplicitKeys(b"k" * 16))
    error = refused(data, {"ssn": "pii"}, keys=ExplicitKeys(b"k" * 16), column="ssn", row_group=0)
    assert "without a master key" in str(error)


@pytest.mark.parametrize("internal", [True, False])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("writer", ["java", "pyarrow"])
def test_files_of_other_writers(tmp_path, parquet_java, writer, double, internal):
    path = tmp_path / "a.parquet"
    if writer == "java":
        parquet_java.write(path, "message m { required binary ssn (UTF8); required int64 id; "
                           "optional group home { optional int64 zip; } }",
                           [{"ssn": b"a", "id": 1, "home": {"zip": 1}}], bloom=["ssn"],
                           keys=KeyTools(KEYS, {
                               "footer.key": "footer", "column.keys": "pii:ssn,home.zip",
                               "double.wrapping": str(double).lower(),
                               "key.material.store.internally": str(internal).lower()}))
    else:
        factory = pe.CryptoFactory(lambda _: ArrowKms(KMS))
        pq.write_table(pa.table({"ssn": ["a"], "id": [1], "home": [{"zip": 1}]}), path,
                       encryption_properties=factory.file_encryption_properties(
            pe.KmsConnectionConfig(), pe.EncryptionConfiguration(
                "footer", column_keys={"pii": ["ssn", "home.zip"]}, double_wrapping=double,
                internal_key_material=internal), path, pa_fs.LocalFileSystem()))
    for required in (["ssn", "home"], {"ssn": "pii", "home": "pii"}):
        assert read_table(path, keys=KMS, require_encryption=required)["ssn"].to_pylist() == ["a"]
    refused(path, True, column="id", row_group=0)
    refused(path, ["id"], column="id", row_group=0)
    refused(path, {"home": "public"}, column="home.zip", row_group=0)


def test_explicit_keys_for_a_file_of_parquet_java(tmp_path, parquet_java):
    path = tmp_path / "a.parquet"
    for plaintext_footer, complete in product((True, False), repeat=2):
        parquet_java.write(path, "message m { required binary ssn (UTF8); required int64 id; }",
                           [{"ssn": b"a", "id": 1}], bloom=["ssn"], keys=Keys(
                               b"f" * 16, {"ssn": b"c" * 16}, plaintext_footer=plaintext_footer,
                               complete_columns=complete))
        keys = ExplicitKeys(b"f" * 16, {"ssn": b"c" * 16})
        assert read_table(path, keys=keys, require_encryption=["ssn"]).num_rows == 1
        if complete:
            assert read_table(path, keys=keys, require_encryption=True).num_rows == 1
        else:
            refused(path, True, keys=keys, column="id", row_group=0)
        path.unlink()


# --- attacks -------------------------------------------------------------------------------------

@both_footers
def test_a_column_that_only_claims_its_master_key(options):
    """By somebody with the footer's master key: the column's key is under that one, too."""
    insider = InMemoryKms({"footer": KEYS["footer"]})
    data = written(key="footer", columns=["ssn"], keys=insider, **options)
    forged = under_another_name(data, insider, "ssn", "footer", "pii")
    for columns, filters in product((None, ["ssn"]), (None, [("city", "==", "x")], KNOWN)):
        with pytest.raises(KeyUnwrapError) as raised:
            read_table(forged, keys=KMS, columns=columns, filters=filters,
                       require_encryption={"ssn": "pii"})
        assert raised.value.column == "ssn"


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_explicit_keys_confirm_no_master_key(plaintext_footer):
    """By somebody with the footer's key, which is that of all columns."""
    keys = ExplicitKeys(b"k" * 16)
    forged = with_footer_key_metadata(
        uniform_file(UniformKey(b"k" * 16, plaintext_footer=plaintext_footer), None), keys,
        KeyMaterial("pii", "AAAA", is_footer_key=True).serialize())
    refused(forged, {"ssn": "pii"}, keys=ExplicitKeys(b"k" * 16, {"ssn": b"s" * 16}),
            column="ssn", row_group=0)


EVERY_DEMAND = [True, ["ssn"], ["home"], {"ssn": "pii"}]  # and a column of each is in a folder


@pytest.mark.parametrize("required", EVERY_DEMAND, ids=str)
def test_a_plaintext_file_in_the_place_of_an_encrypted_one(tmp_path, required):
    """By somebody without any key; the values that it has are said to be absent."""
    path = tmp_path / "a.parquet"
    written(path)
    path.write_bytes(plaintext_file(TABLE, FILTERS, row_group_size=2))
    assert ParquetFile(path, KMS).prune(KNOWN) == []  # the attack
    assert "not encrypted" in str(refused(path, required, file=str(path)))
    refused(path, required, keys=None)


def test_a_plaintext_file_without_the_columns_that_are_demanded():
    """By somebody without any key; without the column, no value is in it."""
    refused(plaintext_file(TABLE.select(["city"]), []), ["ssn"])


@both_footers
@pytest.mark.parametrize("required", [*EVERY_DEMAND[1:], SENSITIVE], ids=str)
@pytest.mark.parametrize("row_groups", [[0, 1], [1]], ids=str)
def test_a_column_that_is_stripped_of_its_encryption(options, required, row_groups):
    """In some row groups, with empty filters; by somebody with the key of the footer."""
    column = "home.street" if required == ["home"] else "ssn"
    data = stripped(written(**options, columns=[*SENSITIVE, "home.zip"]), KMS, column, row_groups)
    value = TABLE["ssn"][2].as_py() if column == "ssn" else "s2"
    assert 1 not in ParquetFile(data, KMS).prune([(column, "==", value)])  # the attack
    refused(data, required, column=column, row_group=row_groups[0])


@pytest.mark.parametrize("row_groups", [[0, 1], [1]], ids=str)
def test_a_column_of_a_uniform_file_that_is_stripped(row_groups):
    data = stripped(uniform_file(), KMS, "ssn", row_groups)
    assert 1 not in ParquetFile(data, KMS).prune(KNOWN)
    refused(data, True, column="ssn", row_group=row_groups[0])


def test_a_stripped_column_under_a_signature_that_does_not_fit():
    """By somebody without the key of the footer, who leaves the signature as it was."""
    good = written(plaintext_footer=True)
    bad = stripped(good, KMS, "ssn", [0, 1])
    bad = bad[:-36] + good[-36:-8] + bad[-8:]
    for required in (None, ["ssn"]):
        assert "signature" in str(refused(bad, required)) or required is None
    only_column = ExplicitKeys(column_keys={"ssn": b"c" * 16})
    assert ParquetFile(bad, only_column).prune(KNOWN) == []  # the signature is not verified
    refused(bad, ["ssn"], KeyNotFoundError, only_column)
    refused(bad, ["ssn"], KeyNotFoundError, None)


@pytest.mark.parametrize("required", [["ssn"], {"ssn": "pii"}], ids=str)
def test_metadata_outside_of_the_module_of_its_column(required):
    """Its bounds would rule out row groups; by somebody with the key of the footer only."""
    for options in FOOTERS.values():
        data = with_open_metadata(written(**options), KMS, "ssn", (b"y", b"z"))
        assert ParquetFile(data, KMS).prune(KNOWN) == []  # the attack
        assert "metadata" in str(refused(data, required, column="ssn", row_group=0))


@both_footers
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("internal", [True, False])
def test_a_file_under_another_master_key(tmp_path, options, double, internal):
    """By somebody who may wrap with that one, and readers may unwrap with it."""
    path = tmp_path / "a.parquet"
    own = InMemoryKms({"public": KEYS["public"]})
    written(path, footer="public", key="public", keys=own, **options, double_wrapping=double,
            internal_key_material=internal, columns=["ssn", "home"])
    assert read_table(path, keys=KMS).num_rows == 4  # it is encrypted, after all
    for required in ({"ssn": "pii"}, {"home": "pii"}, {"home.street": "pii", "ssn": None}):
        error = refused(path, required, row_group=0)
        assert "'public', but 'pii' is required" in str(error)
    path.write_bytes(uniform_file(EncryptionConfiguration("public", uniform_encryption=True), own))
    refused(path, {"ssn": "pii"}, column="ssn", row_group=0)


def test_key_material_that_claims_the_master_key_does_not_open(tmp_path):
    own = InMemoryKms({"public": KEYS["public"]})
    for internal in (True, False):
        path = tmp_path / f"{internal}.parquet"
        data = written(path, footer="public", key="public", keys=own, columns=["ssn"],
                       double_wrapping=False, internal_key_material=internal)
        if internal:
            footer = ParquetFile(path, KMS).footer
            for [ssn, *_] in footer.row_groups:
                _ = ssn.cipher
                ssn.set_key_metadata(ssn.key_metadata.replace(b'"public"', b'"pii"'))
            path.write_bytes(data[:footer.start] + footer.to_bytes())
        else:
            beside = tmp_path / material_path(path.name)
            entries = json.loads(beside.read_text())
            entries["columnKey0"] = entries["columnKey0"].replace('"public"', '"pii"')
            beside.write_text(json.dumps(entries))
        file = ParquetFile(path, KMS, require_encryption={"ssn": "pii"})
        for ask in (lambda file=file: file.prune(KNOWN), lambda file=file: file.read(["ssn"])):
            with pytest.raises(Exception, match="cannot be unwrapped with master key 'pii'"):
                ask()


def test_a_demand_does_not_need_the_key_of_the_column():
    """A reader without access to a column may still require that it is encrypted."""
    class Denying(InMemoryKms):
        def unwrap_key(self, wrapped_key, master_key_identifier):
            if master_key_identifier == "pii":
                raise KeyAccessError("denied")
            return super().unwrap_key(wrapped_key, master_key_identifier)

    for data, required in product((written(), written(plaintext_footer=True)),
                                  (["ssn"], {"ssn": "pii"})):
        file = ParquetFile(data, Denying(KEYS), require_encryption=required)
        assert file.read(columns=["city"]).num_rows == 4
        with pytest.raises(KeyAccessError):
            file.prune(KNOWN)


# --- names ---------------------------------------------------------------------------------------

def test_a_group_means_all_leaves_below_it():
    data = written(columns=["home.street", "home.zip", "tags.list.element.name"])
    accepted(data, ["home"])
    refused(data, ["tags"], column="tags.list.element.weight", row_group=0)
    refused(data, ["tags.list"], column="tags.list.element.weight", row_group=0)
    refused(written(), ["home"], column="home.zip", row_group=0)
    accepted(data, ["tags.list.element.name"])


@pytest.mark.parametrize("name", ["snn", "SSN", "home.", "home.streets", "ss", "*"])
def test_a_misspelt_column_is_not_passed_over(name):
    error = refused(written(), ["ssn", name], ColumnError, column=name)
    assert "existing columns: ssn, city" in str(error)


def test_two_columns_of_one_name_must_both_be_encrypted():
    sink = io.BytesIO()
    pq.write_table(pa.table([["a"], ["b"]], names=["x", "x"]), sink,
                   encryption_properties=pe.create_encryption_properties(b"k" * 16))
    keys = ExplicitKeys(b"k" * 16)
    footer = ParquetFile(sink.getvalue(), keys, require_encryption=["x"]).footer
    footer.row_groups[0][1].to_change().remove(8)  # its crypto metadata
    with pytest.raises(AuthenticationError, match="row group 0, column x"):
        ParquetFile(sink.getvalue()[:footer.start] + footer.to_bytes(), keys,
                    require_encryption=["x"])


@pytest.mark.parametrize(("required", "error"), [
    ("ssn", TypeError), (b"ssn", TypeError), (5, TypeError), ([], ValueError), ({}, ValueError),
    ([""], ValueError), ([None], ValueError), ([b"ssn"], ValueError), ({"ssn": ""}, ValueError),
    ({"ssn": b"pii"}, ValueError), ({"ssn": True}, ValueError), ({5: "pii"}, ValueError),
    ({"home": "pii", "home.street": "other"}, ValueError)], ids=str)
def test_what_is_no_demand_is_refused_before_the_file_is_opened(required, error):
    for ask in (lambda: ParquetFile("/nowhere.parquet", require_encryption=required),
                lambda: read_table("/nowhere.parquet", require_encryption=required),
                lambda: verify_file("/nowhere.parquet", require_encryption=required)):
        with pytest.raises(error, match="require_encryption"):
            ask()


# --- folders -------------------------------------------------------------------------------------

@pytest.fixture
def folder(tmp_path):
    """Two files, of which the first one lacks a column."""
    for name, columns in (("a", ["city", "home"]), ("b", ["ssn", "city", "home"])):
        written(tmp_path / f"{name}.parquet", table=TABLE.select(columns), filters={"city": True},
                columns=["home", *(["ssn"] if name == "b" else [])])
    return tmp_path


def test_a_file_of_a_folder_may_lack_a_column(folder):
    for required in (["ssn"], {"ssn": "pii", "home.street": "pii"}):
        assert read_table(folder, keys=KMS, require_encryption=required).num_rows == 8
        with pytest.raises(ColumnError):
            read_table(folder / "a.parquet", keys=KMS, require_encryption=required)


def test_a_column_that_no_file_of_a_folder_has(folder):
    with pytest.raises(ColumnError, match="no file has such a column") as raised:
        read_table(folder, keys=KMS, require_encryption=["ssn", "snn"])
    assert (raised.value.file, raised.value.column) == (str(folder), "snn")


@pytest.mark.parametrize("required", EVERY_DEMAND, ids=str)
@pytest.mark.parametrize("columns", [["ssn", "city", "home"], ["city"]], ids=str)
def test_one_plaintext_file_among_others(folder, required, columns):
    """Also one without any of the columns: it would say that there are no values in it."""
    (folder / "c.parquet").write_bytes(plaintext_file(TABLE.select(columns), ["city"]))
    for filters in (None, [("city", "==", "nowhere")]):
        if required is not True:
            assert read_table(folder, keys=KMS, filters=filters) is not None
        with pytest.raises(AuthenticationError) as raised:
            read_table(folder, keys=KMS, filters=filters, require_encryption=required)
        assert raised.value.file == str(folder / "c.parquet") or required is True


def test_explicit_keys_refuse_one_plaintext_file_among_others(tmp_path):
    keys = ExplicitKeys(b"k" * 16)
    (tmp_path / "a.parquet").write_bytes(uniform_file(UniformKey(b"k" * 16), None))
    assert read_table(tmp_path, keys=keys).num_rows == 4
    (tmp_path / "b.parquet").write_bytes(plaintext_file(TABLE, FILTERS))
    with pytest.raises(AuthenticationError, match=r"b\.parquet: .*plaintext_files_allowed"):
        read_table(tmp_path, keys=keys)
    allowed = ExplicitKeys(b"k" * 16, plaintext_files_allowed=True)
    assert read_table(tmp_path, keys=allowed).num_rows == 8
    result = audit(tmp_path, keys)  # which is to find such files, not to fail at them
    assert [file.not_checked for file in result.files] == [[], []]


def test_other_names_of_the_groups_within_a_list(tmp_path):
    """The column that is demanded has another path in this file, and must be encrypted as well."""
    table = TABLE.select(["tags", "city"])
    required = {"keys": KMS, "require_encryption": ["tags.list.element.name"]}
    written(tmp_path / "a.parquet", table=table, filters={}, columns=["tags"])
    written(tmp_path / "b.parquet", table=table.select(["city"]), filters={}, columns=["city"])
    assert read_table(tmp_path, **required).num_rows == 8
    factory = pe.CryptoFactory(lambda _: ArrowKms(KMS))
    for columns, is_good in (["tags"], True), (["city"], False):
        properties = factory.file_encryption_properties(
            pe.KmsConnectionConfig(), pe.EncryptionConfiguration(
                "footer", column_keys={"pii": columns}))
        pq.write_table(table, tmp_path / "c.parquet", use_compliant_nested_type=False,
                       encryption_properties=properties)
        assert ParquetFile(tmp_path / "c.parquet", KMS).columns[0].path == "tags.list.item.name"
        if is_good:
            assert read_table(tmp_path, **required).num_rows == 12
            continue
        with pytest.raises(AuthenticationError, match=r"c\.parquet, .* column tags\.list\.item\.n"):
            read_table(tmp_path, **required)


def test_a_struct_may_gain_fields_but_not_become_a_column(tmp_path):
    """A field that a file lacks has no data in it, unless a column has the name of its struct."""
    table = pa.table({"home": [{"street": "s"}], "city": ["x"]})
    required = {"keys": KMS, "require_encryption": ["home.street"]}
    written(tmp_path / "a.parquet", table=table, filters={}, columns=["home"])
    for name, home, error in (("b", [{"zip": 1}], None), ("c", ["{street: s}"], True)):
        path = tmp_path / f"{name}.parquet"
        written(path, table=pa.table({"home": home, "city": ["x"]}), filters={}, columns=["city"])
        footers = {"columns": ["city"], **required}
        if error is None:
            assert read_table(tmp_path, **footers).num_rows == 2
        else:
            with pytest.raises(AuthenticationError, match=r"c\.parquet, row group 0, column home"):
                read_table(tmp_path, **footers)


@pytest.mark.parametrize("name", ["SSN", "HOME"])
def test_a_column_that_differs_only_in_case_does_not_stand_for_an_encrypted_one(tmp_path, name):
    """By the holder of another key: SQL would find its rows instead of all others."""
    written(tmp_path / "a.parquet", table=TABLE, filters={})
    planted = pa.table({name: TABLE[name.lower()], "city": ["nowhere"] * 4})
    for encrypted in ("city", name):
        written(tmp_path / "b.parquet", key="public", table=planted, filters={},
                columns=[encrypted])
        for required in (["ssn", "home.street"], {"ssn": "pii", "home.street": "pii"}):
            for read in (read_table, lambda *args, **options: dataset(*args, **options).to_table(),
                         lambda *args, **options: find(args[0], "ssn", ["c"], KMS, **options)):
                with pytest.raises(AuthenticationError, match="only in case") as raised:
                    read(tmp_path, KMS, require_encryption=required)
                assert raised.value.column.startswith(name)
    named = [*SENSITIVE, f"{name}.street" if name == "HOME" else name]
    assert read_table(tmp_path, KMS, require_encryption=named).num_rows == 8


@pytest.mark.parametrize("required", [True, ["ssn"], {"ssn": "footer"}, ["ssn.x"]], ids=str)
@pytest.mark.parametrize("name", ["ssn", "SSN"])
def test_values_in_paths_do_not_stand_for_an_encrypted_column(tmp_path, required, name):
    """By somebody who may rename files: the values in paths win over those of the file."""
    for value in ("x", "y"):
        (tmp_path / f"{name}={value}").mkdir()
        (tmp_path / f"{name}={value}" / "a.parquet").write_bytes(uniform_file())
    forged = read_table(tmp_path, keys=KMS)
    assert set(forged[name].to_pylist()) == {"x", "y"}  # the attack
    with pytest.raises(AuthenticationError, match="from the path") as raised:
        read_table(tmp_path, keys=KMS, require_encryption=required)
    assert raised.value.column == name and raised.value.file.endswith("a.parquet")


def test_other_partitions_are_no_obstacle(tmp_path):
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.parquet").write_bytes(uniform_file())
    for required in (True, ["ssn"]):
        assert read_table(tmp_path, keys=KMS, require_encryption=required).num_rows == 4


# --- verify, and the command line ----------------------------------------------------------------

def test_verify_reports_what_is_not_met_and_goes_on():
    data = stripped(written(), KMS, "ssn", [1])
    result = verify_file(data, KMS, require_encryption={"ssn": "pii"})
    [finding] = [finding for finding in result.findings if finding.kind == "policy"]
    assert (finding.row_groups, finding.column, result.ok) == ((1,), "ssn", False)
    assert {check.column for check in result.filters} == FILTERS.keys()
    assert verify_file(written(), KMS, require_encryption=["ssn"]).ok
    result = verify_file(plaintext_file(TABLE, ["ssn"]), KMS, require_encryption=True)
    assert "policy" in [finding.kind for finding in result.findings]
    result = verify_file(written(plaintext_footer=True), require_encryption=["ssn"])
    assert result.missing_keys and "signature" in result.not_checked and not result.ok
    for required in (None, ["ssn"]):  # without the key of the footer
        assert verify_file(written(), require_encryption=required).ok is (required is None)
    with pytest.raises(ColumnError):
        verify_file(written(), KMS, require_encryption=["snn"])


@pytest.fixture
def keyring(tmp_path):
    keyring = Keyring.create(tmp_path / "keys.json")
    for name, key in KEYS.items():
        keyring.add(name, key)
    return keyring.path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


COMMANDS = {"inspect": [], "probe": ["--column", "ssn", "--value", "c"], "verify": []}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_demands_encryption(tmp_path, keyring, command):
    path, options = tmp_path / "a.parquet", [*COMMANDS[command], "--keyring", keyring]
    written(path)
    for required in ("ssn", "ssn, home.street", "pii: ssn; pii: home.street", "false"):
        result = run(command, path, *options, "--require-encryption", required)
        assert result.exit_code == 0, result.output
    bad, place = 1 if command == "verify" else 5, "row group 0, column"
    for required, words in (("true", f"{place} city"), ("public: ssn", f"{place} ssn"),
                            ("pii: ssn, home", f"{place} home.zip")):
        result = run(command, path, *options, "--require-encryption", required)
        assert result.exit_code == bad and words in result.output
    for required in ("nope", "pii:", ":ssn", "ssn;city", "a,,b", "", "pii: ssn; public: ssn"):
        assert run(command, path, *options, "--require-encryption", required).exit_code == 2
    path.write_bytes(plaintext_file(TABLE, FILTERS))
    result = run(command, path, *options, "--require-encryption", "ssn")
    assert result.exit_code == bad and "not encrypted" in result.output


def test_the_source_of_a_copy_must_be_encrypted(tmp_path, keyring):
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    options = ["--keyring", keyring, "--footer-key", "footer", "--require-encryption", "ssn"]
    written(source)
    assert run("write", source, target, *options).exit_code == 0
    target.unlink()
    source.write_bytes(plaintext_file(TABLE, FILTERS))
    assert run("write", source, target, *options).exit_code == 5 and not target.exists()
    source.write_text("ssn\n1\n")
    assert run("write", source, target, *options).exit_code == 5 and not target.exists()


@pytest.mark.parametrize(("text", "required"), [
    ("true", True), (" False ", False), ("ssn", ["ssn"]), (" a.b , c ", ["a.b", "c"]),
    ("pii: ssn, a.b; k:2: c;", {"ssn": "pii", "a.b": "pii", "c": "k:2"}),
    ("pii: ssn; pii: ssn", {"ssn": "pii"})])
def test_demands_as_text(text, required):
    assert parse_required(text) == required


@pytest.mark.parametrize("text", ["", ";", "a,", "k:", ":a", "k: a; l: a"])
def test_other_text_says_the_form(text):
    with pytest.raises(ValueError, match="must have the form"):
        parse_required(text)


# --- the algorithm -------------------------------------------------------------------------------

def as_if_ctr(data: bytes) -> bytes:
    """A file of AES_GCM_V1 whose encrypted footer claims AES_GCM_CTR_V1; this takes no key."""
    changed = bytearray(data)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert changed[start:start + 2] == b"\x1c\x1c"  # FileCryptoMetaData, the union in its field 1
    changed[start + 1] = 0x2c
    return bytes(changed)


def test_an_algorithm_that_authenticates_no_pages_does_not_pass():
    """pyarrow reads other numbers from such pages, and no error is raised."""
    numbers = pa.table([pa.array(range(1000, 1040))],
                       schema=pa.schema([pa.field("i", pa.int64(), nullable=False)]))
    sink = io.BytesIO()
    write_table(numbers, sink, encryption=uniform, keys=KMS, compression="none",
                use_dictionary=False)
    forged = as_if_ctr(sink.getvalue())
    assert read_table(forged, keys=KMS) != numbers
    for required in (True, ["i"], {"i": "footer"}):
        refused(forged, required)
    signed = written(plaintext_footer=True, encryption_algorithm="AES_GCM_CTR_V1")
    assert read_table(signed, keys=KMS, require_encryption=["ssn"]).equals(TABLE)


PEOPLE = pa.table({"ssn": ["a1", "a2"], "nam": ["n1", "n2"], "city": ["x", "y"]})


def exchanged(table=PEOPLE) -> bytes:
    """Return a file in which the holder of another key has exchanged the names of two columns."""
    data = written(columns=["ssn", "nam"], table=table, filters={"ssn": True})
    own = written(footer="public", key="public", columns=["ssn"], table=table, filters=None)
    return with_names_exchanged(data, KMS, own, InMemoryKms({"public": KEYS["public"]}),
                                ("ssn", "nam"))


@pytest.mark.parametrize("required", [None, True, {"ssn": "pii", "nam": "pii"}])
def test_names_of_columns_that_the_holder_of_another_key_exchanged_are_noticed(required):
    forged = exchanged(PEOPLE.select(["ssn", "nam"]))
    with ParquetFile(forged, KMS, require_encryption=required) as file:
        for use in (lambda: file.prune([("ssn", "==", "a1")]),
                    lambda: file.read(["nam"], [("ssn", "==", "a1")]),
                    lambda: file.read_bloom_filter(0, "ssn")):
            with pytest.raises(AuthenticationError, match="that of another column") as raised:
                use()
            assert (raised.value.row_group, raised.value.column) == (0, "ssn")


def of_file(path, **options):
    return ParquetFile(path, KMS, **options)


#: ways to read one column, without a filter on it
READS = {
    "read_table": lambda path, name: read_table(path, KMS, columns=[name]),
    "read_table of a folder": lambda path, name: read_table(path.parent, KMS, columns=[name]),
    "with a filter on another column": lambda path, name: read_table(
        path, KMS, columns=[name], filters=[("city", "==", "x")]),
    "with a filter that no statistics answer": lambda path, name: read_table(
        path, KMS, columns=["city"], filters=pc.equal(pc.utf8_upper(pc.field(name)), "A1")),
    "read": lambda path, name: of_file(path).read([name]),
    "read of an expression": lambda path, name: of_file(path).read({"x": pc.field(name)}),
    "masking": lambda path, name: of_file(path, on_missing_key="null").read([name]),
    "iter_tables": lambda path, name: list(of_file(path).iter_tables([name])),
    "iter_batches": lambda path, name: list(of_file(path).iter_batches([name])),
    "dataset": lambda path, name: dataset(path, KMS).to_table([name]),
    "expressions of a data set": lambda path, name: dataset(path, KMS).to_table(
        {"x": pc.utf8_upper(pc.field(name))}),
    "hashes": lambda path, name: list(
        ColumnHashes(OpenFile(path, KMS), KMS).read(0, of_file(path).footer.column(name))),
    "find": lambda path, name: find(path, "city", ["x"], KMS, columns=[name])}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_columns_with_exchanged_names_are_not_read(tmp_path, read):
    """Which pyarrow would do: it does not compare the names that the columns' keys protect."""
    path = tmp_path / "lake" / "a.parquet"
    path.parent.mkdir()
    path.write_bytes(exchanged())
    for name in ("ssn", "nam"):
        with pytest.raises(AuthenticationError, match="that of another column") as raised:
            read(path, name)
        assert (raised.value.row_group, raised.value.column) == (0, name)
        assert raised.value.file.endswith("a.parquet")
    read(path, "city")


def test_keys_of_columns_that_are_not_read_are_not_requested_to_compare_names():
    asked = []

    class Recording(InMemoryKms):
        def unwrap_key(self, wrapped_key, master_key_identifier):
            asked.append(master_key_identifier)
            return super().unwrap_key(wrapped_key, master_key_identifier)

    file = ParquetFile(written(), Recording(KEYS))
    file.read(["city"])
    assert set(asked) == {"footer"}
    file.read(["city", "home"])
    assert set(asked) == {"footer", "pii"}
