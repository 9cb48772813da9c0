"""The requirements that files must meet, as a small TOML file.

    sensitive = ["ssn", "address.*"]    # columns that must be encrypted, wherever they occur
    encrypted_footer = true             # whether footers must be encrypted; default: false

A name is the dotted path of a leaf column, a group or list with all leaves below it, or a pattern
for such names with ``*``, ``?`` and ``[...]``. Names are case-insensitive, as in Spark.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from secure_bloom.errors import FormatError
from secure_bloom.parquet.schema import is_at_or_below
from secure_bloom.storage.files import FilePath


@dataclass(frozen=True)
class Policy:
    """The requirements that files must meet.

    Parameters
    ----------
    sensitive : tuple of str
        Names of columns that must be encrypted.
    encrypted_footer : bool
        Whether footers must be encrypted.
    """

    sensitive: tuple[str, ...]
    encrypted_footer: bool = False

    @classmethod
    def read(cls, path: FilePath) -> Policy:
        """Read a policy from its file.

        Raises
        ------
        FormatError
            If the file is not a valid policy. A misspelt requirement is an error, because it would
            not be enforced.
        """
        name = str(path)
        with open(path, "rb") as file:
            try:
                found = tomllib.load(file)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise FormatError(f"the policy is not valid TOML: {error}", file=name) from None
        unknown = sorted(set(found) - {"sensitive", "encrypted_footer"})
        if unknown:
            raise FormatError(f"a policy may contain only sensitive and encrypted_footer, not "
                              f"{unknown[0]}", file=name)
        sensitive = found.get("sensitive")
        if not isinstance(sensitive, list) or not sensitive \
                or not all(isinstance(one, str) and one for one in sensitive):
            raise FormatError("the policy must list columns: sensitive = [\"...\"]", file=name)
        encrypted_footer = found.get("encrypted_footer", False)
        if not isinstance(encrypted_footer, bool):
            raise FormatError("encrypted_footer must be true or false", file=name)
        return cls(tuple(sensitive), encrypted_footer)

    def is_sensitive(self, path: str) -> bool:
        """Whether the leaf column with this dotted path must be encrypted."""
        return any(_matches(name, path) for name in self.sensitive)

    def without_match(self, paths: Iterable[str]) -> list[str]:
        """The policy's names that match none of these columns."""
        known = list(paths)
        return [name for name in self.sensitive if not any(_matches(name, path) for path in known)]


def _matches(name: str, path: str) -> bool:
    name, path = name.lower(), path.lower()
    return is_at_or_below(path, name) or fnmatchcase(path, name) or fnmatchcase(path, f"{name}.*")
