"""The Thrift compact protocol, as Parquet metadata uses it."""

from secure_bloom.parquet.thrift.protocol import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    MAX_DEPTH,
    SET,
    STRUCT,
    TRUE,
    UUID,
    decode_binary,
    decode_int,
    encode_int,
    encode_varint,
    end_of_struct,
)
from secure_bloom.parquet.thrift.tree import (
    Layout,
    Slices,
    Struct,
    decode,
    each,
    encode,
    kernels_for,
    no_garbage_collection,
    structs,
)

__all__ = [
    "BINARY", "BYTE", "DOUBLE", "FALSE", "I16", "I32", "I64", "LIST", "MAP", "MAX_DEPTH", "SET",
    "STRUCT", "TRUE", "UUID", "Layout", "Slices", "Struct", "decode", "decode_binary",
    "decode_int", "each", "encode", "encode_int", "encode_varint", "end_of_struct", "kernels_for",
    "no_garbage_collection", "structs",
]
