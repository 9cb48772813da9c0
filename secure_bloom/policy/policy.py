"""A policy: which columns must be encrypted, by name, in whatever is written or read."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from secure_bloom.errors import AuthenticationError, PolicyError, error_location
from secure_bloom.policy import precedence, toml
from secure_bloom.policy.precedence import Rules, named_rules
from secure_bloom.policy.rules import (
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
    from secure_bloom.parquet.footer import Footer
    from secure_bloom.parquet.schema import LeafColumn
    from secure_bloom.storage.files import FilePath


@dataclass(frozen=True)
class Policy:
    """Which columns must be encrypted, under which master keys, and which filters they get.

    A policy is enforced where data is written and read; see ``docs/policy.md``. Columns are named
    by the dotted path of a leaf, by a group or list with all leaves below it, or by a pattern
    with ``*``, ``?`` and ``[...]``, regardless of case. The first rule that says something wins:
    rules of tables before general ones, then the path itself, the deepest group, a pattern, and
    ``*``.

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
    columns : mapping of str to (str, ColumnRule or mapping)
        Maps names to master keys, or to rules with the fields of ColumnRule.
    tables : iterable of TableRules
        Further rules for some folders only.

    Raises
    ------
    PolicyError
        If a value is not valid.
    """

    sensitive: Iterable[str] = ()
    encrypted_footer: bool = False
    _: KW_ONLY
    footer_key: str | None = None
    default: Literal["open", "encrypt"] = "open"
    columns: Mapping[str, Rule] = field(default_factory=dict, hash=False)
    tables: Iterable[TableRules] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.encrypted_footer, bool):
            raise PolicyError("encrypted_footer of a policy must be true or false")
        if self.footer_key is not None:
            check_text(self.footer_key, "footer_key of a policy")
        if self.default not in ("open", "encrypt"):
            raise PolicyError('default of a policy must be "open" or "encrypt"')
        if isinstance(self.tables, str | bytes | Mapping) or not isinstance(self.tables, Iterable):
            raise PolicyError("tables of a policy must be a list of TableRules")
        tables = tuple(self.tables)
        if not all(isinstance(table, TableRules) for table in tables):
            raise PolicyError("tables of a policy must be a list of TableRules")
        object.__setattr__(self, "sensitive", checked_names(self.sensitive))
        object.__setattr__(self, "columns", checked_columns(self.columns))
        object.__setattr__(self, "tables", tables)

    # --- as text ---------------------------------------------------------------------------------

    @classmethod
    def read(cls, path: FilePath) -> Policy:
        """Read a policy from its TOML file.

        Raises
        ------
        PolicyError
            If the file is not a valid policy. A misspelt setting is an error, because it would not
            be enforced.
        OSError
            If the file cannot be read.
        """
        with error_location(file=str(path)), open(path, "rb", opener=without_waiting) as file:
            data = file.read(toml.MAX_BYTES + 1)
            if len(data) > toml.MAX_BYTES:  # half a policy may be valid too
                raise PolicyError(toml.TOO_LARGE)
            try:
                return cls.from_toml(data.decode())
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
        return toml.dump(self)

    def __reduce__(self) -> tuple[Callable[[str], Policy], tuple[str]]:
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

    # --- as a requirement of readers -------------------------------------------------------------

    def check(self, footer: Footer) -> None:
        """Check a file that is opened for reading; see :func:`.reading.check_file`."""
        from secure_bloom.policy.reading import check_file
        check_file(self, footer)

    def check_path_columns(self, names: Iterable[str], columns: Iterable[LeafColumn]) -> None:
        """Check columns whose values come from a file's path, which is not authenticated.

        Parameters
        ----------
        names : iterable of str
            Names of these columns.
        columns : iterable of LeafColumn
            Columns of the file.

        Raises
        ------
        AuthenticationError
            If one of them must be encrypted, or replaces a column of the file that must be.
        """
        own = {folded(leaf.parts[0]) for leaf in columns if self.is_sensitive(leaf.path)}
        for name in names:
            rule = self.rule_for_partition(name)
            if rule is not None or folded(name) in own:
                raise AuthenticationError(
                    "it must be encrypted by the policy, and its values come from the path of the "
                    f"file, which is not ({rule or 'the file has such a column'})", column=name)

    def rule_for_partition(self, name: str) -> str | None:
        """Return the rule because of which values of this column may not be part of paths.

        None if they may. ``default = "encrypt"`` is not such a rule.
        """
        found = precedence.column_policy(name, self._scopes, encrypt=False)
        below = (rule for scope in self._scopes for rule in scope.rules
                 if rule.demands and folded(rule.name).startswith(f"{folded(name)}."))
        return found.rule if found.encrypted else next(map(str, below), None)

    def demands_any(self, columns: Iterable[LeafColumn]) -> bool:
        """Whether one of these columns of the file must be encrypted."""
        return any(column.encrypted for column in self.of_leaves(list(columns)))

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
        return list(named_rules(self.sensitive, cast(dict[str, ColumnRule], self.columns)))


def as_policy(policy: Policy | FilePath | None) -> Policy | None:
    """Return the policy that a caller passed, which may be the path of its file.

    Raises
    ------
    PolicyError, OSError
        See :meth:`Policy.read`.
    TypeError
        If it is anything else.
    """
    if policy is None or isinstance(policy, Policy):
        return policy
    if isinstance(policy, str | Path) or hasattr(policy, "__fspath__"):
        return Policy.read(policy)
    raise TypeError(f"policy must be a Policy or the path of its file, not "
                    f"{type(policy).__name__}")
