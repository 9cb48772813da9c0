"""Rewrap key material: what one master key wraps, another one wraps from then on."""

from __future__ import annotations

import os
from dataclasses import replace
from threading import Lock

from secure_bloom.errors import KeyUnwrapError
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.material import KeyMaterial

_KEY_SIZE = 16


class Stop(Exception):
    """Raised when nothing can be rewrapped: the reason is not the fault of one file."""

    def __init__(self, reason: Exception):
        self.reason = reason


class Rewrapping:
    """One rotation: every distinct wrapped key is rewrapped only once. Thread-safe.

    Parameters
    ----------
    kms : CachedKms
    old, new : str
        Names of master keys.
    dry_run : bool
        Only test both master keys. Results cannot be used.
    """

    def __init__(self, kms: CachedKms, old: str, new: str, dry_run: bool):
        self.kms, self.old, self.new, self.dry_run = kms, old, new, dry_run
        self.found: set[str] = set()  # names of master keys
        self._wrapped: dict[str, str] = {}
        self._old_has_opened = False
        self._lock = Lock()

    def try_new_key(self) -> None:
        """Raise Stop unless the new master key can be used."""
        self._wrap(os.urandom(_KEY_SIZE))

    def rewrapped(self, material: KeyMaterial) -> KeyMaterial | None:
        """Return the material under the new master key; None if it is not under the old one.

        Raises
        ------
        KeyUnwrapError
            If the old master key cannot unwrap this material.
        Stop
            If a master key is missing or denied, or the KMS does not respond.
        """
        self.found.add(material.master_key_id)
        if material.master_key_id != self.old:
            return None
        if self.dry_run:
            self._try_old_key(material)
            return replace(material, master_key_id=self.new, wrapped_dek="", wrapped_kek="")
        if material.kek_id is None:
            return replace(material, master_key_id=self.new,
                           wrapped_dek=self._wrapped_again(material.wrapped_dek))
        return replace(material, master_key_id=self.new,
                       wrapped_kek=self._wrapped_again(material.wrapped_by_master_key))

    def _try_old_key(self, material: KeyMaterial) -> None:
        with self._lock:
            if not self._old_has_opened:
                self._unwrap(material.wrapped_by_master_key)
                self._old_has_opened = True

    def _wrapped_again(self, wrapped: str) -> str:
        with self._lock:
            if wrapped not in self._wrapped:
                self._wrapped[wrapped] = self._wrap(self._unwrap(wrapped))
            return self._wrapped[wrapped]

    def _unwrap(self, wrapped: str) -> bytes:
        try:
            return self.kms.unwrap_key(wrapped, self.old)
        except KeyUnwrapError:  # the file may be damaged
            raise
        except Exception as error:
            raise Stop(error) from None

    def _wrap(self, key: bytes) -> str:
        """Wrap with the new master key, and check that it can be unwrapped."""
        try:
            wrapped = self.kms.wrap_key(key, self.new)
            if not isinstance(wrapped, str) or not self._opens(wrapped, key):
                raise KeyUnwrapError("the KMS cannot unwrap a key that it just wrapped with "
                                     f"master key {self.new!r}, so the rotation stopped")
        except Exception as error:
            raise Stop(error) from None
        return wrapped

    def _opens(self, wrapped: str, key: bytes) -> bool:
        try:
            return self.kms.unwrap_key(wrapped, self.new) == key
        except KeyUnwrapError:
            return False
