"""Key material "PKMT1": the JSON in a file's key metadata that says how to get a data key.

As parquet-java and pyarrow write it (their "key tools"). A data key is wrapped either by the KMS
itself (single wrapping) or by a key-encryption key, the KEK, which the KMS has wrapped (double
wrapping); a KEK wraps with AES-GCM, its raw id as additional authenticated data.

    keyMaterialType     "PKMT1"
    internalStorage     true: what follows is here; false: in a file beside the Parquet file
    keyReference        external storage only: name of the entry in that file
    isFooterKey         whether this is for the footer
    kmsInstanceID, kmsInstanceURL   footer only
    masterKeyID         name of the master key
    wrappedDEK          the data key, wrapped
    doubleWrapping      whether a KEK stands between
    keyEncryptionKeyID, wrappedKEK  double wrapping only; the id is base64
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from secure_bloom.errors import KeyRetrievalError, UnsupportedError

MATERIAL_TYPE = "PKMT1"


@dataclass(frozen=True)
class KeyMaterial:
    """Parsed key material with internal storage.

    Attributes
    ----------
    master_key_id : str
    wrapped_dek : str
        The data key as the KMS (single wrapping) or the KEK (double wrapping) has wrapped it.
    kek_id : bytes or None
        Raw id of the key-encryption key; None with single wrapping.
    wrapped_kek : str or None
        The KEK as the KMS has wrapped it.
    is_footer_key : bool
    """

    master_key_id: str
    wrapped_dek: str
    kek_id: bytes | None = None
    wrapped_kek: str | None = None
    is_footer_key: bool = False

    @classmethod
    def parse(cls, key_metadata: bytes) -> KeyMaterial:
        """Parse key metadata.

        Raises
        ------
        KeyRetrievalError
            If the bytes are no such JSON.
        UnsupportedError
            If the material is stored outside the file.
        """
        fields = _load(key_metadata)
        if not _get(fields, "internalStorage", bool, True):
            raise UnsupportedError("the key material is stored in a file beside the Parquet file, "
                                   "which this version cannot read; pass ExplicitKeys")
        double = _get(fields, "doubleWrapping", bool)
        try:
            kek_id = base64.b64decode(_get(fields, "keyEncryptionKeyID", str), validate=True) \
                if double else None
        except (binascii.Error, ValueError):
            raise KeyRetrievalError("key material: keyEncryptionKeyID is no base64") from None
        return cls(
            master_key_id=_get(fields, "masterKeyID", str),
            wrapped_dek=_get(fields, "wrappedDEK", str),
            kek_id=kek_id,
            wrapped_kek=_get(fields, "wrappedKEK", str) if double else None,
            is_footer_key=_get(fields, "isFooterKey", bool, False))

    def serialize(self) -> bytes:
        """The JSON, UTF-8, with the fields in the order that parquet-java writes them."""
        fields: dict = {"keyMaterialType": MATERIAL_TYPE, "internalStorage": True,
                        "isFooterKey": self.is_footer_key}
        if self.is_footer_key:
            fields |= {"kmsInstanceID": "DEFAULT", "kmsInstanceURL": "DEFAULT"}
        fields |= {"masterKeyID": self.master_key_id, "wrappedDEK": self.wrapped_dek,
                   "doubleWrapping": self.kek_id is not None}
        if self.kek_id is not None:
            fields |= {"keyEncryptionKeyID": base64.b64encode(self.kek_id).decode("ascii"),
                       "wrappedKEK": self.wrapped_kek}
        return json.dumps(fields).encode()


def _load(key_metadata: bytes) -> dict:
    try:
        fields = json.loads(key_metadata)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.get("keyMaterialType") != MATERIAL_TYPE:
        raise KeyRetrievalError(
            f"the key metadata is no {MATERIAL_TYPE} key material, so a KMS cannot open it; the "
            "file was written with explicit keys: pass ExplicitKeys")
    return fields


def _get(fields: dict, name: str, type_: type, default=None):
    value = fields.get(name, default)
    if not isinstance(value, type_):
        raise KeyRetrievalError(f"key material: field {name} is missing or not a {type_.__name__}")
    return value
