"""The KMS that the options of a read or a write name. A process has one client for each KMS.

If the options name none, the driver sets option ``kms`` to the KMS of its own environment, in a
form that is internal to this module. It is opened when a key is first needed. The environments of
workers are ignored.
"""

from __future__ import annotations

import json

from secure_bloom.keys.cache import CachedKms, cached
from secure_bloom.keys.environment import EnvironmentKms, cached_client, environment_kms
from secure_bloom.keys.uri import absolute_uri, keyring_uri
from secure_bloom.spark.options.options import (
    KEYRING,
    KMS,
    OptionError,
    Options,
    without_file_scheme,
)
from secure_bloom.storage.locations import is_uri

_ENVIRONMENT = "environment:"


def kms_uri(options: Options) -> str | None:
    """Return the KMS URI, with absolute paths, because tasks may have another working directory."""
    keyring, uri = options.get(KEYRING), options.get(KMS)
    if keyring and uri:
        raise OptionError(f"it contradicts {KEYRING}: remove one of them", option=KMS)
    if keyring:
        return keyring_uri(_local(keyring))
    return absolute_uri(uri) if uri else None


def _local(path: str) -> str:
    path = without_file_scheme(path)
    if is_uri(path):
        raise OptionError(f"{path} is not a local path; a keyring is a file, which must have the "
                          "same local path on the driver and on the workers that read",
                          option=KEYRING)
    return path


def environment_uri() -> str | None:
    """Return the value for option ``kms`` that represents the environment of this process."""
    kms = environment_kms()
    return None if kms is None else _ENVIRONMENT + json.dumps([kms.keyring, kms.uri])


def kms_client(uri: str) -> CachedKms:
    """Return the client, which caches the keys that this process unwrapped in the last minutes."""
    if uri.startswith(_ENVIRONMENT):
        return cached(EnvironmentKms.of(*json.loads(uri.removeprefix(_ENVIRONMENT))))
    try:
        return cached_client(uri)
    except ValueError as error:
        raise OptionError(str(error), option=KMS) from None
