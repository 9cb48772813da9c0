"""The master keys a data set needs, as far as its files reveal them without keys.

The key material of an encrypted footer can always be read. The key material of columns can be read
only with a plaintext footer or external key material; otherwise it is in the encrypted footer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.display import Result, count, names, shown
from secure_bloom.errors import NO_KEY, KeyRetrievalError
from secure_bloom.keys import external
from secure_bloom.keys.material import KeyMaterial, find_material, is_key_material, key_references
from secure_bloom.keys.retrieval import Keys, key_retriever, open_keys
from secure_bloom.parquet.footer import Footer, encrypted_footer_key_metadata
from secure_bloom.parquet.tail import MAGIC_ENCRYPTED, read_footer
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.many_files import Advance, ManyFiles
from secure_bloom.storage.source import Source
from secure_bloom.storage.versions import until_unchanged
from secure_bloom.storage.visibility import parquet_files

FOOTER = "footer"


@dataclass(repr=False)
class MasterKeyUse(Result):
    """The use of one master key in a data set.

    Attributes
    ----------
    name : str
    files : int
        Number of files that need it.
    used_for : list of str
        ``footer``, and the paths of columns; names of keys, such as ``columnKey0``, if the columns
        are not known.
    wrapping : str
        ``single``, ``double`` or ``both``.
    kms_instance_id, kms_instance_url : str or None
        As recorded in footers.
    """

    name: str
    files: int = 0
    used_for: list[str] = field(default_factory=list)
    wrapping: str = ""
    kms_instance_id: str | None = None
    kms_instance_url: str | None = None

    def _headline(self) -> str:
        return f"{shown(self.name, 60)}: {count(self.files, 'file')}"


@dataclass(repr=False)
class Inventory(Result):
    """The master keys of a data set.

    Attributes
    ----------
    files : int
    plaintext : int
        Files without encryption.
    explicit : int
        Files that are encrypted with explicit keys, not through a KMS.
    hidden : int
        Files with an encrypted footer that was not opened: their columns may need further keys.
    master_keys : list of MasterKeyUse
        Sorted by name.
    failed : dict of str to str
        Files that cannot be read, and why.
    """

    files: int = 0
    plaintext: int = 0
    explicit: int = 0
    hidden: int = 0
    master_keys: list[MasterKeyUse] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def _headline(self) -> str:
        return (f"{count(self.files, 'file')}, {self.plaintext:,} without encryption, "
                f"{count(len(self.master_keys), 'master key')}, {len(self.failed):,} failed")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return ("master key", "files", "used for"), (
            (use.name, use.files, names(use.used_for)) for use in self.master_keys)


def list_master_keys(source: FilePath, keys: Keys = None, *,
                     filesystem: pa_fs.FileSystem | None = None,
                     advance: Advance | None = None) -> Inventory:
    """List the master keys that the files of a data set need.

    Parameters
    ----------
    source : str or path
        A Parquet file, or a folder of them.
    keys : KmsClient, path of a keyring, or URI of a KMS, optional
        Opens encrypted footers, which hold the key material of columns. Files whose footer it
        cannot open are counted as hidden.
    filesystem : pyarrow.fs.FileSystem, optional
    advance : callable, optional
        Called with the fraction that is done.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    KmsUnavailableError, KeyringError
        If the KMS does not respond, or the keyring cannot be read.

    Examples
    --------
    >>> print(list_master_keys("people/", "keyring.json"))  # doctest: +SKIP
    """
    filesystem, path = resolve(source, filesystem)
    paths = parquet_files(filesystem, path)
    counting = _Counting(filesystem, open_keys(keys))
    files: ManyFiles[None] = ManyFiles(counting.add, paths, advance)
    files.run(1)  # counted in the order of the paths
    *_, failed = files.outcomes()
    return counting.finish(len(paths), failed)


class _Counting:
    def __init__(self, filesystem: pa_fs.FileSystem, keys: Keys):
        self._filesystem, self._keys = filesystem, keys
        self._inventory = Inventory()
        self._uses: dict[str, MasterKeyUse] = {}

    def add(self, path: str, advance: Advance) -> None:
        materials = self._materials(path)
        for name in {material.master_key_id for _, material in materials}:
            self._uses.setdefault(name, MasterKeyUse(name)).files += 1
        for place, material in materials:
            self._count(place, material)

    def finish(self, num_files: int, failed: dict[str, str]) -> Inventory:
        self._inventory.files, self._inventory.failed = num_files, failed
        self._inventory.master_keys = [self._uses[name] for name in sorted(self._uses)]
        return self._inventory

    def _count(self, place: str, material: KeyMaterial) -> None:
        use = self._uses[material.master_key_id]
        if place not in use.used_for:
            use.used_for.append(place)
        wrapping = "single" if material.kek_id is None else "double"
        use.wrapping = wrapping if use.wrapping in ("", wrapping) else "both"
        if material.is_footer_key:
            use.kms_instance_id = material.kms_instance_id
            use.kms_instance_url = material.kms_instance_url

    def _materials(self, path: str) -> list[tuple[str, KeyMaterial]]:
        """Return place and key material of each key of a file, as far as they can be read."""
        kind, materials = until_unchanged(lambda: self._read(path))
        self._inventory.plaintext += kind == "plaintext"
        self._inventory.explicit += kind == "explicit"
        self._inventory.hidden += kind == "hidden"
        return materials

    def _read(self, path: str) -> tuple[str | None, list[tuple[str, KeyMaterial]]]:
        """Do the same for one version of the file; also return how the file is counted."""
        source = Source(path, self._filesystem)
        with source.file, source.one_version():
            found = self._found(source)
            source.check_name()  # external key material belongs to this version of the file
            return found

    def _found(self, source: Source) -> tuple[str | None, list[tuple[str, KeyMaterial]]]:
        assert source.path is not None
        beside = cache(partial(external.read_material, self._filesystem, source.path))
        metadata, is_hidden = self._key_metadata(source, beside)
        if not metadata:
            return "plaintext", []
        known = {place: one for place, one in metadata.items()
                 if one is not None and is_key_material(one)}
        if len(known) < len(metadata):
            return "explicit", []
        if is_hidden and key_references(known.values()) != {None}:  # all keys are stored externally
            return None, [(name, KeyMaterial.parse(text)) for name, text in beside().items()]
        return "hidden" if is_hidden else None, \
            [(place, find_material(one, beside)) for place, one in known.items()]

    def _key_metadata(self, source: Source, beside: Callable[[], Mapping[str, str]]) \
            -> tuple[dict[str, bytes | None], bool]:
        """Return the key metadata by place, and whether more is hidden in an encrypted footer."""
        content, magic = read_footer(source)
        footer = self._opened(content, magic, beside)
        if footer is None:
            return {FOOTER: encrypted_footer_key_metadata(content)}, True
        if not footer.is_encrypted:
            return {}, False
        columns = {chunk.column.path: chunk.key_metadata for chunk in footer.column_chunks()
                   if chunk.encryption == "column key"}
        return {FOOTER: footer.footer_key_metadata, **columns}, False

    def _opened(self, content: bytes, magic: bytes, beside: Callable[[], Mapping[str, str]]) \
            -> Footer | None:
        """Return the footer; None if it is encrypted and its key is not available."""
        if magic != MAGIC_ENCRYPTED:
            return Footer(content, magic, None)
        keys = key_retriever(self._keys, beside)
        if keys is None:
            return None
        try:
            return Footer(content, magic, keys)
        except NO_KEY:
            return None
        except KeyRetrievalError as error:
            if type(error) is KeyRetrievalError:  # the key metadata is not for a KMS
                return None
            raise
