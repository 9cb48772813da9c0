"""The errors of secure_bloom: one base class, and one subclass per possible reaction of the caller.

Every error may carry its location (``file``, ``row_group``, ``column``); lower layers raise without
knowing it, and it is added as the error propagates. No message ever contains key bytes, plaintext,
or a probe value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from secure_bloom.display import (
    ChangeResult,
    choices,
    count,
    shown,
    similar_name,
    without_credentials,
)

_MAX_MESSAGE = 2000  # characters; text from files may be much longer


class SecureBloomError(Exception):
    """Base of all errors raised intentionally by secure_bloom.

    Attributes
    ----------
    file : str or None
        Name of the affected file.
    row_group : int or None
        Row-group number, counted from 0.
    column : str or None
        Dotted path of the leaf column.
    result : ChangeResult or None
        If the error has ended an operation on many files: what was done before.
    """

    result: ChangeResult | None = None

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
            where.append(f"file {shown(without_credentials(self.file), _MAX_MESSAGE)}")
        if self.row_group is not None:
            where.append(f"row group {self.row_group}")
        if self.column is not None:
            where.append(f"column {shown(self.column)}")
        message = "\n".join(shown(line, _MAX_MESSAGE) for line in
                            self.message[:_MAX_MESSAGE].split("\n"))
        return f"{', '.join(where)}: {message}" if where else message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"  # some engines show only this

    def __reduce__(self) -> tuple[object, ...]:
        # Spark passes exceptions between processes; keep the attributes when pickled.
        return type(self), (self.message,), vars(self)


class FileError(SecureBloomError):
    """The bytes of a file are invalid."""


class FormatError(FileError):
    """A file is truncated or does not follow the Parquet format."""


class AuthenticationError(FileError):
    """An encrypted module did not authenticate.

    AES-GCM cannot distinguish a wrong key, a wrong AAD prefix, changed bytes and a module moved
    from another position, so the message says where, never why.
    """


class KeyRetrievalError(SecureBloomError):
    """A key is not available."""


class KeyNotFoundError(KeyRetrievalError):
    """No key is known for a column, a footer or a key name."""


class KeyUnwrapError(KeyRetrievalError):
    """A wrapped key could not be unwrapped: wrong master key, or changed key material."""


class KeyAccessError(KeyRetrievalError):
    """A key management service refused: access denied, credentials missing, key disabled."""


class MasterKeyChangedError(KeyRetrievalError):
    """A name meant different master keys during one job, so the job was not committed."""


class KmsUnavailableError(KeyRetrievalError):
    """A key management service does not respond: unreachable, overloaded, too slow.

    Raised after the retries; a later attempt may succeed.
    """


class KeyringError(KeyRetrievalError):
    """A keyring file is missing, malformed, or readable by others."""


class KeyringNotFoundError(KeyringError):
    """A keyring file does not exist: its path is wrong, or it was removed."""


#: The reader does not have this key; the rest of the file can be read without it.
NO_KEY = (KeyNotFoundError, KeyAccessError)
#: The KMS itself fails: this says nothing about the file, and the next file would fail likewise.
KMS_FAULTS = (KmsUnavailableError, KeyringError)


class KeyExhaustedError(SecureBloomError):
    """A key has reached its safe number of encryptions (NIST SP 800-38D, section 8.3)."""


class UnsupportedError(SecureBloomError):
    """The file or the request is valid, but this software does not handle it."""


class UnknownEncryptionError(UnsupportedError, KeyNotFoundError):
    """A column is encrypted in a way that the specification does not define, or not yet.

    Its key cannot be found, so the column is handled like any other whose key is missing.
    """


class ColumnError(SecureBloomError, ValueError):
    """A column does not exist, or does not support what was requested."""


class PredicateError(ColumnError, TypeError):
    """A row filter compares a column with a value of an incomparable type."""


class UnknownColumnError(ColumnError):
    """A file does not have this column.

    Attributes
    ----------
    similar : str or None
        A column that the file has and that may be meant.
    """

    similar: str | None = None


def unknown_column(name: str, known: Iterable[str]) -> UnknownColumnError:
    """Return the error for a column that does not exist, with what may be meant."""
    known = list(known)
    error = UnknownColumnError(f"there is no such column{choices(name, known)}", column=name)
    error.similar = similar_name(name, known)
    return error


class EncryptionMismatchError(SecureBloomError):
    """Files are not encrypted as requested.

    Attributes
    ----------
    findings : tuple of secure_bloom.Finding
        All findings. File, row group and column of the error are those of the first.
    """

    def __init__(self, findings: Iterable[Any], num_files: int):
        self.findings, self._num_files = tuple(findings), num_files
        first = self.findings[0]
        files = len({finding.file for finding in self.findings})
        super().__init__(f"{first.message} ({count(len(self.findings), 'finding')} in "
                         f"{count(files, 'file')}; {num_files} were checked)",
                         file=first.file, row_group=next(iter(first.row_groups), None),
                         column=first.column)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.findings, self._num_files)


class PolicyError(SecureBloomError, ValueError):
    """A policy is not valid, or is not met by what would be written."""


class RenamedError(SecureBloomError, TypeError, AttributeError):
    """A function or a parameter has another name now; the message says which."""


class ArgumentError(SecureBloomError, TypeError, ValueError):
    """An argument has a name that does not exist, or a value that is not possible."""


class OptionError(SecureBloomError, ValueError):
    """An option of Spark is unknown, contradicts another one, or has a value that is not valid."""

    def __init__(self, message: str, *, option: str | None = None, file: str | None = None,
                 row_group: int | None = None, column: str | None = None):
        super().__init__(f"option {option}: {message}" if option else message, file=file,
                         row_group=row_group, column=column)


class KernelChoiceError(SecureBloomError, ValueError):
    """``SECURE_BLOOM_KERNELS`` asks for kernels that do not exist, or cannot be used here."""


class ChangedMeanwhileError(SecureBloomError):
    """A file was replaced, changed or removed while in use.

    No result that mixes two versions was returned, and that change was not overwritten. A retry
    may succeed.
    """


class CommitError(SecureBloomError):
    """A job could not make its files visible."""


class MissingExtraError(SecureBloomError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Convert the ImportError of a block that imports optional packages."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{what} ({error}): {installation(extra)}") from error


def installation(extra: str) -> str:
    """Return the command that installs what an extra consists of.

    It names the packages themselves: secure_bloom is on no package index, so anyone could put
    another package of this name there.
    """
    import importlib.metadata
    import re
    try:
        requirements = importlib.metadata.requires("secure_bloom") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    ours = re.compile(rf"""extra == ["']{extra}["']""")
    packages = [text.partition(";")[0].strip() for text in requirements if ours.search(text)]
    if not packages:
        return f"pip install '.[{extra}]', in the sources of secure_bloom"
    return "pip install " + " ".join(f"'{package}'" for package in packages)


class IndexWarning(UserWarning):
    """An index of a data set is damaged, so that files are searched without it."""


class PolicyWarning(UserWarning):
    """A policy may not protect what it is meant to.

    A rule matches no column of what is written, so its name may be misspelt; or a file without
    encryption is read, which ``accept_plaintext_until`` of the policy allows.
    """


class WeakPassphraseWarning(UserWarning):
    """A passphrase is easy to guess. The message says why, and does not contain it."""


class MissingKeyWarning(UserWarning):
    """Columns are read as nulls, because the reader does not have their keys and asked for that."""


class OperationInterrupted(KeyboardInterrupt):
    """Ctrl+C during an operation on many files; attribute ``result`` is what was done before."""

    def __init__(self, result: ChangeResult):
        super().__init__(result)
        self.result = result


class error_location:
    """Add the location to any :class:`SecureBloomError` that passes through without one.

    A context manager. Not a generator, which takes three times as long: there are many for a file.
    """

    __slots__ = ("_column", "_file", "_row_group")

    def __init__(self, *, file: str | None = None, row_group: int | None = None,
                 column: str | None = None):
        self._file, self._row_group, self._column = file, row_group, column

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, SecureBloomError):
            error.file = error.file if error.file is not None else self._file
            error.row_group = error.row_group if error.row_group is not None else self._row_group
            error.column = error.column if error.column is not None else self._column
