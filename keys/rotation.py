"""Rotate master keys: wrap the keys of a data set again, and leave the data alone.

Data keys stay; what changes is the key material: in the footer, which is written anew while pages
and filters are copied byte for byte, or in the file beside the Parquet file. A file that is done
opens with the new master key, any other with the old one, so readers need both until all are done.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from threading import Lock

import pyarrow.fs as pa_fs

from secure_bloom.errors import FileError, KeyRetrievalError, SecureBloomError, located
from secure_bloom.files import resolve
from secure_bloom.folder import parquet_files
from secure_bloom.keys import external
from secure_bloom.keys.cache import cached
from secure_bloom.keys.material import KeyMaterial, key_reference
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.parquet.footer import TAIL_SIZE, Footer
from secure_bloom.reader import read_footer
from secure_bloom.rewrite import ChangedMeanwhileError, Rewrite

_FILES_AT_ONCE = 4


@dataclass
class RotationResult:
    """What a rotation did, or would do.

    Attributes
    ----------
    rotated : list of str
        Files with the old master key, which now have the new one.
    unchanged : int
        Files that did not have the old master key.
    failed : dict of str to str
        Files that could not be rotated, and why. They are as they were.
    dry_run : bool
        Nothing was changed.
    """

    rotated: list[str] = field(default_factory=list)
    unchanged: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    dry_run: bool = False

    def to_dict(self) -> dict:
        """As JSON has it."""
        return asdict(self)


def rotate_master_keys(path, kms, *, old: str, new: str, dry_run: bool = False, filesystem=None,
                       advance: Callable[[float], None] | None = None) -> RotationResult:
    """Wrap everything that a master key wraps with another one.

    Can be repeated after a crash: files that are done are left alone. Each file changes in one
    step. Files that a running job writes meanwhile are not seen: rotate again when it is done.

    Parameters
    ----------
    path : str or path
        A Parquet file, or a folder of them.
    kms : KmsClient
        It must unwrap with the old master key, and with those of encrypted footers; and wrap with
        the new one.
    old, new : str
        Names of master keys. Where they are equal, for a KMS that has a new version of the key,
        every file is written again.
    filesystem : pyarrow.fs.FileSystem, optional
    advance : callable, optional
        Is called with the fraction that is done.

    Raises
    ------
    KeyRetrievalError
        If a key cannot be had. Files that were done stay so.
    FileNotFoundError
        If there is no such file or folder.
    """
    filesystem, path = resolve(path, filesystem)
    paths = parquet_files(filesystem, path)
    rotation = _Rotation(filesystem, cached(kms), old, new, dry_run)
    result = RotationResult(dry_run=dry_run)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        outcomes = pool.map(rotation.try_file, paths)
        try:
            for number, (file, outcome) in enumerate(zip(paths, outcomes, strict=True), 1):
                if isinstance(outcome, SecureBloomError):
                    result.failed[file] = outcome.message
                elif outcome:
                    result.rotated.append(file)
                else:
                    result.unchanged += 1
                if advance is not None:
                    advance(number / len(paths))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return result


class _Rotation:
    """One rotation: every distinct wrapped key is wrapped again only once."""

    def __init__(self, filesystem: pa_fs.FileSystem, kms, old: str, new: str, dry_run: bool):
        self._filesystem, self._kms, self._dry_run = filesystem, kms, dry_run
        self._old, self._new = old, new
        self._wrapped: dict[str, str] = {}
        self._lock = Lock()

    def try_file(self, path: str) -> bool | SecureBloomError:
        """Whether the file had the old key; an error if it is the file's own fault."""
        try:
            with located(file=path):
                return self._file(path)
        except (FileError, ChangedMeanwhileError) as error:
            return error
        except KeyRetrievalError as error:
            if type(error) is KeyRetrievalError:  # the key material, not the KMS
                return error
            raise

    def _file(self, path: str) -> bool:
        with Rewrite(self._filesystem, path) as rewrite:
            content, magic = read_footer(rewrite.source)
            beside = partial(external.read_material, self._filesystem, path)
            footer = Footer(content, magic, KmsKeys(self._kms, beside),
                            start=rewrite.source.size - TAIL_SIZE - len(content))
            if not footer.is_encrypted:
                return False
            metadata = {chunk.key_metadata for chunks in footer.row_groups for chunk in chunks}
            metadata = {footer.footer_key_metadata, *metadata} - {None}
            if all(key_reference(one) is not None for one in metadata):
                return self._rotate_external(path, beside())
            return self._rotate_internal(rewrite, footer)

    def _rotate_external(self, path: str, materials: dict[str, str]) -> bool:
        rotated = {name: self._rotated(KeyMaterial.parse(text)) for name, text in materials.items()}
        changed = {name: material.serialize(external=True).decode()
                   for name, material in rotated.items() if material is not None}
        if changed and not self._dry_run:
            external.write_material(self._filesystem, path, {**materials, **changed})
        return bool(changed)

    def _rotate_internal(self, rewrite: Rewrite, footer: Footer) -> bool:
        rotated: dict[bytes, bytes] = {}

        def change(key_metadata: bytes | None, set_key_metadata: Callable[[bytes], None]) -> None:
            if key_metadata is None or key_reference(key_metadata) is not None:
                return
            if key_metadata not in rotated:
                material = self._rotated(KeyMaterial.parse(key_metadata))
                rotated[key_metadata] = key_metadata if material is None else material.serialize()
            set_key_metadata(rotated[key_metadata])

        _ = footer.footer_cipher  # while the footer says how to get its key
        change(footer.footer_key_metadata, footer.set_footer_key_metadata)
        for chunks in footer.row_groups:
            for chunk in chunks:
                change(chunk.key_metadata, chunk.set_key_metadata)
        has_changed = any(before != after for before, after in rotated.items())
        if has_changed and not self._dry_run:
            rewrite.replace_tail(footer.start, [footer.to_bytes()])
        return has_changed

    def _rotated(self, material: KeyMaterial) -> KeyMaterial | None:
        """The material under the new master key; None where it is not under the old one."""
        if material.master_key_id != self._old:
            return None
        if self._dry_run:
            return replace(material, master_key_id=self._new, wrapped_dek="", wrapped_kek="")
        if material.kek_id is None:
            return replace(material, master_key_id=self._new,
                           wrapped_dek=self._wrapped_again(material.wrapped_dek))
        return replace(material, master_key_id=self._new,
                       wrapped_kek=self._wrapped_again(material.wrapped_kek))

    def _wrapped_again(self, wrapped: str) -> str:
        with self._lock:
            if wrapped not in self._wrapped:
                key = self._kms.unwrap_key(wrapped, self._old)
                self._wrapped[wrapped] = self._kms.wrap_key(key, self._new)
            return self._wrapped[wrapped]
