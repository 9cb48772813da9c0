"""Options with which Spark's own Parquet reader opens encrypted files."""

from __future__ import annotations

import base64
import logging
from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor

from secure_bloom.arguments import checks_arguments
from secure_bloom.errors import (
    NO_KEY,
    AuthenticationError,
    FormatError,
    KeyNotFoundError,
    KeyRetrievalError,
    error_location,
)
from secure_bloom.keys.cache import cached
from secure_bloom.keys.kms import KeyUnwrapper
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.keys.retrieval import open_client
from secure_bloom.spark.native.application import FACTORY, FACTORY_OPTION, READ, Application
from secure_bloom.storage.files import FilePath

_CALLS_AT_ONCE = 4
_ERRORS = {"keys": KeyRetrievalError, "material": KeyNotFoundError, "tag": AuthenticationError,
           "format": FormatError}

_log = logging.getLogger("secure_bloom.spark")


@checks_arguments
def read_options(path: str | Iterable[str], keys: KeyUnwrapper | FilePath | None = None) \
        -> dict[str, str]:
    """Return options for Spark's own Parquet reader. They are valid in this application only.

    The executors open the footers of all files; each distinct key-encryption key in them is
    unwrapped once, on the driver. Files that are written later, with other key-encryption keys,
    need new options. If the master key of a column is missing or refused, the column cannot be
    read and a warning is logged. If this applies to the key of a footer, an error is raised.

    Parameters
    ----------
    path : str or iterable of str
        The files or folders that ``spark.read.parquet`` is to read, from any writer.
    keys : KmsClient, path of a keyring, or URI of a KMS, optional
        It is used by the driver only. Default: the KMS of the environment.

    Returns
    -------
    dict of str to str
        For ``spark.read.options(**options)``, a table or the session. Includes
        ``ignoreCorruptFiles`` set to false, because Spark would treat files without a key as
        corrupt.

    Raises
    ------
    KeyRetrievalError
        If the key of a footer cannot be obtained.
    AuthenticationError, FormatError
        If a file fails authentication with its keys, or is not a valid Parquet file.
    FileNotFoundError
        If there are no files.

    Examples
    --------
    >>> options = native.read_options("/data/people", "keyring.json")  # doctest: +SKIP
    >>> spark.read.options(**options).parquet("/data/people")  # doctest: +SKIP
    """
    unwrapped = _Keys(open_client(keys))
    application = Application.active()
    pending = application.files(path)
    if not pending:
        raise FileNotFoundError(f"there are no files in {path}")
    while pending:  # again for encrypted footers, which contain the key material of columns
        found = application.collect_key_material(pending, unwrapped.by_wrapped)
        needed = {(entry["material"], entry["file"]) for entry in found if "material" in entry}
        closed = {entry["hidden"]: entry for entry in found if "hidden" in entry}
        for file in sorted(closed.keys() - {file for _, file in needed}):
            raise _error(**closed[file])
        unwrapped.add(needed, closed)
        pending = sorted(closed)
    return {FACTORY_OPTION: FACTORY, READ: application.seal(READ, {"keys": unwrapped.by_wrapped}),
            "ignoreCorruptFiles": "false",  # for a read; and for a session:
            "spark.sql.files.ignoreCorruptFiles": "false"}


class _Keys:
    """Base64 of the keys that a KMS has unwrapped, each only once, by their wrapped form."""

    def __init__(self, kms: KeyUnwrapper):
        self._kms = cached(kms)
        self.by_wrapped: dict[str, str] = {}

    def add(self, needed: Iterable[tuple[str, str]], closed: Container[str]) -> None:
        """Unwrap the keys that key material needs.

        ``needed`` has key material, each with a file that contains it; ``closed`` has the files
        that cannot be opened without these keys.
        """
        wanted: dict[tuple[str, str], str] = {}  # an example file, by wrapped key and master key
        for text, file in sorted(needed, key=lambda one: one[1] not in closed, reverse=True):
            with error_location(file=file):
                material = KeyMaterial.parse(text)
            wanted[material.wrapped_by_master_key, material.master_key_id] = file
        with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
            keys = pool.map(lambda one, file: self._unwrap(one[0], one[1], file, file in closed),
                            wanted, wanted.values())
            for (wrapped, _), key in zip(wanted, keys, strict=True):
                if key is not None:
                    self.by_wrapped[wrapped] = base64.b64encode(key).decode()

    def _unwrap(self, wrapped: str, master_key: str, file: str, is_needed: bool) -> bytes | None:
        try:
            with error_location(file=file):
                return self._kms.unwrap_key(wrapped, master_key)
        except NO_KEY as error:
            if is_needed:
                raise
            _log.warning("columns with master key %r cannot be read: %s", master_key, error)
            return None


def _error(hidden: str, error: str, kind: str) -> Exception:
    if kind == "io":
        return OSError(f"{hidden}: {error}")
    if kind == "keys":
        error += ". A KMS cannot unwrap its keys if it was written with explicit keys"
    return _ERRORS[kind](error, file=hidden)
