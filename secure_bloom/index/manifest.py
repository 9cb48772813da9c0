"""Manifests: which segments an index has. Each version is a file that is created and never changed.

``_index/<column>/<version, 12 digits>.manifest`` is JSON:

    format          "SBX3"
    index_id        32 hex digits
    version         as in the name
    key_material    the index key wrapped by the column's master key (PKMT1); or
    index_key       the index key itself, in base64: the index of a column without encryption
    body            base64 of a sealed module (MANIFEST, ordinal: version) with JSON:
        column      dotted path
        segments    id, tail, size, pairs, files and row_groups of each; of some also parts, the
                    files that come before its own one: id and size of each; and file, the name of
                    its own one
        restamped   files that were rewritten with the same values: path -> size, mtime_ns, tag,
                    content, footer
        is_exclusive  whether only jobs of secure_bloom write to the table
        generation  SHA-256 of the table's _staging/generation when the index covered all files, if
                    it is exclusive; else null
        removed     covered files that no longer existed then
        listed      of the visible files then: files, row_groups, bytes, and the folders that have
                    them, or null if there are many; null without a generation

The format SBX2, which is read, too, has no ``listed``.

A writer creates version n + 1 only if it does not exist; a writer that comes second reads it and
tries again. Where a store cannot do that, the segments of one of them are not listed: its files are
not covered, and are searched themselves.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from secure_bloom.errors import (
    FormatError,
    KeyNotFoundError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.index.file_pages import are_normal
from secure_bloom.index.sealing import (
    ID_SIZE,
    KEY_SIZE,
    MAGIC,
    SBX2,
    IndexKey,
    ModuleType,
)
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.stamps import Stamp
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.kms import unwrap_locally
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.storage.small_files import parse_json
from secure_bloom.storage.table_names import folders_of

FORMATS = {magic.decode(): magic for magic in (MAGIC, SBX2)}
_MAX_FOLDERS = 4096  # that a manifest lists
_MAX_SEGMENTS = 1000  # merging keeps far fewer
_MAX_VALUES = 16, 64  # of JSON, around the sealed body


@dataclass(frozen=True)
class Restamp:
    """The stamp and the footer of a covered file that was rewritten after it was indexed."""

    size: int
    mtime_ns: int
    tag: str
    content: bytes
    footer: bytes

    @property
    def stamp(self) -> Stamp:
        """The stamp."""
        return Stamp(self.size, self.mtime_ns, self.tag)


@dataclass(frozen=True)
class Listed:
    """Totals of the visible files, all of which an index covers.

    ``folders`` are those that have files, relative to the table; None: there are many.
    """

    files: int
    row_groups: int
    bytes: int
    folders: tuple[str, ...] | None

    def __post_init__(self) -> None:
        numbers, texts = (self.files, self.row_groups, self.bytes), self.folders or ()
        if any(type(one) is not int or not 0 <= one < 2**63 for one in numbers) \
                or any(type(one) is not str for one in texts):
            raise TypeError

    @classmethod
    def of(cls, listing: Mapping[str, Stamp], row_groups: int, prefix: str = "") -> Listed:
        """Return the totals of listed files, whose paths all begin with a prefix.

        Their folders are all known, and without the prefix.
        """
        start = len(prefix)
        return cls(len(listing), row_groups, sum(stamp.size for stamp in listing.values()),
                   tuple(sorted(folder[start:] for folder in folders_of(listing))))

    def to_be_stored(self) -> Listed:
        """Return the totals without the folders if there are many."""
        return self if len(self.folders or ()) <= _MAX_FOLDERS else replace(self, folders=None)

    @classmethod
    def from_json(cls, fields: Any) -> Listed | None:
        """Parse the fields; raises TypeError or ValueError if they are invalid."""
        if fields is None:
            return None
        folders = fields["folders"]
        return cls(**{**fields, "folders": None if folders is None else tuple(folders)})


@dataclass(frozen=True)
class Body:
    """The sealed part of a manifest; see the module."""

    column: str
    segments: tuple[SegmentInfo, ...] = ()
    restamped: Mapping[str, Restamp] = field(default_factory=dict)
    is_exclusive: bool = False
    generation: str | None = None
    removed: tuple[str, ...] = ()
    listed: Listed | None = None

    @property
    def file_names(self) -> set[str]:
        """Names of all files of the segments."""
        return {name for info in self.segments for name in info.file_names}

    def to_json(self) -> bytes:
        """Return the body as JSON."""
        restamped = {path: [*one.stamp, one.content.hex(), one.footer.hex()]
                     for path, one in self.restamped.items()}
        return json.dumps({"column": self.column,
                           "segments": [info.to_json() for info in self.segments],
                           "restamped": restamped, "is_exclusive": self.is_exclusive,
                           "generation": self.generation, "removed": self.removed,
                           "listed": self.listed and asdict(self.listed)}).encode()

    def without_generation(self) -> Body:
        """Return the body for readers that list the files."""
        return replace(self, generation=None, removed=(), listed=None)

    @classmethod
    def from_json(cls, data: bytes) -> Body:
        """Parse :meth:`to_json`. Unknown fields are an error: they might change the meaning."""
        try:
            fields = parse_json(data)
            if type(fields["segments"]) is not list or type(fields["removed"]) is not list:
                raise TypeError
            if len(fields["segments"]) > _MAX_SEGMENTS:
                raise ValueError
            restamped = {path: Restamp(size, mtime_ns, tag, *map(bytes.fromhex, digests))
                         for path, (size, mtime_ns, tag, *digests)
                         in fields.pop("restamped").items()}
            segments = tuple(map(SegmentInfo.from_json, fields.pop("segments")))
            body = cls(segments=segments, restamped=restamped, removed=tuple(fields.pop("removed")),
                       listed=Listed.from_json(fields.pop("listed", None)), **fields)
            body.check()
        except (ValueError, TypeError, KeyError, AttributeError):
            raise FormatError("the manifest cannot be understood; a newer secure_bloom may have "
                              "written it") from None
        return body

    def check(self) -> None:
        """Raise TypeError or ValueError if a field is invalid."""
        texts = [self.column, *self.removed]
        if self.generation is not None:
            texts.append(self.generation)
        texts += [one.tag for one in self.restamped.values()]
        numbers = [one for stamp in self.restamped.values() for one in (stamp.size, stamp.mtime_ns)]
        if any(type(one) is not str for one in texts) or type(self.is_exclusive) is not bool \
                or any(type(one) is not int for one in numbers):
            raise TypeError
        names = [name for info in self.segments for name in info.file_names]
        if len(set(names)) != len(names) or (self.restamped and not are_normal(self.restamped)) \
                or (self.listed is not None and self.generation is None):
            raise ValueError


@dataclass(frozen=True)
class Manifest:
    """One version.

    Attributes
    ----------
    version : int
    key : IndexKey
    material : KeyMaterial or None
        How the key is wrapped; None: the index has no encryption.
    body : Body
    """

    version: int
    key: IndexKey
    material: KeyMaterial | None
    body: Body

    @classmethod
    def new(cls, column: str, master_key: str | None, kms: CachedKms | None, *,
            is_exclusive: bool = False) -> Manifest:
        """Return version 0 of a new index, which is never stored.

        Without a master key, the index has no encryption.
        """
        key = IndexKey.new()
        material = None if master_key is None or kms is None \
            else wrap_index_key(key, master_key, kms)
        return cls(0, key, material, Body(column, is_exclusive=is_exclusive))

    def next(self, body: Body, version: int) -> Manifest:
        """Return a later version."""
        return replace(self, version=version, body=body)

    def to_bytes(self) -> bytes:
        """Return the file."""
        sealed = self.key.manifest().seal(self.body.to_json(), ModuleType.MANIFEST, self.version)
        key = {"index_key": base64.b64encode(self.key.secret).decode()} if self.material is None \
            else {"key_material": self.material.serialize().decode()}
        return json.dumps({"format": MAGIC.decode(), "index_id": self.key.index_id.hex(),
                           "version": self.version, **key,
                           "body": base64.b64encode(sealed).decode()}).encode()


@dataclass(frozen=True)
class StoredManifest:
    """A manifest as it is stored, before its key is unwrapped.

    ``data`` are the bytes of the file.
    """

    data: bytes = field(repr=False)
    magic: bytes
    version: int
    index_id: bytes
    material: KeyMaterial | None
    index_key: bytes | None = field(repr=False)
    sealed: bytes = field(repr=False)

    @classmethod
    def parse(cls, data: bytes, version: int) -> StoredManifest | None:
        """Parse a file; None if it is torn, because its writer was killed.

        Raises
        ------
        UnsupportedError
            If it has another format.
        FormatError
            If it is complete, but malformed.
        """
        try:
            fields = parse_json(data, *_MAX_VALUES)
        except ValueError:
            return None
        except FormatError:
            raise FormatError("the manifest of the index is malformed") from None
        if not isinstance(fields, dict) or str(fields.get("format")) not in FORMATS:
            raise UnsupportedError("the manifest of the index has an unknown format: another "
                                   "version of secure_bloom wrote it; delete the index and build "
                                   "it again")
        try:
            return cls._of(data, fields, version)
        except (ValueError, TypeError, KeyError, KeyRetrievalError):
            raise FormatError("the manifest of the index is malformed") from None

    @classmethod
    def _of(cls, data: bytes, fields: dict[str, Any], version: int) -> StoredManifest:
        known = {"format", "index_id", "version", "key_material", "index_key", "body"}
        index_id = bytes.fromhex(fields["index_id"])
        material, key = fields.get("key_material"), fields.get("index_key")
        if fields["version"] != version or not known.issuperset(fields) \
                or len(index_id) != ID_SIZE or (material is None) == (key is None):
            raise ValueError
        return cls(data, FORMATS[fields["format"]], version, index_id,
                   None if material is None else KeyMaterial.parse(material),
                   None if key is None else base64.b64decode(key, validate=True),
                   base64.b64decode(fields["body"], validate=True))

    @property
    def is_encrypted(self) -> bool:
        """Whether the index has encryption."""
        return self.material is not None

    def open(self, column: str, kms: CachedKms | None) -> Manifest:
        """Unwrap the key, and open the body.

        Raises
        ------
        KeyRetrievalError
            If the key is missing, denied or wrong.
        AuthenticationError
            If the body was changed.
        FormatError
            If it is malformed, or belongs to another column.
        """
        key = self.unwrap(kms)
        sealer = key.manifest().of_format(self.magic)
        body = Body.from_json(sealer.open(self.sealed, ModuleType.MANIFEST, self.version)
                              .to_pybytes())
        if body.column != column:
            raise FormatError("this manifest belongs to the index of another column")
        return Manifest(self.version, key, self.material, body)

    def key_digest(self, kms: CachedKms | None) -> bytes:
        """Return the SHA-256 of the key that the KMS unwraps, which determines the index key.

        Raises KeyRetrievalError if the key is no longer available.
        """
        key = self.index_key if self.material is None else _key_of_kms(self.material, kms)
        return hashlib.sha256(key or b"").digest()

    def unwrap(self, kms: CachedKms | None) -> IndexKey:
        """Unwrap the key of the index.

        Raises KeyRetrievalError if it is missing, denied or wrong.
        """
        key = self.index_key
        if self.material is not None:
            key = unwrap_index_key(self.material, kms)
        assert key is not None  # there is one of the two
        if len(key) != KEY_SIZE:
            raise FormatError("the key of the index has an invalid length")
        return IndexKey(key, self.index_id)


def wrap_index_key(key: IndexKey, master_key: str, kms: CachedKms) -> KeyMaterial:
    """Wrap the key of an index: a key-encryption key wraps it, and the master key wraps that."""
    kek = kms.key_encryption_key(master_key, KEY_SIZE)
    return KeyMaterial(master_key, kek.wrap(key.secret), kek.kek_id, kek.wrapped_kek)


def unwrap_index_key(material: KeyMaterial, kms: CachedKms | None) -> bytes:
    """Unwrap the key of an index."""
    key = _key_of_kms(material, kms)
    return key if material.kek_id is None \
        else unwrap_locally(key, material.wrapped_dek, material.kek_id)


def _key_of_kms(material: KeyMaterial, kms: CachedKms | None) -> bytes:
    """Return the key that the KMS unwraps: that of an index, or the one that wraps it."""
    if kms is None:
        raise KeyNotFoundError("the index is encrypted; pass keys (--keys)")
    return kms.unwrap_key(material.wrapped_by_master_key, material.master_key_id)
