"""ParquetFile: columns whose key is missing are null on request, and nothing else is."""

import inspect
import io
import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secure_bloom
from secure_bloom import EncryptionConfiguration, ExplicitKeys, ParquetFile, errors
from secure_bloom.arrow.masking import masked_names
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.errors import (
    NO_KEY,
    AuthenticationError,
    ColumnError,
    KeyAccessError,
    KeyUnwrapError,
    MissingKeyWarning,
    SecureBloomError,
)
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.reading.open_file import OpenFile
from tests.cases import for_each
from tests.missing_keys import ALL, KEYS, MARK, TABLE, Kms, forget_warnings, nulls, put
from tests.support import examples

pytestmark = pytest.mark.filterwarnings("ignore::secure_bloom.errors.MissingKeyWarning")
both_footers = pytest.mark.parametrize("plaintext_footer", [False, True])

READS = {
    "read": lambda file, columns=None: file.read(columns),
    "iter_tables": lambda file, columns=None: pa.concat_tables(file.iter_tables(columns)),
    "iter_batches": lambda file, columns=None: pa.Table.from_batches(file.iter_batches(columns)),
}
every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)


def encrypted(columns=None, **options) -> bytes:
    return put(io.BytesIO(), columns or {"pii": ["ssn"]}, **options).getvalue()


def masking_file(data, keys) -> ParquetFile:
    return ParquetFile(data, keys, on_missing_key="null")


@both_footers
@every_read
def test_a_column_without_key_is_null_in_every_read(read, plaintext_footer):
    data = encrypted(plaintext_footer=plaintext_footer)
    for keys in (Kms("pii"), InMemoryKms({"footer": KEYS["footer"]})):
        table = read(masking_file(data, keys))
        table.validate(full=True)
        assert table.to_pylist() == nulls(TABLE, "ssn")
        assert table.schema.equals(TABLE.schema)
        assert table.schema.field("ssn").metadata == MARK
        assert masked_names(table.schema) == ["ssn"]
        only = read(masking_file(data, keys), ["ssn"])
        assert only.to_pylist() == [{"ssn": None}] * 3
        with pytest.raises(NO_KEY, match="column ssn"):
            read(ParquetFile(data, keys))


@every_read
def test_nothing_is_marked_or_requested_without_need(read):
    kms = Kms("pii")
    table = read(masking_file(encrypted(), kms), ["city", "pay"])
    assert table.equals(TABLE.select(["city", "pay"]), check_metadata=True)
    assert "pii" not in kms.unwrapped
    assert read(masking_file(encrypted(), ALL)).equals(TABLE, check_metadata=True)


@both_footers
@every_read
def test_a_group_is_null_if_a_leaf_has_no_key(read, plaintext_footer):
    data = encrypted({"pii": ["home.zip"]}, plaintext_footer=plaintext_footer)
    assert read(masking_file(data, Kms("pii"))).to_pylist() == nulls(TABLE, "home")


@every_read
def test_without_any_key_the_open_columns_of_a_signed_file_are_read(read):
    data = encrypted({"pii": ["ssn", "home.street"]}, plaintext_footer=True)
    assert read(masking_file(data, NO_KEYS)).to_pylist() == nulls(TABLE, "ssn", "home")


def test_the_footer_key_of_an_encrypted_footer_is_always_needed():
    for keys in (NO_KEYS, Kms("footer"), InMemoryKms({"pii": KEYS["pii"]})):
        with pytest.raises(NO_KEY):
            masking_file(encrypted(), keys)
    with pytest.raises(NO_KEY):  # needed to verify the signature
        masking_file(encrypted(plaintext_footer=True), Kms("footer"))


def test_columns_with_the_footer_key_are_masked_if_only_a_column_key_is_known():
    sink = io.BytesIO()
    secure_bloom.write_table(TABLE, sink, encryption=secure_bloom.UniformKey(
        b"f" * 16, plaintext_footer=True))
    keys = ExplicitKeys(column_keys={"other": b"o" * 16})
    assert masking_file(sink.getvalue(), keys).read().to_pylist() \
        == nulls(TABLE, *TABLE.column_names)
    assert OpenFile(sink.getvalue(), keys).maskable_columns == set(TABLE.column_names)


# --- only missing keys ---------------------------------------------------------------------------

ERRORS = [one for _, one in inspect.getmembers(errors, inspect.isclass)
          if issubclass(one, SecureBloomError) and one is not errors.EncryptionMismatchError]


@both_footers
@every_read
@for_each("error", [*ERRORS, OSError, RuntimeError, TimeoutError])
def test_only_a_key_that_is_missing_or_denied_makes_a_column_null(error, read, plaintext_footer):
    file = masking_file(encrypted(plaintext_footer=plaintext_footer), Kms("pii", error=error))
    if issubclass(error, NO_KEY):
        assert read(file).to_pylist() == nulls(TABLE, "ssn")
        return
    with pytest.raises(error):
        read(file)


@both_footers
@every_read
def test_a_wrong_key_is_an_error(read, plaintext_footer):
    data = encrypted(plaintext_footer=plaintext_footer)
    with pytest.raises(KeyUnwrapError, match="column ssn"):
        read(masking_file(data, InMemoryKms(KEYS | {"pii": b"x" * 16})))
    sink = io.BytesIO()
    secure_bloom.write_table(TABLE, sink, encryption=secure_bloom.UniformKey(
        b"f" * 16, plaintext_footer=plaintext_footer))
    with pytest.raises(AuthenticationError):
        read(masking_file(sink.getvalue(), ExplicitKeys(b"g" * 16)))


EVERYTHING = {"pii": ["ssn"], "money": ["city", "pay", "home.street", "home.zip"]}


@examples(300)
@given(st.data(), st.sampled_from([(ALL, []), (Kms("pii"), ["ssn"])]))
def test_damage_never_makes_a_column_null(data, keys_and_masked):
    keys, masked = keys_and_masked
    file = bytearray(encrypted(EVERYTHING, plaintext_footer=data.draw(st.booleans())))
    position = data.draw(st.integers(0, len(file) - 1))
    file[position] ^= data.draw(st.integers(1, 255))
    try:
        table = masking_file(bytes(file), keys).read()
    except SecureBloomError:
        return
    assert table.to_pylist() == nulls(TABLE, *masked)
    assert masked or table.equals(TABLE, check_metadata=True)


# --- filters -------------------------------------------------------------------------------------

@both_footers
@pytest.mark.parametrize("filters", [
    [("ssn", "==", "ssn-1")], [("ssn", "==", "certainly absent")], [("ssn", "in", [])],
    [[("city", "==", "Rome")], [("ssn", "is null", None)]],
    [("city", "==", "Paris"), ("ssn", "==", "ssn-1")],
    pc.field("ssn") == "ssn-1", pc.field("ssn").is_null(), pc.field("ssn").is_null() & False,
], ids=str)
def test_a_filter_on_a_masked_column_is_an_error(filters, plaintext_footer):
    file = masking_file(encrypted(plaintext_footer=plaintext_footer), Kms("pii"))
    for action in (lambda: file.read(filters=filters), lambda: file.read(["city"], filters),
                   lambda: list(file.iter_tables(["city"], filters)),
                   lambda: file.prune(filters)):
        with pytest.raises(KeyAccessError, match="row group 0, column ssn"):
            action()


def test_a_filter_on_an_open_field_of_a_masked_group_is_an_error_unless_it_only_prunes():
    file = masking_file(encrypted({"pii": ["home.zip"]}), Kms("pii"))
    filters = [("home.street", "==", "A")]
    with pytest.raises(KeyAccessError, match=r"column home\.zip"):
        file.read(["city"], filters)
    assert file.prune(filters) == [0]
    with pytest.raises(KeyAccessError, match=r"column home\.zip"):
        file.prune([("home.zip", "==", 1)])


def test_other_filters_select_the_rows():
    file = masking_file(encrypted(), Kms("pii"))
    for filters in ([("city", "==", "Rome")], pc.field("city") == "Rome"):
        found = file.read(["pay", "ssn"], filters)
        assert found.to_pylist() == [{"pay": 10, "ssn": None}, {"pay": 30, "ssn": None}]
        assert masked_names(found.schema) == ["ssn"]
        assert file.prune(filters) == [0, 1]


# --- types ---------------------------------------------------------------------------------------

TYPES = [pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(38, 3),
         pa.date32(), pa.time64("us"), pa.timestamp("ns", "Europe/Rome"), pa.duration("ms"),
         pa.string(), pa.large_binary(), pa.string_view(), pa.binary(3),
         pa.dictionary(pa.int32(), pa.string()), pa.uuid(), pa.null(),
         pa.list_(pa.field("element", pa.int32(), nullable=False)), pa.list_(pa.int16(), 2),
         pa.map_(pa.string(), pa.int64()),
         pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.list_(
             pa.string()))])]


@every_read
@for_each("type_", TYPES)
def test_every_type_stays_the_same(read, type_):
    values = pa.array([{"x": 1}] * 3, type_) if pa.types.is_struct(type_) else pa.nulls(3, type_)
    table = pa.table({"a": [1, 2, 3], "x": values})
    sink = io.BytesIO()
    paths = [leaf.path for leaf in parquet_leaves(table.schema)
             if leaf.parts[0] == "x"]
    put(sink, {"pii": paths}, table, bloom_filters=None)
    known = read(masking_file(sink.getvalue(), ALL))
    masked = read(masking_file(sink.getvalue(), Kms("pii")))
    masked.validate(full=True)
    assert masked.schema.types == known.schema.types
    assert masked_names(masked.schema) == ["x"]
    assert masked["x"].null_count == 3 and masked["a"].to_pylist() == [1, 2, 3]


def test_a_column_that_may_not_be_null_becomes_nullable():
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata={"own": "entry"}),
                        pa.field("n", pa.int64(), nullable=False)], {"of": "table"})
    data = encrypted({"pii": ["id"]}, table=pa.table([[1], [2]], schema=schema),
                     bloom_filters=None)
    read = masking_file(data, Kms("pii")).read().schema
    assert read.field("id").nullable and not read.field("n").nullable
    assert read.field("id").metadata[b"own"] == b"entry" and MARK.items() <= read.field(
        "id").metadata.items()
    assert read.metadata[b"of"] == b"table"


# --- warnings ------------------------------------------------------------------------------------

def test_a_warning_names_the_columns_once_for_the_same_columns():
    forget_warnings()
    file = masking_file(encrypted({"pii": ["ssn"], "money": ["pay"]}), Kms("pii", "money"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        file.read()
        file.read()
        list(file.iter_batches())
        assert [str(one.message) for one in seen] == [
            "<buffer>: the keys of 2 columns are missing, so the values are null: ssn (in 1 file), "
            "pay (in 1 file)"]
        assert seen[0].category is MissingKeyWarning
        file.read(["pay"])
        file.read(["city"])
        assert len(seen) == 2


def test_a_warning_that_is_an_error_is_raised_each_time():
    forget_warnings()
    file = masking_file(encrypted(), Kms("pii"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(MissingKeyWarning, match="ssn"):
                file.read()


def test_other_values_of_the_option_are_refused():
    for value in ("NULL", "", None, True, "mask"):
        with pytest.raises(ValueError, match="on_missing_key"):
            ParquetFile(encrypted(), ALL, on_missing_key=value)


# --- writing -------------------------------------------------------------------------------------

def test_masked_rows_do_not_replace_the_file_that_they_were_read_from(tmp_path):
    path = tmp_path / "people.parquet"
    path.write_bytes(encrypted())
    before = path.read_bytes()
    table = masking_file(before, Kms("pii")).read()
    config = EncryptionConfiguration("footer", {"pii": ["ssn"]})

    def write_parts():
        with secure_bloom.ParquetWriter(path, TABLE.schema, encryption=config, keys=ALL) as writer:
            writer.write_table(table)  # pyarrow does not compare metadata

    for action in (lambda: secure_bloom.write_table(table, path, encryption=config, keys=ALL),
                   lambda: secure_bloom.write_table(table.select(["ssn"]), path), write_parts):
        with pytest.raises(ColumnError, match="column ssn: the key of this column was missing"):
            action()
        assert path.read_bytes() == before
    secure_bloom.write_table(table.drop_columns(["ssn"]), path)
    assert pq.read_table(path).equals(TABLE.drop_columns(["ssn"]))
    unmarked = table.cast(pa.schema([field.remove_metadata() for field in table.schema]))
    secure_bloom.write_table(unmarked, path)
    assert pq.read_table(path)["ssn"].null_count == 3
