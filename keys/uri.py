"""KMS clients by URI, for options and configuration files.

    keyring:PATH?passphrase-file=PATH&check-interval=SECONDS&owner=UID
    awskms:?region=eu-west-1&profile=x&accounts=111122223333,444455556666&endpoint=https://...
    azurekeyvault:https://name.vault.azure.net?timeout=5
    gcpkms:projects/p/locations/l/keyRings/r?endpoint=https://...
    vault:https://host:8200/transit?namespace=x&ca-file=/path
    pkcs11:token=bloom;serial=x?module-path=/usr/lib/x.so&pin-source=file:/path

Every part may be percent-encoded. URIs must not contain secrets. Since one may be there by mistake,
messages show only a URI's scheme, its host, the path of a keyring and the names of known
parameters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from secure_bloom.keys.kms import KmsClient, check_endpoint

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "secure_bloom.kms"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_Types: TypeAlias = Mapping[str, Callable[[str], Any]]  # of parameters, by name
_LIMITS: _Types = {"timeout": float, "attempts": int}


def open_kms(uri: str) -> KmsClient:
    """Open the KMS client that a URI describes.

    Other packages add schemes through entry points of the group ``secure_bloom.kms``: the name is
    the scheme, the value a function that takes the whole URI and returns a client.

    Parameters
    ----------
    uri : str
        In the form described in the page "Key management services".

    Raises
    ------
    ValueError
        If the scheme or a parameter is unknown, missing, duplicated or malformed.
    KeyringError
        If a keyring cannot be read.

    Examples
    --------
    >>> kms = open_kms("awskms:?region=eu-west-1")  # doctest: +SKIP
    """
    if not has_scheme(uri):
        raise ValueError(f"specify a KMS as a URI with one of these schemes: {_known()}; specify "
                         "a keyring as keyring:PATH")
    scheme, _, rest = uri.partition(":")
    scheme = scheme.lower()
    if scheme in _OPENERS:
        path, _, query = rest.partition("?")
        return _OPENERS[scheme](path, query)
    for entry_point in _registered():
        if entry_point.name == scheme:
            return entry_point.load()(uri)
    raise ValueError(f"unknown KMS URI scheme {scheme!r}; known schemes: {_known()}")


def has_scheme(text: str) -> bool:
    """Whether a string is a URI rather than a path, whether or not its scheme is known."""
    scheme, colon, _ = text.partition(":")
    return bool(colon) and _SCHEME.fullmatch(scheme) is not None


def absolute_uri(uri: str) -> str:
    """Make the paths in a keyring URI absolute, for processes with other working directories."""
    scheme, _, rest = uri.partition(":")
    if scheme.lower() != "keyring":
        return uri
    path, _, query = rest.partition("?")
    if not path:
        return uri  # malformed
    names = [_absolute_value(pair) for pair in query.split("&") if pair]
    return f"{keyring_uri(unquote(path))}{'?' if names else ''}{'&'.join(names)}"


def keyring_uri(path: str) -> str:
    """Return the URI of a keyring, with its absolute path."""
    return f"keyring:{quote(_absolute(path))}"


def _absolute_value(pair: str) -> str:
    name, _, path = pair.partition("=")
    return f"{name}={quote(_absolute(unquote(path)))}" if name == "passphrase-file" else pair


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _keyring(path: str, query: str) -> KmsClient:
    from secure_bloom.keys.keyring import CHECK_INTERVAL, Keyring
    names = {"passphrase-file": str, "check-interval": float, "owner": int}
    options = _parameters(query, names, "keyring")
    if not path:
        raise ValueError("a keyring URI must be keyring:PATH")
    return Keyring(unquote(path), passphrase_file=options.get("passphrase-file"),
                   owner=options.get("owner"),
                   check_interval=options.get("check-interval", CHECK_INTERVAL))


def _awskms(path: str, query: str) -> KmsClient:
    from secure_bloom.keys.aws import AwsKms
    if path:
        raise ValueError("an awskms URI must have only parameters: awskms:?region=...")
    types: _Types = {"region": str, "endpoint": str, "profile": str, "accounts": _names, **_LIMITS}
    options = _parameters(query, types, "awskms")
    return AwsKms(endpoint_url=options.pop("endpoint", None), **options)


def _names(text: str) -> list[str]:
    return text.split(",")


def _azurekeyvault(path: str, query: str) -> KmsClient:
    from secure_bloom.keys.azure import AzureKms
    return AzureKms(path, **_parameters(query, _LIMITS, "azurekeyvault"))


def _gcpkms(path: str, query: str) -> KmsClient:
    from secure_bloom.keys.gcp import GcpKms
    options = _parameters(query, {"endpoint": str, **_LIMITS}, "gcpkms")
    return GcpKms(unquote(path), endpoint_url=options.pop("endpoint", None), **options)


def _vault(path: str, query: str) -> KmsClient:
    from secure_bloom.keys.vault import VaultKms
    options = _parameters(query, {"namespace": str, "ca-file": str, **_LIMITS}, "vault")
    if path:
        check_endpoint(path)
    parts = urlsplit(path)
    address = f"{parts.scheme}://{parts.netloc}" if path else None
    return VaultKms(address, mount=unquote(parts.path.strip("/")) or "transit",
                    ca_file=options.pop("ca-file", None), **options)


def _pkcs11(path: str, query: str) -> KmsClient:
    """Open a URI as defined by RFC 7512, extended by ``pin-env``."""
    from secure_bloom.keys.pkcs11 import Pkcs11Kms
    token = _parameters(path, {"token": str, "serial": str}, "pkcs11", separator=";")
    names = {"module-path": str, "pin-source": str, "pin-env": str}
    options = _parameters(query, names, "pkcs11")
    if "token" not in token or "module-path" not in options:
        raise ValueError("a pkcs11 URI must name the token and the library: "
                         "pkcs11:token=...?module-path=...&pin-source=file:...")
    source = options.get("pin-source")
    if source is not None and not source.startswith("file:/"):
        raise ValueError("pin-source must be file:/path of a file that contains the PIN")
    if (source is None) == ("pin-env" not in options):
        raise ValueError("a pkcs11 URI must say where the PIN is, with either pin-source or "
                         "pin-env")
    pin_file = None if source is None else "/" + source.removeprefix("file:").lstrip("/")
    return Pkcs11Kms(options["module-path"], token["token"], serial=token.get("serial"),
                     pin_file=pin_file, pin_env=options.get("pin-env"))


_OPENERS: dict[str, Callable[..., Any]] = {
    "awskms": _awskms, "azurekeyvault": _azurekeyvault, "gcpkms": _gcpkms, "keyring": _keyring,
    "pkcs11": _pkcs11, "vault": _vault}


def _registered() -> EntryPoints:
    from importlib.metadata import entry_points  # takes 20 ms
    return entry_points(group=GROUP)


def _known() -> str:
    return ", ".join(sorted({*_OPENERS, *(found.name for found in _registered())}))


def _parameters(text: str, types: _Types, scheme: str, separator: str = "&") -> dict[str, Any]:
    """Parse ``name=value`` pairs, percent-decoded; only the names in ``types`` are allowed."""
    values = {}
    for pair in filter(None, text.split(separator)):
        name, equals, value = pair.partition("=")
        if name == "pin-value":
            raise ValueError("a PIN must not be part of a URI: pin-value is not accepted")
        if name not in types:
            raise ValueError(f"unknown parameter in the {scheme} URI; allowed: "
                             f"{', '.join(sorted(types)) or 'none'}")
        if not equals or not value or name in values:
            raise ValueError(f"parameter {name} of the {scheme} URI needs one value")
        try:
            values[name] = types[name](unquote(value, errors="strict"))
        except ValueError:
            raise ValueError(f"parameter {name} of the {scheme} URI is malformed") from None
    return values
