"""A policy: which columns must be encrypted, by name, in whatever is written or read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Final, Literal, cast, overload

from secure_bloom.errors import PolicyError, error_location
from secure_bloom.policy import precedence, toml
from secure_bloom.policy.precedence import Rules, named_rules
from secure_bloom.policy.rules import (
    DEFAULTS,
    ColumnPolicy,
    ColumnRule,
    Rule,
    TableRules,
    check_text,
    checked_columns,
    checked_names,
    folded,
)
from secure_bloom.storage.local_files import without_waiting

if TYPE_CHECKING:
    from secure_bloom.parquet.schema import LeafColumn
    from secure_bloom.storage.files import FilePath


@dataclass(frozen=True)
class Policy:
    """Which columns must be encrypted, under which master keys, and which filters they get.

    A policy is enforced where data is written and read; see the page "One policy for all files".
    Columns are named by the dotted path of a leaf, by a group or list with all leaves below it, or
    by a pattern with ``*``, ``?`` and ``[...]``, regardless of case. The first rule that says
    something wins: rules of tables before general ones, then the path itself, the deepest group, a
    pattern, and ``*``.

    Parameters
    ----------
    sensitive : iterable of str
        Columns that must be encrypted, under any key.
    encrypted_footer : bool
        Whether plaintext footers are refused.
    footer_key : str, optional
        Name of the master key of footers. Writers need it to make the encryption from the policy.
        It also encrypts the columns that must be encrypted and have no key of their own.
    default : {"open", "encrypt"}
        Whether columns without a rule may be in plaintext, or must be encrypted under any key.
        Writers use the footer key. As in EncryptionConfiguration, "plaintext" means "open", and
        "footer key" means "encrypt".
    columns : mapping of str to (str, ColumnRule or mapping)
        Maps names to master keys, or to rules with the fields of ColumnRule.
    tables : iterable of TableRules
        Further rules for some folders only.
    accept_plaintext_until : datetime.date, optional
        Until the end of this day (UTC), readers accept files without any encryption, with a
        PolicyWarning: for the time in which existing files are encrypted. Default: never.

    Raises
    ------
    PolicyError
        If a value is not valid.
    """

    sensitive: Iterable[str] = ()
    encrypted_footer: bool = False
    _: KW_ONLY
    footer_key: str | None = None
    default: Literal["open", "encrypt", "plaintext", "footer key"] = "open"
    columns: Mapping[str, Rule] = field(default_factory=dict, hash=False)
    tables: Iterable[TableRules] = ()
    accept_plaintext_until: date | None = None
    has_patterns: ClassVar[bool] = True  #: whether names may be patterns

    def __post_init__(self) -> None:
        if not isinstance(self.encrypted_footer, bool):
            raise PolicyError("encrypted_footer of a policy must be true or false")
        if self.footer_key is not None:
            check_text(self.footer_key, "footer_key of a policy")
        if not isinstance(self.default, str) or self.default not in DEFAULTS:
            raise PolicyError('default of a policy must be "open" or "encrypt"')
        object.__setattr__(self, "default", DEFAULTS[self.default])
        if isinstance(self.tables, str | bytes | Mapping) or not isinstance(self.tables, Iterable):
            raise PolicyError("tables of a policy must be a list of TableRules")
        tables = tuple(self.tables)
        if not all(isinstance(table, TableRules) for table in tables):
            raise PolicyError("tables of a policy must be a list of TableRules")
        until = self.accept_plaintext_until
        if until is not None and (not isinstance(until, date) or isinstance(until, datetime)):
            raise PolicyError("accept_plaintext_until of a policy must be a date, without quotes "
                              "and time: 2027-01-31")
        object.__setattr__(self, "sensitive", checked_names(self.sensitive))
        object.__setattr__(self, "columns", checked_columns(self.columns))
        object.__setattr__(self, "tables", tables)

    # --- as text ---------------------------------------------------------------------------------

    @classmethod
    def read(cls, path: FilePath) -> Policy:
        """Read a policy from its TOML file, which has a path or URI.

        Raises
        ------
        PolicyError
            If the file is not a valid policy. A misspelt setting is an error, because it would not
            be enforced.
        OSError
            If the file cannot be read.
        """
        return cls.read_with_digest(path)[0]

    @classmethod
    def read_with_digest(cls, path: FilePath) -> tuple[Policy, str]:
        """Read a policy as :meth:`read` does; return it and the SHA-256 of its file, in hex."""
        with error_location(file=str(path)), _opened(path) as file:
            data = file.read(toml.MAX_BYTES + 1)
            if len(data) > toml.MAX_BYTES:  # half a policy may be valid too
                raise PolicyError(toml.TOO_LARGE)
            try:
                return cls.from_toml(data.decode()), hashlib.sha256(data).hexdigest()
            except UnicodeDecodeError as error:
                raise PolicyError(f"this policy is not valid UTF-8: {error.reason}") from None

    @classmethod
    def from_toml(cls, text: str) -> Policy:
        """Parse the text form of a policy.

        Raises
        ------
        PolicyError
            If the text is not a valid policy.
        """
        return cls(**toml.parse(text))

    def to_toml(self) -> str:
        """Return the text form of the policy. ``Policy.from_toml`` returns an equal policy."""
        return toml.dump(vars(self))

    def __reduce__(self) -> tuple[Callable[..., Policy], tuple[str, ...]]:
        return type(self).from_toml, (self.to_toml(),)

    # --- for one file ----------------------------------------------------------------------------

    def for_path(self, path: str | None) -> Policy:
        """Return the policy for one file: of the table rules, it has those that apply there.

        Parameters
        ----------
        path : str or None
            Absolute path or URI of a file or folder. None: unknown.

        Raises
        ------
        PolicyError
            If the path is not known, and some rules depend on it.
        """
        if all(table.is_for_all for table in self._tables):
            return self
        if path is None:
            raise PolicyError("the policy has rules for some paths, and the path of the file is "
                              "not known here; pass policy.for_path(path) instead")
        found = tuple(table.matches(path) for table in self._tables)
        if found not in self._by_match:
            self._by_match[found] = replace(self, tables=tuple(
                replace(table, path="*", name=table.shown_name)
                for table, applies in zip(self._tables, found, strict=True) if applies))
        return self._by_match[found]

    def column(self, path: str) -> ColumnPolicy:
        """Return what the policy says about the leaf column with this dotted path.

        Raises
        ------
        PolicyError
            If rules of equal rank contradict each other, or depend on the path of the file; see
            :meth:`for_path`.
        """
        return precedence.column_policy(path, self._scopes, encrypt=self.default == "encrypt")

    def columns_of(self, paths: Iterable[str],
                   repeated: Container[str] = ()) -> dict[str, ColumnPolicy]:
        """Return what the policy says about the leaf columns of one file, by dotted path.

        Parameters
        ----------
        paths : iterable of str
            All leaf columns of the file.
        repeated : container of str
            Those within lists or maps. There, a rule for a name that the file does not have also
            applies to what may take its place, because writers name the groups of lists and maps
            differently.

        Raises
        ------
        PolicyError
            As for :meth:`column`.
        """
        found = {path: self.column(path) for path in paths}
        precedence.in_other_words(found, self._scopes, repeated)
        return found

    def of_leaves(self, leaves: Sequence[LeafColumn]) -> list[ColumnPolicy]:
        """Return what the policy says about each leaf column of a file; see :meth:`columns_of`."""
        found = self.columns_of([leaf.path for leaf in leaves],
                                {leaf.path for leaf in leaves if leaf.is_repeated})
        return [found[leaf.path] for leaf in leaves]

    def accepts_plaintext(self) -> bool:
        """Whether readers accept files without any encryption today."""
        until = self.accept_plaintext_until
        return until is not None and datetime.now(UTC).date() <= until

    def is_sensitive(self, path: str) -> bool:
        """Whether the leaf column with this dotted path must be encrypted."""
        return self.column(path).encrypted

    def without_match(self, paths: Iterable[str]) -> list[str]:
        """Return the names that demand encryption and match none of these columns."""
        return list(dict.fromkeys(rule.name for rule in self.unused_rules(paths) if rule.demands))

    def unused_rules(self, paths: Iterable[str],
                     repeated: Container[str] = ()) -> list[precedence.NamedRule]:
        """Return the rules that match none of these columns; see :meth:`columns_of`."""
        return precedence.without_match(self._scopes, list(dict.fromkeys(paths)), repeated)

    @property
    def rules(self) -> list[precedence.NamedRule]:
        """All rules, also those for some paths only, as messages name them."""
        return [*self._table_rules, *self._general_rules]

    def rule_for_partition(self, name: str) -> str | None:
        """Return the rule because of which values of this column may not be part of paths.

        None if they may. ``default = "encrypt"`` is not such a rule.
        """
        found = precedence.column_policy(name, self._scopes, encrypt=False)
        below = (rule for scope in self._scopes for rule in scope.rules
                 if rule.demands and folded(rule.name).startswith(f"{folded(name)}."))
        return found.rule if found.encrypted else next(map(str, below), None)

    # --- what is derived from the fields ---------------------------------------------------------

    @cached_property
    def _tables(self) -> tuple[TableRules, ...]:
        return cast(tuple[TableRules, ...], self.tables)

    @cached_property
    def _by_match(self) -> dict[tuple[bool, ...], Policy]:
        return {}

    @cached_property
    def _scopes(self) -> tuple[Rules, Rules]:
        self.for_path(None)  # raises if the rules depend on the path
        return Rules(self._table_rules), Rules(self._general_rules)

    @property
    def _table_rules(self) -> list[precedence.NamedRule]:
        return [rule for table in self._tables for rule in named_rules(
            table.sensitive, cast(dict[str, ColumnRule], table.columns), table)]

    @property
    def _general_rules(self) -> list[precedence.NamedRule]:
        return list(named_rules(self.sensitive, cast(dict[str, ColumnRule], self.columns),
                                patterns=self.has_patterns))


NO_POLICY: Final = Policy()  #: use no policy, not even that of the environment


@overload
def as_policy(policy: Policy | FilePath) -> Policy: ...


@overload
def as_policy(policy: Policy | FilePath | None) -> Policy | None: ...


def as_policy(policy: Policy | FilePath | None) -> Policy | None:
    """Return the policy that a caller passed, which may be the path or URI of its file.

    Raises
    ------
    PolicyError, OSError
        See :meth:`Policy.read`.
    TypeError
        If it is anything else.
    """
    if policy is None or isinstance(policy, Policy):
        return policy
    if isinstance(policy, str | os.PathLike):
        return Policy.read(policy)
    raise TypeError(f"policy must be a Policy or the path of its file, not "
                    f"{type(policy).__name__}")


def _opened(path: FilePath) -> BinaryIO:
    from secure_bloom.storage.files import resolve  # with pyarrow, which rules do not need
    filesystem, place = resolve(path)
    if filesystem.type_name == "local":
        return open(place, "rb", opener=without_waiting)
    return cast(BinaryIO, filesystem.open_input_stream(place))
