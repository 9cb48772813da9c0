"""The layer ``key-material``: PKMT1 key metadata, wrapped locally as in parquet-java's tests."""

from __future__ import annotations

import base64
import json

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vectors.builder.small import Layer, flipped
from vectors.builder.vector import MASTER_KEYS, Seeded

_KEK_ID = Seeded("kek id").bytes(16)
_KEK = Seeded("kek").bytes(16)
_DATA_KEYS = {bits: Seeded(f"data key {bits}").bytes(bits // 8) for bits in (128, 192, 256)}
_DROP = object()


def _wrap(key: bytes, plaintext: bytes, aad: bytes, name: str) -> str:
    nonce = Seeded(f"wrap {name}").bytes(12)
    return _base64(nonce + AESGCM(key).encrypt(nonce, plaintext, aad))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _material(data_key: bytes, master: str, *, double: bool, footer: bool) -> dict:
    fields = {"keyMaterialType": "PKMT1", "internalStorage": True, "isFooterKey": footer}
    if footer:
        fields |= {"kmsInstanceID": "DEFAULT", "kmsInstanceURL": "DEFAULT"}
    key, aad = (_KEK, _KEK_ID) if double else (MASTER_KEYS[master], master.encode())
    fields |= {"masterKeyID": master, "wrappedDEK": _wrap(key, data_key, aad, f"dek {master}"),
               "doubleWrapping": double}
    if double:
        fields |= {"keyEncryptionKeyID": _base64(_KEK_ID),
                   "wrappedKEK": _wrap(MASTER_KEYS[master], _KEK, master.encode(), "kek")}
    return fields


def key_material() -> Layer:
    """Key material of every form, and one fault at a time."""
    layer = Layer("key-material", "vectors/builder/material.py, AES-GCM by pyca/cryptography")

    def add(name, metadata, outcome, output=None, *, masters=MASTER_KEYS, fault=None):
        text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
        layer.add(f"material_{name}", "unwrap",
                  {"key_metadata": text, "master_keys": masters}, outcome, output, fault=fault)

    for bits, data_key in _DATA_KEYS.items():
        for double in (True, False):
            for footer, master in ((True, "kf"), (False, "kc1")):
                name = f"{'footer' if footer else 'column'}_{'double' if double else 'single'}"
                add(f"{name}_{bits}", _material(data_key, master, double=double, footer=footer),
                    "unwrapped", {"data_key": data_key, "master_key": master})
    good = _material(_DATA_KEYS[128], "kc1", double=True, footer=False)
    output = {"data_key": _DATA_KEYS[128], "master_key": "kc1"}
    shuffled = dict(sorted(good.items(), reverse=True))
    add("fields_in_other_order", shuffled, "unwrapped", output)
    add("unknown_field", {**good, "comment": "new"}, "unwrapped", output)
    add("with_spaces", json.dumps(good, indent=2).encode(), "unwrapped", output)
    for name, (metadata, outcome, fault) in _faults(good).items():
        add(name, metadata, outcome, fault=fault)
    add("no_master_keys", good, "key_not_found", masters={"kf": MASTER_KEYS["kf"]},
        fault="the KMS has no key kc1")
    add("other_master_key", good, "unwrap_failed", masters={"kc1": MASTER_KEYS["kc2"]},
        fault="the KMS has another key of that name")
    add("external", {"keyMaterialType": "PKMT1", "internalStorage": False,
                     "keyReference": "columnKey0"}, "external",
        fault="the material is in a file next to the Parquet file")
    return layer


def _faults(good: dict) -> dict:
    def changed(**fields) -> dict:
        return {name: value for name, value in {**good, **fields}.items() if value is not _DROP}

    def bit(name: str, number: int) -> dict:
        return changed(**{name: _base64(flipped(base64.b64decode(good[name]), number))})

    text = json.dumps(good).encode()
    faults = {
        "empty": (b"", "malformed", "there is nothing"),
        "key_id": (b"kc1", "malformed", "a bare key name, not key material"),
        "cut": (text[:-1], "malformed", "the JSON is truncated"),
        "not_utf8": (text.replace(b"kc1", b"k\xff1"), "malformed", "the JSON is not valid UTF-8"),
        "list": (b"[1]", "malformed", "a JSON list"),
        "deep": (b"[" * 5000, "malformed", "lists in lists without end"),
        "other_type": (changed(keyMaterialType="PKMT2"), "malformed", "another type of material"),
        "no_type": (changed(keyMaterialType=_DROP), "malformed", "the type is missing"),
        "number_as_key_name": (changed(masterKeyID=1), "malformed", "masterKeyID is a number"),
        "double_as_text": (changed(doubleWrapping="true"), "malformed",
                           "doubleWrapping is a string"),
        "kek_id_no_base64": (changed(keyEncryptionKeyID="%%%"), "malformed",
                             "keyEncryptionKeyID is not valid base64"),
        "unknown_master_key": (changed(masterKeyID="kc3"), "key_not_found",
                               "the KMS has no key kc3"),
        "wrong_master_key": (changed(masterKeyID="kc2"), "unwrap_failed",
                             "the KEK is wrapped with kc1, the material says kc2"),
        "other_kek_id": (changed(keyEncryptionKeyID=_base64(bytes(16))), "unwrap_failed",
                         "the data key was wrapped under another KEK id"),
        "dek_for_kek": (changed(wrappedKEK=good["wrappedDEK"]), "unwrap_failed",
                        "the wrapped data key is stored where the KEK belongs"),
        "kek_for_dek": (changed(wrappedDEK=good["wrappedKEK"]), "unwrap_failed",
                        "the wrapped KEK is stored where the data key belongs"),
        "double_said_single": (changed(doubleWrapping=False), "unwrap_failed",
                               "the material says single wrapping, but there is a KEK in between"),
    }
    for name in ("masterKeyID", "wrappedDEK", "doubleWrapping", "keyEncryptionKeyID", "wrappedKEK"):
        faults[f"no_{name}"] = (changed(**{name: _DROP}), "malformed", f"{name} is missing")
    for name in ("wrappedDEK", "wrappedKEK"):
        size = len(base64.b64decode(good[name]))
        for place, number in (("nonce", 0), ("ciphertext", 12 * 8), ("tag", size * 8 - 1)):
            faults[f"{name}_{place}_bit"] = (bit(name, number), "unwrap_failed",
                                             f"a bit of the {place} of {name} is flipped")
        faults[f"{name}_cut"] = (changed(**{name: _base64(base64.b64decode(good[name])[:27])}),
                                 "unwrap_failed", f"{name} has 27 bytes")
        faults[f"{name}_empty"] = (changed(**{name: ""}), "unwrap_failed", f"{name} is empty")
        faults[f"{name}_no_base64"] = (changed(**{name: "%%%"}), "unwrap_failed",
                                       f"{name} is not valid base64")
    short = _wrap(_KEK, b"0123456789", _KEK_ID, "short")
    faults["data_key_of_10_bytes"] = (changed(wrappedDEK=short), "unwrap_failed",
                                      "the data key has 10 bytes; AES has 16, 24 or 32")
    return faults
