"""Key material "PKMT1": JSON that describes how to obtain a data key.

This is the format of the "key tools" of parquet-java and pyarrow. A data key is wrapped either by
the KMS itself (single wrapping) or by a key-encryption key, the KEK, which the KMS has wrapped
(double wrapping); a KEK wraps with AES-GCM, with its raw id as additional authenticated data.

    keyMaterialType     "PKMT1"
    isFooterKey         whether this is for the footer
    kmsInstanceID, kmsInstanceURL   footer only
    masterKeyID         name of the master key
    wrappedDEK          the data key, wrapped
    doubleWrapping      whether the data key is wrapped by a KEK
    keyEncryptionKeyID, wrappedKEK  double wrapping only; the id is base64

It is stored in the key metadata of the file itself, with ``internalStorage`` true, or in a
separate file (external storage, see :mod:`secure_bloom.keys.external`); then the key metadata is

    keyMaterialType     "PKMT1"
    internalStorage     false
    keyReference        name of the entry in that file
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from secure_bloom.errors import KeyNotFoundError, KeyRetrievalError
from secure_bloom.json_text import decode_json

MATERIAL_TYPE = "PKMT1"
_MAX_SIZE = 1 << 16  # bytes of the material of one key, which usually takes about 400
_USUAL_SIZE = 1 << 12  # bytes; longer material is not kept in memory
_WRAPPED_DEK = re.compile(rb'"wrappedDEK":"([A-Za-z0-9+/=]*)"')
_UNKNOWN = secrets.token_hex()  # in place of a wrapped data key; no file can contain it
DEFAULT_INSTANCE = "DEFAULT"  #: id and URL of a KMS that has only one instance


@dataclass(frozen=True)
class KeyMaterial:
    """Parsed key material.

    Attributes
    ----------
    master_key_id : str
    wrapped_dek : str
        The data key as wrapped by the KMS (single wrapping) or the KEK (double wrapping).
    kek_id : bytes or None
        Raw id of the key-encryption key; None with single wrapping.
    wrapped_kek : str or None
        The KEK as wrapped by the KMS.
    is_footer_key : bool
    kms_instance_id, kms_instance_url : str
        The KMS that holds the master keys; recorded for footer keys only.
    """

    master_key_id: str
    wrapped_dek: str
    kek_id: bytes | None = None
    wrapped_kek: str | None = None
    is_footer_key: bool = False
    kms_instance_id: str = DEFAULT_INSTANCE
    kms_instance_url: str = DEFAULT_INSTANCE

    @classmethod
    def parse(cls, text: bytes | str) -> KeyMaterial:
        """Parse key material, from key metadata or from an external file.

        Raises KeyRetrievalError if it is not valid JSON of this form, or only refers to an external
        file.
        """
        if isinstance(text, bytes) and (found := _like_others(text)) is not None:
            return found
        fields = _load(text)
        if _reference(fields) is not None:
            raise KeyRetrievalError("key material: it only refers to an entry of an external file")
        return cls._of(fields)

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> KeyMaterial:
        double = _get(fields, "doubleWrapping", bool)
        try:
            kek_id = base64.b64decode(_get(fields, "keyEncryptionKeyID", str), validate=True) \
                if double else None
        except ValueError:
            raise KeyRetrievalError("key material: keyEncryptionKeyID is not valid "
                                    "base64") from None
        return cls(
            master_key_id=_get(fields, "masterKeyID", str),
            wrapped_dek=_get(fields, "wrappedDEK", str),
            kek_id=kek_id,
            wrapped_kek=_get(fields, "wrappedKEK", str) if double else None,
            is_footer_key=_get(fields, "isFooterKey", bool, False),
            kms_instance_id=_get(fields, "kmsInstanceID", str, DEFAULT_INSTANCE),
            kms_instance_url=_get(fields, "kmsInstanceURL", str, DEFAULT_INSTANCE))

    @property
    def wrapped_by_master_key(self) -> str:
        """The wrapped key that the master key unwraps: the KEK, or the data key itself."""
        if self.kek_id is None:
            return self.wrapped_dek
        assert self.wrapped_kek is not None  # present whenever there is a KEK
        return self.wrapped_kek

    def serialize(self, *, external: bool = False) -> bytes:
        """Return the JSON in UTF-8, with the fields in parquet-java's order."""
        fields: dict[str, Any] = {"keyMaterialType": MATERIAL_TYPE}
        if not external:
            fields["internalStorage"] = True
        fields["isFooterKey"] = self.is_footer_key
        if self.is_footer_key:
            fields |= {"kmsInstanceID": self.kms_instance_id,
                       "kmsInstanceURL": self.kms_instance_url}
        fields |= {"masterKeyID": self.master_key_id, "wrappedDEK": self.wrapped_dek,
                   "doubleWrapping": self.kek_id is not None}
        if self.kek_id is not None:
            fields |= {"keyEncryptionKeyID": base64.b64encode(self.kek_id).decode("ascii"),
                       "wrappedKEK": self.wrapped_kek}
        return _dump(fields)


def is_key_material(key_metadata: bytes | None) -> bool:
    """Whether key metadata is key material, or refers to key material."""
    return key_metadata is not None and _fields(key_metadata) is not None


def key_reference(key_metadata: bytes) -> str | None:
    """Return the external file's entry that key metadata refers to; None if it is internal.

    Raises KeyRetrievalError if the key metadata is not valid key material.
    """
    return _reference(_load(key_metadata))


def key_references(key_metadata: Iterable[bytes | None]) -> set[str | None]:
    """Return :func:`key_reference` of each of some key metadata; None among them is left out."""
    return {key_reference(one) for one in key_metadata if one is not None}


def _reference(fields: dict[str, Any]) -> str | None:
    if _get(fields, "internalStorage", bool, True):
        return None
    return _get(fields, "keyReference", str)


def find_material(key_metadata: bytes,
                  read_external: Callable[[], Mapping[str, str]]) -> KeyMaterial:
    """Return the key material that key metadata holds or refers to.

    ``read_external`` returns the external key material by name; it is called only if the key
    metadata refers to it. Raises KeyRetrievalError if there is none.
    """
    found = _like_others(key_metadata)
    if found is not None:
        return found
    fields = _load(key_metadata)
    name = _reference(fields)
    return KeyMaterial._of(fields) if name is None \
        else KeyMaterial.parse(_entry(name, read_external()))


def _like_others(text: bytes) -> KeyMaterial | None:
    """Return internal key material, parsed with what it shares with that of other files.

    In the files of a job, only the wrapped data key differs. None if it is not in the usual form.
    """
    parts = _WRAPPED_DEK.split(text) if len(text) <= _USUAL_SIZE else []
    if len(parts) != 3:
        return None
    before, wrapped_dek, after = parts
    common = _with_unknown_dek(before, after)
    return common and KeyMaterial(
        common.master_key_id, wrapped_dek.decode("ascii"), common.kek_id, common.wrapped_kek,
        common.is_footer_key, common.kms_instance_id, common.kms_instance_url)


@lru_cache(maxsize=64)
def _with_unknown_dek(before: bytes, after: bytes) -> KeyMaterial | None:
    """Return key material whose wrapped data key is unknown; None if not internal or not valid."""
    try:
        fields = _load(b'%b"wrappedDEK":"%b"%b' % (before, _UNKNOWN.encode(), after))
        found = KeyMaterial._of(fields) if _reference(fields) is None else None
    except KeyRetrievalError:
        return None
    # Otherwise the text between them is that of another field, such as one in an object.
    return found if found is not None and found.wrapped_dek == _UNKNOWN else None


def standard_material(key_metadata: bytes, is_footer_key: bool) -> KeyMaterial | None:
    """Return key material if it has exactly the fields that other implementations write.

    pyarrow's parser reads such material in the same way as this one. Returns None if the fields
    differ, and for external material: that could be replaced before pyarrow reads it again. Raises
    KeyRetrievalError if there is no key material, or it is malformed.
    """
    if key_reference(key_metadata) is not None:
        return None
    material = KeyMaterial.parse(key_metadata)
    is_standard = material.is_footer_key == is_footer_key \
        and _load(key_metadata) == _load(material.serialize())
    return material if is_standard else None


def _entry(name: str, entries: Mapping[str, str]) -> str:
    if name not in entries:
        raise KeyNotFoundError(f"the external key material has no entry {name!r}")
    return entries[name]


def refer_to(name: str) -> bytes:
    """Return key metadata that refers to an entry of the external file."""
    return _dump({"keyMaterialType": MATERIAL_TYPE, "internalStorage": False, "keyReference": name})


def _dump(fields: dict[str, Any]) -> bytes:
    return _encode(fields).encode()


def _load(text: bytes | str) -> dict[str, Any]:
    fields = _fields(text)
    if fields is None:
        raise KeyRetrievalError(
            f"the key metadata is not {MATERIAL_TYPE} key material, so a KMS cannot use it; the "
            "file was written with explicit keys: pass ExplicitKeys")
    found = dict(fields)
    if len(found) < len(fields):  # parsers differ: some take the first, some the last
        raise KeyRetrievalError("key material: it has a duplicate field")
    return found


def _fields(text: bytes | str) -> list[tuple[str, object]] | None:
    """Return names and values of the fields; None if the text is not key material."""
    if len(text) > _MAX_SIZE:
        return None
    try:
        fields = decode_json(text, _decode)
    except ValueError:
        return None
    return fields if isinstance(fields, _Object) \
        and ("keyMaterialType", MATERIAL_TYPE) in fields else None


class _Object(list[Any]):
    """A JSON object as pairs of name and value, in which a name may occur twice."""


# Each call of json.loads and json.dumps with these arguments would make another object.
_decode = json.JSONDecoder(object_pairs_hook=_Object).decode
_encode = json.JSONEncoder(separators=(",", ":")).encode


def _get(fields: dict[str, Any], name: str, type_: type, default: object = None) -> Any:
    value: Any = fields.get(name, default)
    if not isinstance(value, type_):
        raise KeyRetrievalError(f"key material: field {name} is missing or not a {type_.__name__}")
    if isinstance(value, str) and not value.isascii() \
            and any("\ud800" <= character <= "\udfff" for character in value):
        raise KeyRetrievalError(f"key material: field {name} is not a valid string")
    return value
