"""The footer of a Parquet file: open, change and write it, in every encryption mode.

The end of a file (parquet-format README; Encryption.md, sections 5.4 and 5.5):

    plaintext   FileMetaData | length (4) | "PAR1"
    signed      FileMetaData | nonce (12) | tag (16) | length (4), includes the 28 | "PAR1"
    encrypted   FileCryptoMetaData | module of FileMetaData | length (4) of both | "PARE"

Everything that is not changed is written back unmodified, including unknown fields.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from secure_bloom.crypto.aad import ModuleType, module_aad
from secure_bloom.crypto.aes_gcm import NONCE_SIZE, TAG_SIZE
from secure_bloom.crypto.key_retriever import KeyRetriever
from secure_bloom.crypto.modules import module_length
from secure_bloom.display import Summarized, count
from secure_bloom.errors import AuthenticationError, FormatError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.chunk_states import COLUMN_ORDERS, Shared
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.created_by import ENCRYPTED_BY, claims_to_be_ours
from secure_bloom.parquet.file_crypto import ALGORITHM_LAYOUT, EncryptionAlgorithm, FileCrypto
from secure_bloom.parquet.known_schema import schema_file, schema_of
from secure_bloom.parquet.redaction import redact
from secure_bloom.parquet.row_group import ROW_GROUP_LAYOUT, RowGroup
from secure_bloom.parquet.schema import LeafColumn, find_column
from secure_bloom.parquet.tail import MAGIC, MAGIC_ENCRYPTED
from secure_bloom.parquet.thrift import Struct

_SIGNATURE_SIZE = NONCE_SIZE + TAG_SIZE

_FILE_CRYPTO_LAYOUT = {1: ALGORITHM_LAYOUT}

# Field ids of parquet.thrift that this module uses.
_FOOTER_KEY_METADATA = 2  # FileCryptoMetaData
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4  # FileMetaData
_ALGORITHM, _SIGNING_KEY_METADATA = 8, 9  # likewise
_KEY_VALUE_METADATA, _CREATED_BY = 5, 6  # likewise
_PHYSICAL_TYPE, _ANNOTATIONS = 1, (6, 7, 8, 10)  # SchemaElement

# Mostly the same in all files of a folder: the schema, key-value metadata, and column orders.
_RECURRING = {field_id: thrift.Recurring() for field_id in (_SCHEMA, 5, COLUMN_ORDERS)}


class Footer(Summarized):
    """An open footer.

    Parameters
    ----------
    content : bytes
        The bytes between the last page, index or filter and the last 8 bytes of the file.
    magic : bytes
        The last 4 bytes of the file.
    keys : KeyRetriever, optional
        See :mod:`secure_bloom.keys.retrieval`. Not needed for plaintext parts; the signature of a
        plaintext footer is verified only with them.
    start : int
        Where the footer begins in the file: no filter extends beyond it.

    Raises
    ------
    FormatError, AuthenticationError, KeyRetrievalError
        If the footer is malformed, does not authenticate, or its key is not available.
    """

    def __init__(self, content: bytes, magic: bytes, keys: KeyRetriever | None = None, *,
                 start: int = 0):
        self.start = start
        self.kernels = thrift.kernels_for(len(content))
        self.signature_verified = False
        self._crypto_meta: Struct | None = None
        if magic == MAGIC_ENCRYPTED:
            self._open_encrypted(content, keys)
        elif magic == MAGIC:
            self._open_plaintext(content, keys)
        else:
            raise FormatError("the file does not end with PAR1 or PARE: it is not a Parquet file, "
                              "or it is truncated")
        self._schema = schema_of(self._file_meta)
        self.columns = list(self._schema.columns)
        self.row_groups: Sequence[RowGroup] = thrift.structs(self._file_meta, _ROW_GROUPS)
        self._shared = Shared(self.columns, self.crypto, self.kernels,
                              self._file_meta.get(COLUMN_ORDERS))
        for number, group in enumerate(self.row_groups):
            group.open(number, self._shared)

    def _headline(self) -> str:
        encryption = "not encrypted" if self.algorithm is None else \
            f"{'encrypted' if self.has_encrypted_footer else 'signed'}, {self.algorithm.name}"
        return (f"{count(len(self.columns), 'column')}, "
                f"{count(len(self.row_groups), 'row group')}, {count(self.num_rows, 'row')}, "
                + encryption)

    @property
    def has_encrypted_footer(self) -> bool:
        """Whether the footer itself is encrypted."""
        return self.crypto.has_encrypted_footer

    @property
    def algorithm(self) -> EncryptionAlgorithm | None:
        """The encryption algorithm of the file; None in a plaintext file."""
        return self.crypto.algorithm

    @property
    def file_aad(self) -> bytes:
        """AAD prefix and aad_file_unique."""
        return self.crypto.file_aad

    @property
    def is_encrypted(self) -> bool:
        """Whether the file uses modular encryption at all."""
        return self.algorithm is not None

    @property
    def is_summary(self) -> bool:
        """Whether the row groups are those of other files, as in ``_metadata`` of a folder."""
        return 0 < self.start <= len(MAGIC) and self.num_rows > 0 and bool(self.columns)

    @property
    def columns_by_path(self) -> Mapping[str, LeafColumn]:
        """The leaf columns by dotted path; the last one if names with dots make paths equal."""
        return self._schema.by_path

    def elements_to(self, column: LeafColumn) -> tuple[bytes, ...]:
        """Return the SchemaElements from the root to a leaf column, as if it were the only one."""
        return self._schema.paths_of_elements[column.ordinal]

    def column(self, path: str) -> LeafColumn:
        """Return the leaf column with a dotted path; see :func:`.find_column`."""
        found = self._schema.found.get(path)
        if found is None:
            found = self._schema.found[path] = find_column(self.columns, path)
        return found

    @property
    def created_by(self) -> str | None:
        """The application that wrote the file."""
        return self._file_meta.get_string(_CREATED_BY)

    @created_by.setter
    def created_by(self, application: str) -> None:
        self._file_meta.set_binary(_CREATED_BY, application.encode())

    @property
    def is_surely_ours(self) -> bool:
        """Whether this package has written the pages, according to who has the footer key."""
        return claims_to_be_ours(self.created_by) and self.algorithm is not None \
            and self.algorithm.authenticates_pages \
            and (self.has_encrypted_footer or self.signature_verified)

    @property
    def num_rows(self) -> int:
        """Number of rows in the file."""
        return self._file_meta.get_int(_NUM_ROWS) or 0

    def row_group_num_rows(self, row_group: int) -> int:
        """Return the number of rows in a row group."""
        return self.row_groups[row_group].num_rows

    def row_group_num_bytes(self, row_group: int) -> int:
        """Return the stored bytes of a row group's pages, as far as the footer specifies them."""
        return self.row_groups[row_group].num_bytes

    def column_chunks(self) -> Iterator[ColumnChunk]:
        """Yield all column chunks, by row group and column."""
        return itertools.chain.from_iterable(self.row_groups)

    def key_metadata_of(self, chunk: ColumnChunk) -> bytes | None:
        """Return the metadata of the key with which a column chunk is encrypted."""
        return chunk.key_metadata if chunk.encryption == "column key" else self.footer_key_metadata

    @property
    def footer_key_metadata(self) -> bytes | None:
        """The file's metadata for its footer key."""
        return self.crypto.footer_key_metadata

    def set_bloom_filters(self, row_group: int, places: Mapping[int, tuple[int, int]]) -> None:
        """Record the positions of a row group's Bloom filters, all at once, which is faster.

        ``places`` has, by ordinal of the column, offset and length, as for
        :meth:`.column_chunk.ColumnChunk.set_bloom_filter`.
        """
        chunks = self.row_groups[row_group]
        for ordinal in places.keys() - chunks.set_bloom_filters(places):
            chunks[ordinal].set_bloom_filter(*places[ordinal])

    def to_bytes(self, *, with_extensions: bool = True) -> bytes:
        """Return the changed footer up to the end of the file, encrypted or signed again.

        A plaintext footer that is signed reveals nothing about the values of encrypted columns.
        ``with_extensions=False`` removes the extensions of all structures, but not those in
        encrypted metadata of columns: see :meth:`.ColumnChunk.remove_extensions`.
        """
        if self.is_encrypted and not self.has_encrypted_footer:
            for chunk in self.column_chunks():
                redact(chunk)
        content, magic = self._content(), MAGIC
        crypto = b"" if self._crypto_meta is None else thrift.encode(self._crypto_meta)
        if not with_extensions:
            content, crypto = map(thrift.without_extensions, (content, crypto))
        if self._crypto_meta is not None:
            content = crypto + self.crypto.footer_cipher.encrypt(content, self._footer_aad())
            magic = MAGIC_ENCRYPTED
        elif self.is_encrypted:
            content += self.crypto.footer_cipher.sign(content, self._footer_aad())
        return content + len(content).to_bytes(4, "little") + magic

    @property
    def may_have_extensions(self) -> bool:
        """Whether there may be extensions, except in encrypted metadata of columns."""
        return thrift.may_have_extensions(self._content())

    def _content(self) -> bytes:
        """Return the FileMetaData with its changes."""
        for group in self.row_groups:
            group.seal()
        return thrift.encode(Struct([
            [number, type_, [group.encode() for group in value]]
            if number == _ROW_GROUPS and isinstance(value, list) else [number, type_, value]
            for number, type_, value in self._file_meta.fields]))

    def keep_row_groups(self, row_groups: Sequence[RowGroup]) -> None:
        """Keep only these row groups, in this order, which is that of their numbers."""
        self.row_groups = list(row_groups)
        self._file_meta.set(_ROW_GROUPS, thrift.LIST, self.row_groups)
        self._file_meta.set_int(_NUM_ROWS, thrift.I64,
                                sum(group.num_rows for group in row_groups))

    def encrypt_as(self, crypto: FileCrypto) -> Shared:
        """Make this the footer of a new version of the file, which is encrypted in this way.

        Returns what its row groups have in common: see :meth:`.RowGroup.place`. Those that have not
        been placed are still those of the old version. A claim to be ours that anyone may have made
        does not become one that is believed.
        """
        if crypto.algorithm is not None and crypto.algorithm.authenticates_pages \
                and claims_to_be_ours(self.created_by) and not self.is_surely_ours:
            self.created_by = ENCRYPTED_BY
        self.crypto, self._crypto_meta, meta = crypto, None, self._file_meta
        meta.remove(_ALGORITHM)
        meta.remove(_SIGNING_KEY_METADATA)
        if crypto.algorithm is not None:
            algorithm = crypto.algorithm.to_union()
            if crypto.has_encrypted_footer:
                self._crypto_meta = Struct([[1, thrift.STRUCT, algorithm]])
            else:
                meta.set(_ALGORITHM, thrift.STRUCT, algorithm)
            if crypto.footer_key_metadata is not None:
                self.set_footer_key_metadata(crypto.footer_key_metadata)
        return self._shared.with_crypto(crypto)

    def forget_annotations(self) -> None:
        """Leave columns with their physical types, to read the values as they are stored."""
        elements = list(thrift.each(self._file_meta, _SCHEMA, {}))
        for element in elements:
            for field_id in _ANNOTATIONS if element.get(_PHYSICAL_TYPE) is not None else ():
                element.remove(field_id)
        raw = thrift.encode(Struct([[_SCHEMA, thrift.LIST, elements]]))[1:-1]
        self._file_meta.set(_SCHEMA, thrift.LIST, raw)
        self._file_meta.remove(_KEY_VALUE_METADATA)  # may have a schema of Arrow

    def schema_file(self) -> bytes:
        """Return a plaintext Parquet file with this schema and no rows; equal for equal schemas."""
        return schema_file(self._file_meta)

    def all_key_metadata(self) -> set[bytes | None]:
        """Return the key metadata of the footer key and of all columns; None for those without."""
        return {self.footer_key_metadata, *(chunk.key_metadata for chunk in self.column_chunks())}

    def set_footer_key_metadata(self, key_metadata: bytes) -> None:
        """Replace the file's metadata for its footer key."""
        if self._crypto_meta is not None:
            self._crypto_meta.set_binary(_FOOTER_KEY_METADATA, key_metadata)
        else:
            self._file_meta.set_binary(_SIGNING_KEY_METADATA, key_metadata)
        self.crypto.footer_key_metadata = key_metadata

    def store_aad_prefix(self) -> None:
        """Store the AAD prefix in use in the algorithm, so that no reader has to supply it."""
        assert self.algorithm is not None, "the file is not encrypted"
        union = self._algorithm_union()
        prefix = self.file_aad[:len(self.file_aad) - len(self.algorithm.aad_file_unique)]
        fields = union.fields[0][2]
        if prefix:
            fields.set_binary(1, prefix)
        fields.set_bool(3, False)

    def _algorithm_union(self) -> Struct:
        meta, field_id = (self._file_meta, _ALGORITHM) if self._crypto_meta is None \
            else (self._crypto_meta, 1)
        union: Struct = meta.get(field_id)
        return union

    def _open_encrypted(self, content: bytes, keys: KeyRetriever | None) -> None:
        self._crypto_meta, end = thrift.decode(content, _FILE_CRYPTO_LAYOUT)
        self.crypto = FileCrypto(
            keys, EncryptionAlgorithm.of(self._crypto_meta.get(1)),
            self._crypto_meta.get_binary(_FOOTER_KEY_METADATA), has_encrypted_footer=True)
        module = memoryview(content)[end:]
        length = module_length(module)
        if length is None or length > len(module):
            raise AuthenticationError("the encrypted footer has an invalid length")
        plaintext = self.crypto.footer_cipher.decrypt(module[:length], self._footer_aad())
        self._file_meta, _ = self._decode(plaintext)

    def _open_plaintext(self, content: bytes, keys: KeyRetriever | None) -> None:
        self._file_meta, end = self._decode(content)
        union = self._file_meta.get(_ALGORITHM)
        self.crypto = FileCrypto(
            keys, EncryptionAlgorithm.of(union) if union is not None else None,
            self._file_meta.get_binary(_SIGNING_KEY_METADATA), has_encrypted_footer=False)
        has_more = content.count(0, end) != len(content) - end
        if self.algorithm is None and has_more:  # a signature after a broken footer?
            raise FormatError("the footer has extra bytes after its end")
        if self.algorithm is None or not self.crypto.has_footer_key:
            return
        if len(content) - end < _SIGNATURE_SIZE:
            raise AuthenticationError("the footer signature is missing")
        body, signature = memoryview(content)[:-_SIGNATURE_SIZE], content[-_SIGNATURE_SIZE:]
        self.crypto.footer_cipher.verify(body, signature, self._footer_aad())
        self.signature_verified = True

    def _decode(self, content: bytes) -> tuple[Struct, int]:
        """Decode the FileMetaData; of row groups only what locating their column chunks needs."""
        return thrift.decode(content, {
            _ROW_GROUPS: [ROW_GROUP_LAYOUT, partial(RowGroup, content)],
            _ALGORITHM: ALGORITHM_LAYOUT, **_RECURRING})

    def _footer_aad(self) -> bytes:
        return module_aad(self.file_aad, ModuleType.FOOTER)


def encrypted_footer_key_metadata(content: bytes) -> bytes | None:
    """Return the key metadata of an encrypted footer; needs no key."""
    crypto, _ = thrift.decode(content, _FILE_CRYPTO_LAYOUT)
    return crypto.get_binary(_FOOTER_KEY_METADATA)


def encryption_algorithm(content: bytes, magic: bytes) -> EncryptionAlgorithm | None:
    """Return the algorithm of a footer, which contains the file id; needs no key."""
    if magic == MAGIC_ENCRYPTED:
        crypto, _ = thrift.decode(content, _FILE_CRYPTO_LAYOUT)
        return EncryptionAlgorithm.of(crypto.get(1))
    file_meta, _ = thrift.decode(content, {_ALGORITHM: ALGORITHM_LAYOUT},
                                 thrift.kernels_for(len(content)))
    union = file_meta.get(_ALGORITHM)
    return EncryptionAlgorithm.of(union) if union is not None else None
