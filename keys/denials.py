"""Keys that a KMS does not have or denies, requested once for many files."""

from __future__ import annotations

import copy
from collections.abc import Hashable

from secure_bloom.errors import NO_KEY, KeyRetrievalError
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.kms import KmsClient


def remembering_denials(kms: CachedKms) -> CachedKms:
    """Return keys for reading many files; a KMS is asked once for each key that it does not give.

    The answer is valid as long as the result is used, or until the client's
    :meth:`~.KmsClient.cache_version` changes.
    """
    return CachedKms(_Denials(kms), lifetime=0)  # keys stay in the cache that all share


class _Denials(KmsClient):
    """A KMS client that raises an error again instead of requesting the same key again."""

    def __init__(self, kms: CachedKms):
        self._kms = kms
        self._known: dict[Hashable, KeyRetrievalError] = {}

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """See :meth:`KmsClient.wrap_key`."""
        return self._kms.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """See :meth:`KmsClient.unwrap_key`."""
        place = wrapped_key, master_key_identifier, self.cache_version()
        known = self._known.get(place)
        if known is not None:
            raise copy.copy(known) from known.__cause__
        try:
            return self._kms.unwrap_key(wrapped_key, master_key_identifier)
        except NO_KEY as error:
            self._known[place] = copy.copy(error)  # each file adds its own name
            raise

    def cache_version(self, *, fresh: bool = False) -> Hashable:
        """See :meth:`KmsClient.cache_version`."""
        return self._kms.cache_version(fresh=fresh)

    def __reduce__(self) -> tuple[type[_Denials], tuple[CachedKms]]:
        return _Denials, (self._kms,)  # another process may be given the keys

    def __repr__(self) -> str:
        return repr(self._kms)
