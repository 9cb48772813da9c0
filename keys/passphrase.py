"""Detection of weak passphrases: those that an attack with a list of likely ones soon finds.

An attacker with a copy of a keyring file can try passphrases as fast as scrypt allows. These few
rules detect easily guessed passphrases; a passphrase that passes them may still be weak.
"""

from __future__ import annotations

MIN_LENGTH = 12
MIN_DIGITS = 20  # minimum length without letters, for a comparable number of possibilities
_MIN_DISTINCT = 6
_ROWS = ("abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm",
         "azertyuiopqsdfghjklmwxcvbn")
_COMMON = {"password", "passphrase", "passwort", "motdepasse", "contrasena", "secret", "keyring",
           "letmein", "welcome", "admin", "administrator", "changeme", "changeit", "default",
           "iloveyou", "monkey", "dragon", "football", "baseball", "sunshine", "princess", "master"}


def weakness(passphrase: str) -> str | None:
    """Return why a passphrase is weak; None if it passes these rules."""
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
        return "it is a sequence from the alphabet or the keyboard with additions"
    return None


def _period(text: str) -> int:
    """Return the length of the unit that the text repeats; its own length if there is none."""
    return (text + text).find(text, 1) if text else 0
