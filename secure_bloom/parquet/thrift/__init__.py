"""The Thrift compact protocol, as Parquet metadata uses it."""

from secure_bloom.parquet.thrift.extensions import may_have_extensions, without_extensions
from secure_bloom.parquet.thrift.protocol import (
    BINARY,
    BYTE,
    I16,
    I32,
    I64,
    LIST,
    MAX_DEPTH,
    STRUCT,
    decode_binaries,
    decode_booleans,
    decode_int,
    decode_integers,
    decode_varints,
    encode_int,
    encode_varint,
    end_of_struct,
    read_list_header,
    signed,
)
from secure_bloom.parquet.thrift.structs import Slices, Struct
from secure_bloom.parquet.thrift.tree import (
    MAX_REMEMBERED,
    Layout,
    Recurring,
    decode,
    each,
    encode,
    kernels_for,
    no_garbage_collection,
    structs,
)

__all__ = ["BINARY", "BYTE", "I16", "I32", "I64", "LIST", "MAX_DEPTH", "MAX_REMEMBERED", "STRUCT",
           "Layout", "Recurring", "Slices", "Struct", "decode", "decode_binaries",
           "decode_booleans", "decode_int", "decode_integers", "decode_varints", "each", "encode",
           "encode_int", "encode_varint", "end_of_struct", "kernels_for", "may_have_extensions",
           "no_garbage_collection", "read_list_header", "signed", "structs", "without_extensions"]
