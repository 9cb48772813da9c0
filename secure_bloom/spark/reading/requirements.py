"""What a read requires to be encrypted: by option, by marks of the schema, and by a policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from secure_bloom.encryption_requirement import EncryptionRequirement, FolderChecks
from secure_bloom.parquet.footer import Footer
from secure_bloom.policy.policy import Policy


@dataclass(frozen=True)
class Requirements:
    """What each file of a read must meet. Pickled, so that tasks need not read the policy's file.

    Attributes
    ----------
    own : EncryptionRequirement or None
        By option and by marks.
    policy : Policy or None
    folder : str
        The path to which rules of the policy for the whole folder apply.
    """

    own: EncryptionRequirement | None
    policy: Policy | None
    folder: str

    def checks(self, path_columns: Iterable[str]) -> FolderChecks:
        """Return the checks of files whose paths have values of these columns."""
        return _BothChecks(self, list(path_columns))

    @property
    def check_files(self) -> bool:
        """Whether each file must meet anything."""
        return self.own is not None or self.policy is not None

    def check_path_columns(self, names: Iterable[str]) -> None:
        """Check columns whose values come from the paths of files.

        Raises AuthenticationError if one of them must be encrypted.
        """
        names = list(names)
        if self.policy is not None:
            self.policy.for_path(self.folder).check_path_columns(names, ())
        if self.own is not None:
            self.own.check_path_columns(names, ())

    def demands_any(self, paths: Iterable[str]) -> bool:
        """Whether the policy requires one of these leaf columns to be encrypted."""
        return self.policy is not None and any(
            column.encrypted
            for column in self.policy.for_path(self.folder).columns_of(paths).values())


class _BothChecks(FolderChecks):
    """A file must meet the policy, and what options and marks require."""

    def __init__(self, requirements: Requirements, path_columns: list[str]):
        self._policy = FolderChecks(requirements.policy, path_columns)
        self._required = FolderChecks(requirements.own, path_columns)

    def check(self, footer: Footer, path: str | None = None) -> None:
        """Check one of the files; see :meth:`.FolderChecks.check`."""
        self._policy.check(footer, path)
        self._required.check(footer, path)

    def finish(self) -> None:
        """Check the files together; see :meth:`.FolderChecks.finish`."""
        self._policy.finish()  # names in options are compared with the schema
