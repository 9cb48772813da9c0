"""What a reader requires to be encrypted, so that plaintext cannot be substituted for it.

A reader with a KMS also reads unencrypted files. An attacker without any key could therefore
replace an encrypted file, and its rows and Bloom filters would contain what the attacker chooses. A
requirement is checked when a file is opened, before any result is returned, against a footer that
the footer key has authenticated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Protocol, TypeGuard, cast, overload

from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.display import choices
from secure_bloom.errors import AuthenticationError, ColumnError, KeyNotFoundError, error_location
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn, is_at_or_below


class Requirement(Protocol):
    """A check of every file that is opened."""

    def check(self, footer: Footer) -> None:
        """Raise AuthenticationError if the file of this footer does not meet the requirement."""


class PathRequirement(Requirement, Protocol):
    """A requirement that depends on the path of the file, such as a policy."""

    def for_path(self, path: str | None) -> PathRequirement:
        """Return the requirement for the file at this path; None: the file has no path."""

    def check_path_columns(self, names: Iterable[str], columns: Iterable[LeafColumn]) -> None:
        """Check columns whose values come from a file's path, which is not authenticated."""

    def demands_any(self, columns: Iterable[LeafColumn]) -> bool:
        """Whether one of these columns of the file must be encrypted."""


RequireEncryption = bool | Iterable[str] | Mapping[str, str | None] | Requirement | None


@dataclass(frozen=True)
class EncryptionRequirement:
    """Columns that must be encrypted in every file that is read.

    Attributes
    ----------
    every_column : bool
        Whether all columns must be encrypted.
    columns : mapping of str to (str or None)
        Maps dotted paths of columns, or of groups with all leaves below them, to the names of
        their master keys, or to None if any master key is accepted.
    columns_may_be_missing : bool
        Whether a file may lack some of these columns, because it is one of several.
    ignore_case : bool
        Whether names that differ only in case refer to the same column, as in Spark.
    """

    every_column: bool = False
    columns: Mapping[str, str | None] = field(default_factory=dict)
    columns_may_be_missing: bool = False
    ignore_case: bool = False

    def check(self, footer: Footer) -> None:
        """Check a file.

        Raises AuthenticationError if the file or a column is not encrypted, or the column uses
        another master key, or the file has a column whose name differs from a required one only in
        case; KeyNotFoundError if the signature of a plaintext footer was not verified because its
        key is missing; ColumnError if the file lacks one of the columns.
        """
        check_footer(footer)
        demanded = self._demanded(footer.columns)
        self._check_case(footer.columns)
        check_columns(footer, demanded)

    def check_no_conflict(self) -> None:
        """Raise ValueError if two different master keys are required for one column."""
        keys = {name: key for name, key in self.columns.items() if key is not None}
        for (name, key), (other, its_key) in permutations(keys.items(), 2):
            if key != its_key and is_at_or_below(self._folded(name), self._folded(other)):
                raise ValueError(f"require_encryption names two master keys for column {name!r}: "
                                 f"{key!r}, and {its_key!r} for {other!r}")

    def with_columns(self, names: Iterable[str]) -> EncryptionRequirement:
        """Return the requirement extended by these columns under any master key."""
        return replace(self, columns={**dict.fromkeys(names), **self.columns})

    def names_in(self, paths: Iterable[str]) -> set[str]:
        """Return the names that match any of the leaf columns, given by dotted path."""
        folded = [self._folded(path) for path in paths]
        return {name for name in self.columns
                if any(is_at_or_below(path, self._folded(name)) for path in folded)}

    def check_names(self, found: Iterable[str]) -> None:
        """Raise ColumnError for a name that matches no column in any file: it may be misspelt."""
        for name in self.columns.keys() - set(found):
            raise ColumnError("it must be encrypted, but no file has such a column", column=name)

    def check_path_columns(self, names: Iterable[str], columns: Iterable[LeafColumn]) -> None:
        """Check columns whose values come from a file's path, which is not authenticated.

        ``names`` are these columns, ``columns`` those of the file. Raises AuthenticationError if
        one of the names must be encrypted, or replaces an encrypted column of the file. Names that
        differ only in case count as equal: SQL would find the one for the other.
        """
        own = {leaf.parts[0].lower() for leaf in columns}
        demanded = {name.lower() for name in self.columns}
        for name in names:
            folded = name.lower()
            if (self.every_column and folded in own) \
                    or any(is_at_or_below(one, folded) for one in demanded):
                raise AuthenticationError("it must be encrypted, but its values come from the "
                                          "path of the file, which is not encrypted", column=name)

    def _demanded(self, columns: list[LeafColumn]) -> dict[int, str | None]:
        """Return the ordinals of the columns that must be encrypted, with their master keys."""
        demanded: dict[int, str | None] = \
            {leaf.ordinal: None for leaf in columns} if self.every_column else {}
        for name, master_key in self.columns.items():
            found = self._at_or_below(name, columns)
            if not found and not self.columns_may_be_missing:
                raise ColumnError("it must be encrypted, but the file has no such column"
                                  + choices(name, [leaf.path for leaf in columns]), column=name)
            for leaf in found or self._instead(name, columns):
                demanded[leaf.ordinal] = master_key or demanded.get(leaf.ordinal)
        return demanded

    def _check_case(self, columns: Iterable[LeafColumn]) -> None:
        """Check that no other column differs from a required one only in case.

        SQL finds the one for the other, and so the rows of an open column, or none.
        """
        if self.ignore_case:
            return
        for leaf in columns:
            if any(is_at_or_below(leaf.path, name) for name in self.columns):
                continue
            for name in self.columns:
                if is_at_or_below(leaf.path.lower(), name.lower()):
                    raise AuthenticationError(
                        f"its name differs only in case from {name!r}, which must be encrypted, so "
                        "SQL may read one for the other; rename one of the columns or, if both "
                        "are meant, require both", column=leaf.path)

    def _at_or_below(self, name: str, columns: Iterable[LeafColumn]) -> list[LeafColumn]:
        folded = self._folded(name)
        return [leaf for leaf in columns if is_at_or_below(self._folded(leaf.path), folded)]

    def _instead(self, name: str, columns: list[LeafColumn]) -> list[LeafColumn]:
        """Return the columns that may hold the values of a column missing under this name.

        Writers name the groups within lists and maps differently.
        """
        while "." in name:
            name = name.rpartition(".")[0]
            found = self._at_or_below(name, columns)
            if found:
                return [leaf for leaf in found
                        if leaf.is_repeated or self._folded(leaf.path) == self._folded(name)]
        return []

    def _folded(self, name: str) -> str:
        return name.lower() if self.ignore_case else name


class FolderChecks:
    """A requirement for the files of a folder, some of which may lack columns that others have.

    The values of ``path_columns`` come from the paths of the files.
    """

    def __init__(self, requirement: Requirement | None, path_columns: Iterable[str] = ()):
        self._path_columns = list(path_columns)
        self._found: set[str] = set()
        self._own = requirement if isinstance(requirement, EncryptionRequirement) else None
        self._of_file = requirement if self._own is None \
            else replace(self._own, columns_may_be_missing=True)
        self._demanding = False
        self._plaintext: list[str | None] = []  # the first file without encryption

    @property
    def may_demand(self) -> bool:
        """Whether a file may be refused."""
        return self._of_file is not None

    def check(self, footer: Footer, path: str | None = None) -> None:
        """Check one of the files; see :meth:`EncryptionRequirement.check`."""
        requirement = requirement_for(self._of_file, path)
        if requirement is not None:
            requirement.check(footer)
        if self._own is not None:
            self._own.check_path_columns(self._path_columns, footer.columns)
            self._found.update(self._own.names_in(leaf.path for leaf in footer.columns))
        elif _depends_on_path(requirement):
            requirement.check_path_columns(self._path_columns, footer.columns)
            if requirement.demands_any(footer.columns):  # other threads may check other files
                self._demanding = True
            if not footer.is_encrypted and not self._plaintext:
                self._plaintext.append(path)

    def finish(self) -> None:
        """Check the files together.

        Raises
        ------
        ColumnError
            If none of the files has a column that must be encrypted.
        AuthenticationError
            If a file is not encrypted, and others have columns that must be: it may have been
            substituted for one of them.
        """
        if self._own is not None:
            self._own.check_names(self._found)
        if self._demanding and self._plaintext:
            raise AuthenticationError("the file is not encrypted, and other files of the folder "
                                      "have columns that must be encrypted",
                                      file=self._plaintext[0])


@overload
def encryption_requirement(required: bool | Iterable[str] | Mapping[str, str | None] | None, *,
                           ignore_case: bool = False) -> EncryptionRequirement | None: ...


@overload
def encryption_requirement(required: RequireEncryption, *,
                           ignore_case: bool = False) -> Requirement | None: ...


def encryption_requirement(required: RequireEncryption, *,
                           ignore_case: bool = False) -> Requirement | None:
    """Parse the argument ``require_encryption`` of a reader; None if nothing is required.

    True: the footer and every column. Columns: these, by dotted path, where a group stands for all
    leaves below it. A mapping: these, each under this master key, or under any (None). With
    ``ignore_case``, names that differ only in case refer to the same column.

    Raises TypeError or ValueError if the value has another form, contains no columns, or specifies
    two master keys for one column.
    """
    if required is None or isinstance(required, bool):
        return EncryptionRequirement(every_column=True, ignore_case=ignore_case) if required \
            else None
    if hasattr(required, "check"):
        return cast(Requirement, required)
    if isinstance(required, str | bytes) or not isinstance(required, Iterable):
        hint = "; for the file of a policy, pass Policy.read(path)" \
            if hasattr(required, "__fspath__") else ""
        raise TypeError("require_encryption must be True, a list of columns, a mapping from "
                        f"columns to master keys, or a Policy, not {type(required).__name__}{hint}")
    columns = dict(required) if isinstance(required, Mapping) else dict.fromkeys(required)
    for text in (*columns, *(key for key in columns.values() if key is not None)):
        if not isinstance(text, str) or not text:
            raise ValueError("the columns and master keys in require_encryption must be non-empty "
                             "strings")
    if not columns:
        raise ValueError("require_encryption is empty; pass True to require that every "
                         "column is encrypted")
    requirement = EncryptionRequirement(columns=columns, ignore_case=ignore_case)
    requirement.check_no_conflict()
    return requirement


def parse_required(text: str) -> bool | list[str] | dict[str, str]:
    """Parse an option: ``true``, ``column, column``, or ``key1: column, column; key2: column``.

    Raises ValueError if the text has another form.
    """
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    if not {":", ";"} & set(text):
        return _names(text)
    columns: dict[str, str] = {}
    for part in filter(str.strip, text.split(";")):
        key, _, names = part.rpartition(":")  # key names may contain ":"
        for name in _names(names):
            if not key.strip() or columns.setdefault(name, key.strip()) != key.strip():
                raise ValueError(_FORM)
    return columns


def requirement_for(requirement: Requirement | None, path: str | None) -> Requirement | None:
    """Return the requirement for the file at this path; None: the file has no path."""
    return requirement.for_path(path) if _depends_on_path(requirement) else requirement


def check_requirement(requirement: Requirement, footer: Footer, path: str | None) -> None:
    """Check the file at this path; see :meth:`EncryptionRequirement.check`."""
    if isinstance(requirement, FolderChecks):
        requirement.check(footer, path)
    elif (of_file := requirement_for(requirement, path)) is not None:
        of_file.check(footer)


def _depends_on_path(requirement: Requirement | None) -> TypeGuard[PathRequirement]:
    return hasattr(requirement, "for_path")


def check_encryption(footer: Footer, keys: KeyRetriever | None, requirement: Requirement | None,
                     path: str | None = None) -> None:
    """Check an opened file against a requirement and against what the keys allow.

    Raises AuthenticationError, KeyNotFoundError or ColumnError; see
    :meth:`EncryptionRequirement.check`.
    """
    if not footer.is_encrypted and not getattr(keys, "plaintext_files_allowed", True):
        raise AuthenticationError("the file is not encrypted, but explicit keys were given for it; "
                                  "to read such files as well, pass plaintext_files_allowed=True "
                                  "to ExplicitKeys")
    if requirement is not None:
        check_requirement(requirement, footer, path)



_FORM = 'it must have the form "true", "column, column", or "key1: column, column; ' \
        'key2: column", in which each column has one key'


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(_FORM)
    return names


def check_footer(footer: Footer) -> None:
    """Check that a file is encrypted, and that its footer and pages are authenticated.

    Raises
    ------
    AuthenticationError, KeyNotFoundError
        See :meth:`EncryptionRequirement.check`.
    """
    algorithm = footer.algorithm
    if algorithm is None:
        raise AuthenticationError("the file is not encrypted, but encryption is required")
    if not footer.has_encrypted_footer and not footer.signature_verified:
        raise KeyNotFoundError("encryption is required, so the signature of the footer must be "
                               "verified; pass the footer key")
    if footer.has_encrypted_footer and not algorithm.authenticates_pages:
        raise AuthenticationError(
            f"its algorithm is {algorithm.name}, which does not authenticate pages, and in a file "
            "with an encrypted footer the algorithm itself is not authenticated; "
            "encryption is required, so write it with AES_GCM_V1, or with a plaintext footer, "
            "which is signed")


def check_columns(footer: Footer, demanded: Mapping[int, str | None]) -> None:
    """Check that columns are encrypted in every row group.

    Parameters
    ----------
    footer : Footer
    demanded : mapping of int to (str or None)
        Maps the ordinals of these columns to the names of their master keys, or to None.

    Raises
    ------
    AuthenticationError
        If one of them is not, or not under its master key.
    """
    for chunks in footer.row_groups:
        for ordinal, master_key in demanded.items():
            with error_location(**chunks[ordinal].place):
                _check_chunk(footer, chunks[ordinal], master_key)


def check_master_key(footer: Footer, key_metadata: bytes | None, required: str,
                     what: str = "the column") -> None:
    """Raise AuthenticationError unless the key of this metadata is under the master key."""
    found = footer.crypto.master_key(key_metadata)
    if found is None:
        raise AuthenticationError(f"master key {required!r} is required, but only a KMS can tell "
                                  f"which master key {what} is encrypted under; with explicit "
                                  "keys, require the column without a master key")
    if found != required:
        raise AuthenticationError(f"{what} is encrypted under master key {found!r}, but "
                                  f"{required!r} is required")


def _check_chunk(footer: Footer, chunk: ColumnChunk, master_key: str | None) -> None:
    if chunk.encryption is None:
        raise AuthenticationError("the column is not encrypted, but encryption is required")
    if not chunk.is_metadata_encrypted:
        raise AuthenticationError("the column is encrypted, but its metadata is not encrypted with "
                                  "its key, though encryption is required")
    if master_key is None:
        return
    key_metadata = chunk.key_metadata if chunk.encryption == "column key" \
        else footer.footer_key_metadata
    check_master_key(footer, key_metadata, master_key)
