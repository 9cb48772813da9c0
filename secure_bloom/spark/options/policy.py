"""The policy of a read or a write: which one applies, and what it adds to a write.

Only the driver reads the file of a policy. The tasks receive its content.
"""

from __future__ import annotations

from dataclasses import replace

from secure_bloom.encryption import EncryptionConfiguration
from secure_bloom.errors import OptionError
from secure_bloom.parquet.schema import filterable_paths
from secure_bloom.policy.environment import environment_policy
from secure_bloom.policy.policy import Policy
from secure_bloom.policy.slips import check_plaintext
from secure_bloom.policy.writing import check_encryption, policy_encryption
from secure_bloom.sbbf.options import BloomFilterOptions
from secure_bloom.spark.options.columns import Columns
from secure_bloom.spark.options.options import POLICY, Options, without_file_scheme


def parse_policy(options: Options) -> Policy | None:
    """Return the policy that option ``policy`` names; None if it is not set.

    The value is the path or URI of a file, or the text of a policy, which has several lines.

    Raises
    ------
    PolicyError
        If the policy is not valid.
    OSError
        If the file cannot be read.
    """
    if POLICY not in options:
        return None
    text = options[POLICY]
    if "\n" in text:
        return Policy.from_toml(text)
    path = without_file_scheme(text.strip())
    if not path:
        raise OptionError("specify the path or URI of a TOML file", option=POLICY)
    return Policy.read(path)


def environment_text() -> str | None:
    """Return the policy of this environment as a value of option ``policy``; None without one.

    It is the text, because workers have another environment, and perhaps no such file.
    """
    policy = environment_policy()
    return None if policy is None else f"{policy.to_toml()}\n"


class WritePolicy:
    """A policy for the files of a write.

    Parameters
    ----------
    policy : Policy
        For the path of the folder; see :meth:`.Policy.for_path`.
    columns : Columns
        The columns of the files, without partition columns.
    """

    def __init__(self, policy: Policy, columns: Columns):
        self.policy = policy
        self._leaves = columns.leaves

    def encryption(self, footer_key: str | None) -> EncryptionConfiguration | None:
        """Return the encryption that the policy makes; None if nothing must be encrypted.

        ``footer_key`` is used if the policy does not name one.
        """
        policy = replace(self.policy, footer_key=self.policy.footer_key or footer_key)
        return policy_encryption(policy, policy.of_leaves(self._leaves))

    def check_plaintext(self) -> None:
        """Raise PolicyError unless the policy allows plaintext for every column, by name."""
        check_plaintext(self.policy, self._leaves)

    def keys(self, footer_key: str) -> dict[str, str]:
        """Return the master keys of the columns that must be encrypted, by dotted path."""
        return {column.path: column.key or footer_key
                for column in self.policy.of_leaves(self._leaves) if column.encrypted}

    def filters(self) -> dict[str, BloomFilterOptions | None]:
        """Return the filters of columns for which the policy decides; None: the column gets none.

        Columns that cannot have a filter are left out.
        """
        able = set(filterable_paths(self._leaves))
        return {column.path: column.bloom_filter or None
                for column in self.policy.of_leaves(self._leaves)
                if column.bloom_filter is not None and column.path in able}

    def check(self, encryption: EncryptionConfiguration | None) -> None:
        """Raise PolicyError if files with this encryption would not meet the policy."""
        check_encryption(self.policy, encryption, self._leaves)
