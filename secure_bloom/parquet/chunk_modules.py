"""How the modules of one column chunk are encrypted: by which key, and bound to which place."""

from __future__ import annotations

from typing import NamedTuple

from secure_bloom.crypto.aad import ModuleType, module_aad
from secure_bloom.crypto.modules import Bytes, ModuleCipher
from secure_bloom.errors import FormatError


class ChunkModules(NamedTuple):
    """Encrypts and decrypts the modules of a column chunk.

    ``row_group`` and ``column`` are the ordinals of the AAD. Of the two algorithms, only AES_GCM_V1
    has pages that are encrypted ``by_gcm``; everything else always is.
    """

    cipher: ModuleCipher
    file_aad: bytes
    row_group: int
    column: int
    by_gcm: bool

    def aad(self, module_type: ModuleType, page: int | None = None) -> bytes:
        """Return the AAD of a module; data pages have an ordinal.

        Raises FormatError if the format has no room for one of the ordinals.
        """
        try:
            return module_aad(self.file_aad, module_type, self.row_group, self.column, page)
        except ValueError as error:
            raise FormatError(str(error)) from None

    def encrypt(self, plaintext: Bytes, module_type: ModuleType, page: int | None = None) -> bytes:
        """Return a whole module; errors as for :meth:`aad` and :meth:`.ModuleCipher.count`."""
        if not self.by_gcm and module_type in (ModuleType.DATA_PAGE, ModuleType.DICTIONARY_PAGE):
            return self.cipher.encrypt_page(plaintext)
        return self.cipher.encrypt(plaintext, self.aad(module_type, page))

    def decrypt(self, module: Bytes, module_type: ModuleType, page: int | None = None) -> bytes:
        """Return the plaintext of a whole module.

        Raises AuthenticationError if it does not authenticate; bodies of pages are only
        authenticated by AES-GCM.
        """
        if not self.by_gcm and module_type in (ModuleType.DATA_PAGE, ModuleType.DICTIONARY_PAGE):
            return self.cipher.decrypt_page(module)
        return self.cipher.decrypt(module, self.aad(module_type, page))
