"""What readers require to be encrypted, so that plaintext cannot be substituted for it.

A reader with a KMS also reads unencrypted files. An attacker without any key could therefore
replace an encrypted file, and its rows and Bloom filters would contain what the attacker chooses. A
requirement is checked when a file is opened, before any result is returned, against a footer that
the footer key has authenticated. ``require_encryption`` is a policy as well: of some columns, which
must exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import ClassVar, TypeAlias

from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.display import choices, warn
from secure_bloom.errors import AuthenticationError, ColumnError, PolicyWarning
from secure_bloom.parquet.footer import Footer
from secure_bloom.parquet.schema import LeafColumn, is_at_or_below
from secure_bloom.policy.footer_checks import because, check_footer, check_policy, is_demanding
from secure_bloom.policy.policy import Policy, as_policy
from secure_bloom.policy.rules import folded
from secure_bloom.storage.files import FilePath


class RequiredColumns(Policy):
    """The policy that ``require_encryption`` stands for: its names are columns, not patterns."""

    has_patterns: ClassVar[bool] = False

    @property
    def names(self) -> list[str]:
        """The columns and groups that it names."""
        return [*self.sensitive, *self.columns]

    def __reduce__(self) -> tuple[partial[RequiredColumns], tuple[()]]:
        return partial(RequiredColumns, self.sensitive, columns=dict(self.columns),
                       default=self.default), ()  # one without names has no text form


@dataclass(frozen=True)
class Requirement:
    """What each file that a reader opens must meet.

    Attributes
    ----------
    policies : tuple of Policy
        All of them.
    required : RequiredColumns or None
        Then every file must be encrypted, whatever its columns, and have the columns it names.
    ignore_case : bool
        Whether ``required`` names columns regardless of case, as in Spark.
    in_transition : bool
        Whether files without encryption are accepted as long as a policy says so, by
        ``accept_plaintext_until``. Only for what reads or erases rows: what checks files, or
        makes indexes of them, stays strict.
    """

    policies: tuple[Policy, ...] = ()
    required: RequiredColumns | None = None
    ignore_case: bool = False
    in_transition: bool = False

    def check(self, footer: Footer, path: str | None = None, *,
              columns_may_be_missing: bool = False) -> None:
        """Check the file at a path; None: it has none.

        Raises AuthenticationError if the file, its footer or a column is not encrypted, or uses
        another master key, or the file has a column whose name differs from a required one only in
        case; KeyNotFoundError if the signature of a plaintext footer was not verified because its
        key is missing; ColumnError if the file lacks one of the required columns; PolicyError if a
        policy contradicts itself, or depends on a path that is not known.
        """
        for policy in self.policies:
            policy = policy.for_path(path)
            if footer.is_encrypted or not self.accepts_plaintext(policy):
                check_policy(policy, footer)
            elif is_demanding(policy, policy.of_leaves(footer.columns)):
                warn(PolicyWarning("a file is not encrypted; the policy accepts that until "
                                   f"{policy.accept_plaintext_until}. audit lists such files"))
        if self.required is None:
            return
        check_footer(footer)
        paths = [leaf.path for leaf in footer.columns]
        for name in () if columns_may_be_missing else self.missing_from(paths):
            raise ColumnError("it must be encrypted, but the file has no such column"
                              + choices(name, paths), column=name)
        self._check_case(paths)
        check_policy(self.required, footer)

    def accepts_plaintext(self, policy: Policy) -> bool:
        """Whether a file without encryption is accepted today, as far as one policy goes."""
        return self.in_transition and policy.accepts_plaintext()

    def missing_from(self, paths: Collection[str]) -> list[str]:
        """Return the required names that match none of the leaf columns, given by dotted path."""
        if self.required is None:
            return []
        found = list(map(self._folded, paths))
        return [name for name in self.required.names
                if not any(is_at_or_below(path, self._folded(name)) for path in found)]

    def with_columns(self, names: Iterable[str]) -> Requirement:
        """Return the requirement extended by these columns under any master key."""
        own = self.required or RequiredColumns()
        return replace(self, required=RequiredColumns(
            [*own.sensitive, *names], columns=own.columns, default=own.default))

    def check_path_columns(self, path: str | None, names: Iterable[str],
                           columns: Iterable[LeafColumn]) -> None:
        """Check columns whose values come from a file's path, which is not authenticated.

        ``names`` are these columns, ``columns`` those of the file. Names that differ only in case
        count as equal: SQL would find the one for the other. Raises AuthenticationError if one of
        the names must be encrypted, or replaces a column of the file that must be.
        """
        names, columns = list(names), list(columns)
        for policy in self.all_policies(path) if names else ():
            own = {folded(leaf.parts[0]) for leaf in columns if policy.is_sensitive(leaf.path)}
            for name in names:
                rule = policy.rule_for_partition(name)
                if rule is not None or folded(name) in own:
                    raise AuthenticationError(
                        "it must be encrypted, but its values come from the path of the file, "
                        "which is not encrypted"
                        + because(policy, rule or "the file has such a column"), column=name)

    def all_policies(self, path: str | None) -> Iterator[Policy]:
        """Yield the policies for a path, also that of the required columns."""
        yield from (policy.for_path(path) for policy in self.policies)
        if self.required is not None:
            yield self.required

    def _check_case(self, paths: Iterable[str]) -> None:
        """Check that no other column differs from a required one only in case.

        SQL finds the one for the other, and so the rows of an open column, or none.
        """
        names = [] if self.required is None or self.ignore_case else self.required.names
        for path in paths if names else ():
            if any(is_at_or_below(path, name) for name in names):
                continue
            for name in names:
                if is_at_or_below(path.lower(), name.lower()):
                    raise AuthenticationError(
                        f"its name differs only in case from {name!r}, which must be encrypted, so "
                        "SQL may read one for the other; rename one of the columns or, if both "
                        "are meant, require both", column=path)

    def _folded(self, name: str) -> str:
        return name.lower() if self.ignore_case else name


class FolderChecks:
    """A requirement for the files of a folder, some of which may lack columns that others have.

    The values of ``path_columns`` come from the paths of the files.
    """

    def __init__(self, requirement: Requirement | None, path_columns: Iterable[str] = ()):
        self._requirement, self._path_columns = requirement, list(path_columns)
        self._found: set[str] = set()  # required columns that a file has
        self._demanding = self._finished = False
        self._plaintext: list[str | None] = []  # the first file without encryption

    @property
    def may_demand(self) -> bool:
        """Whether a file may be refused."""
        return self._requirement is not None

    def check(self, footer: Footer, path: str | None = None) -> None:
        """Check one of the files; see :meth:`Requirement.check`."""
        requirement = self._requirement
        if requirement is None:
            return
        requirement.check(footer, path, columns_may_be_missing=True)
        requirement.check_path_columns(path, self._path_columns, footer.columns)
        if requirement.required is not None:
            missing = requirement.missing_from([leaf.path for leaf in footer.columns])
            self._found.update(set(requirement.required.names) - set(missing))
        if any(column.encrypted for policy in requirement.policies
               if not requirement.accepts_plaintext(policy)
               for column in policy.for_path(path).of_leaves(footer.columns)):
            self._demanding = True  # other threads may check other files
        plaintext = [] if footer.is_encrypted else [path]
        if self._finished:  # another version of a file
            self._refuse(plaintext)
        elif not self._plaintext:
            self._plaintext += plaintext

    def finish(self) -> None:
        """Check the files together, when each has been opened. Later versions are checked alike.

        Raises
        ------
        ColumnError
            If none of the files has a column that must be encrypted.
        AuthenticationError
            If a file is not encrypted, and others have columns that must be: it may have been
            substituted for one of them.
        """
        if self._requirement is not None and self._requirement.required is not None:
            for name in set(self._requirement.required.names) - self._found:
                raise ColumnError("it must be encrypted, but no file has such a column",
                                  column=name)
        self._finished = True
        self.check_together()

    def check_together(self) -> None:
        """Check that no file is in plaintext if others have columns that must be encrypted."""
        self._refuse(self._plaintext)

    def _refuse(self, plaintext: list[str | None]) -> None:
        if self._demanding and plaintext:
            raise AuthenticationError("the file is not encrypted, and other files of the folder "
                                      "have columns that must be encrypted", file=plaintext[0])


#: what must be encrypted
RequireEncryption: TypeAlias = \
    bool | Iterable[str] | Mapping[str, str | None] | Policy | Requirement | None


def encryption_requirement(required: RequireEncryption, policy: Policy | FilePath | None = None, *,
                           ignore_case: bool = False) -> Requirement | None:
    """Parse the arguments ``require_encryption`` and ``policy`` of a reader: both must hold.

    True: the footer and every column. Columns: these, by dotted path, where a group stands for all
    leaves below it. A mapping: these, each under this master key, or under any (None). With
    ``ignore_case``, names that differ only in case refer to the same column.

    Returns None if nothing is required. Raises TypeError or ValueError if ``required`` has another
    form, contains no columns, or specifies two master keys for one column; for ``policy``, see
    :func:`.as_policy`.
    """
    policies = () if policy is None else (as_policy(policy),)
    if isinstance(required, Requirement):
        return replace(required, policies=(*required.policies, *policies))
    if isinstance(required, Policy):
        return Requirement((required, *policies))
    if required is not None and required is not False:
        return Requirement(policies, _required_columns(required), ignore_case)
    return Requirement(policies) if policies else None


def _required_columns(required: object) -> RequiredColumns:
    if required is True:
        return RequiredColumns(default="encrypt")
    if isinstance(required, str | bytes) or not isinstance(required, Iterable):
        raise TypeError("require_encryption must be True, a list of columns, or a mapping from "
                        f"columns to master keys, not {type(required).__name__}; pass a policy as "
                        "policy=")
    columns = dict(required) if isinstance(required, Mapping) else dict.fromkeys(required)
    for text in (*columns, *(key for key in columns.values() if key is not None)):
        if not isinstance(text, str) or not text:
            raise ValueError("the columns and master keys in require_encryption must be non-empty "
                             "strings")
    if not columns:
        raise ValueError("require_encryption is empty; pass True to require that every "
                         "column is encrypted")
    keys = {name: key for name, key in columns.items() if key is not None}
    for (name, key), (other, its_key) in permutations(keys.items(), 2):
        if key != its_key and is_at_or_below(folded(name), folded(other)):
            raise ValueError(f"require_encryption names two master keys for column {name!r}: "
                             f"{key!r}, and {its_key!r} for {other!r}")
    return RequiredColumns([name for name in columns if name not in keys], columns=keys)


_FORM = 'it must have the form "true", "column, column", or "key1: column, column; ' \
        'key2: column", in which each column has one key'


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
    if not columns:
        raise ValueError(_FORM)
    return columns


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(_FORM)
    return names


def check_encryption(footer: Footer, keys: KeyRetriever | None,
                     checks: Requirement | FolderChecks | None, path: str | None = None) -> None:
    """Check an opened file against a requirement and against what the keys allow.

    Raises AuthenticationError, KeyNotFoundError or ColumnError; see :meth:`Requirement.check`.
    """
    if not footer.is_encrypted and not getattr(keys, "plaintext_files_allowed", True):
        raise AuthenticationError("the file is not encrypted, but explicit keys were given for it; "
                                  "to read such files as well, pass plaintext_files_allowed=True "
                                  "to ExplicitKeys")
    if checks is not None:
        checks.check(footer, path)
