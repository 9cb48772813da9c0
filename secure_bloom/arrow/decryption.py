"""What pyarrow needs to read the pages of encrypted files, for every source of keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from secure_bloom.arrow.keys import PlaceholderKeys, crypto_factory
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.errors import FormatError, KeyRetrievalError, error_location
from secure_bloom.keys.kms import KeyUnwrapper
from secure_bloom.keys.material import DEFAULT_INSTANCE, KeyMaterial, standard_material
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.footer import Footer, encryption_algorithm
from secure_bloom.parquet.tail import TAIL_SIZE
from secure_bloom.storage.source import Source


class ArrowAccess(NamedTuple):
    """How pyarrow reads the pages of one version of a file, whenever the file is opened.

    ``footer`` is the footer that was verified, up to the end of the file. pyarrow must not read it
    from the file once more: somebody may exchange the file for a moment. From ``start`` on, pyarrow
    sees it instead of what the file has there; None: it is what the file has.
    """

    footer: bytes
    properties: pe.FileDecryptionProperties | None = None
    start: int | None = None

    def file(self, source: Source) -> pa.NativeFile:
        """Return the file as pyarrow should see it; valid while the source is open."""
        if self.start is None:
            return source.for_pyarrow
        return pa.PythonFile(_Spliced(source, self.start, self.footer), mode="r")

    def metadata(self) -> pq.FileMetaData:
        """Return the footer as pyarrow decodes it. Raises FormatError, or pyarrow's errors."""
        try:
            return pq.ParquetFile(pa.BufferReader(self.footer),
                                  decryption_properties=self.properties).metadata
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:  # of names that are not UTF-8
            raise FormatError("pyarrow cannot read the footer") from error


def decryption_properties(kms: KeyUnwrapper) -> pe.FileDecryptionProperties:
    """Return what pyarrow needs to read the pages of a file whose keys come from a KMS."""
    # The instance is passed, so that pyarrow does not look for it in the file.
    connection = pe.KmsConnectionConfig(kms_instance_id=DEFAULT_INSTANCE,
                                        kms_instance_url=DEFAULT_INSTANCE)
    return crypto_factory(kms).file_decryption_properties(connection, pe.DecryptionConfiguration())


class SharedDecryption:
    """What pyarrow needs to read several files whose keys come from one KMS.

    pyarrow then asks for each key-encryption key once, not once for each file. It keeps the keys as
    long as this object exists.
    """

    def __init__(self) -> None:
        self._known: tuple[KeyUnwrapper, pe.FileDecryptionProperties] | None = None

    def properties(self, kms: KeyUnwrapper) -> pe.FileDecryptionProperties:
        """Return what pyarrow needs; several threads may call this."""
        known = self._known
        if known is None or known[0] is not kms:
            known = self._known = kms, decryption_properties(kms)
        return known[1]


def is_read_alike(footer: Footer, row_groups: Iterable[int]) -> bool:
    """Whether pyarrow finds the same keys as we do in the key material of some row groups.

    If not, :func:`with_key_material` passes our keys to it. Key material is not always
    authenticated; it may be malformed, or two parsers may interpret it differently.
    """
    own = {(chunk.encryption, chunk.key_metadata)
           for number in row_groups for chunk in footer.row_groups[number]}
    columns = [metadata for encryption, metadata in own if encryption == "column key"]
    of_footer = footer.footer_key_metadata
    if of_footer is None:
        return False
    materials = []
    try:
        for metadata, is_footer_key in [(of_footer, True), *((one, False) for one in columns)]:
            material = None if metadata is None else standard_material(metadata, is_footer_key)
            if material is None:
                return False
            materials.append(material)
    except KeyRetrievalError:
        return False
    return _name_keks_once(materials)


def _name_keks_once(materials: Iterable[KeyMaterial]) -> bool:
    """Whether each id refers to one key-encryption key, under one master key.

    pyarrow reuses a cached key with the same id without requesting its master key.
    """
    keks: dict[bytes, tuple[str, str | None]] = {}
    return all(keks.setdefault(one.kek_id, (one.master_key_id, one.wrapped_kek))
               == (one.master_key_id, one.wrapped_kek)
               for one in materials if one.kek_id is not None)


def with_physical_types(size: int, content: bytes, magic: bytes,
                        keys: KeyRetriever | None) -> ArrowAccess:
    """Let pyarrow read the values of a file as they are stored, whatever their annotations say.

    It is shown the same bytes with another footer, as by :func:`with_key_material`.
    """
    if keys is not None and encryption_algorithm(content, magic) is not None:
        return with_key_material(size, content, magic, keys, Footer.forget_annotations)
    footer = Footer(content, magic)
    if footer.is_encrypted:  # signed; without a key, pyarrow does not verify it either
        footer.crypto.use_footer_key(os.urandom(16))
    footer.forget_annotations()
    return ArrowAccess(footer.to_bytes(), None, size - len(content) - TAIL_SIZE)


def with_key_material(size: int, content: bytes, magic: bytes, keys: KeyRetriever,
                      change: Callable[[Footer], None] = lambda footer: None) -> ArrowAccess:
    """Let pyarrow read a file with keys from another source, for which it has no interface.

    pyarrow accepts column keys only through key material in the file. It is therefore shown the
    same bytes with another footer, built in memory: with key material in which each key is a
    number, and with the AAD prefix stored. The accompanying KMS client maps the numbers back to
    keys, and requests a column's key when the column is read.
    """
    footer = Footer(content, magic, keys)
    by_number = PlaceholderKeys()

    def material(key: bytes | Callable[[], bytes], is_footer_key: bool = False) -> bytes:
        return KeyMaterial("explicit", by_number.add(key), is_footer_key=is_footer_key).serialize()

    if keys.has_footer_key:
        footer_key = keys.footer_key(footer.footer_key_metadata)
    else:  # a plaintext footer with an unverifiable signature; pyarrow still requires one
        footer_key = os.urandom(16)
        footer.crypto.use_footer_key(footer_key)
    footer.set_footer_key_metadata(material(footer_key, True))
    for chunk in footer.column_chunks():
        if chunk.encryption == "column key":
            chunk.set_key_metadata(material(partial(_key, keys, chunk, chunk.key_metadata)))
    footer.store_aad_prefix()
    change(footer)
    return ArrowAccess(footer.to_bytes(), decryption_properties(by_number),
                       size - len(content) - TAIL_SIZE)


def _key(keys: KeyRetriever, chunk: ColumnChunk, key_metadata: bytes | None) -> bytes:
    with error_location(**chunk.place):
        return keys.column_key(chunk.column.path, key_metadata)


class _Spliced:
    """A file with a replaced end: bytes of ``source`` up to ``start``, then ``tail``."""

    closed = False

    def __init__(self, source: Source, start: int, tail: bytes):
        self._source, self._start, self._tail = source, start, tail
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        end = self._start + len(self._tail)
        size = end - self._position if size < 0 else min(size, end - self._position)
        begin, stop = self._position, self._position + size
        self._position = stop
        data = b""
        if begin < self._start:
            data = bytes(self._source.read_at(min(stop, self._start) - begin, begin))
        if stop > self._start:
            data += self._tail[max(begin - self._start, 0):stop - self._start]
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._start + len(self._tail))[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
