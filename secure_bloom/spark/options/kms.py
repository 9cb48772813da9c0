"""The KMS that the options of a read or a write name. A process has one client for each KMS.

If the options name none, the driver sets option ``keys`` to the KMS of its own environment, in a
form that is internal to this module. It is opened when a key is first needed. The environments of
workers are ignored.
"""

from __future__ import annotations

import json
import os

from secure_bloom.errors import OptionError
from secure_bloom.keys.cache import CachedKms, cached
from secure_bloom.keys.environment import (
    NO_KEYS,
    EnvironmentKms,
    NoKeys,
    cached_client,
    environment_kms,
)
from secure_bloom.keys.keyring import Keyring
from secure_bloom.keys.uri import absolute_uri, has_scheme, keyring_uri
from secure_bloom.spark.options.options import KEYS, Options, without_file_scheme

_ENVIRONMENT = "environment:"


def key_options(keys: object) -> dict[str, str]:
    """Return the option for an argument ``keys``."""
    if keys is None:
        return {}
    if isinstance(keys, str):
        return {KEYS: keys}
    if isinstance(keys, Keyring):
        keys = keys.path.absolute()
    if isinstance(keys, os.PathLike):
        path = os.fsdecode(os.fspath(keys))
        return {KEYS: f"./{path}" if has_scheme(path) else path}
    raise TypeError(
        f"keys must be the path of a keyring, the URI of a KMS, or a Keyring, not "
        f"{type(keys).__name__}: Spark passes text to its workers, which open the KMS themselves")


def kms_uri(options: Options) -> str | None:
    """Return the KMS URI, with absolute paths, because tasks may have another working directory."""
    text = options.get(KEYS)
    if not text:
        return None
    path = without_file_scheme(text)
    return absolute_uri(text) if path == text and has_scheme(text) else keyring_uri(path)


def uri_for_tasks(keys: object) -> str | None:
    """Return the KMS URI of an argument ``keys``; by default that of this environment."""
    return kms_uri(Options(key_options(keys)).with_default_kms(environment_uri()))


def environment_uri() -> str | None:
    """Return the value for option ``keys`` that represents the environment of this process."""
    kms = environment_kms()
    return None if kms is None else _ENVIRONMENT + json.dumps([kms.keyring, kms.uri])


def kms_client(uri: str) -> CachedKms:
    """Return the client, which caches the keys that this process unwrapped in the last minutes."""
    if uri.startswith(_ENVIRONMENT):
        return cached(EnvironmentKms.of(*json.loads(uri.removeprefix(_ENVIRONMENT))))
    try:
        return cached_client(uri)
    except ValueError as error:
        raise OptionError(str(error), option=KEYS) from None


def client_or_none(uri: str | None) -> CachedKms | None:
    """Return the client; None without a URI."""
    return None if uri is None else kms_client(uri)


def client_or_no_keys(uri: str | None) -> CachedKms | NoKeys:
    """Return the client; NO_KEYS without a URI."""
    return NO_KEYS if uri is None else kms_client(uri)
