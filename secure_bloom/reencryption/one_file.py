"""Change the encryption of one file, in one step: the new version takes the name of the old one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

import pyarrow.fs as pa_fs

from secure_bloom.arrow.schema import leaf_categories
from secure_bloom.display import names
from secure_bloom.erasing.user_metadata import metadata_with_values
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.external import create_material, read_material
from secure_bloom.keys.retrieval import Keys
from secure_bloom.maintain.build import build_filter
from secure_bloom.maintain.copied_chunk import CopiedChunk, NewChunk, Part
from secure_bloom.maintain.folders import OTHER_NAMES
from secure_bloom.maintain.new_version import NewVersion, opened_to_rewrite
from secure_bloom.parquet.bloom_filter import encode_filter
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.file_crypto import FileCrypto
from secure_bloom.parquet.row_group import RowGroup
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reencryption.result import ReencryptedFile
from secure_bloom.reencryption.target import (
    Target,
    encrypted_columns,
    names_material,
)
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.storage.files import make_folder
from secure_bloom.storage.many_files import Advance
from secure_bloom.storage.rewrite import Kept, Rewrite
from secure_bloom.storage.table_names import material_path
from secure_bloom.verify.measure import ColumnHashes


@dataclass
class Plan:
    """What a file becomes.

    ``filters`` lists the columns that get a Bloom filter if they have none, by ordinal.
    """

    target: Target
    filters: Mapping[int, BloomFilterOptions] = field(default_factory=dict)


#: returns what an open file becomes; None if it stays as it is
Planner: TypeAlias = Callable[[OpenFile], Plan | None]


class Outcome(NamedTuple):
    """What became of a file; ``change`` is None if it stays as it is."""

    change: ReencryptedFile | None
    # of the file as it is then
    master_keys: frozenset[str]
    encrypted: frozenset[str]  # columns
    identity: bytes | None = None  # aad_file_unique of the new version, if that is encrypted


def change_file(filesystem: pa_fs.FileSystem, path: str, keys: Keys, planner: Planner,
                new_path: str | None, *, folder: str, dry_run: bool, keep_times: bool,
                advance: Advance) -> Outcome:
    """Change the encryption of a file.

    Parameters
    ----------
    filesystem, path
        The file.
    keys : Keys
        Of the file as it is.
    planner : callable
    new_path : str or None
        Where the new file is written. None: in place of the old one.
    folder : str
        The folder whose files are changed, or the path of this one.
    dry_run : bool
        Only return what would be done.
    keep_times : bool
        Whether the new file has the times of the old one.
    advance : callable
        Called with the completed fraction.

    Raises
    ------
    ChangedMeanwhileError
        If the file was changed meanwhile.
    UnsupportedError
        If it cannot be encrypted in this way.
    FormatError, AuthenticationError, KeyRetrievalError
        If it is damaged, or a key is not available.
    """
    with opened_to_rewrite(filesystem, path, keys, folder=folder, keep_times=keep_times) \
            as (rewrite, file):
        with file.one_version():
            plan = planner(file)
            if plan is None:
                if new_path is not None and not dry_run:
                    _copy(filesystem, path, new_path, rewrite, file)
                elif not dry_run:
                    _remove_leftover(filesystem, path, rewrite, file)
                return Outcome(None, _master_keys(file), frozenset(
                    file.columns[ordinal].path for ordinal in encrypted_columns(file.footer)))
            new = _checked(file, plan, keys, advance, in_place=new_path is None)
            change = _described(file, plan, new_path, rewrite)
        if not dry_run:
            _store(filesystem, path, new_path, rewrite, file, new, plan.target)
        algorithm = plan.target.crypto.algorithm
        return Outcome(change, frozenset(plan.target.master_keys()), frozenset(change.encrypted),
                       None if algorithm is None else algorithm.aad_file_unique)


def _checked(file: OpenFile, plan: Plan, keys: Keys, advance: Advance, *,
             in_place: bool) -> NewFile:
    if in_place and plan.target.external_material is not None:
        raise UnsupportedError("key material in a file next to it cannot be replaced together with "
                               "the file: pass output, or store the material in the file")
    _check_categories(file, plan.target)
    new = NewFile(file, plan.target, plan.filters, keys, advance)
    new.check()
    return new


def _check_categories(file: OpenFile, target: Target) -> None:
    """Refuse a file whose schema has all values of an encrypted column, as Polars writes an Enum.

    Everyone who can read the footer would see them.
    """
    categories = [one for field in file.schema for one in leaf_categories(field)]
    has_plaintext_footer = not target.crypto.has_encrypted_footer
    for ordinal, column in target.columns.items():
        if categories[ordinal] and (has_plaintext_footer or column.by == "column key"):
            raise UnsupportedError("the schema in the footer names all categories of this Enum, "
                                   "which every reader of the footer would see; write the file "
                                   "again", column=file.columns[ordinal].path)


def _store(filesystem: pa_fs.FileSystem, path: str, new_path: str | None, rewrite: Rewrite,
           file: OpenFile, new: NewFile, target: Target) -> None:
    if new_path is None:
        had_material = names_material(file.footer)
        _remove_leftover(filesystem, path, rewrite, file)
        rewrite.replace_by(new.parts())
        if had_material:  # the new file has its own
            rewrite.delete_beside(material_path(path))
        return
    make_folder(filesystem, new_path.rpartition("/")[0])
    if target.external_material is not None:
        create_material(filesystem, new_path, target.external_material)
    rewrite.write_to(new_path, new.parts())


def _remove_leftover(filesystem: pa_fs.FileSystem, path: str, rewrite: Rewrite,
                     file: OpenFile) -> None:
    """Remove key material next to a file that needs none, which a killed run has left.

    Not if the file has just been replaced, as far as that can be seen: it is that of the new one.
    """
    material = material_path(path)
    if names_material(file.footer) is False and filesystem.get_file_info(material).is_file \
            and not rewrite.source.is_replaced():
        rewrite.delete_beside(material)


def _copy(filesystem: pa_fs.FileSystem, path: str, new_path: str, rewrite: Rewrite,
          file: OpenFile) -> None:
    """Copy a file that stays as it is, so that the new folder has all files."""
    make_folder(filesystem, new_path.rpartition("/")[0])
    if names_material(file.footer):
        create_material(filesystem, new_path, read_material(filesystem, path))
    rewrite.write_to(new_path, [Kept(0, rewrite.source.size)])


def _described(file: OpenFile, plan: Plan, new_path: str | None,
               rewrite: Rewrite) -> ReencryptedFile:
    target, leaves = plan.target, file.columns
    notes = [OTHER_NAMES] if rewrite.has_other_names and new_path is None else []
    if target.columns and (kept := metadata_with_values(file.schema)):
        notes.append("key-value metadata is kept, and is for whoever reads the footer: "
                     + names(sorted(kept), 10))
    return ReencryptedFile(
        file.name, new_path, rewrite.source.size,
        {leaf.path: target.columns[leaf.ordinal].master_key for leaf in leaves
         if leaf.ordinal in target.columns},
        tuple(leaf.path for leaf in leaves if leaf.ordinal not in target.columns),
        tuple(sorted(_master_keys(file))), tuple(sorted(target.master_keys())),
        tuple(leaves[ordinal].path for ordinal in plan.filters), tuple(notes))


def _master_keys(file: OpenFile) -> frozenset[str]:
    footer = file.footer
    if not footer.is_encrypted:
        return frozenset()
    found = {one.master_key for one in encrypted_columns(footer).values()}
    found.add(footer.crypto.master_key(footer.footer_key_metadata))
    return frozenset(name for name in found if name is not None)


_MOST = 1 << 15  # row groups, and columns: their ordinals in the AAD have two bytes, with a sign


class NewFile(NewVersion):
    """The parts of a file that is encrypted in another way.

    Parameters
    ----------
    file : OpenFile
        Open as long as parts are taken. The keys of its footer and of all columns are needed.
    target : Target
    filters : mapping of int to BloomFilterOptions
        Which columns get a Bloom filter if they have none, by ordinal.
    keys : Keys
        Of the file.
    advance : callable
        As for :class:`.NewVersion`.
    """

    def __init__(self, file: OpenFile, target: Target, filters: Mapping[int, BloomFilterOptions],
                 keys: Keys, advance: Advance = lambda fraction: None):
        super().__init__(file, advance)
        self._target, self._filters = target, filters
        self._hashes = ColumnHashes(file, keys)

    def check(self) -> None:
        """See :meth:`.NewVersion.check`."""
        super().check()
        for what, number in (("row groups", len(self._footer.row_groups)),
                             ("columns", len(self._footer.columns))):
            if self._target.crypto.algorithm is not None and number > _MOST:
                raise UnsupportedError(f"the file has {number:,} {what}; the format can encrypt "
                                       f"at most {_MOST:,}")

    def _new_crypto(self) -> FileCrypto:
        return self._target.crypto

    def _encrypt_as(self, chunk: ColumnChunk) -> None:
        new = self._target.columns.get(chunk.column.ordinal)
        chunk.encrypt_as(None if new is None else new.by, None if new is None else new.key_metadata,
                         has_encrypted_footer=self._target.crypto.has_encrypted_footer)

    def _new_chunks(self, group: RowGroup) -> Sequence[NewChunk]:
        return [self._copied(chunk, group.num_rows) for chunk in group]

    def _copied(self, chunk: ColumnChunk, num_rows: int) -> CopiedChunk:
        ordinal, build = chunk.column.ordinal, None
        if ordinal in self._filters and chunk.bloom_filter is None:
            build = partial(self._built, chunk, num_rows, self._filters[ordinal])
        return CopiedChunk(chunk, self._file, build=build,
                           is_as_it_was=chunk.encryption is None and not self._may_have_extensions
                           and ordinal not in self._target.columns)

    def _built(self, chunk: ColumnChunk, num_rows: int, options: BloomFilterOptions) \
            -> Sequence[Part]:
        return encode_filter(build_filter(self._hashes, chunk, num_rows, options), chunk)
