"""Forgeries by an attacker with write access, meant to be accepted by readers with keys."""

import io

import secure_bloom
from secure_bloom import ParquetFile
from secure_bloom.keys.retrieval import key_retriever
from secure_bloom.parquet import thrift
from secure_bloom.parquet.header import decode_header, encode_header
from tests.support import open_footer

_META_DATA, _CRYPTO_META_DATA, _ENCRYPTED_META_DATA = 3, 8, 9  # fields of ColumnChunk
#: fields of ColumnMetaData that pyarrow does not write: key-value metadata, geospatial statistics
_MADE_UP = {8: (thrift.LIST, bytes.fromhex("1c18016b00")), 17: (thrift.STRUCT, b"\0")}
_EMPTY = encode_header(32) + bytes(32)


def plaintext_file(table, columns, **options) -> bytes:
    """Return an unencrypted file whose Bloom filters report every value as absent.

    Does not need a key.
    """
    sink = io.BytesIO()
    secure_bloom.write_table(table, sink, bloom_filters=dict.fromkeys(columns, True), **options)
    data = bytearray(sink.getvalue())
    for info in ParquetFile(bytes(data)).bloom_filters:
        _, header = decode_header(data[info.offset:info.offset + info.length])
        data[info.offset + header:info.offset + info.length] = bytes(info.length - header)
    return bytes(data)


def stripped(data: bytes, keys, column: str, row_groups) -> bytes:
    """Return a file in which a column is unencrypted in some row groups, with empty filters.

    Needs the keys of the footer and of the column.
    """
    footer = open_footer(data, key_retriever(keys))
    body = data[:footer.start]
    for chunk in _chunks(footer, column, row_groups):
        meta = chunk.metadata()
        struct = chunk.to_change()
        struct.remove(_CRYPTO_META_DATA)
        struct.remove(_ENCRYPTED_META_DATA)
        struct.set(_META_DATA, thrift.STRUCT, meta)
        chunk._decoded.meta = None
        chunk.set_bloom_filter(len(body), len(_EMPTY))
        body += _EMPTY
    return body + footer.to_bytes()


def with_open_metadata(data: bytes, keys, column: str, bounds: tuple[bytes, bytes]) -> bytes:
    """Return a file with an encrypted column whose metadata is plaintext and has forged bounds.

    The attack needs the footer key; the column key is needed only to build the file here.
    """
    footer = open_footer(data, key_retriever(keys))
    for chunk in _chunks(footer, column, range(len(footer.row_groups))):
        meta = chunk.metadata()
        statistics, _ = thrift.decode(meta.get(12), {})
        statistics.set_binary(6, bounds[0])
        statistics.set_binary(5, bounds[1])
        meta.set(12, thrift.STRUCT, thrift.encode(statistics))
        struct = chunk.to_change()
        struct.remove(_ENCRYPTED_META_DATA)
        struct.set(_META_DATA, thrift.STRUCT, meta)
        chunk._decoded.meta = None
    return data[:footer.start] + footer.to_bytes()


def with_exposed_metadata(data: bytes, keys, column: str, fields) -> bytes:
    """Return a file whose plaintext footer shows fields of an encrypted column's metadata.

    ``fields`` are their ids. So do writers that redact less than they should.
    """
    footer = open_footer(data, key_retriever(keys))
    for chunk in _chunks(footer, column, range(len(footer.row_groups))):
        own = {field_id: (type_, raw) for field_id, type_, raw in chunk.metadata().fields}
        chunk.to_change()
        for field_id in fields:
            chunk.exposed_metadata.set(field_id, *own.get(field_id, _MADE_UP.get(field_id)))
        chunk._decoded.meta = None  # the module stays as it is
    content = footer._content()
    content += footer.crypto.footer_cipher.sign(content, footer._footer_aad())
    return data[:footer.start] + content + len(content).to_bytes(4, "little") + b"PAR1"


def under_another_name(data: bytes, keys, column: str, master_key: str, claimed: str) -> bytes:
    """Return a file in which a column encrypted with one master key claims to use another.

    Needs the keys of the footer and of the column, but not the claimed key.
    """
    footer = open_footer(data, key_retriever(keys))
    for chunk in _chunks(footer, column, range(len(footer.row_groups))):
        old, new = (f'"masterKeyID":"{name}"'.encode() for name in (master_key, claimed))
        assert old in chunk.key_metadata
        _ = chunk.cipher
        chunk.set_key_metadata(chunk.key_metadata.replace(old, new))
    return data[:footer.start] + footer.to_bytes()


def with_footer_key_metadata(data: bytes, keys, key_metadata: bytes) -> bytes:
    """Return a file with different key metadata for its footer key. Needs that key."""
    footer = open_footer(data, key_retriever(keys))
    _ = footer.crypto.footer_cipher
    footer.set_footer_key_metadata(key_metadata)
    return data[:footer.start] + footer.to_bytes()


def with_names_exchanged(data: bytes, keys, own: bytes, own_keys, names) -> bytes:
    """Return a file in which two columns, whose names have one length, have exchanged their names.

    Its encrypted footer is under the footer key of another file. No other key is needed, except to
    build the footer here: the columns keep their modules.
    """
    footer = open_footer(data, key_retriever(keys))
    content = bytearray(footer._content())
    first, second = (bytes([len(name)]) + name.encode() for name in names)
    places = content.index(first), content.index(second)
    for place, name in zip(places, (second, first), strict=True):
        content[place:place + len(name)] = name
    return data[:footer.start] + _sealed_by(footer, bytes(content), own, own_keys)


def with_fewer_row_groups(data: bytes, keys, own: bytes, own_keys, count: int) -> bytes:
    """Return a file of the first row groups of another one, with a footer made in the same way."""
    footer = open_footer(data, key_retriever(keys))
    footer.keep_row_groups(list(footer.row_groups)[:count])
    return data[:footer.start] + _sealed_by(footer, footer._content(), own, own_keys)


def _sealed_by(footer, content: bytes, own: bytes, own_keys) -> bytes:
    """Return the end of a file: a footer under the footer key of another file."""
    other = open_footer(own, key_retriever(own_keys))
    footer.set_footer_key_metadata(other.footer_key_metadata)
    tail = thrift.encode(footer._crypto_meta) + other.crypto.footer_cipher.encrypt(
        content, footer._footer_aad())
    return tail + len(tail).to_bytes(4, "little") + b"PARE"


def _chunks(footer, column: str, row_groups):
    return [chunk for number in row_groups for chunk in footer.row_groups[number]
            if chunk.column.path == column]
