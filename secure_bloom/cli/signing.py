"""Signed reports: ``--sign``, and ``secure-bloom report verify``.

The signature is Ed25519 over all bytes of the report, in a file of its own: ``report.json.sig``,
base64. So no form of a report needs a canonical order, and other programs can verify it:
``openssl pkeyutl -verify -rawin``.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from secure_bloom.cli.shared import write_report
from secure_bloom.errors import AuthenticationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_MAX_KEY, _SIGNATURE = 16_384, 64  # bytes
_MAX_SIGNATURE_FILE = 256

sign_option = click.option(
    "--sign", type=click.File("rb"), metavar="FILE",
    help="Sign the reports that are written to files: a private key (Ed25519, PEM) that only its "
         "owner may read. The signature is in a file with the suffix .sig beside each report.")


class Reports:
    """Writes reports, each with its signature if there is a key.

    The key is read, and the targets are checked, before the work begins: a report about an
    erasure cannot be made again.
    """

    def __init__(self, key: BinaryIO | None, source: str, *targets: str | None):
        self._key = None if key is None else _private_key(key)
        written = [target for target in targets if target]
        if self._key and not written:
            raise click.UsageError("--sign needs a report that is written to a file, such as "
                                   "--report or --html")
        suffixes = ("", ".sig") if key else ("",)
        files = [target + suffix for target in written for suffix in suffixes]
        places = [os.path.realpath(file) for file in files if not _is_no_file(file)]
        if len(set(places)) < len(places):
            raise click.UsageError("two reports, or a report and a signature, would be the same "
                                   "file: give each another name")
        for folder in sorted({os.path.dirname(place) for place in places}):
            if not os.access(folder, os.W_OK):
                raise click.UsageError(f"a report cannot be written into {folder}: create the "
                                       "folder, or name another one that you may write to")
        for file in files:
            if _is_same(file, source):
                raise click.UsageError(f"the report would replace {file}: give it another name")
            if key:
                _check_target(file, key)

    def write(self, target: str | None, render: Callable[[], str]) -> None:
        """Write a report, if it was asked for, and its signature."""
        if not target:
            return
        text = render()
        if self._key:
            with_suffix = base64.b64encode(self._key.sign(text.encode())).decode() + "\n"
            write_report(target, text)
            write_report(f"{target}.sig", with_suffix)
        else:
            write_report(target, text)


def _is_no_file(file: str) -> bool:
    return os.path.exists(file) and not os.path.isfile(file)


def _is_same(file: str, other: str) -> bool:
    return os.path.isfile(file) and os.path.exists(other) and os.path.samefile(file, other)


def _check_target(file: str, key: BinaryIO) -> None:
    if _is_no_file(file):
        raise click.UsageError(f"a signed report cannot be written, because {file} is not a file")
    if _is_same(file, key.name):
        raise click.UsageError(f"{file} is the key that signs: write the report to another file")


def check_private(file: BinaryIO, harm: str, option: str) -> None:
    """Refuse a file with a key that other users may read; ``harm`` is what they could do then."""
    status = os.fstat(file.fileno())
    if os.name == "posix" and stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        raise click.BadParameter(f"other users may read or change {file.name}, and {harm}: run "
                                 "chmod 600, or make a new key", param_hint=option)


def _private_key(file: BinaryIO) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    check_private(file, "sign reports with it", "--sign")
    try:
        key: Any = load_pem_private_key(file.read(_MAX_KEY), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # the error might show the key
    if not isinstance(key, Ed25519PrivateKey):
        raise click.BadParameter(
            f"{file.name} is not a private key for Ed25519 in PEM format, without a passphrase; "
            "make one: openssl genpkey -algorithm ed25519 -out FILE", param_hint="--sign")
    return key


def _public_key(file: BinaryIO) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    try:
        key: Any = load_pem_public_key(file.read(_MAX_KEY))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise click.BadParameter(
            f"{file.name} is not a public key for Ed25519 in PEM format; make it from the private "
            "key: openssl pkey -in FILE -pubout -out PUBLIC", param_hint="--key")
    return key


@click.group(short_help="Verify signed reports.")
def report() -> None:
    """Verify reports that audit and erase have signed."""


@report.command(short_help="Check the signature of a report.")
@click.argument("file", type=click.File("rb"))
@click.option("--key", type=click.File("rb"), required=True, metavar="FILE",
              help="The public key (Ed25519, PEM) of the signer, from a source that you trust.")
@click.option("--signature", type=click.Path(dir_okay=False), metavar="FILE",
              help="Default: FILE.sig.")
def verify(file: BinaryIO, key: BinaryIO, signature: str | None) -> None:
    """Check that FILE is a report, byte for byte, that the owner of a key has signed.

    Exit code 0: it is; 5: the report or its signature was changed, or another key signed it; 3:
    there is no signature; 2: wrong usage.
    """
    from cryptography.exceptions import InvalidSignature
    given = getattr(file, "name", "<stdin>")
    if signature is None and not os.path.exists(given):
        raise click.UsageError("the report is read from standard input: specify --signature")
    public = _public_key(key)
    name = signature or f"{given}.sig"
    with open(name, "rb") as signed:
        text = signed.read(_MAX_SIGNATURE_FILE + 1)
    try:
        sealed = base64.b64decode(text.strip(), validate=True)
        if len(text) > _MAX_SIGNATURE_FILE or len(sealed) != _SIGNATURE:
            raise InvalidSignature
        public.verify(sealed, file.read())
    except (InvalidSignature, binascii.Error):
        raise AuthenticationError(
            f"the signature in {name} does not belong to this report and key: the report or the "
            "signature was changed, or another key has signed it", file=given) from None
    click.echo(f"{given}: the signature is valid")
