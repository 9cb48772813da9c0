"""Keyring files that were written long ago can be read, as docs/stability.md promises."""

import pytest

from secure_bloom.keys import Keyring

VERSION_1 = '{"version": 1, "keys": {"pii": "AAECAwQFBgcICQoLDA0ODw=="}}'
VERSION_2 = (
    '{"version": 2, "scrypt": {"salt": "Zrn+CPxFJzDnbUkKwU5Xag==", "n": 131072, "r": 8, "p": 1}, '
    '"sealed": "/ehmivvjZqQyEZYO/yZlVjeTSawMwH5dj4pp07h4vz8jRzNWHFVdn8bgA846HJoARVcdG+IEbGbdHSzQ'
    'v3FgI2fEOg=="}')
WRAPPED = "KAN0EJlvNQMpbPlUZ7pLcd6RNRfkWeZYplYfBpq/7Iy+kRvaJpqY45MOIYQ="


@pytest.mark.slow  # scrypt
@pytest.mark.parametrize(("text", "passphrase"), [
    (VERSION_1, None), (VERSION_2, "correct horse battery staple")])
def test_a_keyring_of_an_earlier_version_can_be_read(text, passphrase, tmp_path):
    path = tmp_path / "keyring.json"
    path.write_text(text)
    path.chmod(0o600)
    keyring = Keyring(path, passphrase=passphrase)
    assert keyring.names() == ["pii"]
    assert keyring.export("pii") == bytes(range(16))
    assert keyring.unwrap_key(WRAPPED, "pii") == bytes(range(100, 116))
