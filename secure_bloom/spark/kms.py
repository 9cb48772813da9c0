"""The KMS that the options of a read or a write name. One client for each in a process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from urllib.parse import quote

from secure_bloom.keys.cache import CachedKms, cached
from secure_bloom.keys.uri import open_kms
from secure_bloom.spark.options import KEYRING, KMS, OptionError, without_file_scheme

_KEYRING_SCHEME = "keyring:"


def kms_uri(options: Mapping[str, str]) -> str | None:
    """The URI of the KMS, with an absolute path, because tasks may run in another folder."""
    keyring, uri = options.get(KEYRING), options.get(KMS)
    if keyring and uri:
        raise OptionError(f"it contradicts {KEYRING}: remove one of them", option=KMS)
    if keyring:
        return _KEYRING_SCHEME + quote(_absolute(without_file_scheme(keyring)))
    if uri and uri.lower().startswith(_KEYRING_SCHEME):
        path, question, query = uri[len(_KEYRING_SCHEME):].partition("?")
        return f"{_KEYRING_SCHEME}{_absolute(path)}{question}{query}"
    return uri or None


@cache
def kms_client(uri: str) -> CachedKms:
    """The client; with the keys that this process has unwrapped in the last minutes."""
    try:
        return cached(open_kms(uri))
    except ValueError as error:
        raise OptionError(str(error), option=KMS) from None


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
