"""What a read requires to be encrypted: by option, by marks of the schema, and by a policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from secure_bloom.policy.policy import Policy
from secure_bloom.policy.requirement import FolderChecks, RequiredColumns, Requirement


@dataclass(frozen=True)
class Requirements:
    """What each file of a read must meet. Pickled, so that tasks need not read the policy's file.

    Attributes
    ----------
    own : Requirement or None
        By option and by marks.
    policy : Policy or None
    folder : str
        The path to which rules of the policy for the whole folder apply.
    demanding : bool
        Whether the policy requires a column of the schema to be encrypted. Then no file may be in
        plaintext, unless the policy accepts that on the day when the file is opened: a stream may
        run for longer.
    """

    own: Requirement | None
    policy: Policy | None
    folder: str
    demanding: bool = False

    def checks(self, path_columns: Iterable[str]) -> FolderChecks:
        """Return the checks of files whose paths have values of these columns."""
        return FolderChecks(self._both if self.check_files else None, path_columns)

    @property
    def check_files(self) -> bool:
        """Whether each file must meet anything."""
        return self.own is not None or self.policy is not None

    def check_path_columns(self, names: Iterable[str]) -> None:
        """Check columns whose values come from the paths of files.

        Raises AuthenticationError if one of them must be encrypted.
        """
        self._both.check_path_columns(self.folder, names, ())

    @property
    def _both(self) -> Requirement:
        own = self.own or Requirement(ignore_case=True)
        if self.policy is None:
            return own
        if self.demanding and self.own is None and not self.policy.accepts_plaintext():
            own = Requirement(required=RequiredColumns())
        return replace(own, policies=(self.policy,), in_transition=True)

    def demands_any(self, paths: Iterable[str]) -> bool:
        """Whether the policy requires one of these leaf columns to be encrypted."""
        return self.policy is not None and any(
            column.encrypted
            for column in self.policy.for_path(self.folder).columns_of(paths).values())
