"""Which passphrases are weak: those that a list of likely ones would soon find.

Anyone who has the file of a keyring can try passphrases, as fast as scrypt allows. These few rules
find what is easily guessed; a passphrase that passes them may still be weak.
"""

from __future__ import annotations

MIN_LENGTH = 12
MIN_DIGITS = 20  # of a passphrase that has nothing else, for as many possibilities
_MIN_DISTINCT = 6
_ROWS = ("abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm",
         "azertyuiopqsdfghjklmwxcvbn")
_COMMON = {"password", "passphrase", "passwort", "motdepasse", "contrasena", "secret", "keyring",
           "letmein", "welcome", "admin", "administrator", "changeme", "changeit", "default",
           "iloveyou", "monkey", "dragon", "football", "baseball", "sunshine", "princess", "master"}


class WeakPassphraseWarning(UserWarning):
    """A passphrase is easily guessed. The message says why, and does not hold it."""


def weakness(passphrase: str) -> str | None:
    """Why a passphrase is weak; None if these rules find no reason."""
    if len(passphrase) < MIN_LENGTH:
        return f"it has fewer than {MIN_LENGTH} characters"
    if len(set(passphrase.lower())) < _MIN_DISTINCT:
        return f"it has fewer than {_MIN_DISTINCT} different characters"
    letters = "".join(filter(str.isalpha, passphrase.lower()))
    if not letters and len(passphrase) < MIN_DIGITS:
        return f"it has no letters, and fewer than {MIN_DIGITS} characters"
    word = letters[:_period(letters)]
    if word in _COMMON:
        return "it is a common word with additions"
    if len(word) > 3 and any(word in row or word[::-1] in row for row in _ROWS):
        return "it is a row of the alphabet or of the keyboard with additions"
    return None


def _period(text: str) -> int:
    """Length of the part that the text repeats; its own length where it repeats none."""
    return (text + text).find(text, 1) if text else 0
