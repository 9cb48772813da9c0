"""Whether the processes of one job have the same master keys.

Nothing says that a name means the same master key in two processes, or a minute later: a keyring
may be replaced, machines may have different ones, and an alias may be moved to another key. Files
of one job that were wrapped under different keys of one name can never be read together.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyUnwrapError,
    MasterKeyChangedError,
    UnsupportedError,
)
from secure_bloom.keys.cache import CachedKms

_VALUE_SIZE = 16


class MasterKeyCheck:
    """Tells whether a KMS has the same master keys as at the time when this object was created.

    The KMS wraps a new random value with each master key. Only a KMS with the same master key can
    unwrap it. The value is used for nothing else, and neither it nor a key is part of this object.

    Parameters
    ----------
    kms : CachedKms
        Called once for each master key.
    master_keys : iterable of str

    Raises
    ------
    KeyRetrievalError
        If a master key cannot be used.
    """

    def __init__(self, kms: CachedKms, master_keys: Iterable[str]):
        self._values: dict[str, tuple[str, bytes]] = {}  # by name: wrapped value, its digest
        for name in sorted(set(master_keys)):
            value = os.urandom(_VALUE_SIZE)
            self._values[name] = kms.wrap_key(value, name), hashlib.sha256(value).digest()

    def verify(self, kms: CachedKms) -> None:
        """Check the master keys, with one call for each. Call it after wrapping keys.

        Master keys with which this process may wrap, but not unwrap, are not checked.

        Raises
        ------
        MasterKeyChangedError
            If the KMS has another master key of the same name.
        KeyRetrievalError
            Any other error of the KMS.
        """
        uncached = CachedKms(kms.kms, lifetime=0)
        for name, (wrapped, digest) in list(self._values.items()):
            try:
                is_same = hashlib.sha256(uncached.unwrap_key(wrapped, name)).digest() == digest
            except (KeyUnwrapError, KeyNotFoundError) as error:
                raise _changed(name) from error
            except (KeyAccessError, UnsupportedError, NotImplementedError):
                del self._values[name]  # do not ask again
                continue
            if not is_same:
                raise _changed(name)

    def __repr__(self) -> str:
        return f"<MasterKeyCheck of {list(self._values)}>"


def _changed(name: str) -> MasterKeyChangedError:
    return MasterKeyChangedError(
        f"the master key {name!r} is not the one that the job started with: its keyring or KMS was "
        "changed, or is a different one on this machine. Make sure that all machines have the same "
        "master keys, and run the job again")
