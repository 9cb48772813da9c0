"""The KMS that the options of a read or a write name. One client for each in a process."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from urllib.parse import quote, unquote

from secure_bloom.keys.cache import LIFETIME, CachedKms, cached
from secure_bloom.keys.uri import open_kms
from secure_bloom.locations import is_uri
from secure_bloom.spark.options import KEYRING, KMS, OptionError, without_file_scheme

_KEYRING = "keyring"
_clients: dict[str, tuple[float, CachedKms]] = {}  # by URI, and since when


def kms_uri(options: Mapping[str, str]) -> str | None:
    """The URI of the KMS, with absolute paths, because tasks may run in another folder."""
    keyring, uri = options.get(KEYRING), options.get(KMS)
    if keyring and uri:
        raise OptionError(f"it contradicts {KEYRING}: remove one of them", option=KMS)
    if keyring:
        return f"{_KEYRING}:{quote(_local(keyring))}"
    scheme, _, rest = (uri or "").partition(":")
    if scheme.lower() != _KEYRING:
        return uri or None
    path, _, query = rest.partition("?")
    names = [_absolute_value(pair) for pair in query.split("&") if pair]
    return f"{_KEYRING}:{quote(_absolute(unquote(path)))}{'?' if names else ''}{'&'.join(names)}"


def kms_client(uri: str) -> CachedKms:
    """The client; with the keys that this process has unwrapped in the last minutes."""
    since, client = _clients.get(uri, (0.0, None))
    if client is None or time.monotonic() - since > LIFETIME:
        try:
            client = cached(open_kms(uri))
        except ValueError as error:
            raise OptionError(str(error), option=KMS) from None
        _clients[uri] = time.monotonic(), client
    return client


def _absolute_value(pair: str) -> str:
    name, _, path = pair.partition("=")
    return f"{name}={quote(_absolute(unquote(path)))}" if name == "passphrase-file" else pair


def _local(path: str) -> str:
    path = without_file_scheme(path)
    if is_uri(path):
        raise OptionError(f"{path} is not a local path; a keyring is a file that the driver, and "
                          "the workers that read, have under the same local path", option=KEYRING)
    return _absolute(path)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
