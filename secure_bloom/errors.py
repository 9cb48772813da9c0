"""The errors of secure_bloom: one base class, one child for each thing a caller can do about it.

Every error may carry where it happened (``file``, ``row_group``, ``column``); lower layers raise
without knowing it and :func:`error_location` fills it in on the way up. No message ever holds key
bytes, plaintext or a probe value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from secure_bloom.display import shown

_MAX_MESSAGE = 2000  # characters; what files say may be much longer


class SecureBloomError(Exception):
    """Base of all errors raised on purpose by secure_bloom.

    Attributes
    ----------
    file : str or None
        Name of the file concerned.
    row_group : int or None
        Row-group number, counted from 0.
    column : str or None
        Dotted path of the leaf column.
    """

    def __init__(self, message: str, *, file: str | None = None,
                 row_group: int | None = None, column: str | None = None):
        super().__init__(message)
        self.message = message
        self.file = file
        self.row_group = row_group
        self.column = column

    def __str__(self) -> str:
        where = []
        if self.file is not None:
            where.append(f"file {self.file}")
        if self.row_group is not None:
            where.append(f"row group {self.row_group}")
        if self.column is not None:
            where.append(f"column {shown(self.column)}")
        message = "\n".join(shown(line, _MAX_MESSAGE) for line in
                            self.message[:_MAX_MESSAGE].split("\n"))
        return f"{', '.join(where)}: {message}" if where else message

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders in Spark; keep the attributes when pickled.
        return _rebuild, (type(self), self.message, self.file, self.row_group, self.column)


def _rebuild(cls: type[SecureBloomError], message: str, file: str | None, row_group: int | None,
             column: str | None) -> SecureBloomError:
    return cls(message, file=file, row_group=row_group, column=column)


class FileError(SecureBloomError):
    """The bytes of a file are not what they have to be."""


class FormatError(FileError):
    """A file is truncated or does not follow the Parquet format."""


class AuthenticationError(FileError):
    """An encrypted module did not authenticate.

    A wrong key, a wrong AAD prefix, changed bytes and a module moved from another place all look
    the same to AES-GCM, so the message says where, never why.
    """


class KeyRetrievalError(SecureBloomError):
    """A key could not be had."""


class KeyNotFoundError(KeyRetrievalError):
    """No key is known for a column, a footer or a key name."""


class KeyUnwrapError(KeyRetrievalError):
    """A wrapped key could not be unwrapped: another master key, or changed key material."""


class KeyAccessError(KeyRetrievalError):
    """A key management service refuses: access denied, credentials missing, key disabled."""


class KmsUnavailableError(KeyRetrievalError):
    """A key management service does not answer: unreachable, overloaded, too slow.

    Raised after the retries; trying again later may succeed.
    """


class KeyringError(KeyRetrievalError):
    """A keyring file is missing, malformed, or readable by others."""


#: The reader does not have this key: the rest of the file can be read without it.
NO_KEY = (KeyNotFoundError, KeyAccessError)
#: The KMS itself fails: this says nothing about the file, and the next file fails in the same way.
KMS_FAULTS = (KmsUnavailableError, KeyringError)


class KeyExhaustedError(SecureBloomError):
    """A key has encrypted as much as it safely may (NIST SP 800-38D, section 8.3)."""


class UnsupportedError(SecureBloomError):
    """The file or the request is valid, but this software does not handle it."""


class ColumnError(SecureBloomError, ValueError):
    """A column does not exist, or cannot have or do what is asked of it."""


class PredicateError(ColumnError, TypeError):
    """A row filter compares a column with a value of a type that it cannot be compared with."""


class UnknownColumnError(ColumnError):
    """A file has no such column.

    Attributes
    ----------
    similar : str or None
        A column that the file has and that may be meant.
    """

    similar: str | None = None


class EncryptionMismatchError(SecureBloomError):
    """Files are not encrypted as it was asked for.

    Attributes
    ----------
    findings : tuple of secure_bloom.verify.findings.Finding
        All that was found. File, row group and column of the error are those of the first.
    """

    def __init__(self, findings: Iterable[Any], num_files: int):
        self.findings, self._num_files = tuple(findings), num_files
        first = self.findings[0]
        files = len({finding.file for finding in self.findings})
        super().__init__(f"{first.message} ({len(self.findings)} findings in {files} files; "
                         f"{num_files} were checked)",
                         file=first.file, row_group=first.row_group, column=first.column)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.findings, self._num_files)


class ChangedMeanwhileError(SecureBloomError):
    """A file was replaced, changed or removed while it was worked on.

    Nothing was returned that mixes two versions, and that change was not overwritten. Trying again
    may succeed.
    """


class MissingExtraError(SecureBloomError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


@contextmanager
def error_location(*, file: str | None = None, row_group: int | None = None,
            column: str | None = None) -> Iterator[None]:
    """Add the place to any :class:`SecureBloomError` that passes through and lacks it."""
    try:
        yield
    except SecureBloomError as error:
        error.file = error.file if error.file is not None else file
        error.row_group = error.row_group if error.row_group is not None else row_group
        error.column = error.column if error.column is not None else column
        raise
