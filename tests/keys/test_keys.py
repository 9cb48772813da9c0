"""Key management clients, key material, and the way from key metadata to data keys."""

import base64
import json
import pickle

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom import UniformKey
from secure_bloom.errors import (
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
)
from secure_bloom.keys import ExplicitKeys, InMemoryKms, KmsClient
from secure_bloom.keys.kms import unwrap_locally, wrap_locally
from secure_bloom.keys.material import KeyMaterial, key_reference, refer_to
from secure_bloom.keys.retrieval import KmsKeys, key_retriever
from tests.keys.checks import variables_of
from tests.support import WatchedKms, examples

MASTER, OTHER, DATA = b"master key 16byt", b"another key 16by", b"the data key 16b"
SIZES = pytest.mark.parametrize("size", [16, 24, 32])
WRONG_KEYS = pytest.mark.parametrize("key", [b"", bytes(15), bytes(33), "text of 16 chars", None])


# --- the in-memory KMS ---------------------------------------------------------------------------

@SIZES
def test_wrapped_keys_have_the_format_of_parquet_java(size):
    """Base64 of nonce, ciphertext and tag; the key's name is the AAD."""
    kms = InMemoryKms({"näme": b"m" * size})
    wrapped = kms.wrap_key(DATA, "näme")
    raw = base64.b64decode(wrapped, validate=True)
    assert len(raw) == 12 + len(DATA) + 16
    assert AESGCM(b"m" * size).decrypt(raw[:12], raw[12:], "näme".encode()) == DATA
    nonce = b"n" * 12
    theirs = base64.b64encode(nonce + AESGCM(b"m" * size).encrypt(nonce, DATA, "näme".encode()))
    assert kms.unwrap_key(theirs.decode(), "näme") == kms.unwrap_key(theirs, "näme") == DATA


@pytest.mark.slow
@given(st.binary(max_size=40), st.text(min_size=1, max_size=10))
@examples(30)
def test_every_key_comes_back(key, name):
    kms = InMemoryKms({name: MASTER})
    assert kms.unwrap_key(kms.wrap_key(key, name), name) == key
    assert kms.wrap_key(key, name) != kms.wrap_key(key, name)


def test_another_master_key_does_not_open_it():
    kms = InMemoryKms({"a": MASTER, "b": OTHER, "same": MASTER})
    wrapped = kms.wrap_key(DATA, "a")
    for name in ("b", "same"):  # the name is authenticated, too
        with pytest.raises(KeyUnwrapError, match=name):
            kms.unwrap_key(wrapped, name)


def test_an_unknown_master_key_is_named():
    kms = InMemoryKms({"a": MASTER})
    for ask in (kms.wrap_key, kms.unwrap_key):
        with pytest.raises(KeyNotFoundError, match="'b'; available: a"):
            ask("AAAA", "b") if ask == kms.unwrap_key else ask(DATA, "b")
    with pytest.raises(KeyNotFoundError, match="none"):
        InMemoryKms({}).wrap_key(DATA, "a")


@pytest.mark.parametrize("wrapped", ["", "AAAA", "no base64!", "ümlaut", b"\xff", "A" * 36,
                                     base64.b64encode(bytes(27)), base64.b64encode(bytes(28))])
def test_what_is_no_wrapped_key_does_not_open(wrapped):
    with pytest.raises(KeyUnwrapError):
        InMemoryKms({"a": MASTER}).unwrap_key(wrapped, "a")


def test_every_changed_byte_of_a_wrapped_key_is_noticed():
    raw = base64.b64decode(wrap_locally(MASTER, DATA, b"aad"))
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1
        with pytest.raises(KeyUnwrapError):
            unwrap_locally(MASTER, base64.b64encode(changed), b"aad")


@WRONG_KEYS
def test_master_keys_of_other_lengths_are_refused(key):
    with pytest.raises(ValueError, match="'a' must be 16, 24 or 32 bytes"):
        InMemoryKms({"a": key})


def test_a_kms_client_must_wrap_and_unwrap():
    class Half(KmsClient):
        def wrap_key(self, key_bytes, master_key_identifier):
            return ""

    with pytest.raises(TypeError, match="unwrap_key"):
        Half()


# --- key material --------------------------------------------------------------------------------

SINGLE = KeyMaterial("mc", "wrapped")
DOUBLE = KeyMaterial("mf", "wrapped", b"kek id", "wrapped kek", is_footer_key=True)


def test_single_wrapping_as_parquet_java_writes_it():
    assert list(json.loads(SINGLE.serialize()).items()) == [
        ("keyMaterialType", "PKMT1"), ("internalStorage", True), ("isFooterKey", False),
        ("masterKeyID", "mc"), ("wrappedDEK", "wrapped"), ("doubleWrapping", False)]


def test_double_wrapping_as_parquet_java_writes_it():
    assert list(json.loads(DOUBLE.serialize()).items()) == [
        ("keyMaterialType", "PKMT1"), ("internalStorage", True), ("isFooterKey", True),
        ("kmsInstanceID", "DEFAULT"), ("kmsInstanceURL", "DEFAULT"), ("masterKeyID", "mf"),
        ("wrappedDEK", "wrapped"), ("doubleWrapping", True), ("keyEncryptionKeyID", "a2VrIGlk"),
        ("wrappedKEK", "wrapped kek")]


@given(st.text(), st.text(), st.none() | st.binary(), st.text(), st.booleans())
@examples(40)
def test_key_material_comes_back(master, wrapped, kek_id, wrapped_kek, is_footer):
    material = KeyMaterial(master, wrapped, kek_id, None if kek_id is None else wrapped_kek,
                           is_footer)
    assert KeyMaterial.parse(material.serialize()) == material


def changed(material: KeyMaterial, **fields) -> bytes:
    document = json.loads(material.serialize()) | fields
    return json.dumps({key: value for key, value in document.items() if value != ...}).encode()


def test_older_and_unknown_fields():
    assert KeyMaterial.parse(changed(DOUBLE, internalStorage=..., isFooterKey=..., new=[1])) \
        == KeyMaterial("mf", "wrapped", b"kek id", "wrapped kek")


@pytest.mark.parametrize("metadata", [
    b"", b"key-1", b"{", b"[]", b"null", b'"PKMT1"', b"\xff\xfe", b"[" * 200_000, b"{}",
    b'{"keyMaterialType": "PKMT2"}', changed(SINGLE, keyMaterialType=...)], ids=range(11))
def test_what_is_no_key_material_asks_for_explicit_keys(metadata):
    with pytest.raises(KeyRetrievalError, match="ExplicitKeys"):
        KeyMaterial.parse(metadata)


@pytest.mark.parametrize(("material", "field", "value"), [
    (SINGLE, "masterKeyID", ...), (SINGLE, "masterKeyID", 5), (SINGLE, "wrappedDEK", ...),
    (SINGLE, "wrappedDEK", None), (SINGLE, "doubleWrapping", ...), (SINGLE, "doubleWrapping", "no"),
    (SINGLE, "isFooterKey", 1), (SINGLE, "internalStorage", "yes"), (DOUBLE, "wrappedKEK", ...),
    (DOUBLE, "keyEncryptionKeyID", ...), (DOUBLE, "keyEncryptionKeyID", "no base64!"),
    (DOUBLE, "keyEncryptionKeyID", "ümlaut")])
def test_key_material_that_lacks_something_says_what(material, field, value):
    with pytest.raises(KeyRetrievalError, match=field):
        KeyMaterial.parse(changed(material, **{field: value}))


def test_key_metadata_may_refer_to_an_external_file():
    assert refer_to("footerKey") == b'{"keyMaterialType":"PKMT1","internalStorage":false,' \
                                    b'"keyReference":"footerKey"}'
    assert key_reference(refer_to("footerKey")) == "footerKey"
    assert key_reference(SINGLE.serialize()) is None
    with pytest.raises(KeyRetrievalError, match="external"):
        KeyMaterial.parse(refer_to("footerKey"))
    with pytest.raises(KeyRetrievalError, match="keyReference"):
        key_reference(b'{"keyMaterialType": "PKMT1", "internalStorage": false}')


def test_external_key_material_does_not_say_where_it_is():
    assert "internalStorage" not in json.loads(SINGLE.serialize(external=True))
    assert KeyMaterial.parse(SINGLE.serialize(external=True).decode()) == SINGLE


# --- explicit keys -------------------------------------------------------------------------------

FOOTER, COLUMN, NAMED = b"f" * 16, b"c" * 24, b"n" * 32


def test_keys_for_a_place_come_before_keys_by_id():
    keys = ExplicitKeys(FOOTER, {"a": COLUMN}, {"id": NAMED})
    assert keys.footer_key(b"id") == keys.footer_key(None) == FOOTER
    assert keys.column_key("a", b"id") == keys.column_key("a", None) == COLUMN
    assert keys.column_key("b", b"id") == NAMED
    assert ExplicitKeys(key_ids={"id": NAMED}).footer_key(b"id") == NAMED


def test_the_footer_key_is_no_column_key():
    with pytest.raises(KeyNotFoundError) as caught:
        ExplicitKeys(FOOTER).column_key("a", None)
    assert caught.value.column == "a"


@pytest.mark.parametrize(("metadata", "hint"), [
    (None, "the file names none"), (b"id-7", "key id 'id-7'"), (b"\xff\0", "was given$"),
    (b"x" * 65, "was given$")])
def test_a_missing_key_is_hinted_at(metadata, hint):
    with pytest.raises(KeyNotFoundError, match=hint):
        ExplicitKeys(column_keys={"a": COLUMN}, key_ids={"?": NAMED}).footer_key(metadata)


def test_has_footer_key():
    assert ExplicitKeys(FOOTER).has_footer_key
    assert ExplicitKeys(key_ids={"id": NAMED}).has_footer_key
    assert not ExplicitKeys(column_keys={"a": COLUMN}).has_footer_key
    assert not ExplicitKeys().has_footer_key


@WRONG_KEYS
def test_data_keys_of_other_lengths_are_refused(key):
    for arguments in ({"column_keys": {"a": key}}, {"key_ids": {"a": key}}):
        with pytest.raises(ValueError, match="'a' must be"):
            ExplicitKeys(**arguments)
    with pytest.raises(ValueError, match="footer_key"):
        UniformKey(key)
    if key is not None:
        with pytest.raises(ValueError, match="footer_key"):
            ExplicitKeys(key)


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(ValueError, match="AES_GCM_V1, AES_GCM_CTR_V1"):
        UniformKey(FOOTER, algorithm="AES")


# --- keys through a KMS --------------------------------------------------------------------------

def single(kms, key=DATA) -> bytes:
    return KeyMaterial("m", kms.wrap_key(key, "m")).serialize()


def double(kms, kek=b"k" * 16, key=DATA) -> bytes:
    return KeyMaterial("m", wrap_locally(kek, key, b"kek id"), b"kek id",
                       kms.wrap_key(kek, "m")).serialize()


def test_columns_under_one_kek_need_one_call():
    kms = WatchedKms({"m": MASTER})
    wrapped_kek, keys = kms.wrap_key(b"k" * 16, "m"), KmsKeys(kms)
    for i in range(5):
        data_key = bytes([i]) * 16
        material = KeyMaterial("m", wrap_locally(b"k" * 16, data_key, b"id"), b"id", wrapped_kek)
        assert keys.column_key(str(i), material.serialize()) == data_key
    assert len(kms.unwrapped) == 1


def test_no_variable_of_an_error_holds_a_key_encryption_key():
    kms, kek = InMemoryKms({"m": MASTER}), b"secret kek 16 by"
    material = KeyMaterial("m", wrap_locally(b"x" * 16, DATA, b"id"), b"id", kms.wrap_key(kek, "m"))
    with pytest.raises(KeyUnwrapError) as caught:
        KmsKeys(kms).footer_key(material.serialize())
    shown = variables_of(caught.value)
    assert "<KmsKeys" in shown and "secret kek" not in shown and "master key 16byt" not in shown


def test_wrong_key_material():
    kms = InMemoryKms({"m": MASTER})
    for metadata, error in [(None, KeyRetrievalError), (b"id", KeyRetrievalError),
                            (single(InMemoryKms({"m": OTHER})), KeyUnwrapError),
                            (single(kms, b"short"), KeyUnwrapError),
                            (double(kms, key=b"short"), KeyUnwrapError),
                            (KeyMaterial("x", "AAAA").serialize(), KeyNotFoundError)]:
        with pytest.raises(error):
            KmsKeys(kms).footer_key(metadata)
    exchanged = json.loads(double(kms)) | {"keyEncryptionKeyID": "AAAA"}
    with pytest.raises(KeyUnwrapError):  # the KEK's id is authenticated
        KmsKeys(kms).footer_key(json.dumps(exchanged).encode())


def test_what_readers_take_as_keys():
    kms, explicit = InMemoryKms({"m": MASTER}), ExplicitKeys(FOOTER)
    assert key_retriever(None) is None
    assert key_retriever(explicit) is explicit
    assert isinstance(key_retriever(kms), KmsKeys)
    cached = key_retriever(kms)
    assert key_retriever(cached) is cached
    for wrong in (b"f" * 16, {"a": FOOTER}, 7):
        with pytest.raises(TypeError, match="KmsClient or ExplicitKeys"):
            key_retriever(wrong)


# --- no key shows --------------------------------------------------------------------------------

def test_no_key_shows_in_repr_or_str():
    kms = InMemoryKms({"m": MASTER})
    keys = KmsKeys(kms)
    keys.footer_key(single(kms))
    shown = [kms, keys, ExplicitKeys(FOOTER, {"a": COLUMN}, {"id": NAMED}), UniformKey(FOOTER)]
    assert [repr(value) for value in shown] == [str(value) for value in shown] == [
        "<InMemoryKms with keys ['m']>", "<KmsKeys through <CachedKms of InMemoryKms>>",
        "<ExplicitKeys footer_key=True, for ['a', 'id']>",
        "UniformKey(aad_prefix=None, store_aad_prefix=True, plaintext_footer=False, "
        "algorithm='AES_GCM_V1')"]


def test_no_key_shows_in_errors():
    kms, secret = InMemoryKms({"m": MASTER}), b"SECRET SECRET 16"
    failures = [lambda: InMemoryKms({"m": secret + b"x"}), lambda: ExplicitKeys(secret + b"x"),
                lambda: UniformKey(secret + b"x"), lambda: kms.wrap_key(secret, "other"),
                lambda: ExplicitKeys(secret).column_key("a", None),
                lambda: KmsKeys(kms).footer_key(single(InMemoryKms({"m": secret}))),
                lambda: KmsKeys(kms).footer_key(single(kms, secret + b"x")),
                lambda: KmsKeys(kms).footer_key(double(kms, b"k" * 16, secret + b"x"))]
    for fail in failures:
        with pytest.raises((ValueError, KeyRetrievalError)) as caught:
            fail()
        for text in (str(caught.value), repr(caught.value), repr(caught.value.__cause__),
                     repr(pickle.dumps(caught.value))):
            assert "SECRET" not in text
            assert base64.b64encode(secret).decode() not in text


def test_errors_keep_their_place_when_pickled():
    error = KeyNotFoundError("none", file="f", row_group=0, column="a")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is KeyNotFoundError
    assert str(again) == str(error) == "file f, row group 0, column a: none"
