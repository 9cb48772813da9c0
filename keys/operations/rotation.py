"""Rotate master keys: rewrap the keys of a data set without changing the data.

Data keys stay the same. Only the key material changes: in the footer, which is rewritten while
pages and filters are copied byte for byte, or in the external key material file. A rotated file
opens with the new master key, any other with the old one, so readers need both until all files are
done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow.fs as pa_fs

from secure_bloom.display import ChangeResult, listed
from secure_bloom.errors import NO_KEY, KeyNotFoundError
from secure_bloom.keys import external
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.kms import KeyWrapper
from secure_bloom.keys.material import KeyMaterial, key_reference, key_references
from secure_bloom.keys.operations.rewrapping import Rewrapping, Stop
from secure_bloom.keys.retrieval import KmsKeys, open_client
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.tail import TAIL_SIZE, read_footer
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.inside import check_below
from secure_bloom.storage.leftovers import remove_leftovers_of
from secure_bloom.storage.many_files import Advance, ManyFiles, result_on_error
from secure_bloom.storage.rewrite import Rewrite
from secure_bloom.storage.table_names import material_path
from secure_bloom.storage.visibility import parquet_files

_FILES_AT_ONCE = 4


@dataclass(repr=False)
class RotationResult(ChangeResult):
    """Result of a rotation or of a dry run.

    Attributes
    ----------
    rotated : list of str
        Files with the old master key, which now have the new one.
    unchanged, failed, dry_run
        See :class:`ChangeResult`. Unchanged files did not have the old master key.
    master_keys : list of str
        All master keys found in the files before the rotation.
    """

    rotated: list[str] = field(default_factory=list)
    unchanged: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    master_keys: list[str] = field(default_factory=list)
    dry_run: bool = False

    def _headline(self) -> str:
        return self._counts(len(self.rotated), "to rotate", "rotated")

    def _rows(self) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        return ("file", "error"), self.failed.items()


def rotate_master_keys(path: FilePath, keys: KeyWrapper | FilePath | None = None, *, old: str,
                       new: str, dry_run: bool = False,
                       filesystem: pa_fs.FileSystem | None = None,
                       advance: Advance | None = None) -> RotationResult:
    """Rewrap everything that one master key wraps with another one.

    First the new master key wraps and unwraps a random key, also in a dry run, which additionally
    tries the old one. So obstacles are detected before anything changes.

    Can be repeated after a crash: files that are done are not changed again. Each file changes
    atomically, and only after each key has opened its column or footer, and the new master key has
    unwrapped what it wrapped. Files that a running job writes in the meantime are not seen: rotate
    again when the job is done.

    Parameters
    ----------
    path : str or path
        A Parquet file, or a folder of them.
    keys : KmsClient, path of a keyring, or URI of a KMS, optional
        Default: the KMS of the environment. It must unwrap with the old master key and with those
        of footers, and wrap and unwrap with the new one.
    old, new : str
        Names of master keys. If they are equal, for a KMS that has a new version of the key, every
        file is rewritten.
    dry_run : bool
        Only report what would be done.
    filesystem : pyarrow.fs.FileSystem, optional
    advance : callable, optional
        Called with the fraction that is done.

    Raises
    ------
    KeyNotFoundError
        If the old or the new master key is missing, or if all files could be read and none uses
        either of them.
    KeyRetrievalError
        If the old or the new master key is missing or denied, or cannot unwrap what it has wrapped,
        or the KMS does not respond. An error of secure_bloom that ends a rotation has a
        ``result``: a RotationResult with what was done before.
    OperationInterrupted
        On KeyboardInterrupt, of which it is a subclass; with the same ``result``.
    FileNotFoundError
        If the file or folder does not exist.

    Examples
    --------
    >>> rotate_master_keys("people/", "keyring.json", old="pii", new="pii-2")  # doctest: +SKIP
    """
    client = open_client(keys, to_wrap=True)
    filesystem, path = resolve(path, filesystem)
    paths = parquet_files(filesystem, path)
    rewrapping = Rewrapping(client, old, new, dry_run)
    rotation = _Rotation(filesystem, path, rewrapping)
    files = ManyFiles(lambda file, _: file if rotation.rotate(file) else None, paths, advance)

    def result() -> RotationResult:
        return RotationResult(*files.outcomes(), sorted(rewrapping.found), dry_run)

    with result_on_error(result):
        try:
            rewrapping.try_new_key()
            if not dry_run:
                remove_leftovers_of(filesystem, path, (name for file in paths for name in (
                    file, material_path(file))))
            files.run(_FILES_AT_ONCE)
            done = result()
            if not done.failed:
                rotation.check_found()
            return done
        except Stop as stop:
            raise stop.reason from stop.reason.__cause__


class _FooterKeys(KmsKeys):
    """Opens footers; stops the rotation if the old or the new key is missing or denied."""

    def __init__(self, kms: CachedKms, read_external: Callable[[], Mapping[str, str]], old: str,
                 new: str):
        super().__init__(kms, read_external)
        self._needed = (old, new)

    def footer_key(self, key_metadata: bytes | None) -> bytes:
        """See :class:`KmsKeys`."""
        try:
            return super().footer_key(key_metadata)
        except NO_KEY as error:
            if key_metadata is not None \
                    and self.material(key_metadata).master_key_id in self._needed:
                raise Stop(error) from None
            raise


class _Rotation:
    """One rotation of a file, or of the files below a folder."""

    def __init__(self, filesystem: pa_fs.FileSystem, where: str, rewrapping: Rewrapping):
        self._filesystem, self._where, self._rewrapping = filesystem, where, rewrapping
        self._old, self._new = rewrapping.old, rewrapping.new

    def check_found(self) -> None:
        """Raise KeyNotFoundError if no file has, or has had, anything to rotate."""
        if {self._old, self._new} & self._rewrapping.found:
            return
        names = sorted(self._rewrapping.found)
        found = f"the files use: {listed(names)}" if names \
            else "no file is encrypted under a master key"
        raise KeyNotFoundError(f"no file below {self._where} uses master key {self._old!r}; "
                               f"{found}")

    def rotate(self, path: str) -> bool:
        """Rotate one file; return whether it had the old master key."""
        check_below(self._filesystem, self._where, path)
        with Rewrite(self._filesystem, path, folder=self._where) as rewrite:
            with rewrite.source.one_version():
                content, magic = read_footer(rewrite.source)
                beside = partial(external.read_material, self._filesystem, path)
                keys = _FooterKeys(self._rewrapping.kms, beside, self._old, self._new)
                footer = Footer(content, magic, keys,
                                start=rewrite.source.size - TAIL_SIZE - len(content))
            if not footer.is_encrypted:
                return False
            if None not in key_references(footer.all_key_metadata()):
                return self._rotate_external(path, footer)
            return self._rotate_internal(rewrite, footer)

    def _rotate_external(self, path: str, footer: Footer) -> bool:
        if path != self._where:
            check_below(self._filesystem, self._where, material_path(path))
        file = external.MaterialFile(self._filesystem, path, self._where)
        with file:
            materials = file.read()
            rotated = {name: self._rewrapping.rewrapped(KeyMaterial.parse(text))
                       for name, text in materials.items()}
            changed = {name: material.serialize(external=True).decode()
                       for name, material in rotated.items() if material is not None}
            if changed and not self._rewrapping.dry_run:
                for chunk in footer.column_chunks():
                    if chunk.key_metadata and key_reference(chunk.key_metadata) in changed:
                        _check_key(chunk)
                file.replace({**materials, **changed})
            return bool(changed)

    def _rotate_internal(self, rewrite: Rewrite, footer: Footer) -> bool:
        rotated: dict[bytes, bytes] = {}

        def change(key_metadata: bytes | None, set_key_metadata: Callable[[bytes], None],
                   chunk: ColumnChunk | None = None) -> None:
            if key_metadata is None or key_reference(key_metadata) is not None:
                return
            if key_metadata not in rotated:
                material = self._rewrapping.rewrapped(KeyMaterial.parse(key_metadata))
                if chunk is not None and material is not None and not self._rewrapping.dry_run:
                    _check_key(chunk)
                rotated[key_metadata] = key_metadata if material is None else material.serialize()
            set_key_metadata(rotated[key_metadata])

        _ = footer.crypto.footer_cipher  # while the footer still names its old key
        change(footer.footer_key_metadata, footer.set_footer_key_metadata)
        for chunk in footer.column_chunks():
            change(chunk.key_metadata, chunk.set_key_metadata, chunk)
        has_changed = any(before != after for before, after in rotated.items())
        if has_changed and not self._rewrapping.dry_run:
            rewrite.replace_tail(footer.start, [footer.to_bytes()])
        return has_changed


def _check_key(chunk: ColumnChunk) -> None:
    """Check that a key opens its column.

    The KMS might have returned a wrong key. Wrapped again, it would replace the right one.
    """
    chunk.metadata()
