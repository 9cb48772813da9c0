"""Parsing of options, without Spark."""

import os
import pickle

import pyarrow as pa
import pytest

from secure_bloom import BloomFilterOptions, EncryptionConfiguration, ParquetWriter
from secure_bloom.arrow.schema import parquet_leaves
from secure_bloom.errors import OptionError
from secure_bloom.keys import Keyring, environment, uri
from secure_bloom.keys.retrieval import open_keys
from secure_bloom.spark.options.kms import kms_client
from secure_bloom.spark.options.options import Options, locate
from secure_bloom.spark.options.write import parse_write_options

SCHEMA = pa.schema([
    ("id", pa.int64()), ("SSN", pa.string()), ("flag", pa.bool_()),
    ("address", pa.struct([("City", pa.string()), ("zip", pa.int32())])),
    ("tags", pa.list_(pa.field("element", pa.string()))),
])
TWINS = pa.schema([("a", pa.int64()), ("A", pa.int64())])
PUNCTUATION = pa.schema([("g", pa.struct([("a:b", pa.int64())]))])

FOOTER = "parquet.encryption.footer.key"
COLUMNS = "parquet.encryption.column.keys"
UNIFORM = "parquet.encryption.uniform.key"
ENABLED = "parquet.bloom.filter.enabled"
FPP = "parquet.bloom.filter.fpp"
NDV = "parquet.bloom.filter.expected.ndv"
BYTES = "parquet.bloom.filter.max.bytes"
KEYS = {"keys": "/k.json", FOOTER: "f"}


def parse(schema=SCHEMA, **options):
    return parse_write_options(Options(options), schema)


def plain(schema=SCHEMA, **options):
    return parse(schema, plaintext="true", **options)


def column_keys(text, schema=SCHEMA):
    return parse(schema, **KEYS, **{COLUMNS: text}).encryption.column_keys


def test_defaults():
    options = plain()
    assert options.encryption is None
    assert options.bloom_filters == {}
    assert options.writer["compression"] == "snappy"
    assert options.row_group_size == 1024 * 1024


def test_other_columns_are_encrypted_under_the_master_key_of_the_footer():
    complete = {"parquet.encryption.complete.columns": "true"}
    found = parse(**KEYS, **{COLUMNS: "k: id"}, **complete).encryption.column_keys
    leaves = {path for paths in found.values() for path in paths}
    assert found["k"] == ["id"] and set(found) == {"k", "f"}
    assert leaves == {leaf.path for leaf in parquet_leaves(SCHEMA)}
    with pytest.raises(OptionError, match="contradicts"):
        parse(keys="/k.json", **{UNIFORM: "f"}, **complete)


def test_encryption_with_column_keys():
    options = parse(**KEYS, **{COLUMNS: "k: SSN"})
    assert options.kms == "keyring:/k.json"
    assert options.encryption == EncryptionConfiguration(
        "f", {"k": ["SSN"]}, plaintext_footer=False, encryption_algorithm="AES_GCM_V1",
        double_wrapping=True, data_key_length_bits=128)


def test_every_encryption_option():
    options = parse(**KEYS, **{
        COLUMNS: "k: id", "parquet.encryption.plaintext.footer": "TRUE",
        "parquet.encryption.algorithm": "aes_gcm_ctr_v1",
        "parquet.encryption.double.wrapping": "false",
        "parquet.encryption.data.key.length.bits": "256"})
    assert options.encryption.plaintext_footer
    assert options.encryption.encryption_algorithm == "AES_GCM_CTR_V1"
    assert not options.encryption.double_wrapping
    assert options.encryption.data_key_length_bits == 256


def test_uniform_encryption():
    options = parse(keys="k", **{UNIFORM: " f "})
    assert options.encryption.footer_key == "f"
    assert options.encryption.uniform_encryption
    assert options.kms.startswith("keyring:/")
    assert parse(keys="k", **{UNIFORM: '" f;"'}).encryption.footer_key == " f;"


@pytest.mark.parametrize("text, expected", [
    ("k: SSN", {"k": ["SSN"]}),
    ("k:ssn,ID", {"k": ["SSN", "id"]}),
    (" k : SSN , id ; m : flag ; ", {"k": ["SSN", "id"], "m": ["flag"]}),
    ("k: id; m: flag; k: ssn", {"k": ["id", "SSN"], "m": ["flag"]}),
    ("k: address", {"k": ["address.City", "address.zip"]}),
    ("k: ADDRESS.city", {"k": ["address.City"]}),
    ("k: tags", {"k": ["tags.list.element"]}),
    ("k: tags.list.element, tags", {"k": ["tags.list.element"]}),
    ('{" k;:,": ["ssn", "address"], "m": ["id"]}',
     {" k;:,": ["SSN", "address.City", "address.zip"], "m": ["id"]}),
])
def test_column_keys(text, expected):
    assert column_keys(text) == expected


def test_column_keys_keep_case_so_twins_are_no_problem():
    assert column_keys("k: A", TWINS) == {"k": ["A"]}


def test_filters_of_single_columns():
    filters = plain(**{f"{ENABLED}#ssn": "true", f"{ENABLED}#address.city": "true",
                       f"{FPP}#ssn": "0.001", f"{NDV}#id": "1000", FPP: "0.05",
                       BYTES: "1048576"}).bloom_filters
    assert filters == {
        "SSN": BloomFilterOptions(fpp=0.001, max_bytes=1 << 20),
        "address.City": BloomFilterOptions(fpp=0.05, max_bytes=1 << 20),
        "id": BloomFilterOptions(fpp=0.05, ndv=1000, max_bytes=1 << 20)}


def test_filters_of_all_columns_that_can_have_one():
    filters = plain(**{ENABLED: "true", f"{ENABLED}#ID": "false", f"{ENABLED}#flag": "false"})
    assert set(filters.bloom_filters) == {"SSN", "address.City", "address.zip",
                                          "tags.list.element"}


@pytest.mark.parametrize("value, expected", [
    ("zstd", "zstd"), ("UNCOMPRESSED", "none"), ("none", "none"), ("lz4_raw", "lz4")])
def test_compression(value, expected):
    assert plain(compression=value).writer["compression"] == expected
    assert plain(**{"parquet.compression": value}).writer["compression"] == expected
    both = plain(compression=value, **{"parquet.compression": value})
    assert both.writer["compression"] == expected


REFUSED = [
    # no encryption requested, or contradictory options
    ({}, "no encryption was requested"),
    ({"plaintext": "false"}, "no encryption was requested"),
    ({ENABLED: "true"}, "no encryption was requested"),
    ({"keys": "k"}, "no encryption was requested"),
    ({"plaintext": "true", FOOTER: "f"}, f"option plaintext: .*{FOOTER}"),
    ({FOOTER: "f", COLUMNS: "k: id"}, "option keys: .*needs it"),
    ({"keys": "k", FOOTER: "f"}, f"option {COLUMNS}: missing"),
    ({"keys": "k", COLUMNS: "k: id"}, f"option {FOOTER}: missing"),
    ({"keys": "k", "parquet.encryption.algorithm": "AES_GCM_V1"}, f"option {FOOTER}: missing"),
    ({**KEYS, UNIFORM: "f"}, f"option {UNIFORM}: it contradicts"),
    ({"keys": "k", UNIFORM: "f", COLUMNS: "k: id"}, f"option {UNIFORM}: it contradicts"),
    ({"keys": "k", UNIFORM: "f", "parquet.encryption.plaintext.footer": "true"},
     "plaintext.footer: not possible"),
    ({"keys": "k", UNIFORM: " "}, f"option {UNIFORM}: it is empty"),
    ({"keys": "k", FOOTER: "", COLUMNS: "k: id"}, f"option {FOOTER}: it is empty"),
    # column keys
    ({**KEYS, COLUMNS: " ; "}, "it is empty"),
    ({**KEYS, COLUMNS: "id"}, "it must have the form"),
    ({**KEYS, COLUMNS: ": id"}, "it must have the form"),
    ({**KEYS, COLUMNS: "k:"}, "it must have the form"),
    ({**KEYS, COLUMNS: "arn:aws:kms:key/1"}, "key/1"),
    ({**KEYS, "kms": "awskms:", COLUMNS: "k: id"}, "option kms: it is called keys now"),
    ({"keyring": "k", UNIFORM: "f"}, "option keyring: it is called keys now"),
    ({**KEYS, "engine": "native"}, "option engine: it was removed: .*secure_bloom.spark.native"),
    ({**KEYS, COLUMNS: '{"k": "id"}'}, "it must be a JSON object such as"),
    ({**KEYS, COLUMNS: '{"k": ["id", 1]}'}, "it must be a JSON object such as"),
    ({**KEYS, COLUMNS: '{"k": ' + "[" * 100_000}, "it is not a JSON object such as"),
    ({**KEYS, COLUMNS: '{"k": ["id"]'}, "it is not a JSON object such as"),
    ({**KEYS, COLUMNS: "{}"}, "it is empty"),
    ({**KEYS, COLUMNS: "k: id,"}, "there is no column ''"),
    ({**KEYS, COLUMNS: "k: nope"}, "there is no column 'nope'; existing columns: id, SSN"),
    ({**KEYS, COLUMNS: "k: snn"}, r"no column 'snn' \(did you mean 'SSN'\?\); existing"),
    ({**KEYS, COLUMNS: "k: id; m: ID"}, r"column id has two keys, k \(.*\) and m \(option"),
    ({**KEYS, COLUMNS: "k: address.zip; m: address"}, "column address.zip has two keys"),
    # values
    ({**KEYS, COLUMNS: "k: id", "parquet.encryption.algorithm": "AES"}, "AES_GCM_CTR_V1, not"),
    ({**KEYS, COLUMNS: "k: id", "parquet.encryption.double.wrapping": "1"}, "true or false"),
    ({**KEYS, COLUMNS: "k: id", "parquet.encryption.data.key.length.bits": "64"}, "128, 192, 256"),
    ({"plaintext": "yes"}, "option plaintext: it must be true or false, not 'yes'"),
    ({"plaintext": "true", "row_group_size": "0"}, "option row_group_size: .*whole number"),
    ({"plaintext": "true", "row_group_size": "1e6"}, "option row_group_size: .*whole number"),
    ({"plaintext": "true", "compression": "rar"}, "option compression: it must be one of"),
    ({"plaintext": "true", "compression": "zstd", "parquet.compression": "gzip"}, "contradicts"),
    # filters
    ({"plaintext": "true", ENABLED: "on"}, "true or false"),
    ({"plaintext": "true", f"{ENABLED}#ssn": "on"}, f"option {ENABLED}#ssn: .*true or false"),
    ({"plaintext": "true", f"{ENABLED}#nope": "true"}, "there is no column 'nope'"),
    ({"plaintext": "true", f"{ENABLED}#flag": "true"}, "type BOOLEAN.* cannot have"),
    ({"plaintext": "true", f"{ENABLED}#address": "true"},
     "group of columns; specify one of its leaf columns: address.City, address.zip"),
    ({"plaintext": "true", f"{ENABLED}#tags": "true"}, "its leaf columns: tags.list.element"),
    ({"plaintext": "true", f"{FPP}#ssn": "0.1"}, f"set {ENABLED}#SSN to true"),
    ({"plaintext": "true", f"{ENABLED}#id": "false", f"{NDV}#id": "5"}, "contradicts"),
    ({"plaintext": "true", FPP: "0"}, "between 0 and 1"),
    ({"plaintext": "true", FPP: "nan"}, "between 0 and 1"),
    ({"plaintext": "true", f"{ENABLED}#id": "true", f"{FPP}#id": "2"}, "between 0 and 1"),
    ({"plaintext": "true", f"{NDV}#id": "0"}, "at least 1"),
    ({"plaintext": "true", BYTES: "16"}, "32 to 134217728"),
    ({"plaintext": "true", BYTES: "1MB"}, "32 to 134217728"),
    ({"plaintext": "true", FPP + "#id": "0.1", "bloom_filters": '{"id": true}'}, "no Bloom filter"),
    ({"plaintext": "true", f"{ENABLED}#id": "true", "bloom_filters": '{"id": false}'},
     "column id is also named"),
    ({"plaintext": "true", "bloom_filters": "id, ssn"}, "not a JSON object such as"),
    ({"plaintext": "true", "bloom_filters": "[1]"}, "must be a JSON object"),
    ({"plaintext": "true", "bloom_filters": '{"id": true, "id": false}'}, "listed twice"),
    ({"plaintext": "true", "bloom_filters": '{"id": true, "ID": true}'}, "named twice"),
    ({"plaintext": "true", "bloom_filters": '{"nope": true}'}, "there is no column 'nope'"),
    ({"plaintext": "true", "bloom_filters": '{"flag": true}'}, "cannot have a Bloom filter"),
    ({"plaintext": "true", "bloom_filters": '{"id": 1}'}, "true, false, or an object"),
    ({"plaintext": "true", "bloom_filters": '{"id": {"ftp": 1}}'}, "true, false, or an object"),
    ({"plaintext": "true", "bloom_filters": '{"id": {"fpp": 1}}'}, "between 0 and 1"),
    # files
    ({"plaintext": "true", "max_rows_per_file": "0"}, "option max_rows_per_file: .*at least 1"),
    ({"plaintext": "true", "max_bytes_per_file": "1MB"}, "option max_bytes_per_file: .*at least 1"),
    ({"plaintext": "true", "maxrecordsperfile": "5", "max_rows_per_file": "6"},
     "max_rows_per_file: it contradicts maxrecordsperfile"),
    ({"plaintext": "true", "data_page_size": "0"}, "option data_page_size: .*1 to 2147483647"),
    ({"plaintext": "true", "data_page_version": "3.0"}, "one of 1.0, 2.0"),
    ({"plaintext": "true", "compression_level": "high"}, "whole number"),
    ({"plaintext": "true", "use_dictionary": "nope"}, "there is no column 'nope'"),
    ({"plaintext": "true", "write_statistics": "id,"}, "a name is missing"),
    ({"plaintext": "true", "write_page_index": "1"}, "true or false"),
    ({"plaintext": "true", "column_encoding": "NOPE"}, "one of PLAIN, DELTA"),
    ({"plaintext": "true", "column_encoding": '{"id": "NOPE"}'}, "one of PLAIN, DELTA"),
    ({"plaintext": "true", "column_encoding": '{"id": 1}'}, "JSON object"),
    ({"plaintext": "true", "version": "1.0"}, "stored as Spark stores them"),
    # indexes
    ({"plaintext": "true", "index_columns": "none"}, "there is no column 'none'"),
    ({"plaintext": "true", "index_columns": "ssn, ssn"}, "listed twice"),
    ({"plaintext": "true", "index_columns": "flag"}, "cannot have an index"),
    # partitions
    ({"plaintext": "true", "partition_by": ""}, "a name is missing"),
    ({"plaintext": "true", "partition_by": "id, id"}, "listed twice"),
    ({"plaintext": "true", "partition_by": "id, ID"}, "listed twice"),
    ({"plaintext": "true", "partition_by": "address.City"}, "no top-level column 'address.City'"),
    ({"plaintext": "true", "partition_by": "id,SSN,flag,address,tags"}, "no column would be left"),
    ({"plaintext": "true", "partition_by": "flags"}, r"'flags' \(did you mean 'flag'"),
    ({**KEYS, COLUMNS: "k: id", "partition_by": "id"}, r"column id is sensitive \(key k\)"),
    ({**KEYS, COLUMNS: "k: ssn", "partition_by": "id", f"{ENABLED}#id": "true"}, "no column 'id'"),
    ({"keys": "k", UNIFORM: "f", "partition_by": "id"}, "folder names: use column keys"),
    *(({"plaintext": "true", "partition_by": "id", "overwritten_partition": text},
       "option overwritten_partition: only secure_bloom") for text in ("id = 5", "5", '["x"]')),
    # names
    ({"foo": "1"}, "option foo: unknown; allowed options: bloom_filters,"),
    ({"parquet.encryption.footerkey": "1"}, f"did you mean {FOOTER}"),
    ({"parquet.block.size": "1"}, "option parquet.block.size: unknown"),
    ({f"{ENABLED}#": "true"}, "the column is missing after #"),
    ({f"{BYTES}#id": "64"}, "it is for the whole file"),
    ({NDV: "5"}, f"it is for one column: {NDV}#column"),
    ({"parquet.crypto.factory.class": "x"}, "no Java class"),
    ({"replacewhere": "id = 1"}, "overwrite always replaces the whole folder"),
]


def test_refused():
    for options, message in REFUSED:
        with pytest.raises(OptionError, match=message):
            parse(**options)


def test_filters_in_an_option_that_keeps_case():
    filters = plain(TWINS, bloom_filters='{"A": {"fpp": 0.5, "ndv": 7}, "a": false}',
                    **{ENABLED: "true", BYTES: "64"}).bloom_filters
    assert filters == {"A": BloomFilterOptions(fpp=0.5, ndv=7, max_bytes=64)}


def test_options_of_files():
    options = plain(max_rows_per_file="10", max_bytes_per_file="1000", compression="zstd",
                    compression_level="-3", use_dictionary="ssn, address", write_statistics="false",
                    write_page_index="true", data_page_version="2.0", data_page_size="4096",
                    column_encoding='{"ID": "delta_binary_packed"}')
    assert (options.max_rows_per_file, options.max_bytes_per_file) == (10, 1000)
    assert options.writer == {
        "store_decimal_as_integer": True, "compression": "zstd", "compression_level": -3,
        "use_dictionary": ["SSN", "address.City", "address.zip"], "write_statistics": False,
        "write_page_index": True, "data_page_version": "2.0", "data_page_size": 4096,
        "column_encoding": {"id": "DELTA_BINARY_PACKED"}}


def test_names_that_spark_has_for_them():
    options = plain(maxrecordsperfile="10", **{"parquet.enable.dictionary": "false",
                                               "parquet.page.size": "100"})
    assert options.max_rows_per_file == 10
    assert options.writer["use_dictionary"] is False
    assert options.writer["data_page_size"] == 100


def test_a_partition_column_whose_folders_would_be_hidden():
    columns = pa.schema([("id", pa.int64()), (".day", pa.string())])
    with pytest.raises(OptionError, match=r"column \.day: readers treat folders"):
        plain(columns, path="/t", partition_by=".day")


def test_partition_by():
    assert plain(partition_by=" flag , ssn ").partition_by == ("flag", "SSN")
    assert plain(TWINS, partition_by="A").partition_by == ("A",)
    options = plain(partition_by="id", **{ENABLED: "true"})
    assert "id" not in options.bloom_filters


# --- metadata of the schema ----------------------------------------------------------------------

KEY, FILTER = "secure_bloom.key", "secure_bloom.bloom_filter"


def parse_marked(metadata, schema=SCHEMA, **options):
    return parse_write_options(Options(options), schema, metadata)


def test_keys_from_the_schema():
    metadata = {("SSN",): {KEY: "pii"}, ("address",): {KEY: " geo "}, ("id",): {"comment": "x"},
                ("tags",): {KEY: "pii"}}
    expected = {"pii": ["SSN", "tags.list.element"], "geo": ["address.City", "address.zip"]}
    assert parse_marked(metadata, **KEYS).encryption.column_keys == expected
    with_option = parse_marked(metadata, **KEYS, **{COLUMNS: "pii: ssn; m: id"}).encryption
    assert with_option.column_keys == {"pii": ["SSN", "tags.list.element"], "m": ["id"],
                                          "geo": ["address.City", "address.zip"]}
    one = parse_marked({("SSN",): {KEY: "pii"}}, keys="k", **{UNIFORM: "pii"}).encryption
    assert one.uniform_encryption


def test_keys_from_the_schema_keep_case():
    assert parse_marked({("a",): {KEY: "k"}}, TWINS, **KEYS).encryption.column_keys == {
        "k": ["a"]}


@pytest.mark.parametrize("metadata, options, message", [
    ({("SSN",): {KEY: "pii"}}, {"plaintext": "true"},
     f"option plaintext: it contradicts metadata {KEY} of column SSN"),
    ({("SSN",): {KEY: "pii"}}, {}, f"option keys: metadata {KEY} of column SSN needs it"),
    ({("SSN",): {KEY: "pii"}}, {"keys": "k"}, f"option {FOOTER}: missing"),
    ({("SSN",): {KEY: "pii"}}, {**KEYS, COLUMNS: "k: ssn"},
     rf"column SSN has two keys, k \(option {COLUMNS}\) and pii \(metadata {KEY}\)"),
    ({("SSN",): {KEY: "pii"}}, {"keys": "k", UNIFORM: "f"}, "column SSN has two keys, f .* pii"),
    ({("address",): {KEY: "a"}, ("address", "zip"): {KEY: "b"}}, KEYS, "address.zip has two keys"),
    ({("SSN",): {KEY: "pii"}}, {**KEYS, "partition_by": "ssn"}, "column SSN is sensitive"),
    ({("SSN",): {KEY: ""}}, KEYS, f"column SSN: metadata {KEY} must be the name"),
    ({("SSN",): {KEY: 5}}, KEYS, f"column SSN: metadata {KEY} must be the name"),
    ({("SSN",): {"secure_bloom.keys": "k"}}, {"plaintext": "true"}, "secure_bloom.keys is unknown"),
    ({("SSN",): {KEY: "pii"}}, {"plaintext": "true"}, "column public, remove .* df.withMetadata"),
    ({("SSN",): {KEY: ["a", "b"]}}, KEYS, "column SSN: .* different master keys: a, b; specify"),
    ({("SSN",): {KEY: ["a", "b"]}}, {"plaintext": "true"}, "different master keys"),
    ({("nobody",): {KEY: "pii"}}, KEYS, "column nobody: .* a field that is not in the files"),
    ({("tags", "item"): {KEY: "pii"}}, {"plaintext": "true"}, "a field that is not in the files"),
    ({("tags", "item"): {FILTER: True}}, {"plaintext": "true"}, "a field that is not in the files"),
    ({("SSN",): {FILTER: "true"}}, {"plaintext": "true"}, "must be true or false"),
    ({("flag",): {FILTER: True}}, {"plaintext": "true"}, "column flag: .*cannot have a Bloom"),
])
def test_refused_because_of_the_schema(metadata, options, message):
    with pytest.raises(OptionError, match=message):
        parse_marked(metadata, **options)


def test_filters_from_the_schema():
    metadata = {("SSN",): {FILTER: True}, ("tags",): {FILTER: True}, ("id",): {FILTER: False}}
    filters = parse_marked(metadata, plaintext="true", **{FPP: "0.1", f"{FPP}#ssn": "0.2"})
    assert filters.bloom_filters == {"SSN": BloomFilterOptions(0.2),
                                     "tags.list.element": BloomFilterOptions(0.1)}
    more = parse_marked(metadata, plaintext="true", **{ENABLED: "true", f"{ENABLED}#ssn": "false"})
    assert set(more.bloom_filters) == {"address.City", "address.zip", "tags.list.element"}
    assert "id" in parse_marked(metadata, plaintext="true", bloom_filters='{"id": true}') \
        .bloom_filters


def test_two_columns_of_one_name():
    with pytest.raises(OptionError, match="column a: there are two columns of this name"):
        plain(pa.schema([("a", pa.int64()), ("a", pa.int64())]))


def test_keys_in_options_are_refused_and_not_repeated():
    with pytest.raises(OptionError, match="keys must not be passed in options") as caught:
        parse(**{"parquet.encryption.key.list": "k: AAECAwQFBgcICQoLDA0ODw=="})
    assert "AAECAw" not in str(caught.value)


def test_columns_that_differ_in_case_only_are_ambiguous_in_lower_cased_names():
    with pytest.raises(OptionError, match="'a' may mean a or A"):
        plain(TWINS, **{f"{ENABLED}#a": "true"})
    with pytest.raises(OptionError, match="'Ab' may mean ab or AB"):
        column_keys("k: Ab", pa.schema([("ab", pa.int64()), ("AB", pa.int64())]))


DOTTED = pa.schema([("st.b", pa.int64()), ("p.q", pa.int64()),
                    ("st", pa.struct([("b", pa.struct([("x", pa.int64())])), ("c", pa.int64())]))])


def test_a_path_of_a_column_and_of_a_group_is_refused():
    named = "the column 'st.b' and the group 'b' in 'st'"
    for path in ("st.b", "ST.B"):
        with pytest.raises(OptionError, match=f"option {COLUMNS}: column st.b: .*{named}"):
            column_keys(f"k: {path}", DOTTED)
        with pytest.raises(OptionError, match=named):
            plain(DOTTED, **{f"{ENABLED}#{path}": "true"})
        with pytest.raises(OptionError, match=named):
            plain(DOTTED, bloom_filters=f'{{"{path}": true}}')
    assert column_keys("k: p.q, st.b.x", DOTTED) == {"k": ["p.q", "st.b.x"]}
    assert column_keys("k: st", DOTTED) == {"k": ["st.b.x", "st.c"]}


def test_filters_of_all_columns_leave_out_what_has_no_path_of_its_own():
    assert set(plain(DOTTED, **{ENABLED: "true"}).bloom_filters) == {"p.q", "st.b.x", "st.c"}


def test_master_keys_may_have_any_name():
    arn = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"
    assert column_keys(f"{arn}: id, ssn; k: flag") == {arn: ["id", "SSN"], "k": ["flag"]}
    assert parse_marked({("SSN",): {KEY: "a:b;c,d"}}, **KEYS).encryption.column_keys \
        == {"a:b;c,d": ["SSN"]}


def test_the_kms_is_named_by_a_uri():
    uri = "awskms:?region=eu-west-1"
    assert parse(keys=uri, **{UNIFORM: "f"}).kms == uri
    assert parse(keys="keyring:k?passphrase-file=/p", **{UNIFORM: "f"}).kms \
        == f"keyring:{os.path.abspath('k')}?passphrase-file=/p"
    assert parse(keys="/a b?.json", **{UNIFORM: "f"}).kms == "keyring:/a%20b%3F.json"


def test_column_names_that_pyarrow_cannot_carry():
    with pytest.raises(OptionError, match=r"g\.a:b cannot have its own key"):
        column_keys("k: g", PUNCTUATION)


def test_options_go_to_tasks_without_keys(keyring):
    options = parse(keys=str(keyring.path), **{FOOTER: "footer", COLUMNS: "pii: ssn",
                                                  f"{ENABLED}#ssn": "true"})
    pickled = pickle.dumps(options)
    assert not any(key in pickled for key in keyring._master_keys().values())
    assert pickle.loads(pickled) == options
    with ParquetWriter(pa.BufferOutputStream(), SCHEMA, **options.writer_arguments(None)) as writer:
        writer.write_table(SCHEMA.empty_table())


@pytest.mark.parametrize("path", ["/a/b c", "file:/a/b c", "file:///a/b c", "FILE:/a/b c"])
def test_paths(path):
    filesystem, found = locate(path)
    assert filesystem.type_name == "local"
    assert found == "/a/b c"


@pytest.mark.parametrize("path", [None, "", "nope://x/y"])
def test_bad_paths(path):
    with pytest.raises(OptionError, match="option path: "):
        locate(path)


def test_names_of_a_read():
    Options({"path": "p", "keys": "k", f"{ENABLED}#x": "true"}).check_names()
    with pytest.raises(OptionError, match="did you mean keys"):
        Options({"keyz": "k"}).check_names()


def test_names_of_options_have_no_case_and_none_is_not_given():
    options = Options({"kEys": "K", "Policy": None, f"{FPP}#SSN": "0.1"})
    assert options == {"keys": "K", f"{FPP}#ssn": "0.1"}
    assert options["KEYS"] == "K" and "Keys" in options and options.text("policy") == ""
    assert list(options.by_column(FPP)) == [(f"{FPP}#ssn", "ssn")]


def test_options_are_pickled_and_show_no_values():
    options = Options({"keys": "vault://token", "path": "/people"})
    assert pickle.loads(pickle.dumps(options)) == options
    assert repr(options) == str(options) == "Options(keys, path)"


def test_options_do_not_change():
    given = {"keys": "k", "of_table": "true", "columns": "a", "parquet.page.size": "9"}
    options = Options(given)
    assert options.for_writing() == {"keys": "k", "data_page_size": "9"}
    assert options.without(["keys", "of_table"]).with_default_kms("x") \
        == {"columns": "a", "parquet.page.size": "9", "keys": "x"}
    given["keys"] = "other"
    assert options["keys"] == "k" and len(options) == 4
    with pytest.raises(TypeError):
        options["keys"] = "other"


def test_the_client_of_a_uri_is_the_one_that_python_uses(tmp_path, monkeypatch):
    keyring = Keyring.create(tmp_path / "keys.json")
    client = kms_client(f"keyring:{keyring.path}")
    assert client is open_keys(keyring.path)
    monkeypatch.setattr(environment, "LIFETIME", -1)
    assert kms_client(f"keyring:{keyring.path}") is not client


def test_a_client_without_weak_references_keeps_its_cache(monkeypatch):
    class Slotted:
        __slots__ = ("calls",)

        def unwrap_key(self, wrapped_key, master_key_identifier):
            self.calls += 1
            return b"k" * 16

    slotted = Slotted()
    slotted.calls = 0
    monkeypatch.setitem(uri._OPENERS, "slotted", lambda path, query: slotted)
    for _ in range(3):
        assert kms_client("slotted:").unwrap_key("wrapped", "pii") == b"k" * 16
    assert slotted.calls == 1


@pytest.mark.parametrize("text", ["nokms:", "keys.json", "awskms:?regoin=x"])
def test_a_uri_that_names_no_kms_is_a_wrong_option(text):
    with pytest.raises(OptionError, match=r"^option keys: "):
        kms_client(text)
